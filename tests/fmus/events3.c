/* FMI 3.0 that works only in event mode.

   x' = u; count goes up by one at every quarter second; level_out follows the discrete input level. Steps return early
   at an event; built with ANNOUNCE they are instead announced as the next event, and no step may go past one. Built with
   STUCK it returns early without end, with UNSETTLED its discrete states never settle (UNSETTLED=1.5: from 0.5 s on).
   With PLAIN it has no events and no event mode, to compare costs.
   With END=2 it wants the simulation to end at its second event, with REFUSE=2 it refuses to enter event mode there.
   States can be saved and serialised; a description that says so must be given. */
#include <stdlib.h>
#include <string.h>

#include "fmi3.h"

enum { U = 1, X, COUNT, LEVEL, LEVEL_OUT };
enum { START, INITIALISATION, EVENT, STEP };
#define PERIOD 0.25
#ifndef SLACK
#define SLACK 1e-9 /* times this close are one */
#endif

typedef struct {
    double u, x, time;
    int32_t count, level, level_out, updates;
    int mode;
    Log log;
    Environment environment;
} Unit;

static int refuse(Unit *unit, const char *what) {
    unit->log(unit->environment, ERROR, "mode", what);
    return ERROR;
}

EXPORT void *fmi3InstantiateCoSimulation(INSTANTIATE_ARGUMENTS) {
#ifdef PLAIN
    event_mode = true;
#endif
    if (!event_mode) {
        log(environment, ERROR, "mode", "event mode is required");
        return NULL;
    }
    Unit *unit = calloc(1, sizeof *unit);
    unit->log = log;
    unit->environment = environment;
    return unit;
}
EXPORT void fmi3FreeInstance(void *c) { free(c); }
EXPORT int fmi3EnterInitializationMode(void *c, bool d, double tolerance, double start, bool s, double stop) {
    ((Unit *)c)->mode = INITIALISATION;
    return OK;
}
EXPORT int fmi3ExitInitializationMode(void *c) {
    ((Unit *)c)->mode = EVENT;
#ifdef PLAIN
    ((Unit *)c)->mode = STEP;
#endif
    return OK;
}
EXPORT int fmi3EnterEventMode(void *c) {
    if (((Unit *)c)->mode != STEP) return refuse(c, "event mode entered twice");
#ifdef REFUSE
    if (((Unit *)c)->time > (REFUSE - 0.5) * PERIOD) return refuse(c, "not now");
#endif
    ((Unit *)c)->mode = EVENT;
    ((Unit *)c)->updates = 0;
    return OK;
}
EXPORT int fmi3EnterStepMode(void *c) {
    if (((Unit *)c)->mode != EVENT) return refuse(c, "step mode entered from elsewhere");
    ((Unit *)c)->mode = STEP;
    return OK;
}
EXPORT int fmi3Terminate(void *c) { return OK; }

EXPORT int fmi3UpdateDiscreteStates(void *c, bool *again, bool *end, bool *nominals, bool *values, bool *next_defined,
                                    double *next) {
    Unit *unit = c;
    if (unit->mode != EVENT) return refuse(c, "updated outside event mode");
    unit->count = (int)((unit->time + SLACK) / PERIOD);
    unit->level_out = unit->level;
    *again = unit->updates++ == 0; /* needs two rounds */
#ifdef UNSETTLED
    if (unit->time >= UNSETTLED - 1) *again = true;
#endif
    *nominals = *values = *next_defined = false;
    *end = false;
#ifdef END
    *end = unit->count >= END;
#endif
#ifdef ANNOUNCE
    *next_defined = true;
    *next = (unit->count + 1) * PERIOD;
#endif
    return OK;
}
EXPORT int fmi3SetFloat64(void *c, const Reference *r, size_t n, const double *v, size_t m) {
    ((Unit *)c)->u = v[0];
    return OK;
}
EXPORT int fmi3GetFloat64(void *c, const Reference *r, size_t n, double *v, size_t m) {
    for (size_t i = 0; i < n; i++) v[i] = r[i] == U ? ((Unit *)c)->u : ((Unit *)c)->x;
    return OK;
}
EXPORT int fmi3SetInt32(void *c, const Reference *r, size_t n, const int32_t *v, size_t m) {
#ifndef PLAIN
    if (((Unit *)c)->mode == STEP) return refuse(c, "discrete input set in step mode");
#endif
    ((Unit *)c)->level = v[0];
    return OK;
}
EXPORT int fmi3GetInt32(void *c, const Reference *r, size_t n, int32_t *v, size_t m) {
    for (size_t i = 0; i < n; i++) v[i] = r[i] == COUNT ? ((Unit *)c)->count : ((Unit *)c)->level_out;
    return OK;
}
EXPORT int fmi3DoStep(void *c, double time, double h, bool final, bool *event, bool *end, bool *early, double *last) {
    Unit *unit = c;
    if (unit->mode != STEP) return refuse(c, "stepped outside step mode");
    double stop = time + h, due = (unit->count + 1) * PERIOD;
    *event = *end = *early = false;
#ifdef PLAIN
    due = stop + 1;
#endif
#ifdef STUCK
    *early = true;
    *last = time;
    return OK;
#endif
#ifdef ANNOUNCE
    if (stop > due + SLACK) return refuse(c, "stepped past an event");
#else
    if (stop >= due - SLACK) {
        *event = true;
        *early = stop > due + SLACK;
        if (*early) stop = due;
    }
#endif
    unit->x += unit->u * (stop - time);
    unit->time = *last = stop;
    return OK;
}

/* States: all but where messages go. */
EXPORT int fmi3GetFMUState(void *c, void **state) {
    if (!*state) *state = malloc(sizeof(Unit));
    memcpy(*state, c, sizeof(Unit));
    return OK;
}
EXPORT int fmi3SetFMUState(void *c, void *state) {
    Unit *unit = c, own = *unit;
    memcpy(c, state, sizeof(Unit));
    unit->log = own.log;
    unit->environment = own.environment;
    return OK;
}
EXPORT int fmi3FreeFMUState(void *c, void **state) {
    free(*state);
    *state = NULL;
    return OK;
}
EXPORT int fmi3SerializedFMUStateSize(void *c, void *state, size_t *size) {
    *size = sizeof(Unit);
    return OK;
}
EXPORT int fmi3SerializeFMUState(void *c, void *state, unsigned char *bytes, size_t size) {
    memcpy(bytes, state, size);
    return OK;
}
EXPORT int fmi3DeserializeFMUState(void *c, const unsigned char *bytes, size_t size, void **state) {
    *state = malloc(sizeof(Unit));
    memcpy(*state, bytes, size);
    return OK;
}

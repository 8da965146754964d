/* FMI 3.0 that works only in event mode.

   x' = u; count goes up by one at every quarter second; level_out follows the discrete input level. Steps return early
   at an event; built with ANNOUNCE they are instead announced as the next event, and no step may go past one. Built with
   STUCK it returns early without end, with UNSETTLED its discrete states never settle. */
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
    return OK;
}
EXPORT int fmi3EnterEventMode(void *c) {
    if (((Unit *)c)->mode != STEP) return refuse(c, "event mode entered twice");
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
    *again = true;
#endif
    *end = *nominals = *values = *next_defined = false;
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
    if (((Unit *)c)->mode == STEP) return refuse(c, "discrete input set in step mode");
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

/* FMI 3.0: a unit with clocks of every direction. x' = rate; where x reaches `level` the output clock `crossed` ticks and x
   begins anew at 0. The triggered input clock `sample` takes the clocked input `u`, and the output clock `done` ticks in the
   same event. `delay` seconds after it (none where that is negative) the countdown clock `later` ticks. The discrete input
   `held` is taken over at events. Everything is refused outside the mode it belongs to. Built with SLOPPY, the event is found
   a little late; with PERIODIC, `later` is to be ticked every `delay` seconds from 0.0625 s on; with BACKWARDS
   its intervals are negative. */
#include <stdlib.h>
#include <string.h>

#include "fmi3.h"

enum { TIME, CROSSED, SAMPLE, DONE, LATER, U, X, COUNT, VALUE, SAMPLES, STAMP, LATE, LATE_STAMP, RATE, LEVEL, DELAY, HELD, SEEN };
enum { START, INITIALISATION, EVENT, STEP };

typedef struct {
    double now, u, x, value, stamp, late_stamp, rate, level, delay, countdown;
    int32_t count, samples, late, held, seen;
    int mode, early, pending, sampling, counting;
    Log log;
    Environment environment;
} Unit;

static int refuse(Unit *unit, const char *what) {
    unit->log(unit->environment, ERROR, "mode", what);
    return ERROR;
}

EXPORT void *fmi3InstantiateCoSimulation(INSTANTIATE_ARGUMENTS) {
    if (!event_mode) return NULL;
    Unit *unit = calloc(1, sizeof *unit);
    unit->level = 1.0;
    unit->delay = unit->stamp = unit->late_stamp = -1.0;
    unit->early = early_return;
    unit->log = log;
    unit->environment = environment;
    return unit;
}
EXPORT void fmi3FreeInstance(void *c) { free(c); }
EXPORT int fmi3EnterInitializationMode(void *c, bool d, double tolerance, double start, bool s, double stop) {
    ((Unit *)c)->now = start;
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
    return OK;
}
EXPORT int fmi3EnterStepMode(void *c) {
    if (((Unit *)c)->mode != EVENT) return refuse(c, "step mode entered from elsewhere");
    ((Unit *)c)->mode = STEP;
    return OK;
}
EXPORT int fmi3Terminate(void *c) { return OK; }
EXPORT int fmi3UpdateDiscreteStates(void *c, bool *again, bool *end, bool *nominals, bool *states, bool *timed, double *next) {
    Unit *unit = c;
    if (unit->mode != EVENT) return refuse(c, "updated outside event mode");
    if (unit->pending) {
        unit->x -= unit->level;
        unit->count++;
    }
    if (unit->sampling && unit->delay >= 0.0) {
        unit->countdown = unit->delay;
        unit->counting = 1;
    }
    unit->seen = unit->held;
    unit->pending = unit->sampling = 0;
    *again = *end = *nominals = *states = *timed = false;
    return OK;
}
EXPORT int fmi3SetClock(void *c, const Reference *r, size_t n, const bool *v) {
    Unit *unit = c;
    if (unit->mode != EVENT) return refuse(c, "a clock ticked outside event mode");
    for (size_t i = 0; i < n; i++) {
        if (!v[i]) continue;
        if (r[i] == SAMPLE) {
            if (unit->sampling) return refuse(c, "a clock ticked twice");
            unit->sampling = 1;
            unit->samples++;
            unit->stamp = unit->now;
        } else if (r[i] == LATER) {
            unit->late++;
            unit->late_stamp = unit->now;
        } else {
            return refuse(c, "an unknown clock ticked");
        }
    }
    return OK;
}
EXPORT int fmi3GetClock(void *c, const Reference *r, size_t n, bool *v) {
    Unit *unit = c;
    if (unit->mode != EVENT) return refuse(c, "clocks read outside event mode");
    for (size_t i = 0; i < n; i++) v[i] = r[i] == CROSSED ? unit->pending : unit->sampling;
    return OK;
}
EXPORT int fmi3GetIntervalDecimal(void *c, const Reference *r, size_t n, double *v, int *qualifiers) {
    Unit *unit = c;
    if (unit->mode != EVENT && unit->mode != INITIALISATION) return refuse(c, "an interval read outside event mode");
    for (size_t i = 0; i < n; i++) {
        v[i] = unit->countdown;
        qualifiers[i] = unit->counting ? 2 : 0;
#ifdef BACKWARDS
        v[i] = -v[i];
#endif
#ifdef PERIODIC
        v[i] = unit->delay;
        qualifiers[i] = unit->mode == INITIALISATION ? 2 : 1;
#endif
        unit->counting = 0;
    }
    return OK;
}
EXPORT int fmi3GetShiftDecimal(void *c, const Reference *r, size_t n, double *v) {
    if (((Unit *)c)->mode != INITIALISATION) return refuse(c, "a shift read after initialisation");
    for (size_t i = 0; i < n; i++) v[i] = 0.0625;
    return OK;
}
EXPORT int fmi3SetFloat64(void *c, const Reference *r, size_t n, const double *v, size_t m) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++) {
        if (r[i] == U && !unit->sampling && unit->mode != INITIALISATION && unit->mode != START)
            return refuse(c, "a clocked input set while its clock is inactive");
        *(r[i] == U ? &unit->u : r[i] == RATE ? &unit->rate : r[i] == LEVEL ? &unit->level : &unit->delay) = v[i];
    }
    return OK;
}
EXPORT int fmi3GetFloat64(void *c, const Reference *r, size_t n, double *v, size_t m) {
    Unit *unit = c;
    if (unit->sampling) unit->value = unit->u;
    for (size_t i = 0; i < n; i++)
        v[i] = r[i] == X ? unit->x : r[i] == VALUE ? unit->value : r[i] == STAMP ? unit->stamp : unit->late_stamp;
    return OK;
}
EXPORT int fmi3SetInt32(void *c, const Reference *r, size_t n, const int32_t *v, size_t m) {
    if (((Unit *)c)->mode == STEP) return refuse(c, "a discrete input set in step mode");
    ((Unit *)c)->held = v[0];
    return OK;
}
EXPORT int fmi3GetInt32(void *c, const Reference *r, size_t n, int32_t *v, size_t m) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++)
        v[i] = r[i] == COUNT ? unit->count : r[i] == SAMPLES ? unit->samples : r[i] == LATE ? unit->late : unit->seen;
    return OK;
}
EXPORT int fmi3DoStep(void *c, double time, double h, bool final, bool *event, bool *end, bool *early, double *last) {
    Unit *unit = c;
    if (unit->mode != STEP) return refuse(c, "stepped outside step mode");
    double stop = time + h, due = unit->rate > 0.0 ? time + (unit->level - unit->x) / unit->rate : stop + 1.0;
    *event = *end = *early = false;
#ifdef SLOPPY
    due += 1e-9;
#endif
    if (due <= stop) {
        *event = true;
        unit->pending = 1;
        if (due < stop && unit->early) {
            *early = true;
            stop = due;
        }
    }
    unit->x += unit->rate * (stop - time);
    unit->now = *last = stop;
    return OK;
}
EXPORT int fmi3GetFMUState(void *c, void **state) {
    if (!*state) *state = malloc(sizeof(Unit));
    memcpy(*state, c, sizeof(Unit));
    return OK;
}
EXPORT int fmi3SetFMUState(void *c, void *state) {
    memcpy(c, state, sizeof(Unit));
    return OK;
}
EXPORT int fmi3FreeFMUState(void *c, void **state) {
    free(*state);
    *state = NULL;
    return OK;
}
EXPORT int fmi3SerializedFMUStateSize(void *c, void *state, size_t *size) {
    *size = sizeof(Unit) - sizeof(Log) - sizeof(Environment);
    return OK;
}
EXPORT int fmi3SerializeFMUState(void *c, void *state, uint8_t *bytes, size_t size) {
    memcpy(bytes, state, size);
    return OK;
}
EXPORT int fmi3DeserializeFMUState(void *c, const uint8_t *bytes, size_t size, void **state) {
    *state = malloc(sizeof(Unit));
    memcpy(*state, c, sizeof(Unit));
    memcpy(*state, bytes, size);
    return OK;
}

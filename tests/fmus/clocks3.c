/* FMI 3.0: a sampler. The input clock `tick` (every 0.25 s from 0.125 s on) takes a sample of the input and counts; `slow`
   (every 0.5 s, from the start) counts too. `last` is the time of the last tick, `order` has one digit for each tick at the
   last instant (1: tick, 2: slow). Clocks are taken in event mode only. */
#include <stdlib.h>
#include <string.h>

#include "fmi3.h"

enum { TIME, TICK, SLOW, U, SAMPLE, LAST, COUNT, SLOW_COUNT, ORDER };

typedef struct {
    double now, u, sample, last;
    int count, slow, order, in_event, fresh;
} Unit;

EXPORT const char *fmi3GetVersion(void) { return "3.0"; }
EXPORT void *fmi3InstantiateCoSimulation(INSTANTIATE_ARGUMENTS) {
    if (!event_mode) return NULL;
    Unit *unit = calloc(1, sizeof *unit);
    unit->last = -1.0;
    return unit;
}
EXPORT void fmi3FreeInstance(void *c) { free(c); }
EXPORT int fmi3EnterInitializationMode(void *c, bool d, double tolerance, double start, bool s, double stop) {
    ((Unit *)c)->now = start;
    return OK;
}
EXPORT int fmi3ExitInitializationMode(void *c) {
    ((Unit *)c)->in_event = ((Unit *)c)->fresh = 1;
    return OK;
}
EXPORT int fmi3EnterEventMode(void *c) {
    ((Unit *)c)->in_event = ((Unit *)c)->fresh = 1;
    return OK;
}
EXPORT int fmi3EnterStepMode(void *c) {
    ((Unit *)c)->in_event = 0;
    return OK;
}
EXPORT int fmi3UpdateDiscreteStates(void *c, bool *again, bool *end, bool *nominals, bool *states, bool *timed, double *next) {
    *again = *end = *nominals = *states = *timed = false;
    return OK;
}
EXPORT int fmi3SetClock(void *c, const Reference *r, size_t n, const bool *v) {
    Unit *unit = c;
    if (!unit->in_event) return ERROR;
    for (size_t i = 0; i < n; i++) {
        if (!v[i]) continue;
        if (unit->fresh) unit->order = unit->fresh = 0;
        unit->order = 10 * unit->order + (r[i] == TICK ? 1 : 2);
        unit->last = unit->now;
        if (r[i] == TICK) {
            unit->count++;
            unit->sample = unit->u;
        } else {
            unit->slow++;
        }
    }
    return OK;
}
EXPORT int fmi3Terminate(void *c) { return OK; }
EXPORT int fmi3SetFloat64(void *c, const Reference *r, size_t n, const double *v, size_t m) {
    for (size_t i = 0; i < n; i++) ((Unit *)c)->u = v[i];
    return OK;
}
EXPORT int fmi3GetFloat64(void *c, const Reference *r, size_t n, double *v, size_t m) {
    for (size_t i = 0; i < n; i++) v[i] = r[i] == SAMPLE ? ((Unit *)c)->sample : ((Unit *)c)->last;
    return OK;
}
EXPORT int fmi3GetInt32(void *c, const Reference *r, size_t n, int *v, size_t m) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++) v[i] = r[i] == COUNT ? unit->count : r[i] == SLOW_COUNT ? unit->slow : unit->order;
    return OK;
}
EXPORT int fmi3DoStep(void *c, double time, double duration, bool final, bool *event, bool *end, bool *early, double *last) {
    ((Unit *)c)->now = *last = time + duration;
    *event = *end = *early = false;
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

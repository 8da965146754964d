/* FMI 3.0: the unit of peculiar.h. Built with EVENTS it works in event mode, its outputs are valid after the first update
   of discrete states, and it is there that it wants to end. */
#include "peculiar.h"

#include "fmi3.h"

typedef struct {
    State now;
    double time;
    Log log;
    Environment environment;
} Unit;

#ifndef NO_INSTANTIATE
EXPORT void *fmi3InstantiateCoSimulation(INSTANTIATE_ARGUMENTS) {
    Unit *unit = calloc(1, sizeof *unit);
    unit->now = START;
    unit->log = log;
    unit->environment = environment;
#ifdef OWN_POINTER
    unit->environment = unit;
#endif
    unit->log(unit->environment, OK, "logAll", "made");
    return unit;
}
#endif
EXPORT void fmi3FreeInstance(void *c) { free(c); }
EXPORT int fmi3EnterInitializationMode(void *c, bool d, double tolerance, double start, bool s, double stop) {
    ((Unit *)c)->time = start;
    return OK;
}
#ifdef EVENTS
EXPORT int fmi3ExitInitializationMode(void *c) { return OK; }
EXPORT int fmi3EnterEventMode(void *c) { return OK; }
EXPORT int fmi3EnterStepMode(void *c) { return OK; }
EXPORT int fmi3UpdateDiscreteStates(void *c, bool *again, bool *end, bool *nominals, bool *values, bool *next_defined,
                                    double *next) {
    Unit *unit = c;
    if (!unit->now.initialised) initialise(&unit->now);
    *again = *nominals = *values = *next_defined = false;
    *end = unit->time >= unit->now.real[END_AT] - 1e-9;
    return OK;
}
#else
EXPORT int fmi3ExitInitializationMode(void *c) { return initialise(&((Unit *)c)->now), OK; }
#endif
EXPORT int fmi3Terminate(void *c) { return OK; }
EXPORT int fmi3Reset(void *c) { return ((Unit *)c)->now = START, OK; }
EXPORT int fmi3GetFloat64(void *c, const Reference *r, size_t n, double *v, size_t m) {
    for (size_t i = 0; i < n; i++) v[i] = get(&((Unit *)c)->now, r[i]);
    return OK;
}
EXPORT int fmi3SetFloat64(void *c, const Reference *r, size_t n, const double *v, size_t m) {
    for (size_t i = 0; i < n; i++) ((Unit *)c)->now.real[r[i]] = v[i];
    return OK;
}
EXPORT int fmi3DoStep(void *c, double time, double h, bool final, bool *event, bool *end, bool *early, double *last) {
    Unit *unit = c;
    *event = *early = false;
#ifdef TALKS
    for (int line = 0; line < 20000; line++) unit->log(unit->environment, OK, "logAll", "one of many");
#endif
    *end = advance(&unit->now, time, h);
    unit->time = *last = unit->now.reached;
#ifdef EVENTS
    *event = *end, *end = false;
    *early = unit->time < time + h;
#endif
#ifdef BACKWARDS
    *last = time - 1.0;
#endif
    return OK;
}
EXPORT int fmi3GetFMUState(void *c, void **state) {
    if (!*state) *state = malloc(sizeof(State));
    memcpy(*state, &((Unit *)c)->now, sizeof(State));
    return OK;
}
EXPORT int fmi3SetFMUState(void *c, void *state) { return memcpy(&((Unit *)c)->now, state, sizeof(State)), OK; }
EXPORT int fmi3FreeFMUState(void *c, void **state) { return free(*state), *state = NULL, OK; }
EXPORT int fmi3SerializedFMUStateSize(void *c, void *state, size_t *size) { return *size = sizeof(State), OK; }
EXPORT int fmi3SerializeFMUState(void *c, void *state, unsigned char *bytes, size_t size) {
    return memcpy(bytes, state, sizeof(State)), OK;
}
EXPORT int fmi3DeserializeFMUState(void *c, const unsigned char *bytes, size_t size, void **state) {
    *state = malloc(sizeof(State));
    memcpy(*state, bytes, sizeof(State));
    return OK;
}

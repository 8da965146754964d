/* FMI 3.0 for model exchange: the models of hybrid.h. */
#include "fmi3.h"
#include "hybrid.h"

EXPORT void *fmi3InstantiateModelExchange(const char *name, const char *token, const char *resources, bool visible,
                                          bool logging, Environment environment, Log log) {
    Unit *unit = calloc(1, sizeof *unit);
    start(unit);
    return unit;
}
EXPORT void fmi3FreeInstance(void *c) { free(c); }
EXPORT int fmi3EnterInitializationMode(void *c, bool d, double tolerance, double begin, bool s, double stop) {
    ((Unit *)c)->time = begin;
    return OK;
}
EXPORT int fmi3ExitInitializationMode(void *c) {
    ((Unit *)c)->in_event = 1;
    return OK;
}
EXPORT int fmi3Terminate(void *c) { return OK; }
EXPORT int fmi3Reset(void *c) {
    memset(c, 0, sizeof(Unit));
    start(c);
    return OK;
}
EXPORT int fmi3GetNumberOfContinuousStates(void *c, size_t *n) {
    *n = STATES;
    return OK;
}
EXPORT int fmi3GetNumberOfEventIndicators(void *c, size_t *n) {
    *n = INDICATORS;
    return OK;
}
EXPORT int fmi3GetFloat64(void *c, const Reference *r, size_t n, double *v, size_t size) {
    evaluate(c);
    for (size_t i = 0; i < n; i++) v[i] = ((Unit *)c)->value[r[i]];
    return OK;
}
EXPORT int fmi3SetFloat64(void *c, const Reference *r, size_t n, const double *v, size_t size) {
    for (size_t i = 0; i < n; i++) ((Unit *)c)->value[r[i]] = v[i];
    return OK;
}
EXPORT int fmi3SetTime(void *c, double time) {
    ((Unit *)c)->time = time;
    return OK;
}
EXPORT int fmi3SetContinuousStates(void *c, const double *x, size_t n) {
    memcpy(((Unit *)c)->value, x, n * sizeof *x);
    return OK;
}
EXPORT int fmi3GetContinuousStates(void *c, double *x, size_t n) {
    memcpy(x, ((Unit *)c)->value, n * sizeof *x);
    return OK;
}
EXPORT int fmi3GetNominalsOfContinuousStates(void *c, double *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = 1.0;
    return OK;
}
EXPORT int fmi3GetContinuousStateDerivatives(void *c, double *x, size_t n) {
    evaluate(c);
    memcpy(x, ((Unit *)c)->value + STATES, n * sizeof *x);
    return FAILS((Unit *)c) ? ERROR : OK;
}
EXPORT int fmi3GetEventIndicators(void *c, double *z, size_t n) {
    indicate(c, z);
    return OK;
}
EXPORT int fmi3EnterEventMode(void *c) {
    ((Unit *)c)->in_event = 1;
    return OK;
}
EXPORT int fmi3EnterContinuousTimeMode(void *c) {
    ((Unit *)c)->in_event = 0;
    return OK;
}
#ifdef SAMPLER
EXPORT int fmi3SetClock(void *c, const Reference *r, size_t n, const bool *v) {
    for (size_t i = 0; i < n; i++)
        if (v[i] && !clock(c, r[i])) return ERROR;
    return OK;
}
EXPORT int fmi3GetIntervalDecimal(void *c, const Reference *r, size_t n, double *v, int *qualifiers) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++) {
        v[i] = r[i] == TICK ? 0.25 : unit->value[DELAY];
        qualifiers[i] = r[i] == TICK || unit->counting ? 2 : 0;
        if (r[i] == LATER) unit->counting = 0;
    }
    return OK;
}
EXPORT int fmi3GetShiftDecimal(void *c, const Reference *r, size_t n, double *v) {
    for (size_t i = 0; i < n; i++) v[i] = 0.125;
    return OK;
}
#endif
EXPORT int fmi3CompletedIntegratorStep(void *c, bool final, bool *enter, bool *terminate) {
    *enter = completed(c);
    *terminate = false;
    return OK;
}
EXPORT int fmi3UpdateDiscreteStates(void *c, bool *again, bool *terminate, bool *nominals, bool *states, bool *timed,
                                    double *next) {
    Unit *unit = c;
    *states = event(unit);
#ifdef UNSETTLED
    *again = true;
#else
    *again = *states; /* once more, in which nothing happens */
#endif
    *nominals = false;
    *terminate = unit->finished;
    *timed = unit->timed;
    *next = unit->next;
    return OK;
}
EXPORT int fmi3GetDirectionalDerivative(void *c, const Reference *unknowns, size_t n, const Reference *knowns, size_t m,
                                        const double *seed, size_t seeds, double *v, size_t size) {
    for (size_t i = 0; i < n; i++) {
        v[i] = 0.0;
        for (size_t j = 0; j < m; j++) v[i] += partial((Unit *)c, unknowns[i], knowns[j]) * seed[j];
    }
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

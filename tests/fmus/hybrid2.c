/* FMI 2.0 for model exchange: the models of hybrid.h. */
#include "fmi2.h"
#include "hybrid.h"

typedef struct {
    int again, terminate, nominals, states, timed;
    double next;
} EventInfo;

EXPORT void *fmi2Instantiate(const char *name, int type, const char *token, const char *resources, const Callbacks *call,
                             int visible, int logging) {
    if (type != 0) return NULL; /* co-simulation */
    Unit *unit = calloc(1, sizeof *unit);
    start(unit);
    return unit;
}
EXPORT void fmi2FreeInstance(void *c) { free(c); }
EXPORT int fmi2SetupExperiment(void *c, int d, double tolerance, double begin, int s, double stop) {
    ((Unit *)c)->time = begin;
    return OK;
}
EXPORT int fmi2EnterInitializationMode(void *c) { return OK; }
EXPORT int fmi2ExitInitializationMode(void *c) { return OK; }
EXPORT int fmi2Terminate(void *c) { return OK; }
EXPORT int fmi2Reset(void *c) {
    memset(c, 0, sizeof(Unit));
    start(c);
    return OK;
}
EXPORT int fmi2GetReal(void *c, const Reference *r, size_t n, double *v) {
    evaluate(c);
    for (size_t i = 0; i < n; i++) v[i] = ((Unit *)c)->value[r[i]];
    return OK;
}
EXPORT int fmi2SetReal(void *c, const Reference *r, size_t n, const double *v) {
    for (size_t i = 0; i < n; i++) ((Unit *)c)->value[r[i]] = v[i];
    return OK;
}
EXPORT int fmi2SetTime(void *c, double time) {
    ((Unit *)c)->time = time;
    return OK;
}
EXPORT int fmi2SetContinuousStates(void *c, const double *x, size_t n) {
    memcpy(((Unit *)c)->value, x, n * sizeof *x);
    return OK;
}
EXPORT int fmi2GetContinuousStates(void *c, double *x, size_t n) {
    memcpy(x, ((Unit *)c)->value, n * sizeof *x);
    return OK;
}
EXPORT int fmi2GetNominalsOfContinuousStates(void *c, double *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = 1.0;
    return OK;
}
#ifndef NO_DERIVATIVES
EXPORT int fmi2GetDerivatives(void *c, double *x, size_t n) {
    evaluate(c);
    memcpy(x, ((Unit *)c)->value + STATES, n * sizeof *x);
    return FAILS((Unit *)c) ? ERROR : OK;
}
#endif
EXPORT int fmi2GetEventIndicators(void *c, double *z, size_t n) {
    indicate(c, z);
    return OK;
}
EXPORT int fmi2EnterEventMode(void *c) { return OK; }
EXPORT int fmi2EnterContinuousTimeMode(void *c) { return OK; }
EXPORT int fmi2CompletedIntegratorStep(void *c, int final, int *enter, int *terminate) {
    *enter = completed(c);
    *terminate = 0;
    return OK;
}
EXPORT int fmi2NewDiscreteStates(void *c, EventInfo *info) {
    Unit *unit = c;
    memset(info, 0, sizeof *info);
    info->states = event(unit);
#ifdef UNSETTLED
    info->again = 1;
#else
    info->again = info->states; /* once more, in which nothing happens */
#endif
    info->terminate = unit->finished;
    info->timed = unit->timed;
    info->next = unit->next;
    return OK;
}
EXPORT int fmi2GetDirectionalDerivative(void *c, const Reference *unknowns, size_t n, const Reference *knowns, size_t m,
                                        const double *seed, double *v) {
    for (size_t i = 0; i < n; i++) {
        v[i] = 0.0;
        for (size_t j = 0; j < m; j++) v[i] += partial((Unit *)c, unknowns[i], knowns[j]) * seed[j];
    }
    return OK;
}
EXPORT int fmi2GetFMUstate(void *c, void **state) {
    if (!*state) *state = malloc(sizeof(Unit));
    memcpy(*state, c, sizeof(Unit));
    return OK;
}
EXPORT int fmi2SetFMUstate(void *c, void *state) {
    memcpy(c, state, sizeof(Unit));
    return OK;
}
EXPORT int fmi2FreeFMUstate(void *c, void **state) {
    free(*state);
    *state = NULL;
    return OK;
}
EXPORT int fmi2SerializedFMUstateSize(void *c, void *state, size_t *size) {
    *size = sizeof(Unit);
    return OK;
}
EXPORT int fmi2SerializeFMUstate(void *c, void *state, char *bytes, size_t size) {
    memcpy(bytes, state, size);
    return OK;
}
EXPORT int fmi2DeSerializeFMUstate(void *c, const char *bytes, size_t size, void **state) {
    *state = malloc(sizeof(Unit));
    memcpy(*state, bytes, size);
    return OK;
}

/* FMI 2.0: the unit of peculiar.h. */
#include "peculiar.h"

#include "fmi2.h"

typedef struct {
    State now;
    Callbacks call;
    void *environment;
} Unit;

static int say(Unit *unit, int status, const char *what) {
    unit->call.log(unit->environment, "peculiar", status, "logStatusError", "%s", what);
    return status;
}

#ifndef NO_INSTANTIATE
EXPORT void *fmi2Instantiate(const char *name, int type, const char *token, const char *resources, const Callbacks *call,
                             int visible, int logging) {
    Unit *unit = calloc(1, sizeof *unit);
    unit->now = START;
    unit->call = *call;
    unit->environment = call->environment;
#ifdef OWN_POINTER
    unit->environment = unit;
#endif
    say(unit, OK, "made");
    return unit;
}
#endif
EXPORT void fmi2FreeInstance(void *c) { free(c); }
EXPORT int fmi2SetupExperiment(void *c, int d, double tolerance, double start, int s, double stop) { return OK; }
EXPORT int fmi2EnterInitializationMode(void *c) { return OK; }
EXPORT int fmi2ExitInitializationMode(void *c) { return initialise(&((Unit *)c)->now), OK; }
EXPORT int fmi2Terminate(void *c) { return OK; }
EXPORT int fmi2Reset(void *c) { return ((Unit *)c)->now = START, OK; }
EXPORT int fmi2GetReal(void *c, const Reference *r, size_t n, double *v) {
    for (size_t i = 0; i < n; i++) v[i] = get(&((Unit *)c)->now, r[i]);
    return OK;
}
EXPORT int fmi2SetReal(void *c, const Reference *r, size_t n, const double *v) {
    for (size_t i = 0; i < n; i++) ((Unit *)c)->now.real[r[i]] = v[i];
    return OK;
}
EXPORT int fmi2SetRealInputDerivatives(void *c, const Reference *r, size_t n, const int *orders, const double *v) {
    Unit *unit = c;
    double factorial[ORDERS] = {1, 1, 2, 6};
    if (n == 0) return say(unit, ERROR, "invalid nvr: no derivatives");
    for (size_t i = 0; i < n; i++)
        if (orders[i] > unit->now.real[HIGHEST] || unit->now.reached >= unit->now.real[REFUSE_AT]) {
            unit->now.real[REFUSED]++;
            return say(unit, ERROR, "invalid nvr: order too high");
        }
    unit->now.real[DERIVED]++;
    for (size_t i = 0; i < n; i++) unit->now.slopes[orders[i]] = v[i] / factorial[orders[i]];
    return OK;
}
EXPORT int fmi2DoStep(void *c, double time, double h, int final) {
    return advance(&((Unit *)c)->now, time, h) ? DISCARD : OK;
}
#ifndef NO_STATUS
EXPORT int fmi2GetRealStatus(void *c, int kind, double *value) {
    return kind == LAST_SUCCESSFUL_TIME ? (*value = ((Unit *)c)->now.reached, OK) : DISCARD;
}
EXPORT int fmi2GetBooleanStatus(void *c, int kind, int *value) {
    return kind == TERMINATED ? (*value = ((Unit *)c)->now.ended, OK) : DISCARD;
}
#endif
EXPORT int fmi2GetFMUstate(void *c, void **state) {
#ifdef NO_STATE
    return OK;
#endif
    if (!*state) *state = malloc(sizeof(State));
    memcpy(*state, &((Unit *)c)->now, sizeof(State));
    return OK;
}
EXPORT int fmi2SetFMUstate(void *c, void *state) { return memcpy(&((Unit *)c)->now, state, sizeof(State)), OK; }
EXPORT int fmi2FreeFMUstate(void *c, void **state) { return free(*state), *state = NULL, OK; }
EXPORT int fmi2SerializedFMUstateSize(void *c, void *state, size_t *size) { return *size = sizeof(State), OK; }
EXPORT int fmi2SerializeFMUstate(void *c, void *state, char *bytes, size_t size) {
    return memcpy(bytes, state, sizeof(State)), OK;
}
EXPORT int fmi2DeSerializeFMUstate(void *c, const char *bytes, size_t size, void **state) {
    *state = malloc(sizeof(State));
    memcpy(*state, bytes, sizeof(State));
    return OK;
}

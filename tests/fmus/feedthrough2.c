/* FMI 2.0: one input and one output of every type, an integral that uses input derivatives, and saved states. */
#include <stdlib.h>
#include <string.h>

#include "fmi2.h"

typedef struct {
    double real[4];      /* real_in, real_out, gain, integral */
    double slope[2];     /* first and second derivative of real_in, for the next step */
    int integer[4];      /* int_in, int_out, enum_in, enum_out */
    int boolean[2];
    char text[2][64];
} State;

typedef struct {
    State now;
    int states;
    Callbacks call;
} Unit;

static void update(Unit *unit) {
    State *s = &unit->now;
    s->real[1] = s->real[2] * s->real[0];
    s->integer[1] = s->integer[0];
    s->integer[3] = s->integer[2];
    s->boolean[1] = s->boolean[0];
    memcpy(s->text[1], s->text[0], sizeof s->text[0]);
}

EXPORT const char *fmi2GetVersion(void) { return "2.0"; }
EXPORT const char *fmi2GetTypesPlatform(void) { return "default"; }
EXPORT int fmi2SetDebugLogging(void *c, int on, size_t n, const char **categories) { return OK; }

EXPORT void *fmi2Instantiate(const char *name, int type, const char *token, const char *resources,
                             const Callbacks *call, int visible, int logging) {
    if (type != 1 || strcmp(token, "feedthrough2") != 0) return NULL;
    Unit *unit = call->allocate(1, sizeof *unit);
    unit->call = *call;
    unit->now.real[2] = 1.0;
    unit->now.integer[2] = 1;
    return unit;
}
EXPORT void fmi2FreeInstance(void *c) {
    Unit *unit = c;
    if (unit->states) unit->call.log(unit->call.environment, "", WARNING, "", "%d states were not freed", unit->states);
    unit->call.release(c);
}
EXPORT int fmi2SetupExperiment(void *c, int d, double tolerance, double start, int s, double stop) { return OK; }
EXPORT int fmi2EnterInitializationMode(void *c) { return OK; }
EXPORT int fmi2ExitInitializationMode(void *c) { return OK; }
EXPORT int fmi2Terminate(void *c) { return OK; }
EXPORT int fmi2Reset(void *c) { return OK; }

EXPORT int fmi2GetReal(void *c, const Reference *r, size_t n, double *v) {
    update(c);
    for (size_t i = 0; i < n; i++) v[i] = ((Unit *)c)->now.real[r[i]];
    return OK;
}
EXPORT int fmi2SetReal(void *c, const Reference *r, size_t n, const double *v) {
    for (size_t i = 0; i < n; i++) ((Unit *)c)->now.real[r[i]] = v[i];
    return OK;
}
EXPORT int fmi2GetInteger(void *c, const Reference *r, size_t n, int *v) {
    update(c);
    for (size_t i = 0; i < n; i++) v[i] = r[i] == 4 ? ((Unit *)c)->states : ((Unit *)c)->now.integer[r[i]];
    return OK;
}
EXPORT int fmi2SetInteger(void *c, const Reference *r, size_t n, const int *v) {
    for (size_t i = 0; i < n; i++) ((Unit *)c)->now.integer[r[i]] = v[i];
    return OK;
}
EXPORT int fmi2GetBoolean(void *c, const Reference *r, size_t n, int *v) {
    update(c);
    for (size_t i = 0; i < n; i++) v[i] = ((Unit *)c)->now.boolean[r[i]];
    return OK;
}
EXPORT int fmi2SetBoolean(void *c, const Reference *r, size_t n, const int *v) {
    for (size_t i = 0; i < n; i++) ((Unit *)c)->now.boolean[r[i]] = v[i];
    return OK;
}
EXPORT int fmi2GetString(void *c, const Reference *r, size_t n, const char **v) {
    update(c);
    for (size_t i = 0; i < n; i++) v[i] = ((Unit *)c)->now.text[r[i]];
    return OK;
}
EXPORT int fmi2SetString(void *c, const Reference *r, size_t n, const char **v) {
    for (size_t i = 0; i < n; i++) strncpy(((Unit *)c)->now.text[r[i]], v[i], 63);
    return OK;
}
EXPORT int fmi2SetRealInputDerivatives(void *c, const Reference *r, size_t n, const int *order, const double *v) {
    for (size_t i = 0; i < n; i++) {
        if (r[i] != 0 || order[i] < 1 || order[i] > 2) return ERROR;
        ((Unit *)c)->now.slope[order[i] - 1] = v[i];
    }
    return OK;
}
EXPORT int fmi2DoStep(void *c, double time, double h, int final) {
    State *s = &((Unit *)c)->now;
    double u = s->real[0], a = s->slope[0], b = s->slope[1];
    s->real[3] += u * h + a * h * h / 2 + b * h * h * h / 6;
    s->real[0] = u + a * h + b * h * h / 2;
    s->slope[0] = s->slope[1] = 0.0;
    return OK;
}

EXPORT int fmi2GetFMUstate(void *c, void **state) {
    if (!*state) {
        *state = malloc(sizeof(State));
        ((Unit *)c)->states++;
    }
    memcpy(*state, &((Unit *)c)->now, sizeof(State));
    return OK;
}
EXPORT int fmi2SetFMUstate(void *c, void *state) {
    memcpy(&((Unit *)c)->now, state, sizeof(State));
    return OK;
}
EXPORT int fmi2FreeFMUstate(void *c, void **state) {
    free(*state);
    *state = NULL;
    ((Unit *)c)->states--;
    return OK;
}
EXPORT int fmi2SerializedFMUstateSize(void *c, void *state, size_t *size) {
    *size = sizeof(State);
    return OK;
}
EXPORT int fmi2SerializeFMUstate(void *c, void *state, char *bytes, size_t size) {
    memcpy(bytes, state, size);
    return OK;
}
EXPORT int fmi2DeSerializeFMUstate(void *c, const char *bytes, size_t size, void **state) {
    if (size != sizeof(State)) return ERROR;
    fmi2GetFMUstate(c, state);
    memcpy(*state, bytes, size);
    return OK;
}
EXPORT int fmi2GetDirectionalDerivative(void *c, const Reference *unknown, size_t nu, const Reference *known,
                                        size_t nk, const double *seed, double *result) {
    for (size_t i = 0; i < nu; i++) {
        result[i] = 0.0;
        for (size_t j = 0; j < nk; j++)
            if (unknown[i] == 1 && known[j] == 0) result[i] += ((Unit *)c)->now.real[2] * seed[j];
    }
    return OK;
}

/* FMI 3.0: one input and one output of every type, an integral, saved states, directional derivatives.

   Built with LONGEST=h it discards longer steps, with END=t it asks to end the simulation there. */
#include <stdlib.h>
#include <string.h>

#include "fmi3.h"

/* Value references: 2 k + 1 is the input and 2 k + 2 the output of the k-th type; 31 the gain, 32 the integral. */
#define TYPES(DO)                                                                                                      \
    DO(Float64, double, 0) DO(Float32, float, 1) DO(Int8, int8_t, 2) DO(UInt8, uint8_t, 3) DO(Int16, int16_t, 4)       \
    DO(UInt16, uint16_t, 5) DO(Int32, int32_t, 6) DO(UInt32, uint32_t, 7) DO(Int64, int64_t, 8)                        \
    DO(UInt64, uint64_t, 9) DO(Boolean, bool, 10)
enum { ENUM_IN = 23, ENUM_OUT, TEXT_IN, TEXT_OUT, STATES = 30, GAIN = 31, INTEGRAL = 32 };

typedef struct {
#define FIELD(Name, type, k) type v##Name;
    TYPES(FIELD)
    int64_t choice;
    char text[64];
    double gain, integral;
} State;

typedef struct {
    State now;
    int states;
    Log log;
    Environment environment;
} Unit;

EXPORT const char *fmi3GetVersion(void) { return "3.0"; }
EXPORT void *fmi3InstantiateCoSimulation(INSTANTIATE_ARGUMENTS) {
    if (strcmp(token, "feedthrough3") != 0 || event_mode) return NULL;  // it has no events
    Unit *unit = calloc(1, sizeof *unit);
    unit->log = log;
    unit->environment = environment;
    unit->now.gain = 1.0;
    return unit;
}
EXPORT void fmi3FreeInstance(void *c) { free(c); }
EXPORT int fmi3EnterInitializationMode(void *c, bool d, double tolerance, double start, bool s, double stop) {
    return OK;
}
EXPORT int fmi3ExitInitializationMode(void *c) { return OK; }
EXPORT int fmi3Terminate(void *c) { return OK; }

static double scaled(Unit *unit) { return unit->now.gain * unit->now.vFloat64; }

#define PLAIN(Name, type, k)                                                                                           \
    EXPORT int fmi3Get##Name(void *c, const Reference *r, size_t n, type *v, size_t m) {                               \
        for (size_t i = 0; i < n; i++) {                                                                               \
            if (r[i] != 2 * k + 1 && r[i] != 2 * k + 2) return ERROR;                                                  \
            v[i] = ((Unit *)c)->now.v##Name;                                                                           \
        }                                                                                                              \
        return OK;                                                                                                     \
    }                                                                                                                  \
    EXPORT int fmi3Set##Name(void *c, const Reference *r, size_t n, const type *v, size_t m) {                         \
        for (size_t i = 0; i < n; i++) {                                                                               \
            if (r[i] != 2 * k + 1) return ERROR;                                                                       \
            ((Unit *)c)->now.v##Name = v[i];                                                                           \
        }                                                                                                              \
        return OK;                                                                                                     \
    }
PLAIN(Float32, float, 1)
PLAIN(Int8, int8_t, 2)
PLAIN(UInt8, uint8_t, 3)
PLAIN(Int16, int16_t, 4)
PLAIN(UInt16, uint16_t, 5)
PLAIN(UInt32, uint32_t, 7)
PLAIN(UInt64, uint64_t, 9)
PLAIN(Boolean, bool, 10)

EXPORT int fmi3GetFloat64(void *c, const Reference *r, size_t n, double *v, size_t m) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++)
        v[i] = r[i] == 2 ? scaled(unit) : r[i] == INTEGRAL ? unit->now.integral : r[i] == GAIN ? unit->now.gain
                                                                                               : unit->now.vFloat64;
    return OK;
}
EXPORT int fmi3SetFloat64(void *c, const Reference *r, size_t n, const double *v, size_t m) {
    for (size_t i = 0; i < n; i++) {
        if (r[i] == GAIN) ((Unit *)c)->now.gain = v[i];
        else if (r[i] == 1) ((Unit *)c)->now.vFloat64 = v[i];
        else return ERROR;
    }
    return OK;
}
EXPORT int fmi3GetInt32(void *c, const Reference *r, size_t n, int32_t *v, size_t m) {
    for (size_t i = 0; i < n; i++) v[i] = r[i] == STATES ? ((Unit *)c)->states : ((Unit *)c)->now.vInt32;
    return OK;
}
EXPORT int fmi3SetInt32(void *c, const Reference *r, size_t n, const int32_t *v, size_t m) {
    for (size_t i = 0; i < n; i++) ((Unit *)c)->now.vInt32 = v[i];
    return OK;
}
EXPORT int fmi3GetInt64(void *c, const Reference *r, size_t n, int64_t *v, size_t m) {
    for (size_t i = 0; i < n; i++) v[i] = r[i] >= ENUM_IN ? ((Unit *)c)->now.choice : ((Unit *)c)->now.vInt64;
    return OK;
}
EXPORT int fmi3SetInt64(void *c, const Reference *r, size_t n, const int64_t *v, size_t m) {
    for (size_t i = 0; i < n; i++) *(r[i] >= ENUM_IN ? &((Unit *)c)->now.choice : &((Unit *)c)->now.vInt64) = v[i];
    return OK;
}
EXPORT int fmi3GetString(void *c, const Reference *r, size_t n, const char **v, size_t m) {
    for (size_t i = 0; i < n; i++) v[i] = ((Unit *)c)->now.text;
    return OK;
}
EXPORT int fmi3SetString(void *c, const Reference *r, size_t n, const char **v, size_t m) {
    for (size_t i = 0; i < n; i++) strncpy(((Unit *)c)->now.text, v[i], 63);
    return OK;
}
EXPORT int fmi3DoStep(void *c, double time, double h, bool final, bool *event, bool *end, bool *early, double *last) {
    Unit *unit = c;
    *event = *end = *early = false;
#ifdef LONGEST
    if (h > LONGEST) {
        *last = time + LONGEST;
        return DISCARD;
    }
#endif
#ifdef END
    if (time + h > END) {
        *end = *early = true;
        *last = time;
        return OK;
    }
#endif
    unit->now.integral += h * unit->now.vFloat64;
    *last = time + h;
    return OK;
}
EXPORT int fmi3GetFMUState(void *c, void **state) {
    if (!*state) {
        *state = malloc(sizeof(State));
        ((Unit *)c)->states++;
    }
    memcpy(*state, &((Unit *)c)->now, sizeof(State));
    return OK;
}
EXPORT int fmi3SetFMUState(void *c, void *state) {
    memcpy(&((Unit *)c)->now, state, sizeof(State));
    return OK;
}
EXPORT int fmi3FreeFMUState(void *c, void **state) {
    free(*state);
    *state = NULL;
    ((Unit *)c)->states--;
    return OK;
}
EXPORT int fmi3SerializedFMUStateSize(void *c, void *state, size_t *size) {
    *size = sizeof(State);
    return OK;
}
EXPORT int fmi3SerializeFMUState(void *c, void *state, uint8_t *bytes, size_t size) {
    memcpy(bytes, state, size);
    return OK;
}
EXPORT int fmi3DeserializeFMUState(void *c, const uint8_t *bytes, size_t size, void **state) {
    fmi3GetFMUState(c, state);
    memcpy(*state, bytes, size);
    return OK;
}
EXPORT int fmi3GetDirectionalDerivative(void *c, const Reference *unknown, size_t nu, const Reference *known, size_t nk,
                                        const double *seed, size_t ns, double *result, size_t nr) {
    for (size_t i = 0; i < nu; i++) {
        result[i] = 0.0;
        for (size_t j = 0; j < nk; j++)
            if (unknown[i] == 2 && known[j] == 1) result[i] += ((Unit *)c)->now.gain * seed[j];
    }
    return OK;
}

/* FMI 3.0: texts and binary values. `label` counts the steps ("title 3"), `packet` has as many bytes as there were steps,
   zeros among them; `echo` and `copy` are what was heard, and `size` how many bytes that is. With EVENTS, inputs are
   taken in event mode only, and `events` counts these. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fmi3.h"

enum { TIME, TITLE, LABEL, HEARD, ECHO, SEED, PACKET, TAKEN, COPY, SIZE, EVENTS_SEEN };

typedef struct {
    char title[64], label[80], heard[96];
    unsigned char seed, packet[64], taken[96];
    size_t length;
    int steps, events, in_event, running;
} Unit;

static void refresh(Unit *unit) {
    snprintf(unit->label, sizeof unit->label, "%s %d", unit->title, unit->steps);
    memset(unit->packet, 0, sizeof unit->packet);
    for (int i = 0; i < unit->steps && i < 64; i += 2) unit->packet[i] = unit->seed;
}

EXPORT const char *fmi3GetVersion(void) { return "3.0"; }
EXPORT void *fmi3InstantiateCoSimulation(INSTANTIATE_ARGUMENTS) {
    Unit *unit = calloc(1, sizeof *unit);
    strcpy(unit->title, "step");
    unit->seed = 7;
    return unit;
}
EXPORT void fmi3FreeInstance(void *c) { free(c); }
EXPORT int fmi3EnterInitializationMode(void *c, bool d, double tolerance, double start, bool s, double stop) { return OK; }
EXPORT int fmi3ExitInitializationMode(void *c) {
    ((Unit *)c)->in_event = ((Unit *)c)->running = 1;
    return OK;
}
EXPORT int fmi3EnterEventMode(void *c) {
    Unit *unit = c;
    unit->in_event = 1;
    unit->events++;
    return OK;
}
EXPORT int fmi3UpdateDiscreteStates(void *c, bool *again, bool *end, bool *nominals, bool *states, bool *timed, double *next) {
    *again = *end = *nominals = *states = *timed = false;
    return OK;
}
EXPORT int fmi3EnterStepMode(void *c) {
    ((Unit *)c)->in_event = 0;
    return OK;
}
EXPORT int fmi3Terminate(void *c) { return OK; }
EXPORT int fmi3Reset(void *c) { return ERROR; }

EXPORT int fmi3GetString(void *c, const Reference *r, size_t n, const char **v, size_t m) {
    Unit *unit = c;
    refresh(unit);
    for (size_t i = 0; i < n; i++) v[i] = r[i] == TITLE ? unit->title : r[i] == LABEL ? unit->label : unit->heard;
    return OK;
}
EXPORT int fmi3SetString(void *c, const Reference *r, size_t n, const char *const *v, size_t m) {
    Unit *unit = c;
#ifdef EVENTS
    if (unit->running && !unit->in_event) return ERROR;
#endif
    for (size_t i = 0; i < n; i++)
        if (r[i] == TITLE)
            strncpy(unit->title, v[i], sizeof unit->title - 1);
        else
            strncpy(unit->heard, v[i], sizeof unit->heard - 1);
    return OK;
}
EXPORT int fmi3GetBinary(void *c, const Reference *r, size_t n, size_t *sizes, const unsigned char **v, size_t m) {
    Unit *unit = c;
    refresh(unit);
    for (size_t i = 0; i < n; i++) {
        v[i] = r[i] == SEED ? &unit->seed : r[i] == PACKET ? unit->packet : unit->taken;
        sizes[i] = r[i] == SEED ? 1 : r[i] == PACKET ? (size_t)unit->steps : unit->length;
    }
    return OK;
}
EXPORT int fmi3SetBinary(void *c, const Reference *r, size_t n, const size_t *sizes, const unsigned char *const *v, size_t m) {
    Unit *unit = c;
#ifdef EVENTS
    if (unit->running && !unit->in_event) return ERROR;
#endif
    for (size_t i = 0; i < n; i++)
        if (r[i] == SEED) {
            if (sizes[i] != 1) return ERROR;
            unit->seed = v[i][0];
        } else {
            if (sizes[i] > sizeof unit->taken) return ERROR;
            unit->length = sizes[i];
            memcpy(unit->taken, v[i], sizes[i]);
        }
    return OK;
}
EXPORT int fmi3GetFloat64(void *c, const Reference *r, size_t n, double *v, size_t m) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++) v[i] = (double)(strlen(unit->heard) + unit->length);
    return OK;
}
EXPORT int fmi3GetInt32(void *c, const Reference *r, size_t n, int *v, size_t m) {
    for (size_t i = 0; i < n; i++) v[i] = ((Unit *)c)->events;
    return OK;
}
EXPORT int fmi3DoStep(void *c, double time, double duration, bool final, bool *event, bool *end, bool *early, double *last) {
    ((Unit *)c)->steps++;
    *event = *end = *early = false;
    *last = time + duration;
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

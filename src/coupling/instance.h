/* A live coupling behind the functions that src/fmu/fmi2.c and fmi3.c call: what src/fmu/instance.h is for a linear unit,
 * in whose place this file is included first. */
#ifndef COSIMO_INSTANCE_H
#define COSIMO_INSTANCE_H

#ifdef __cplusplus
extern "C" {
#endif

#include "../fmu/description.h"

enum mode { INSTANTIATED, INITIALISING, STEPPING, TERMINATED };

typedef struct {
    enum mode mode;
    double time;
    int ended; /* a unit inside wanted the run to end at `time` */
    char message[MESSAGE_SIZE];
    void *importer;
} instance;

typedef struct {
    void *importer;
    void (*log)(void *importer, int status, const char *category, const char *text);
    int talks;
} host;

/* Each returns 0, or NULL, with the reason in `message` when it refuses. Nothing is thrown into C. */
instance *instance_create(const char *location, const char *token, const host *by, char message[MESSAGE_SIZE]);
void instance_free(instance *unit);
int instance_reset(instance *unit);
void instance_talk(instance *unit, int on);
int instance_enter(instance *unit);
int instance_leave(instance *unit);
int instance_terminate(instance *unit);
int instance_get(instance *unit, size_t reference, double *value);
int instance_set(instance *unit, size_t reference, double value);
int instance_set_derivative(instance *unit, size_t reference, int order, double value);
int instance_step(instance *unit, double time, double duration);
static inline int instance_ended(const instance *unit) { return unit->ended; }

typedef struct {
    const unsigned *unknowns, *knowns;
    size_t unknown_count, known_count;
} jacobian;
int instance_directional(instance *unit, const jacobian *what, const double *seed, double *result);
int instance_adjoint(instance *unit, const jacobian *what, const double *seed, double *result);

int instance_save(instance *unit, void **state);
int instance_restore(instance *unit, const void *state);
void instance_free_state(instance *unit, void **state);
int instance_state_size(instance *unit, const void *state, size_t *size);
int instance_serialise(instance *unit, const void *state, void *bytes, size_t size);
int instance_deserialise(instance *unit, const void *bytes, size_t size, void **state);

#ifdef __cplusplus
}
#endif
#endif

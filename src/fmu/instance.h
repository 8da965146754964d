/* A live unit, independent of the version of the standard.
 *
 * Its numbers stand in one vector z = [x, u, u̇, ü]. Value references count through [x, u, y, ẋ, time], so that states
 * and inputs are read and written in place, and outputs and derivatives are rows of [C D; A B] times [x, u].
 */
#ifndef COSIMO_INSTANCE_H
#define COSIMO_INSTANCE_H

#include "flow.h"

/* Durations whose flows are kept: rounding of t + h makes an importer's "constant" step a handful of durations. */
enum { FLOWS = 8 };

enum mode { INSTANTIATED, INITIALISING, STEPPING, TERMINATED };

typedef struct {
    double duration;
    double *panels;
} flow;

typedef struct {
    description unit;
    size_t known;   /* n + m: the length of [x, u] */
    size_t rows;    /* p + n */
    size_t width;   /* n + 3 m: the length of z */
    size_t columns; /* n + m (1 + degree of the input in the next step) */
    enum mode mode;
    double time;
    double *z, *next;
    double *coefficients; /* [C D; A B], row by row */
    flow *flow;           /* that of the last step */
    flow flows[FLOWS];
    unsigned oldest;
    char message[MESSAGE_SIZE];
    void *importer; /* what the version of the standard in use needs for logging */
} instance;

/* Who made the instance, which frees `importer`; `log` takes messages for it. A linear unit has none but its errors. */
typedef struct {
    void *importer;
    void (*log)(void *importer, int status, const char *category, const char *text);
    int talks;
} host;

/* NULL with a message when the token is not that of the unit or the resources cannot be read. */
instance *instance_create(const char *location, const char *token, const host *by, char message[MESSAGE_SIZE]);
void instance_free(instance *unit);
int instance_reset(instance *unit);
static inline void instance_talk(instance *unit, int on) { (void)unit, (void)on; }

/* Each of these returns 0 with the reason in `message` when it refuses. */
int instance_set_slow(instance *unit, size_t reference, double value);
int instance_set_derivative(instance *unit, size_t reference, int order, double value);
int instance_get_slow(instance *unit, size_t reference, double *value);
int instance_find_flow(instance *unit, double duration);
int instance_refuse_step(instance *unit, double time, double duration);
void instance_move_input(instance *unit, double duration);

/* J · seed for the Jacobian J of `unknowns` (outputs, derivatives) by `knowns` (states, inputs); the transpose for the
 * adjoint. `result` has as many entries as there are unknowns (knowns for the adjoint). */
typedef struct {
    const unsigned *unknowns, *knowns;
    size_t unknown_count, known_count;
} jacobian;
int instance_directional(instance *unit, const jacobian *what, const double *seed, double *result);
int instance_adjoint(instance *unit, const jacobian *what, const double *seed, double *result);

/* A saved state is one block of bytes, the same in memory and serialised. One handed in again is overwritten, so that an
 * iterating master allocates once. */
int instance_save(instance *unit, void **state);
int instance_restore(instance *unit, const void *state);
void instance_free_state(instance *unit, void **state);
int instance_state_size(instance *unit, const void *state, size_t *size);
int instance_serialise(instance *unit, const void *state, void *bytes, size_t size);
int instance_deserialise(instance *unit, const void *bytes, size_t size, void **state);

static inline int instance_go(instance *unit, enum mode to)
{
    unit->mode = to;
    return 1;
}
static inline int instance_enter(instance *unit) { return instance_go(unit, INITIALISING); }
static inline int instance_leave(instance *unit) { return instance_go(unit, STEPPING); }
static inline int instance_terminate(instance *unit) { return instance_go(unit, TERMINATED); }
static inline int instance_ended(const instance *unit) { return (void)unit, 0; } /* it never wants the run to end */

static inline int instance_get(instance *unit, size_t reference, double *value)
{
    size_t known = unit->known;
    if (reference < known) {
        *value = unit->z[reference];
        return 1;
    }
    if (reference - known < unit->rows) {
        const double *row = unit->coefficients + (reference - known) * known;
        double sum = 0;
        for (size_t j = 0; j < known; j++) sum += row[j] * unit->z[j];
        *value = sum;
        return 1;
    }
    return instance_get_slow(unit, reference, value);
}

static inline int instance_set(instance *unit, size_t reference, double value)
{
    if (reference - unit->unit.states < unit->unit.inputs) {
        unit->z[reference] = value;
        return 1;
    }
    return instance_set_slow(unit, reference, value);
}

/* Two rows side by side: as wide as every 64-bit machine can add, so that no instruction set needs to be chosen. */
typedef double pair __attribute__((vector_size(2 * sizeof(double)), aligned(sizeof(double))));

/* One panel of rows times z, each row summed over ascending columns, and the first `count` results kept. */
static inline void multiply_panel(double *to, size_t count, const pair *entries, const double *z, size_t columns)
{
    pair upper = {0, 0}, lower = {0, 0};
    for (size_t j = 0; j < columns; j++) {
        upper += entries[2 * j] * z[j];
        lower += entries[2 * j + 1] * z[j];
    }
    to[0] = upper[0];
    if (count > 1) to[1] = upper[1];
    if (count > 2) to[2] = lower[0];
    if (count > 3) to[3] = lower[1];
}

/* x ← F x + G_0 u + G_1 u̇ + G_2 ü. */
static inline int instance_step(instance *unit, double time, double duration)
{
    if (unit->mode != STEPPING || !(duration > 0) || time - time != 0) return instance_refuse_step(unit, time, duration);
    if (duration != unit->flow->duration && !instance_find_flow(unit, duration)) return 0;
    size_t n = unit->unit.states, columns = unit->columns;
    const double *entries = unit->flow->panels;
    double *z = unit->z, *to = n <= PANEL ? z : unit->next;
    for (size_t i = 0; i < n; i += PANEL, entries += PANEL * unit->width)
        multiply_panel(to + i, n - i, (const pair *)entries, z, columns);
    if (n > PANEL)
        for (size_t i = 0; i < n; i++) z[i] = to[i];
    if (columns != unit->known) instance_move_input(unit, duration);
    unit->time = time + duration;
    return 1;
}

#endif

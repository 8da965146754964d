#include "instance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64 };

static int refuse(instance *unit, const char *reason)
{
    snprintf(unit->message, MESSAGE_SIZE, "%s", reason);
    return 0;
}

static int refuse_reference(instance *unit, size_t reference, const char *reason)
{
    snprintf(unit->message, MESSAGE_SIZE, "value reference %zu %s.", reference, reason);
    return 0;
}

/* [C D; A B]: what outputs and derivatives are of states and inputs. */
static void join_rows(double *to, const double *left, const double *right, size_t rows, size_t n, size_t m)
{
    for (size_t i = 0; i < rows; i++, to += n + m) {
        memcpy(to, left + i * n, n * sizeof(double));
        memcpy(to + n, right + i * m, m * sizeof(double));
    }
}

#ifdef _WIN32 /* whose C library has functions of its own for this */
#include <malloc.h>
#define aligned_alloc(alignment, size) _aligned_malloc(size, alignment)
#define free_line _aligned_free
#else
#define free_line free
#endif

/* Zeros that begin a cache line: a small unit then steps within one or two of them. */
static double *allocate_line(size_t count)
{
    size_t size = (count * sizeof(double) / LINE + 1) * LINE;
    double *numbers = aligned_alloc(LINE, size);
    if (numbers) memset(numbers, 0, size);
    return numbers;
}

static int allocate(instance *unit)
{
    const description *d = &unit->unit;
    size_t n = d->states, m = d->inputs;
    unit->known = n + m;
    unit->rows = d->outputs + n;
    unit->width = n + (DEGREE + 1) * m;
    unit->coefficients = allocate_line(unit->rows * unit->known);
    unit->z = allocate_line(unit->width);
    unit->next = allocate_line(n);
    if (!unit->coefficients || !unit->z || !unit->next) return 0;
    join_rows(unit->coefficients, d->C, d->D, d->outputs, n, m);
    join_rows(unit->coefficients + d->outputs * unit->known, d->A, d->B, n, n, m);
    unit->flow = unit->flows; /* its duration, 0, is that of no step */
    return 1;
}

static int open_unit(instance *unit, const char *location, const char *token, char message[MESSAGE_SIZE])
{
    char *folder = folder_from_location(location);
    if (!folder) {
        snprintf(message, MESSAGE_SIZE, "the resource location '%s' is neither a path nor a file URI of this machine.",
                 location ? location : "");
        return 0;
    }
    int good = description_read(&unit->unit, folder, message);
    free(folder);
    if (good && (!token || strcmp(token, unit->unit.token) != 0)) {
        snprintf(message, MESSAGE_SIZE, "the token '%s' is not '%s', that of the unit in the resources folder.",
                 token ? token : "", unit->unit.token);
        return 0;
    }
    return good;
}

instance *instance_create(const char *location, const char *token, const host *by, char message[MESSAGE_SIZE])
{
    instance *unit = calloc(1, sizeof *unit);
    if (unit && open_unit(unit, location, token, message)) {
        if (allocate(unit)) {
            instance_reset(unit);
            unit->importer = by->importer;
            return unit;
        }
        snprintf(message, MESSAGE_SIZE, "out of memory.");
    } else if (!unit) {
        snprintf(message, MESSAGE_SIZE, "out of memory.");
    }
    instance_free(unit);
    return NULL;
}

void instance_free(instance *unit)
{
    if (!unit) return;
    for (int i = 0; i < FLOWS; i++) free_line(unit->flows[i].panels);
    free_line(unit->coefficients);
    free_line(unit->z);
    free_line(unit->next);
    free(unit->importer);
    description_release(&unit->unit);
    free(unit);
}

int instance_reset(instance *unit)
{
    const description *d = &unit->unit;
    memset(unit->z, 0, unit->width * sizeof(double));
    memcpy(unit->z, d->initial, d->states * sizeof(double));
    memcpy(unit->z + d->states, d->start, d->inputs * sizeof(double));
    unit->columns = unit->known;
    unit->time = 0;
    return instance_go(unit, INSTANTIATED);
}

int instance_get_slow(instance *unit, size_t reference, double *value)
{
    if (reference != unit->known + unit->rows)
        return refuse_reference(unit, reference, "is not a variable of this unit");
    *value = unit->time;
    return 1;
}

int instance_set_slow(instance *unit, size_t reference, double value)
{
    if (reference >= unit->unit.states)
        return refuse_reference(unit, reference, "cannot be set; set inputs, and states before the first step");
    if (unit->mode != INSTANTIATED && unit->mode != INITIALISING)
        return refuse_reference(unit, reference, "is a state; it can be set only before the end of initialisation");
    unit->z[reference] = value;
    return 1;
}

int instance_set_derivative(instance *unit, size_t reference, int order, double value)
{
    size_t input = reference - unit->unit.states, m = unit->unit.inputs;
    if (input >= m) return refuse_reference(unit, reference, "is not an input");
    if (order < 1 || order > DEGREE) return refuse(unit, "derivatives of inputs are taken of order 1 and 2 only.");
    unit->z[unit->unit.states + (size_t)order * m + input] = value;
    size_t columns = unit->known + (size_t)order * m;
    if (columns > unit->columns) unit->columns = columns;
    return 1;
}

int instance_refuse_step(instance *unit, double time, double duration)
{
    if (unit->mode != STEPPING) return refuse(unit, "a step needs an initialised unit that was not terminated.");
    if (time - time != 0) {
        snprintf(unit->message, MESSAGE_SIZE, "a step cannot begin at the time %g.", time);
        return 0;
    }
    snprintf(unit->message, MESSAGE_SIZE, "the step size must be positive, not %g.", duration);
    return 0;
}

int instance_find_flow(instance *unit, double duration)
{
    for (int i = 0; i < FLOWS; i++)
        if (unit->flows[i].duration == duration) {
            unit->flow = unit->flows + i;
            return 1;
        }
    flow *slot = unit->flows + unit->oldest;
    if (!slot->panels) slot->panels = allocate_line(flow_size(&unit->unit));
    slot->duration = 0;
    enum flow_outcome outcome = slot->panels ? flow_compute(&unit->unit, duration, slot->panels) : FLOW_OUT_OF_MEMORY;
    if (outcome == FLOW_OUT_OF_MEMORY) return refuse(unit, "out of memory.");
    if (outcome == FLOW_NOT_FINITE) {
        snprintf(unit->message, MESSAGE_SIZE,
                 "a step of %g takes the unit beyond the largest number; use a smaller step.", duration);
        return 0;
    }
    slot->duration = duration;
    unit->flow = slot;
    unit->oldest = (unit->oldest + 1) % FLOWS;
    return 1;
}

/* After a step the input stands where its polynomial led; its derivatives held for that step only. */
void instance_move_input(instance *unit, double duration)
{
    size_t m = unit->unit.inputs;
    double *u = unit->z + unit->unit.states, *slope = u + m, *bend = slope + m;
    for (size_t i = 0; i < m; i++) {
        u[i] += duration * slope[i] + duration * duration / 2 * bend[i];
        slope[i] = bend[i] = 0;
    }
    unit->columns = unit->known;
}

static int check(instance *unit, const jacobian *what)
{
    for (size_t i = 0; i < what->unknown_count; i++)
        if (what->unknowns[i] - unit->known >= unit->rows)
            return refuse_reference(unit, what->unknowns[i], "is neither an output nor a derivative");
    for (size_t j = 0; j < what->known_count; j++)
        if (what->knowns[j] >= unit->known)
            return refuse_reference(unit, what->knowns[j], "is neither a state nor an input");
    return 1;
}

static double entry(const instance *unit, const jacobian *what, size_t i, size_t j)
{
    return unit->coefficients[(what->unknowns[i] - unit->known) * unit->known + what->knowns[j]];
}

int instance_directional(instance *unit, const jacobian *what, const double *seed, double *result)
{
    if (!check(unit, what)) return 0;
    for (size_t i = 0; i < what->unknown_count; i++) {
        result[i] = 0;
        for (size_t j = 0; j < what->known_count; j++) result[i] += entry(unit, what, i, j) * seed[j];
    }
    return 1;
}

int instance_adjoint(instance *unit, const jacobian *what, const double *seed, double *result)
{
    if (!check(unit, what)) return 0;
    for (size_t j = 0; j < what->known_count; j++) {
        result[j] = 0;
        for (size_t i = 0; i < what->unknown_count; i++) result[j] += entry(unit, what, i, j) * seed[i];
    }
    return 1;
}

/* The token travels with a serialised state, so that the state of another unit is refused. */
typedef struct {
    char token[TOKEN_SIZE];
    uint64_t columns, mode;
    double time, z[];
} saved;

static size_t state_size(const instance *unit) { return sizeof(saved) + unit->width * sizeof(double); }

static int allocate_state(instance *unit, void **state)
{
    if (!*state) *state = malloc(state_size(unit));
    return *state ? 1 : refuse(unit, "out of memory.");
}

int instance_save(instance *unit, void **state)
{
    if (!allocate_state(unit, state)) return 0;
    saved *to = *state;
    memcpy(to->token, unit->unit.token, TOKEN_SIZE);
    to->columns = unit->columns;
    to->mode = (uint64_t)unit->mode;
    to->time = unit->time;
    memcpy(to->z, unit->z, unit->width * sizeof(double));
    return 1;
}

void instance_free_state(instance *unit, void **state)
{
    (void)unit;
    if (!state) return;
    free(*state);
    *state = NULL;
}

int instance_state_size(instance *unit, const void *state, size_t *size)
{
    (void)state;
    *size = state_size(unit);
    return 1;
}

int instance_serialise(instance *unit, const void *state, void *bytes, size_t size)
{
    if (size < state_size(unit)) {
        snprintf(unit->message, MESSAGE_SIZE, "%zu bytes are too few for the state.", size);
        return 0;
    }
    memcpy(bytes, state, state_size(unit));
    return 1;
}

int instance_deserialise(instance *unit, const void *bytes, size_t size, void **state)
{
    if (size != state_size(unit)) {
        snprintf(unit->message, MESSAGE_SIZE, "%zu bytes are not a state of this unit.", size);
        return 0;
    }
    if (!allocate_state(unit, state)) return 0;
    memcpy(*state, bytes, size);
    return 1;
}

int instance_restore(instance *unit, const void *state)
{
    const saved *from = state;
    if (memcmp(from->token, unit->unit.token, TOKEN_SIZE) != 0 || from->mode > TERMINATED ||
        from->columns < unit->known || from->columns > unit->width)
        return refuse(unit, "the saved state does not belong to this unit.");
    unit->columns = (size_t)from->columns;
    unit->mode = (enum mode)from->mode;
    unit->time = from->time;
    memcpy(unit->z, from->z, unit->width * sizeof(double));
    return 1;
}

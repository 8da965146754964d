/* FMI 3.0: x' = u - k x, v' = w, by four micro steps (explicit midpoint) in every step, for each of which it asks for the input u
   in its middle (intermediate update). `w` is not asked for. `through` is u as it was set last, `asked` counts the requests. Built
   with SILENT it calls back without asking. It is never instantiated without a callback. From `early` on it returns early once. */
#include <stdlib.h>
#include <string.h>

#include "fmi3.h"

enum { TIME, U, W, X, V, THROUGH, ASKED, EARLY, K };
typedef void (*Update)(Environment, double, bool, bool, bool, bool, bool *, double *);

typedef struct {
    double u, w, x, v, early, k;
    int32_t asked;
    int stepping, may_return;
    Update update;
    Environment environment;
    Log log;
} Unit;

static int refuse(Unit *unit, const char *what) {
    unit->log(unit->environment, ERROR, "logStatusError", what);
    return ERROR;
}

EXPORT void *fmi3InstantiateCoSimulation(INSTANTIATE_ARGUMENTS) {
    if (!update || (intermediates && intermediate[0] != U)) {
        log(environment, ERROR, "logStatusError", "no callback, or another variable than u");
        return NULL;
    }
    Unit *unit = calloc(1, sizeof *unit);
    unit->update = (Update)update;
    unit->environment = environment;
    unit->log = log;
    unit->may_return = early_return;
    unit->early = 1e9;
    return unit;
}
EXPORT void fmi3FreeInstance(void *c) { free(c); }
EXPORT int fmi3EnterInitializationMode(void *c, bool d, double tolerance, double start, bool s, double stop) { return OK; }
EXPORT int fmi3ExitInitializationMode(void *c) { return OK; }
EXPORT int fmi3Terminate(void *c) { return OK; }
EXPORT int fmi3SetFloat64(void *c, const Reference *r, size_t n, const double *v, size_t m) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++) {
        if (unit->stepping && r[i] != U) return refuse(c, "set within a step, without being asked for");
        if (unit->stepping && v[i] > 1e6) return refuse(c, "too large");
        *(r[i] == U ? &unit->u : r[i] == W ? &unit->w : r[i] == K ? &unit->k : &unit->early) = v[i];
    }
    return OK;
}
EXPORT int fmi3GetFloat64(void *c, const Reference *r, size_t n, double *v, size_t m) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++)
        v[i] = r[i] == U || r[i] == THROUGH ? unit->u : r[i] == W ? unit->w : r[i] == X ? unit->x : unit->v;
    return OK;
}
EXPORT int fmi3GetInt32(void *c, const Reference *r, size_t n, int32_t *v, size_t m) {
    for (size_t i = 0; i < n; i++) v[i] = ((Unit *)c)->asked;
    return OK;
}
EXPORT int fmi3DoStep(void *c, double time, double h, bool final, bool *event, bool *end, bool *early, double *last) {
    Unit *unit = c;
    *event = *end = *early = false;
    *last = time + h;
    if (unit->may_return && unit->early > time && unit->early < time + h) {
        *early = true;
        *last = unit->early;
        h = unit->early - time;
    }
    for (int i = 0; i < 4; i++) {
        bool requested = true;
        double wanted = 0.0, micro = h / 4;
#ifdef SILENT
        const bool ask = false;
#else
        const bool ask = true;
#endif
        unit->stepping = 1;
        unit->update(unit->environment, time + (i + 0.5) * micro, ask, true, true, unit->may_return, &requested, &wanted);
        unit->stepping = 0;
        if (requested) return refuse(c, "an early return that nobody needs");
        unit->asked += ask;
        unit->x += micro * (unit->u - unit->k * (unit->x + 0.5 * micro * (unit->u - unit->k * unit->x)));
        unit->v += micro * unit->w;
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

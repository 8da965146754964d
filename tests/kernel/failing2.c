/* FMI 2.0: one function returns a bad status from a given time on.

   Calls after a fatal status are noted in the file that the environment variable CALLS_AFTER_FATAL names. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fmus/fmi2.h"

enum { Y, U, WHERE, AT, STATUS, COUNT };
enum { NOWHERE, SETTING, STEPPING, READING, SAVING, RESTORING };

typedef struct {
    double real[COUNT];
    double time;
    int dead, stepped;
    Callbacks call;
} Unit;

static void note(Unit *unit, const char *function) {
    const char *path = getenv("CALLS_AFTER_FATAL");
    if (!unit->dead || !path) return;
    FILE *file = fopen(path, "a");
    fprintf(file, "%s\n", function);
    fclose(file);
}
static int done(Unit *unit, int where, const char *function) {
    note(unit, function);
    if (!unit->stepped || unit->real[WHERE] != where || unit->time < unit->real[AT] - 1e-9) return OK;
    int status = (int)unit->real[STATUS];
    unit->call.log(unit->call.environment, "failing", status, "error", "valve stuck at %g", unit->time);
    unit->dead = status == FATAL;
    return status;
}

EXPORT void *fmi2Instantiate(const char *name, int type, const char *token, const char *resources,
                             const Callbacks *call, int visible, int logging) {
    Unit *unit = calloc(1, sizeof *unit);
    unit->call = *call;
    unit->real[AT] = 1e300;
    return unit;
}
EXPORT void fmi2FreeInstance(void *c) { note(c, "fmi2FreeInstance"); }
EXPORT int fmi2SetupExperiment(void *c, int d, double tolerance, double start, int s, double stop) {
    ((Unit *)c)->time = start;
    return OK;
}
EXPORT int fmi2EnterInitializationMode(void *c) { return OK; }
EXPORT int fmi2ExitInitializationMode(void *c) { return OK; }
EXPORT int fmi2Terminate(void *c) {
    note(c, "fmi2Terminate");
    return OK;
}
EXPORT int fmi2SetReal(void *c, const Reference *r, size_t n, const double *v) {
    for (size_t i = 0; i < n; i++) ((Unit *)c)->real[r[i]] = v[i];
    return done(c, SETTING, "fmi2SetReal");
}
EXPORT int fmi2GetReal(void *c, const Reference *r, size_t n, double *v) {
    for (size_t i = 0; i < n; i++) v[i] = ((Unit *)c)->real[r[i]];
    return done(c, READING, "fmi2GetReal");
}
EXPORT int fmi2DoStep(void *c, double time, double h, int final) {
    Unit *unit = c;
    unit->stepped = 1;
    int status = done(c, STEPPING, "fmi2DoStep");
    if (status != OK) return status;
    unit->time = time + h;
    unit->real[Y] += h * (unit->real[U] - unit->real[Y]);
    return OK;
}
EXPORT int fmi2GetFMUstate(void *c, void **state) {
    if (!*state) *state = malloc(sizeof(Unit));
    memcpy(*state, c, sizeof(Unit));
    return done(c, SAVING, "fmi2GetFMUstate");
}
EXPORT int fmi2SetFMUstate(void *c, void *state) {
    memcpy(c, state, sizeof(Unit));
    return done(c, RESTORING, "fmi2SetFMUstate");
}
EXPORT int fmi2FreeFMUstate(void *c, void **state) {
    note(c, "fmi2FreeFMUstate");
    free(*state);
    *state = NULL;
    return OK;
}

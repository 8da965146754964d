/* FMI 2.0: a lag that settles at a gain, x' = gain − x, by forward Euler, with the ways in which units fail in studies.

   A step that ends after `crash_at` ends the process, one that ends after `fail_at` is an error. Resetting is right, or
   as chosen when compiling: KEEPS_STATE, KEEPS_GAIN (and takes a given gain only once), REFUSES, NO_RESET. */
#include <signal.h>
#include <stdlib.h>

#include "fmi2.h"
#ifdef _WIN32
#define SIGKILL SIGABRT /* the nearest that there is */
#endif

enum { X, GAIN, CRASH_AT, FAIL_AT, COUNT };

typedef struct {
    double real[COUNT];
    int fixed;
} Unit;

static void defaults(Unit *unit) {
    unit->real[GAIN] = 1.0;
    unit->real[X] = 0.0;
    unit->real[CRASH_AT] = unit->real[FAIL_AT] = 1e300;
    unit->fixed = 0;
}

EXPORT void *fmi2Instantiate(const char *name, int type, const char *token, const char *resources,
                             const Callbacks *call, int visible, int logging) {
    Unit *unit = calloc(1, sizeof *unit);
    defaults(unit);
    return unit;
}
EXPORT void fmi2FreeInstance(void *c) { free(c); }
EXPORT int fmi2SetupExperiment(void *c, int d, double tolerance, double start, int s, double stop) { return OK; }
EXPORT int fmi2EnterInitializationMode(void *c) { return OK; }
EXPORT int fmi2ExitInitializationMode(void *c) {
    ((Unit *)c)->fixed = 1;
    return OK;
}
EXPORT int fmi2Terminate(void *c) { return OK; }
#ifndef NO_RESET
EXPORT int fmi2Reset(void *c) {
    Unit *unit = c;
#ifdef REFUSES
    return ERROR;
#endif
#ifdef KEEPS_STATE
    double x = unit->real[X];
    defaults(unit);
    unit->real[X] = x;
#elif defined KEEPS_GAIN
    unit->real[X] = 0.0;
#else
    defaults(unit);
#endif
    return OK;
}
#endif
EXPORT int fmi2GetReal(void *c, const Reference *r, size_t n, double *v) {
    for (size_t i = 0; i < n; i++) v[i] = ((Unit *)c)->real[r[i]];
    return OK;
}
EXPORT int fmi2SetReal(void *c, const Reference *r, size_t n, const double *v) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++)
        if (r[i] != GAIN || !unit->fixed) unit->real[r[i]] = v[i];
    return OK;
}
EXPORT int fmi2DoStep(void *c, double time, double h, int final) {
    Unit *unit = c;
    if (time + h > unit->real[CRASH_AT]) raise(SIGKILL);
    if (time + h > unit->real[FAIL_AT]) return ERROR;
    unit->real[X] += h * (unit->real[GAIN] - unit->real[X]);
    return OK;
}

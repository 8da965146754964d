/* FMI 2.0 with nothing optional: x' = u - x by forward Euler, y = x. */
#include <stdlib.h>

#include "fmi2.h"

EXPORT void *fmi2Instantiate(const char *name, int type, const char *token, const char *resources,
                             const Callbacks *call, int visible, int logging) {
    return calloc(2, sizeof(double));
}
EXPORT void fmi2FreeInstance(void *c) { free(c); }
EXPORT int fmi2SetupExperiment(void *c, int d, double tolerance, double start, int s, double stop) { return OK; }
EXPORT int fmi2EnterInitializationMode(void *c) { return OK; }
EXPORT int fmi2ExitInitializationMode(void *c) { return OK; }
EXPORT int fmi2GetReal(void *c, const Reference *r, size_t n, double *v) {
    for (size_t i = 0; i < n; i++) v[i] = ((double *)c)[r[i]];
    return OK;
}
EXPORT int fmi2SetReal(void *c, const Reference *r, size_t n, const double *v) {
    for (size_t i = 0; i < n; i++) ((double *)c)[r[i]] = v[i];
    return OK;
}
EXPORT int fmi2DoStep(void *c, double time, double h, int final) {
    double *x = c;
    x[0] += h * (x[1] - x[0]);
    return OK;
}

/* A model of the test bed under the names of FMI 2.0. */
#include "fmi2.h"
#include "model.h"

EXPORT const char *fmi2GetVersion(void) { return "2.0"; }
EXPORT const char *fmi2GetTypesPlatform(void) { return "default"; }
EXPORT int fmi2SetDebugLogging(void *c, int on, size_t n, const char **categories) { return OK; }

EXPORT void *fmi2Instantiate(const char *name, int type, const char *token, const char *resources,
                             const Callbacks *call, int visible, int logging)
{
    State *state = type == 1 && strcmp(token, TOKEN) == 0 ? malloc(sizeof *state) : NULL;
    if (state) *state = START;
    return state;
}
EXPORT void fmi2FreeInstance(void *c) { free(c); }
EXPORT int fmi2SetupExperiment(void *c, int d, double tolerance, double start, int s, double stop)
{
    return ((State *)c)->time = start, OK;
}
EXPORT int fmi2EnterInitializationMode(void *c) { return OK; }
EXPORT int fmi2ExitInitializationMode(void *c) { return ((State *)c)->initialised = 1, OK; }
EXPORT int fmi2Terminate(void *c) { return OK; }
EXPORT int fmi2Reset(void *c) { return *(State *)c = START, OK; }

EXPORT int fmi2GetReal(void *c, const Reference *r, size_t n, double *v)
{
    for (size_t i = 0; i < n; i++)
        if (!get(c, r[i], v + i)) return ERROR;
    return OK;
}
EXPORT int fmi2SetReal(void *c, const Reference *r, size_t n, const double *v)
{
    for (size_t i = 0; i < n; i++)
        if (!set(c, r[i], v[i])) return ERROR;
    return OK;
}
EXPORT int fmi2DoStep(void *c, double time, double h, int final) { return advance(c, time, h), OK; }

#ifdef STATES
EXPORT int fmi2GetFMUstate(void *c, void **state)
{
    if (!*state) *state = malloc(sizeof(State));
    return *state ? (memcpy(*state, c, sizeof(State)), OK) : ERROR;
}
EXPORT int fmi2SetFMUstate(void *c, void *state) { return memcpy(c, state, sizeof(State)), OK; }
EXPORT int fmi2FreeFMUstate(void *c, void **state) { return free(*state), *state = NULL, OK; }
#endif
#ifdef DERIVATIVES
EXPORT int fmi2GetDirectionalDerivative(void *c, const Reference *unknown, size_t nu, const Reference *known,
                                        size_t nk, const double *seed, double *result)
{
    return directional(c, unknown, nu, known, nk, seed, result) ? OK : ERROR;
}
#endif

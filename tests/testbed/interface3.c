/* A model of the test bed under the names of FMI 3.0. */
#include "fmi3.h"
#include "model.h"

EXPORT const char *fmi3GetVersion(void) { return "3.0"; }
EXPORT int fmi3SetDebugLogging(void *c, bool on, size_t n, const char **categories) { return OK; }
EXPORT void *fmi3InstantiateCoSimulation(INSTANTIATE_ARGUMENTS)
{
    State *state = strcmp(token, TOKEN) == 0 ? malloc(sizeof *state) : NULL;
    if (state) *state = START;
    return state;
}
EXPORT void fmi3FreeInstance(void *c) { free(c); }
EXPORT int fmi3EnterInitializationMode(void *c, bool d, double tolerance, double start, bool s, double stop)
{
    return ((State *)c)->time = start, OK;
}
EXPORT int fmi3ExitInitializationMode(void *c) { return ((State *)c)->initialised = 1, OK; }
EXPORT int fmi3Terminate(void *c) { return OK; }
EXPORT int fmi3Reset(void *c) { return *(State *)c = START, OK; }

EXPORT int fmi3GetFloat64(void *c, const Reference *r, size_t n, double *v, size_t m)
{
    for (size_t i = 0; i < n; i++)
        if (!get(c, r[i], v + i)) return ERROR;
    return OK;
}
EXPORT int fmi3SetFloat64(void *c, const Reference *r, size_t n, const double *v, size_t m)
{
    for (size_t i = 0; i < n; i++)
        if (!set(c, r[i], v[i])) return ERROR;
    return OK;
}
EXPORT int fmi3DoStep(void *c, double time, double h, bool final, bool *event, bool *end, bool *early, double *last)
{
    advance(c, time, h);
    *event = *end = *early = false;
    *last = time + h;
    return OK;
}

#ifdef STATES
EXPORT int fmi3GetFMUState(void *c, void **state)
{
    if (!*state) *state = malloc(sizeof(State));
    return *state ? (memcpy(*state, c, sizeof(State)), OK) : ERROR;
}
EXPORT int fmi3SetFMUState(void *c, void *state) { return memcpy(c, state, sizeof(State)), OK; }
EXPORT int fmi3FreeFMUState(void *c, void **state) { return free(*state), *state = NULL, OK; }
#endif
#ifdef DERIVATIVES
EXPORT int fmi3GetDirectionalDerivative(void *c, const Reference *unknown, size_t nu, const Reference *known, size_t nk,
                                        const double *seed, size_t ns, double *result, size_t nr)
{
    return ns == nk && nr == nu && directional(c, unknown, nu, known, nk, seed, result) ? OK : ERROR;
}
#endif

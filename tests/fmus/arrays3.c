/* FMI 3.0 arrays: y = 2 u + offset by row (2 × 3), m = k reversed (as long as the structural parameter says), texts.

   The structural parameter can be set in configuration mode only, up to 8; k is then 0, and its old size is refused. */
#include <stdlib.h>
#include <string.h>

#include "fmi3.h"

enum { U = 1, Y, N, K, M, OFFSET, WORDS, ECHO };

typedef struct {
    double u[6], offset[2];
    int32_t k[8];
    uint64_t n;
    int configuring;
    char words[2][64];
} Unit;

EXPORT void *fmi3InstantiateCoSimulation(INSTANTIATE_ARGUMENTS) {
    Unit *unit = calloc(1, sizeof *unit);
    unit->n = 3;
    return unit;
}
EXPORT int fmi3EnterConfigurationMode(void *c) {
    ((Unit *)c)->configuring = 1;
    return OK;
}
EXPORT int fmi3ExitConfigurationMode(void *c) {
    ((Unit *)c)->configuring = 0;
    return OK;
}
EXPORT int fmi3SetUInt64(void *c, const Reference *r, size_t n, const uint64_t *v, size_t m) {
    Unit *unit = c;
    if (n != 1 || r[0] != N || !unit->configuring || v[0] > 8) return ERROR;
    unit->n = v[0];
    memset(unit->k, 0, sizeof unit->k);
    return OK;
}
EXPORT int fmi3GetUInt64(void *c, const Reference *r, size_t n, uint64_t *v, size_t m) {
    if (n != 1 || r[0] != N) return ERROR;
    v[0] = ((Unit *)c)->n;
    return OK;
}
EXPORT void fmi3FreeInstance(void *c) { free(c); }
EXPORT int fmi3EnterInitializationMode(void *c, bool d, double tolerance, double start, bool s, double stop) {
    return OK;
}
EXPORT int fmi3ExitInitializationMode(void *c) { return OK; }
EXPORT int fmi3Terminate(void *c) { return OK; }
EXPORT int fmi3SetFloat64(void *c, const Reference *r, size_t n, const double *v, size_t m) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++) {
        size_t size = r[i] == U ? 6 : 2;
        if (m < size) return ERROR;
        memcpy(r[i] == U ? unit->u : unit->offset, v, size * sizeof *v);
        v += size;
        m -= size;
    }
    return m == 0 ? OK : ERROR;
}
EXPORT int fmi3GetFloat64(void *c, const Reference *r, size_t n, double *v, size_t m) {
    Unit *unit = c;
    if (n != 1 || r[0] != Y || m != 6) return ERROR;
    for (int i = 0; i < 6; i++) v[i] = 2 * unit->u[i] + unit->offset[i / 3];
    return OK;
}
EXPORT int fmi3SetInt32(void *c, const Reference *r, size_t n, const int32_t *v, size_t m) {
    if (n != 1 || r[0] != K || m != ((Unit *)c)->n) return ERROR;
    memcpy(((Unit *)c)->k, v, m * sizeof *v);
    return OK;
}
EXPORT int fmi3GetInt32(void *c, const Reference *r, size_t n, int32_t *v, size_t m) {
    if (n != 1 || r[0] != M || m != ((Unit *)c)->n) return ERROR;
    for (size_t i = 0; i < m; i++) v[i] = ((Unit *)c)->k[m - 1 - i];
    return OK;
}
EXPORT int fmi3SetString(void *c, const Reference *r, size_t n, const char **v, size_t m) {
    if (n != 1 || r[0] != WORDS || m != 2) return ERROR;
    for (int i = 0; i < 2; i++) strncpy(((Unit *)c)->words[i], v[i], 63);
    return OK;
}
EXPORT int fmi3GetString(void *c, const Reference *r, size_t n, const char **v, size_t m) {
    if (n != 1 || m != 2) return ERROR;
    for (int i = 0; i < 2; i++) v[i] = ((Unit *)c)->words[i];
    return OK;
}
EXPORT int fmi3DoStep(void *c, double time, double h, bool final, bool *event, bool *end, bool *early, double *last) {
    *event = *end = *early = false;
    *last = time + h;
    return OK;
}
EXPORT int fmi3GetDirectionalDerivative(void *c, const Reference *unknown, size_t nu, const Reference *known, size_t nk,
                                        const double *seed, size_t ns, double *result, size_t nr) {
    if (nu != 1 || nk != 1 || unknown[0] != Y || known[0] != U || ns != 6 || nr != 6) return ERROR;
    for (int i = 0; i < 6; i++) result[i] = 2 * seed[i];
    return OK;
}

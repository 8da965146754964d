/* FMI 2.0 with the bad habits of real units, each switched on by a parameter.

   Setting up the experiment resets all parameters, so that they work only when they are set afterwards. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
#define NOGDI
#define NO_STRICT
#include <windows.h>
#endif

#include "fmi2.h"

enum { Y, FAIL_AT, FATAL_AT, NAN_AT, LONGEST_STEP, END_AT, STRICT, RESOURCE, COUNT };

typedef struct {
    double real[COUNT];
    double time, reached;
    int steps, ended;
    char name[64];
    Callbacks call;
} Unit;

#ifdef SINGLE
static int instances;
#endif

/* Reads a number from the resources; the location is a percent-encoded URI. */
static double resource(const char *uri) {
    char path[4096] = {0};
    size_t n = 0;
    if (strncmp(uri, "file://", 7) != 0) return -1.0;
    uri += 7;
    if (uri[0] == '/' && uri[1] && uri[2] == ':') uri++; /* the drive of Windows */
    for (const char *p = uri; *p && n < 4000; p++) {
        unsigned code;
        if (*p == '%' && sscanf(p + 1, "%2x", &code) == 1) {
            path[n++] = (char)code;
            p += 2;
        } else {
            path[n++] = *p;
        }
    }
    strcat(path, "/number.txt");
#ifdef _WIN32 /* where fopen takes the characters of the system, not UTF-8 */
    wchar_t wide[4096];
    MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, 4096);
    FILE *file = _wfopen(wide, L"r");
#else
    FILE *file = fopen(path, "r");
#endif
    double number = -1.0;
    if (file) {
        if (fscanf(file, "%lf", &number) != 1) number = -2.0;
        fclose(file);
    }
    return number;
}

static void defaults(Unit *unit) {
    unit->real[FAIL_AT] = unit->real[FATAL_AT] = unit->real[NAN_AT] = unit->real[END_AT] = 1e300;
    unit->real[LONGEST_STEP] = 1e300;
    unit->real[STRICT] = 0.0;
}

EXPORT void *fmi2Instantiate(const char *name, int type, const char *token, const char *resources,
                             const Callbacks *call, int visible, int logging) {
#ifdef SINGLE
    if (instances++) return NULL;
#endif
    if (strcmp(token, "awkward2") != 0) {
        call->log(call->environment, name, ERROR, "error", "wrong token %s, wanted %s", token, "awkward2");
        return NULL;
    }
    Unit *unit = calloc(1, sizeof *unit);
    unit->call = *call;
    strncpy(unit->name, name, 63);
    defaults(unit);
    unit->real[RESOURCE] = resource(resources);
    return unit;
}
EXPORT void fmi2FreeInstance(void *c) {
#ifdef SINGLE
    instances--;
#endif
    free(c);
}
EXPORT int fmi2SetupExperiment(void *c, int d, double tolerance, double start, int s, double stop) {
    Unit *unit = c;
    defaults(unit);
    unit->time = unit->real[Y] = start;
    return OK;
}
EXPORT int fmi2EnterInitializationMode(void *c) { return OK; }
EXPORT int fmi2ExitInitializationMode(void *c) { return OK; }
EXPORT int fmi2Terminate(void *c) { return OK; }
EXPORT int fmi2GetReal(void *c, const Reference *r, size_t n, double *v) {
    for (size_t i = 0; i < n; i++) v[i] = ((Unit *)c)->real[r[i]];
    return OK;
}
EXPORT int fmi2SetReal(void *c, const Reference *r, size_t n, const double *v) {
    for (size_t i = 0; i < n; i++) ((Unit *)c)->real[r[i]] = v[i];
    return OK;
}
static int say(Unit *unit, int status, const char *what, double time) {
    unit->call.log(unit->call.environment, unit->name, status, "error", "%s at t = %.3f after %d steps (%s)", what, time,
                   unit->steps, "awkward");
    return status;
}
EXPORT int fmi2DoStep(void *c, double time, double h, int final) {
    Unit *unit = c;
    double end = time + h;
    unit->reached = time;
    if (unit->real[STRICT] && time != unit->time) return say(unit, ERROR, "communication point moved", time);
    if (h > unit->real[LONGEST_STEP] * (1 + 1e-12)) {
        unit->reached = time + unit->real[LONGEST_STEP];
        return say(unit, DISCARD, "step too long", time);
    }
    if (end > unit->real[END_AT]) {
        unit->ended = 1;
        return DISCARD;
    }
    if (end > unit->real[FAIL_AT]) return say(unit, ERROR, "pump ran dry", end);
    if (end > unit->real[FATAL_AT]) return say(unit, FATAL, "memory is gone", end);
    unit->steps++;
    unit->time += h;
    unit->real[Y] = end > unit->real[NAN_AT] ? NAN : end;
    return OK;
}
EXPORT int fmi2GetRealStatus(void *c, int kind, double *value) {
    if (kind != LAST_SUCCESSFUL_TIME) return DISCARD;
    *value = ((Unit *)c)->reached;
    return OK;
}
EXPORT int fmi2GetBooleanStatus(void *c, int kind, int *value) {
    if (kind != TERMINATED) return DISCARD;
    *value = ((Unit *)c)->ended;
    return OK;
}

/* FMI 1.0 for co-simulation: a lag x' = gain u − x by forward Euler, and one output of every type.

   It is strict, as the standard allows: values cannot be asked for before the initialisation, nor parameters set after
   it. A step that ends after `fail_at` is an error with a message; LATE finishes its steps when it is asked for them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define NAME(function) lag1_##function
enum { OK, WARNING, DISCARD, ERROR, FATAL, PENDING };
enum { X, U, GAIN, FAIL_AT, REALS };
enum { STEPS, OFFSET, INTEGERS };
enum { ABOVE, INVERTED, BOOLEANS };
enum { LABEL, TITLE, STRINGS };

typedef unsigned int Reference;
typedef void (*Logger)(void *, const char *, int, const char *, const char *, ...);
typedef struct {
    Logger log;
    void *(*allocate)(size_t, size_t);
    void (*release)(void *);
    void (*finished)(void *, int);
} Callbacks;

typedef struct {
    double real[REALS];
    int integer[INTEGERS];
    char boolean[BOOLEANS];
    char text[STRINGS][64];
    char name[64], where[256];
    int initialised;
    double due;
    Callbacks call;
} Unit;

static void defaults(Unit *unit) {
    unit->real[X] = unit->real[U] = 0.0;
    unit->real[GAIN] = 1.0;
    unit->real[FAIL_AT] = 1e300;
    unit->integer[OFFSET] = unit->boolean[INVERTED] = unit->initialised = 0;
    unit->integer[STEPS] = 0;
    strcpy(unit->text[TITLE], "lag");
}

static void refresh(Unit *unit) {
    unit->boolean[ABOVE] = (unit->real[X] > 0.5) != (unit->boolean[INVERTED] != 0);
    snprintf(unit->text[LABEL], sizeof unit->text[LABEL], "%s %d", unit->text[TITLE], unit->integer[STEPS]);
}

EXPORT const char *NAME(fmiGetTypesPlatform)(void) { return "standard32"; }
EXPORT const char *NAME(fmiGetVersion)(void) { return "1.0"; }
EXPORT void *NAME(fmiInstantiateSlave)(const char *name, const char *token, const char *where, const char *kind, double timeout,
                                       char visible, char interactive, Callbacks call, char logging) {
    if (strcmp(token, "lag1") != 0) return NULL;
    Unit *unit = call.allocate(1, sizeof *unit);
    defaults(unit);
    unit->call = call;
    strncpy(unit->name, name, sizeof unit->name - 1);
    strncpy(unit->where, where, sizeof unit->where - 1);
    return unit;
}
EXPORT void NAME(fmiFreeSlaveInstance)(void *c) {
    Unit *unit = c;
    unit->call.release(unit);
}
EXPORT int NAME(fmiSetDebugLogging)(void *c, char on) { return OK; }
EXPORT int NAME(fmiInitializeSlave)(void *c, double start, char stops, double stop) {
    Unit *unit = c;
    unit->initialised = 1;
    unit->integer[STEPS] = unit->integer[OFFSET];
    refresh(unit);
    return OK;
}
EXPORT int NAME(fmiTerminateSlave)(void *c) { return OK; }
EXPORT int NAME(fmiResetSlave)(void *c) {
    defaults(c);
    return OK;
}

static int said(Unit *unit, const char *what, int number) {
    unit->call.log(unit, unit->name, ERROR, "error", "%s %d at the wrong time", what, number);
    return ERROR;
}

#define VALUES(Name, type, field, inputs)                                                                              \
    EXPORT int NAME(fmiGet##Name)(void *c, const Reference *r, size_t n, type *v) {                                    \
        Unit *unit = c;                                                                                                \
        for (size_t i = 0; i < n; i++) {                                                                               \
            if (!unit->initialised) return said(unit, "get", r[i]);                                                    \
            v[i] = unit->field[r[i]];                                                                                  \
        }                                                                                                              \
        return OK;                                                                                                     \
    }                                                                                                                  \
    EXPORT int NAME(fmiSet##Name)(void *c, const Reference *r, size_t n, const type *v) {                              \
        Unit *unit = c;                                                                                                \
        for (size_t i = 0; i < n; i++) {                                                                               \
            if (unit->initialised && !(inputs)) return said(unit, "set", r[i]);                                        \
            unit->field[r[i]] = v[i];                                                                                  \
        }                                                                                                              \
        return OK;                                                                                                     \
    }
VALUES(Real, double, real, r[i] == U)
VALUES(Integer, int, integer, 0)
VALUES(Boolean, char, boolean, 0)
EXPORT int NAME(fmiGetString)(void *c, const Reference *r, size_t n, const char **v) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++) v[i] = unit->text[r[i]];
    return unit->initialised ? OK : said(unit, "get text", 0);
}
EXPORT int NAME(fmiSetString)(void *c, const Reference *r, size_t n, const char *const *v) {
    Unit *unit = c;
    if (unit->initialised) return said(unit, "set text", 0);
    for (size_t i = 0; i < n; i++) strncpy(unit->text[r[i]], v[i], sizeof unit->text[0] - 1);
    return OK;
}

static void advance(Unit *unit, double duration) {
    unit->real[X] += duration * (unit->real[GAIN] * unit->real[U] - unit->real[X]);
    unit->integer[STEPS]++;
    refresh(unit);
}
EXPORT int NAME(fmiDoStep)(void *c, double time, double duration, char fresh) {
    Unit *unit = c;
    if (!fresh || time + duration > unit->real[FAIL_AT]) return said(unit, "step", unit->integer[STEPS]);
#ifdef LATE
    unit->due = duration;
    return PENDING;
#else
    advance(unit, duration);
    return OK;
#endif
}
EXPORT int NAME(fmiGetStatus)(void *c, int kind, int *status) {
    Unit *unit = c;
    *status = unit->due > 0.0 ? PENDING : OK;
    if (unit->due > 0.0) advance(unit, unit->due);
    unit->due = 0.0;
    return OK;
}

/* FMPy wants every function to be there. */
#define ABSENT(Name) EXPORT int NAME(Name)(void) { return ERROR; }
ABSENT(fmiCancelStep)
ABSENT(fmiGetRealStatus)
ABSENT(fmiGetIntegerStatus)
ABSENT(fmiGetBooleanStatus)
ABSENT(fmiGetStringStatus)
ABSENT(fmiSetRealInputDerivatives)
ABSENT(fmiGetRealOutputDerivatives)

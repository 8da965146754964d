/* The bound: one FMU for model exchange (FMI 2.0, no events), a held input, CVODE, all outputs recorded, and nothing else. The
   functions of SUNDIALS 7 are declared as its headers do (sunrealtype double, sunindextype int64_t). */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void *Vector;
int SUNContext_Create(int, void **);
double *N_VGetArrayPointer(Vector);
Vector N_VNew_Serial(int64_t, void *);
void *SUNDenseMatrix(int64_t, int64_t, void *);
void *SUNLinSol_Dense(Vector, void *, void *);
void *CVodeCreate(int, void *);
int CVodeInit(void *, int (*)(double, Vector, Vector, void *), double, Vector);
int CVodeReInit(void *, double, Vector);
int CVodeSStolerances(void *, double, double);
int CVodeSetLinearSolver(void *, void *, void *);
int CVodeSetUserData(void *, void *);
int CVodeSetStopTime(void *, double);
int CVodeSetMaxNumSteps(void *, long);
int CVode(void *, double, Vector, double *, int);

typedef struct {
    void (*log)(void *, const char *, int, const char *, const char *, ...);
    void *(*allocate)(size_t, size_t);
    void (*free)(void *);
    void *finished, *environment;
} Callbacks;

typedef struct {
    void *component, *memory;
    int (*time)(void *, double);
    int (*states)(void *, const double *, size_t);
    int (*derivatives)(void *, double *, size_t);
    int (*set)(void *, const uint32_t *, size_t, const double *);
    int (*get)(void *, const uint32_t *, size_t, double *);
    Vector x;
    size_t nx;
    long at;
} Unit;

static void say(void *e, const char *n, int s, const char *c, const char *m, ...) {}
static const Callbacks callbacks = {say, calloc, free, NULL, NULL};

static int rhs(double t, Vector x, Vector dx, void *data) {
    Unit *u = data;
    if (u->time(u->component, t) > 1 || u->states(u->component, N_VGetArrayPointer(x), u->nx) > 1) return -1;
    return u->derivatives(u->component, N_VGetArrayPointer(dx), u->nx) > 1 ? -1 : 0;
}

/* An initialised unit of `nx` states with some start values; NULL where something is missing. */
void *cvode_open(const char *path, const char *token, size_t nx, const uint32_t *given, const double *values, size_t count, double tolerance) {
    void *library = dlopen(path, RTLD_NOW), *context;
    if (!library) return NULL;
    Unit *unit = calloc(1, sizeof *unit);
    unit->time = dlsym(library, "fmi2SetTime"), unit->states = dlsym(library, "fmi2SetContinuousStates");
    unit->derivatives = dlsym(library, "fmi2GetDerivatives"), unit->set = dlsym(library, "fmi2SetReal"), unit->get = dlsym(library, "fmi2GetReal");
    void *(*make)(const char *, int, const char *, const char *, const Callbacks *, int, int) = dlsym(library, "fmi2Instantiate");
    int (*setup)(void *, int, double, double, int, double) = dlsym(library, "fmi2SetupExperiment");
    int (*first)(void *, double *, size_t) = dlsym(library, "fmi2GetContinuousStates");
    int (*update)(void *, void *) = dlsym(library, "fmi2NewDiscreteStates");
    void *c = unit->component = make("bare", 0, token, "", &callbacks, 0, 0);
    char information[64];
    setup(c, 0, 0.0, 0.0, 0, 0.0);
    unit->set(c, given, count, values);
    ((int (*)(void *))dlsym(library, "fmi2EnterInitializationMode"))(c);
    ((int (*)(void *))dlsym(library, "fmi2ExitInitializationMode"))(c);
    update(c, information);
    ((int (*)(void *))dlsym(library, "fmi2EnterContinuousTimeMode"))(c);
    SUNContext_Create(0, &context);
    unit->nx = nx;
    unit->x = N_VNew_Serial((int64_t)nx, context);
    first(c, N_VGetArrayPointer(unit->x), nx);
    unit->memory = CVodeCreate(2, context);
    CVodeInit(unit->memory, rhs, 0.0, unit->x);
    CVodeSStolerances(unit->memory, tolerance, tolerance);
    CVodeSetUserData(unit->memory, unit);
    void *matrix = SUNDenseMatrix((int64_t)nx, (int64_t)nx, context);
    CVodeSetLinearSolver(unit->memory, SUNLinSol_Dense(unit->x, matrix, context), matrix);
    CVodeSetMaxNumSteps(unit->memory, 1000000);
    return unit;
}

/* Steps of length h; rows: the time and `ny` outputs. The solver starts anew at every step where `anew` says so. */
int cvode_loop(void *given, double h, long steps, int anew, uint32_t u, double held, const uint32_t *out, size_t ny, double *rows) {
    Unit *unit = given;
    for (long k = unit->at; k < unit->at + steps; ++k, rows += ny + 1) {
        double t = (double)k * h, end = (double)(k + 1) * h;
        if (unit->set(unit->component, &u, 1, &held) > 1) return 1;
        if (anew && CVodeReInit(unit->memory, t, unit->x)) return 2;
        CVodeSetStopTime(unit->memory, end);
        if (CVode(unit->memory, end, unit->x, &t, 1) < 0) return 3;
        if (unit->time(unit->component, end) > 1 || unit->states(unit->component, N_VGetArrayPointer(unit->x), unit->nx) > 1) return 4;
        rows[0] = end;
        if (unit->get(unit->component, out, ny, rows + 1) > 1) return 5;
    }
    unit->at += steps;
    return 0;
}

/* What the models of the test bed share: a state, its solver, and variables counted through
   [x, u, y, dx, p, time].

   A model (the file named by MODEL) gives the sizes NX, NU, NY, NP, and

       dx = f(x, u, p),   y = g(x, u, p),   J = [df/dx df/du; dg/dx dg/du]   (rows: dx, y; columns: x, u)

   The builder gives the start values START_X, START_U, START_P and the solver: steps of at most MICRO seconds of
   forward Euler (SOLVER 1) or RK4 (SOLVER 4). The input is held over a communication step. Functions for saving
   states and for derivatives exist only where STATES and DERIVATIVES are defined, as the description says. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include MODEL

typedef struct {
    double x[NX], u[NU], p[NP];
    double time;
    int initialised;
} State;

static const State START = {START_X, START_U, START_P, 0.0, 0};

static void advance(State *s, double time, double h)
{
    int steps = (int)ceil(h / MICRO - 1e-9);
    if (steps < 1) steps = 1;
    double d = h / steps;
    s->time = time + h;
    for (int step = 0; step < steps; step++) {
        double k1[NX];
        f(s->x, s->u, s->p, k1);
#if SOLVER == 4
        double k2[NX], k3[NX], k4[NX], at[NX];
        for (int i = 0; i < NX; i++) at[i] = s->x[i] + d / 2 * k1[i];
        f(at, s->u, s->p, k2);
        for (int i = 0; i < NX; i++) at[i] = s->x[i] + d / 2 * k2[i];
        f(at, s->u, s->p, k3);
        for (int i = 0; i < NX; i++) at[i] = s->x[i] + d * k3[i];
        f(at, s->u, s->p, k4);
        for (int i = 0; i < NX; i++) s->x[i] += d / 6 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
#else
        for (int i = 0; i < NX; i++) s->x[i] += d * k1[i];
#endif
    }
}

static int get(const State *s, unsigned int reference, double *value)
{
    double y[NY], dx[NX];
    unsigned int r = reference;
    if (r < NX) return *value = s->x[r], 1;
    if ((r -= NX) < NU) return *value = s->u[r], 1;
    if ((r -= NU) < NY) return g(s->x, s->u, s->p, y), *value = y[r], 1;
    if ((r -= NY) < NX) return f(s->x, s->u, s->p, dx), *value = dx[r], 1;
    if ((r -= NX) < NP) return *value = s->p[r], 1;
    return r == NP ? (*value = s->time, 1) : 0;
}

/* States and parameters are set until initialisation ends, inputs always. */
static int set(State *s, unsigned int reference, double value)
{
    unsigned int r = reference;
    if (r < NX) return s->initialised ? 0 : (s->x[r] = value, 1);
    if ((r -= NX) < NU) return s->u[r] = value, 1;
    if (s->initialised || r < NU + NY + NX || (r -= NU + NY + NX) >= NP) return 0;
    return s->p[r] = value, 1;
}

#ifdef DERIVATIVES
/* result_i = sum_j J_ij seed_j for unknowns among dx and y and knowns among x and u. */
static int directional(const State *s, const unsigned int *unknown, size_t unknowns, const unsigned int *known,
                       size_t knowns, const double *seed, double *result)
{
    double J[NX + NY][NX + NU];
    memset(J, 0, sizeof J);
    jacobian(s->x, s->u, s->p, J);
    for (size_t i = 0; i < unknowns; i++) {
        unsigned int row = unknown[i] - NX - NU;
        if (unknown[i] < NX + NU || row >= NY + NX) return 0;
        row = row < NY ? NX + row : row - NY;
        result[i] = 0.0;
        for (size_t j = 0; j < knowns; j++) {
            if (known[j] >= NX + NU) return 0;
            result[i] += J[row][known[j]] * seed[j];
        }
    }
    return 1;
}
#endif

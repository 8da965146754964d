/* A unit with the peculiarities of other people's FMUs, for both versions of FMI: x' = u, y = x + feed * u, z = -y.

   Parameters switch them on: with `late` the outputs are 0 until initialisation has ended, with `end_at` the unit wants
   the simulation to end then, with `highest` it refuses input derivatives above an order, from `refuse_at` on all of
   them; an empty list of them is always an error. What comes before parameters are known is chosen when compiling:

   HOST_MATH     the mathematics are left to the program that loads the library
   OWN_POINTER   the logger is handed the unit's own component instead of the environment
   NO_STATE      it declares to save states, and gives none
   NO_INSTANTIATE, NO_STATUS   functions that are missing */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { Y, Z, U, X0, FEED, LATE, END_AT, HIGHEST, REFUSE_AT, REFUSED, DERIVED, COUNT };
enum { ORDERS = 4 };

typedef struct {
    double real[COUNT];
    double x, reached;
    double slopes[ORDERS]; /* d^j u / dt^j / j! for the next step */
    int initialised, ended;
} State;

static const State START = {.real = {[END_AT] = 1e300, [HIGHEST] = 2, [REFUSE_AT] = 1e300}};

#ifdef HOST_MATH
static volatile double two = 2.0; /* no constant, so that the functions are called */
static double same(double x) { return x * (log(exp(two)) / 2.0) * floor(pow(two, 0.5)); }
#else
static double same(double x) { return x; }
#endif

static void initialise(State *s) {
    s->initialised = 1;
    s->x = s->real[X0];
}

static double get(const State *s, unsigned int r) {
    if (r != Y && r != Z) return s->real[r];
    const double x = s->initialised ? s->x : s->real[X0];
    const double y = s->real[LATE] && !s->initialised ? 0.0 : same(x + s->real[FEED] * s->real[U]);
    return r == Y ? y : -y;
}

/* Integrates the polynomial of the input, and says whether the unit wants to end. */
static bool advance(State *s, double time, double h) {
    s->ended = time + h > s->real[END_AT] - 1e-9 * h;
    const double d = s->ended ? fmax(0.0, fmin(h, s->real[END_AT] - time)) : h;
    s->x += d * s->real[U];
    for (int j = 1; j < ORDERS; j++) s->x += s->slopes[j] * pow(d, j + 1) / (j + 1);
    memset(s->slopes, 0, sizeof s->slopes);
    s->reached = time + d;
    return s->ended;
}

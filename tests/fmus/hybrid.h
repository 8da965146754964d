/* Models for model exchange, one chosen when compiling: BALL, OSCILLATOR, STAIRS, LINEAR, SAW or SAMPLER (FMI 3.0 only). FMI 2.0
   and 3.0 share them.

   Values by reference: states, their derivatives, inputs, outputs, parameters, in the order of `hybrid.py`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST 16
typedef struct {
    double time, value[MOST], next, past;
    int count, timed, finished;
    int in_event, counting; /* of SAMPLER: in event mode; a new interval is known */
} Unit;

#if defined BALL /* bounces with restitution e until it is too slow, then rests */
enum { H, V, DH, DV, G, E, STATES = 2, INDICATORS = 1 };
static void start(Unit *u) { u->value[H] = 1.0, u->value[G] = -9.81, u->value[E] = 0.7; }
static void evaluate(Unit *u) { u->value[DH] = u->value[V], u->value[DV] = u->value[G]; }
static void indicate(const Unit *u, double *z) { z[0] = u->value[H] == 0.0 && u->value[V] == 0.0 ? 1.0 : u->value[H]; }
static int event(Unit *u) {
    if (u->value[H] > 0.0 || u->value[V] >= 0.0) return 0;
    u->value[H] = 1e-300; /* above the ground again */
    u->value[V] *= -u->value[E];
    if (u->value[V] < 0.1) u->value[H] = u->value[V] = u->value[G] = 0.0;
    return 1;
}
static int completed(const Unit *u) { return 0; }
#elif defined OSCILLATOR /* van der Pol's, stiff: x'' = mu (1 - x^2) x' - x */
enum { X, V, DX, DV, MU, STATES = 2, INDICATORS = 0 };
static void start(Unit *u) { u->value[X] = 2.0, u->value[MU] = 1000.0; }
static void evaluate(Unit *u) {
    double *v = u->value;
    v[DX] = v[V], v[DV] = v[MU] * (1.0 - v[X] * v[X]) * v[V] - v[X];
}
static void indicate(const Unit *u, double *z) {}
static int event(Unit *u) { return 0; }
static int completed(const Unit *u) { return 0; }
#elif defined STAIRS /* one up every tenth of a second, and the end at the last one */
enum { Y, LAST, STATES = 0, INDICATORS = 0 };
static void start(Unit *u) { u->value[LAST] = 1e9, u->timed = 1, u->next = 0.1; }
static void evaluate(Unit *u) { u->value[Y] = u->count; }
static void indicate(const Unit *u, double *z) {}
static int event(Unit *u) {
    if (u->time < u->next) return 0;
    u->count++;
    u->next = (u->count + 1) * 0.1;
    u->finished = u->count >= u->value[LAST];
    return 0;
}
static int completed(const Unit *u) { return 0; }
#elif defined SAMPLER /* x' = u; `tick` takes a sample of x, and `later` another one `delay` seconds after that */
enum { X, DX, U, SAMPLE, COUNT, LATE, LATES, DELAY, STATES = 1, INDICATORS = 0, TICK = 20, LATER };
static void start(Unit *u) { u->value[DELAY] = -1.0, u->value[SAMPLE] = u->value[LATE] = -1.0; }
static void evaluate(Unit *u) { u->value[DX] = u->value[U]; }
static void indicate(const Unit *u, double *z) {}
static int event(Unit *u) { return 0; }
static int completed(const Unit *u) { return 0; }
static int clock(Unit *u, unsigned which) {
    double *v = u->value;
    if (!u->in_event) return 0;
    v[which == TICK ? SAMPLE : LATE] = v[X];
    v[which == TICK ? COUNT : LATES] += 1.0;
    u->counting = u->counting || (which == TICK && v[DELAY] >= 0.0);
    return 1;
}
#elif defined SAW /* x' = 1, taken back to 0 by the event that is asked for after a step that ended beyond 1 */
enum { X, DX, STATES = 1, INDICATORS = 0 };
static void start(Unit *u) {}
static void evaluate(Unit *u) { u->value[DX] = 1.0; }
static void indicate(const Unit *u, double *z) {}
static int event(Unit *u) {
    if (u->value[X] < 1.0) return 0;
    u->value[X] = 0.0;
    return 1;
}
static int completed(const Unit *u) { return u->value[X] >= 1.0; }
#else /* LINEAR: x'' = u - k x - c x', y = x + d u; derivatives fail, or are no numbers, from some time on

   Not quite linear where asked: with a `square` of x, a `drift` of k in time, or a force of the input some steps before (`late`),
   or put back to 0 after a step that ended beyond `stop`. */
enum { X, V, DX, DV, U, Y, K, C, D, FAIL_AT, NAN_AT, SQUARE, DRIFT, LATE, STOP, STATES = 2, INDICATORS = 0 };
static void start(Unit *u) {
    u->value[K] = 4.0, u->value[C] = 0.4;
    u->value[FAIL_AT] = u->value[NAN_AT] = 1e300;
}
static void evaluate(Unit *u) {
    double *v = u->value;
    const double more = v[SQUARE] * v[X] * v[X] + v[DRIFT] * u->time * v[X] + v[LATE] * u->past;
    v[DX] = v[V], v[DV] = u->time > v[NAN_AT] ? NAN : v[U] - v[K] * v[X] - v[C] * v[V] - more;
    v[Y] = v[X] + v[D] * v[U];
}
static void indicate(const Unit *u, double *z) {}
static int event(Unit *u) {
    if (!u->value[STOP] || fabs(u->value[X]) <= u->value[STOP]) return 0;
    u->value[X] = u->value[V] = 0.0;
    return 1;
}
static int completed(Unit *u) {
    u->past = u->value[U];
    return u->value[STOP] && fabs(u->value[X]) > u->value[STOP];
}
#define FAILS(u) ((u)->time > (u)->value[FAIL_AT])
/* d unknown / d known */
static double partial(const Unit *u, unsigned unknown, unsigned known) {
    const double *v = u->value;
    if (unknown == DX) return known == V;
    if (unknown == DV) return known == X ? -v[K] : known == V ? -v[C] : known == U;
    return known == X ? 1.0 : known == U ? v[D] : 0.0;
}
#endif
#ifndef FAILS
#define FAILS(u) 0
#define partial(u, unknown, known) 0.0
#endif

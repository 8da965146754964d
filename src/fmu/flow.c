#include "flow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A flow is computed once per duration and used millions of times. Extended precision, where the machine has it, pays
 * for the digits that squaring costs, and the result is right to the last bit or two of a double. */
typedef long double real;

/* At ‖A τ‖ ≤ 1/2 the first term left out is below 2^-21 / 21!, about 1e-26. */
enum { TERMS = 20, SWEEPS = 30 };

typedef struct {
    size_t n, m, width; /* width = n + 3 m */
    real *A, *B;        /* the unit's matrices, rescaled for EXACT */
    real *now, *next, *power, *spare;
    real *scale;
    real *memory;
} workspace;

static int prepare(workspace *work, const description *unit)
{
    size_t n = work->n = unit->states, m = work->m = unit->inputs;
    size_t flow = n * (work->width = n + (DEGREE + 1) * m), i;
    work->memory = calloc(n * n + n * m + 4 * flow + n + 1, sizeof(real));
    if (!work->memory) return 0;
    work->A = work->memory;
    work->B = work->A + n * n;
    work->now = work->B + n * m;
    work->next = work->now + flow;
    work->power = work->next + flow;
    work->spare = work->power + flow;
    work->scale = work->spare + flow;
    for (i = 0; i < n * n; i++) work->A[i] = unit->A[i];
    for (i = 0; i < n * m; i++) work->B[i] = unit->B[i];
    for (i = 0; i < n; i++) work->scale[i] = 1;
    return 1;
}

static void swap(real **one, real **other)
{
    real *kept = *one;
    *one = *other;
    *other = kept;
}

/* out = left · right with left n × n in rows of `stride`; most units are sparse, so zeros are passed over. Four columns
 * at a time stay in registers: storing extended numbers is slow. */
static void multiply(real *out, const real *left, size_t stride, const real *right, size_t n, size_t width)
{
    for (size_t i = 0; i < n; i++) {
        const real *row = left + i * stride;
        size_t j = 0;
        for (; j + 4 <= width; j += 4) {
            real sum[4] = {0, 0, 0, 0};
            for (size_t k = 0; k < n; k++) {
                if (row[k] == 0) continue;
                const real *from = right + k * width + j;
                for (int c = 0; c < 4; c++) sum[c] += row[k] * from[c];
            }
            for (int c = 0; c < 4; c++) out[i * width + j + c] = sum[c];
        }
        for (; j < width; j++) {
            real sum = 0;
            for (size_t k = 0; k < n; k++)
                if (row[k] != 0) sum += row[k] * right[k * width + j];
            out[i * width + j] = sum;
        }
    }
}

/* out = second ∘ first, where `first` lasts τ: the second flow sees the input polynomial moved along by τ. */
static void compose(const workspace *work, real *out, const real *second, const real *first, real tau)
{
    size_t n = work->n, m = work->m, width = work->width;
    multiply(out, second, width, first, n, width);
    for (size_t i = 0; i < n; i++) {
        const real *value = second + i * width + n, *slope = value + m, *bend = slope + m;
        real *row = out + i * width + n;
        for (size_t j = 0; j < m; j++) {
            row[j] += value[j];
            row[m + j] += tau * value[j] + slope[j];
            row[2 * m + j] += tau * tau / 2 * value[j] + tau * slope[j] + bend[j];
        }
    }
}

/* Parlett and Reinsch's balancing, powers of two only, so exact: A ← S⁻¹ A S, B ← S⁻¹ B. A stiff spring makes A
 * large and its waves merely fast; balanced, the norm measures the waves, and fewer squarings are needed. */
static void balance(workspace *work)
{
    size_t n = work->n, m = work->m;
    for (int sweep = 0, changed = 1; sweep < SWEEPS && changed; sweep++) {
        changed = 0;
        for (size_t i = 0; i < n; i++) {
            real row = 0, column = 0;
            for (size_t j = 0; j < n; j++) {
                row += fabsl(work->A[i * n + j]);
                column += fabsl(work->A[j * n + i]);
            }
            if (row == 0 || column == 0) continue;
            int exponent = (int)lroundl(log2l(row / column) / 2);
            real factor = ldexpl(1, exponent);
            if (!isfinite(row + column) || row / factor + column * factor > 0.95L * (row + column)) continue;
            changed = 1;
            work->scale[i] *= factor;
            for (size_t j = 0; j < n; j++) work->A[i * n + j] /= factor;
            for (size_t j = 0; j < n; j++) work->A[j * n + i] *= factor;
            for (size_t j = 0; j < m; j++) work->B[i * m + j] /= factor;
        }
    }
}

static void undo_balance(workspace *work, real *flow)
{
    for (size_t i = 0; i < work->n; i++)
        for (size_t j = 0; j < work->width; j++)
            flow[i * work->width + j] *= work->scale[i] / (j < work->n ? work->scale[j] : 1);
}

static int halvings(const workspace *work, real duration)
{
    real norm = 0;
    for (size_t j = 0; j < work->n; j++) {
        real column = 0;
        for (size_t i = 0; i < work->n; i++) column += fabsl(work->A[i * work->n + j]);
        if (!(column <= norm)) norm = column;
    }
    int exponent = 0;
    if (isfinite(norm * duration)) frexpl(norm * duration, &exponent); /* norm · duration < 2^exponent */
    return exponent + 1 > 0 ? exponent + 1 : 0;
}

/* F = Σ (Aτ)^k / k!, G_l = τ^l Σ (Aτ)^k / (k + l + 1)! Bτ: the exponential and the functions φ_1, φ_2, φ_3. */
static void series(workspace *work, real tau)
{
    size_t n = work->n, m = work->m, narrow = n + m;
    real *term = work->power, *next = work->spare, *flow = work->now;
    memset(term, 0, n * narrow * sizeof(real));
    memset(flow, 0, n * work->width * sizeof(real));
    for (size_t i = 0; i < n; i++) {
        term[i * narrow + i] = 1;
        for (size_t j = 0; j < m; j++) term[i * narrow + n + j] = tau * work->B[i * m + j];
    }
    for (int k = 0; k <= TERMS; k++) {
        for (size_t i = 0; i < n; i++) {
            const real *from = term + i * narrow;
            real *to = flow + i * work->width;
            for (size_t j = 0; j < n; j++) to[j] += from[j];
            for (size_t j = n; j < narrow; j++) {
                to[j] += from[j];
                to[j + m] += tau * from[j] / (k + 2);
                to[j + 2 * m] += tau * tau * from[j] / ((real)(k + 2) * (k + 3));
            }
        }
        multiply(next, work->A, n, term, n, narrow);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < narrow; j++) next[i * narrow + j] *= tau / (j < n ? k + 1 : k + 2);
        swap(&term, &next);
    }
}

/* A short flow by its series, then doubled. Exact flows compose exactly: micro steps make no difference. */
static void exact(workspace *work, real duration)
{
    balance(work);
    int doublings = halvings(work, duration);
    real tau = ldexpl(duration, -doublings);
    series(work, tau);
    for (int k = 0; k < doublings; k++, tau *= 2) {
        compose(work, work->next, work->now, work->now, tau);
        swap(&work->now, &work->next);
    }
    undo_balance(work, work->now);
}

/* out = τ (A x + B u(θ τ)) for all columns of `state`. */
static void slope(const workspace *work, real *out, const real *state, real theta, real tau)
{
    size_t n = work->n, m = work->m, width = work->width;
    multiply(out, work->A, n, state, n, width);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++) {
            real *row = out + i * width + n + j, entry = work->B[i * m + j];
            row[0] += entry;
            row[m] += theta * tau * entry;
            row[2 * m] += theta * theta * tau * tau / 2 * entry;
        }
    for (size_t i = 0; i < n * width; i++) out[i] *= tau;
}

static void runge_kutta(workspace *work, real tau)
{
    static const real theta[4] = {0, 0.5L, 0.5L, 1}, weight[4] = {1, 2, 2, 1};
    size_t size = work->n * work->width;
    real *start = work->now, *stage = work->next, *k = work->power, *sum = work->spare;
    memcpy(stage, start, size * sizeof(real));
    memset(sum, 0, size * sizeof(real));
    for (int s = 0; s < 4; s++) {
        slope(work, k, stage, theta[s], tau);
        for (size_t i = 0; i < size; i++) sum[i] += weight[s] * k[i];
        if (s < 3)
            for (size_t i = 0; i < size; i++) stage[i] = start[i] + theta[s + 1] * k[i];
    }
    for (size_t i = 0; i < size; i++) start[i] += sum[i] / 6;
}

/* One micro step, written to `now`, from the columns of the identity. */
static void micro_step(workspace *work, uint32_t integrator, real tau)
{
    size_t n = work->n, width = work->width, half = n / 2 * width;
    memset(work->now, 0, n * width * sizeof(real));
    for (size_t i = 0; i < n; i++) work->now[i * width + i] = 1;
    if (integrator == RUNGE_KUTTA_4) {
        runge_kutta(work, tau);
        return;
    }
    slope(work, work->next, work->now, 0, tau);
    if (integrator == FORWARD_EULER) half = 0;
    for (size_t i = half; i < n * width; i++) work->now[i] += work->next[i];
    for (size_t i = 0; i < half; i++) work->now[i] += tau * work->now[half + i]; /* q' = q + τ v' */
}

/* `now` ← its `count`-th power, by repeated squaring. */
static void repeat(workspace *work, uint32_t count, real tau)
{
    size_t n = work->n, width = work->width;
    real done = 0;
    swap(&work->power, &work->now);
    memset(work->now, 0, n * width * sizeof(real));
    for (size_t i = 0; i < n; i++) work->now[i * width + i] = 1;
    for (; count; count >>= 1, tau *= 2) {
        if (count & 1) {
            compose(work, work->next, work->power, work->now, done);
            swap(&work->now, &work->next);
            done += tau;
        }
        if (count == 1) return;
        compose(work, work->spare, work->power, work->power, tau);
        swap(&work->power, &work->spare);
    }
}

size_t flow_size(const description *unit)
{
    size_t panels = (unit->states + PANEL - 1) / PANEL;
    return panels * PANEL * (unit->states + (DEGREE + 1) * unit->inputs);
}

static enum flow_outcome write_panels(const workspace *work, double *panels)
{
    memset(panels, 0, (work->n + PANEL - 1) / PANEL * PANEL * work->width * sizeof(double));
    for (size_t i = 0; i < work->n; i++)
        for (size_t j = 0; j < work->width; j++) {
            double value = (double)work->now[i * work->width + j];
            if (!isfinite(value)) return FLOW_NOT_FINITE;
            panels[(i / PANEL * work->width + j) * PANEL + i % PANEL] = value;
        }
    return FLOW_DONE;
}

/* Windows lets `long double` round to the 53 bits of a double: bits 8 and 9 of the control word, both set for 64 bits. */
#if defined(_WIN32) && defined(__x86_64__)
static uint16_t get_control(void)
{
    uint16_t word;
    __asm__ volatile("fnstcw %0" : "=m"(word));
    return word;
}
static void set_control(uint16_t word) { __asm__ volatile("fldcw %0" : : "m"(word)); }
#else
static uint16_t get_control(void) { return 0; }
static void set_control(uint16_t word) { (void)word; }
#endif

enum flow_outcome flow_compute(const description *unit, double duration, double *panels)
{
    workspace work;
    if (!prepare(&work, unit)) return FLOW_OUT_OF_MEMORY;
    const uint16_t control = get_control();
    set_control(control | 0x300);
    if (unit->integrator == EXACT) {
        exact(&work, duration);
    } else {
        real tau = (real)duration / unit->micro_steps;
        micro_step(&work, unit->integrator, tau);
        repeat(&work, unit->micro_steps, tau);
    }
    enum flow_outcome outcome = write_panels(&work, panels);
    set_control(control);
    free(work.memory);
    return outcome;
}

/* The bound: a Jacobi loop over FMI 2 function pointers, all outputs recorded, and nothing else. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef int (*set_real)(void *, const uint32_t *, size_t, const double *);
typedef int (*get_real)(void *, const uint32_t *, size_t, double *);
typedef int (*do_step)(void *, double, double, int);

typedef struct {
    void *component;
    set_real set;
    get_real get;
    do_step step;
    const uint32_t *in, *out;
    size_t inputs, outputs;
    double *u, *y;
} unit;

/* u[i] = gain[i] * y[source[i]]; rows: time and all of y. Returns the first bad status. */
int bare_loop(unit *units, size_t count, double *u, double *y, size_t ny, const uint32_t *source, const double *gain,
              size_t nu, double h, long long first, long long steps, double *rows) {
    for (long long k = first; k < first + steps; ++k) {
        for (size_t i = 0; i < nu; ++i) u[i] = gain[i] * y[source[i]];
        for (size_t i = 0; i < count; ++i) {
            int status = units[i].set(units[i].component, units[i].in, units[i].inputs, units[i].u);
            if (status > 1) return status;
        }
        for (size_t i = 0; i < count; ++i) {
            int status = units[i].step(units[i].component, (double)k * h, h, 1);
            if (status > 1) return status;
        }
        for (size_t i = 0; i < count; ++i) {
            int status = units[i].get(units[i].component, units[i].out, units[i].outputs, units[i].y);
            if (status > 1) return status;
        }
        rows[0] = (double)(k + 1) * h;
        memcpy(rows + 1, y, ny * sizeof(double));
        rows += ny + 1;
    }
    return 0;
}

#include <time.h>
static void wait_for(double nanoseconds) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((double)(now.tv_sec - start.tv_sec) * 1e9 + (double)(now.tv_nsec - start.tv_nsec) < nanoseconds);
}

/* A unit that takes x[1] nanoseconds per step: x' = x / 2 + u / 4 after so long. */
int busy_step(double time, double duration, double *x, const double *u, double *y) {
    (void)time;
    (void)duration;
    wait_for(x[1]);
    x[0] = 0.5 * x[0] + 0.25 * u[0];
    y[0] = x[0];
    return 0;
}

/* A unit that takes x[0] nanoseconds per step and leaves its outputs as they are, whatever it is given. */
int busy_still_step(double time, double duration, double *x, const double *u, double *y) {
    (void)time;
    (void)duration;
    (void)u;
    (void)y;
    wait_for(x[0]);
    return 0;
}

/* Nanoseconds for a cache line to go to another thread and its answer to come back; the least of some rounds. */
#include <pthread.h>
#include <stdatomic.h>
enum { TRIPS = 100, ROUNDS = 20 };
static _Alignas(64) atomic_long there;
static _Alignas(64) atomic_long back;

static void *answer(void *unused) {
    for (long i = 1; i <= TRIPS * ROUNDS; ++i) {
        while (atomic_load_explicit(&there, memory_order_acquire) < i)
            ;
        atomic_store_explicit(&back, i, memory_order_release);
    }
    return unused;
}

double round_trip(void) {
    pthread_t thread;
    double least = 1e300;
    atomic_store(&there, 0);
    atomic_store(&back, 0);
    if (pthread_create(&thread, NULL, answer, NULL)) return 0.0;
    for (long i = 1; i <= TRIPS * ROUNDS;) {
        struct timespec start, now;
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (long end = i + TRIPS; i < end; ++i) {
            atomic_store_explicit(&there, i, memory_order_release);
            while (atomic_load_explicit(&back, memory_order_acquire) < i)
                ;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        const double took = (double)(now.tv_sec - start.tv_sec) * 1e9 + (double)(now.tv_nsec - start.tv_nsec);
        if (took / TRIPS < least) least = took / TRIPS;
    }
    pthread_join(thread, NULL);
    return least;
}

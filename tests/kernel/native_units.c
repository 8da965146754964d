/* Native units for the tests. All that they remember is in x; x[0] is the state, the rest are settings. */
#include <math.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#ifdef _WIN32
#define kill(process, number) raise(number)
#endif

static double lag(double h, const double *x, double u) { return x[0] + h * (u - x[0]); }

int lag_step(double time, double h, double *x, const double *u, double *y) {
    x[0] = lag(h, x, u[0]);
    y[0] = x[0];
    return 0;
}
/* Two inputs, two outputs that depend on them at once, and on the time. */
int mixed_step(double time, double h, double *x, const double *u, double *y) {
    x[0] += h * (u[0] - 0.5 * x[1]);
    x[1] += h * (x[0] + sin(time) - u[1]);
    return 0;
}
int mixed_output(double time, const double *x, const double *u, double *y) {
    y[0] = x[0] + 0.1 * u[1];
    y[1] = x[1] - 0.1 * u[0] + 0.01 * time;
    return 0;
}
/* Returns x[1] in the step that begins at x[2] or later. */
int refusing_step(double time, double h, double *x, const double *u, double *y) {
    if (time >= x[2] - 1e-9) return (int)x[1];
    return lag_step(time, h, x, u, y);
}
int refusing_output(double time, const double *x, const double *u, double *y) {
    y[0] = x[0];
    return time >= x[2] - 1e-9 ? (int)x[1] : 0;
}
/* Its output is x[1] after the step that begins at x[2] or later. */
int broken_step(double time, double h, double *x, const double *u, double *y) {
    lag_step(time, h, x, u, y);
    if (time >= x[2] - 1e-9) y[0] = x[1];
    return 0;
}
/* Needs x[1] seconds for a step. */
int slow_step(double time, double h, double *x, const double *u, double *y) {
    struct timespec rest = {(time_t)x[1], (long)(1e9 * (x[1] - floor(x[1])))};
    while (nanosleep(&rest, &rest)) {
    }
    return lag_step(time, h, x, u, y);
}
/* Sends SIGINT in the step that begins at x[2] or later, once, and needs x[1] seconds for a step. */
int interrupting_step(double time, double h, double *x, const double *u, double *y) {
    if (time >= x[2] - 1e-9) {
        x[2] = INFINITY;
        kill(getpid(), SIGINT);
    }
    return slow_step(time, h, x, u, y);
}
/* Computes for x[1] rounds. */
int busy_step(double time, double h, double *x, const double *u, double *y) {
    double s = x[0];
    for (int i = 0; i < (int)x[1]; ++i) s = s + 1e-9 * sin(s + u[0]);
    x[0] = s + h * (u[0] - s);
    y[0] = x[0];
    return 0;
}
/* Stays as it is, whatever it is given. */
int still_step(double time, double h, double *x, const double *u, double *y) {
    y[0] = x[0];
    return 0;
}

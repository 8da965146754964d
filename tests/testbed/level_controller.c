/* A PI controller whose output is limited, with back-calculation against windup.

   v = kp (reference - level) + x,   y = min(max(v, 0), most),   x' = ki (reference - level) + (y - v) / unwind

   x: integral; u: level, reference; y: inflow. It has feedthrough. */
enum { NX = 1, NU = 2, NY = 1, NP = 4 };
enum { KP, KI, MOST, UNWIND };

static double wanted(const double *x, const double *u, const double *p) { return p[KP] * (u[1] - u[0]) + x[0]; }
static double limited(double v, const double *p) { return fmin(fmax(v, 0.0), p[MOST]); }

static void f(const double *x, const double *u, const double *p, double *dx)
{
    double v = wanted(x, u, p);
    dx[0] = p[KI] * (u[1] - u[0]) + (limited(v, p) - v) / p[UNWIND];
}
static void g(const double *x, const double *u, const double *p, double *y) { y[0] = limited(wanted(x, u, p), p); }
static void jacobian(const double *x, const double *u, const double *p, double J[NX + NY][NX + NU])
{
    double v = wanted(x, u, p), inside = v > 0.0 && v < p[MOST] ? 1.0 : 0.0;
    double row[NX + NU] = {1.0, -p[KP], p[KP]};
    for (int j = 0; j < NX + NU; j++) {
        J[0][j] = (inside - 1.0) / p[UNWIND] * row[j];
        J[1][j] = inside * row[j];
    }
    J[0][1] -= p[KI];
    J[0][2] += p[KI];
}

/* A pendulum with friction: I a'' = torque - m g l sin a - viscous a' - coulomb tanh(a' / creep),   I = m l^2.

   x: angle from hanging, rate; u: torque; y: angle, rate. */
enum { NX = 2, NU = 1, NY = 2, NP = 5 };
enum { MASS, LENGTH, VISCOUS, COULOMB, CREEP };
#define GRAVITY 9.81

static double inertia(const double *p) { return p[MASS] * p[LENGTH] * p[LENGTH]; }

static void f(const double *x, const double *u, const double *p, double *dx)
{
    double weight = p[MASS] * GRAVITY * p[LENGTH] * sin(x[0]);
    double friction = p[VISCOUS] * x[1] + p[COULOMB] * tanh(x[1] / p[CREEP]);
    dx[0] = x[1];
    dx[1] = (u[0] - weight - friction) / inertia(p);
}
static void g(const double *x, const double *u, const double *p, double *y)
{
    y[0] = x[0];
    y[1] = x[1];
}
static void jacobian(const double *x, const double *u, const double *p, double J[NX + NY][NX + NU])
{
    double slope = 1.0 / cosh(x[1] / p[CREEP]);
    J[0][1] = 1.0;
    J[1][0] = -p[MASS] * GRAVITY * p[LENGTH] * cos(x[0]) / inertia(p);
    J[1][1] = -(p[VISCOUS] + p[COULOMB] / p[CREEP] * slope * slope) / inertia(p);
    J[1][2] = 1.0 / inertia(p);
    J[2][0] = 1.0;
    J[3][1] = 1.0;
}

/* An actuator with its position control: lag x' = most tanh(v / most) - x,   v = kp (reference - angle) - kd rate.

   x: torque; u: angle, rate, reference; y: torque. No feedthrough. */
enum { NX = 1, NU = 3, NY = 1, NP = 4 };
enum { KP, KD, MOST, LAG };

static double wanted(const double *u, const double *p) { return p[KP] * (u[2] - u[0]) - p[KD] * u[1]; }

static void f(const double *x, const double *u, const double *p, double *dx)
{
    dx[0] = (p[MOST] * tanh(wanted(u, p) / p[MOST]) - x[0]) / p[LAG];
}
static void g(const double *x, const double *u, const double *p, double *y) { y[0] = x[0]; }
static void jacobian(const double *x, const double *u, const double *p, double J[NX + NY][NX + NU])
{
    double slope = 1.0 / cosh(wanted(u, p) / p[MOST]);
    slope *= slope / p[LAG];
    J[0][0] = -1.0 / p[LAG];
    J[0][1] = -p[KP] * slope;
    J[0][2] = -p[KD] * slope;
    J[0][3] = p[KP] * slope;
    J[1][0] = 1.0;
}

/* A tank that runs out by gravity: area h' = inflow - outflow sqrt(h). x: level; u: inflow; y: level. */
enum { NX = 1, NU = 1, NY = 1, NP = 2 };
enum { AREA, OUTFLOW };

static void f(const double *x, const double *u, const double *p, double *dx)
{
    dx[0] = (u[0] - p[OUTFLOW] * sqrt(fmax(x[0], 0.0))) / p[AREA];
}
static void g(const double *x, const double *u, const double *p, double *y) { y[0] = x[0]; }
static void jacobian(const double *x, const double *u, const double *p, double J[NX + NY][NX + NU])
{
    /* The slope of the root has no bound at an empty tank; below a tenth of a millimetre it is cut off. */
    J[0][0] = -p[OUTFLOW] / (2 * sqrt(fmax(x[0], 1e-4)) * p[AREA]);
    J[0][1] = 1 / p[AREA];
    J[1][0] = 1.0;
}

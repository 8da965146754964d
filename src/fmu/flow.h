/* The map of one step of given duration, the unit's integrator included.
 *
 * Over a step the input is u + u̇ τ + ü τ²/2, and a linear unit ends in
 *
 *     x' = F x + G_0 u + G_1 u̇ + G_2 ü
 *
 * A flow is the matrix [F G_0 G_1 G_2], n × (n + 3 m).
 */
#ifndef COSIMO_FLOW_H
#define COSIMO_FLOW_H

#include "description.h"

enum flow_outcome { FLOW_DONE, FLOW_NOT_FINITE, FLOW_OUT_OF_MEMORY };

/* Rows are kept in panels of this many, column after column, so that a step adds up all rows of a panel at once while
 * each row's sum still runs over ascending columns. */
enum { PANEL = 4 };

/* How many numbers the panels of a unit's flow hold. */
size_t flow_size(const description *unit);

/* Writes the flow over `duration` as panels; the rows that fill the last panel are zero. */
enum flow_outcome flow_compute(const description *unit, double duration, double *panels);

#endif

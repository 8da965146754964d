/* What one exported unit is: ẋ = A x + B u, y = C x + D u, its integrator, its start values.
 *
 * The library is the same for all units; everything particular stands in `resources/unit.bin`, little-endian:
 *
 *     char[8]   "cosimo-1"
 *     char[64]  token (GUID or instantiation token), padded with zeros
 *     uint32    integrator, micro steps, n states, m inputs, p outputs, 0
 *     double    A (n n), B (n m), C (p n), D (p m), initial state (n), start values of the inputs (m), row by row
 */
#ifndef COSIMO_DESCRIPTION_H
#define COSIMO_DESCRIPTION_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Of the library, only the functions of the standard are seen from outside. */
#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

enum integrator { EXACT = 0, FORWARD_EULER = 1, RUNGE_KUTTA_4 = 2, SYMPLECTIC_EULER = 3, INTEGRATORS = 4 };

/* The input over a step is a polynomial of this degree at most: value, first and second derivative. */
enum { DEGREE = 2, TOKEN_SIZE = 64, MESSAGE_SIZE = 1024 };

typedef struct {
    char token[TOKEN_SIZE + 1];
    uint32_t integrator, micro_steps;
    size_t states, inputs, outputs;
    double *numbers; /* owns all the matrices below */
    const double *A, *B, *C, *D, *initial, *start;
} description;

/* Reads `unit.bin` in the folder; on failure returns 0 with a message that names the file. */
int description_read(description *unit, const char *folder, char message[MESSAGE_SIZE]);
void description_release(description *unit);

/* The folder that a resource location means: a plain path, or a file URI with percent-encoded UTF-8. The caller frees
 * it; NULL when it is neither, or memory is short. On Windows its separators become '/', as elsewhere. */
char *folder_from_location(const char *location);

/* A file to be read, by its path in UTF-8; NULL where there is none. */
FILE *open_file(const char *path);

#endif

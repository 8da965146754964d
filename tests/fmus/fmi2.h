/* The part of the FMI 2.0 co-simulation interface that the test units use. */
#include <stddef.h>

typedef void *Environment;
typedef struct {
    void (*log)(Environment, const char *name, int status, const char *category, const char *message, ...);
    void *(*allocate)(size_t count, size_t size);
    void (*release)(void *);
    void (*finished)(Environment, int status);
    Environment environment;
} Callbacks;

typedef unsigned int Reference;
enum { OK, WARNING, DISCARD, ERROR, FATAL, PENDING };
enum { DO_STEP_STATUS, PENDING_STATUS, LAST_SUCCESSFUL_TIME, TERMINATED };
#define EXPORT __attribute__((visibility("default")))

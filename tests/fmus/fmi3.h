/* The part of the FMI 3.0 co-simulation interface that the test units use. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void *Environment;
typedef void (*Log)(Environment, int status, const char *category, const char *message);
typedef unsigned int Reference;
enum { OK, WARNING, DISCARD, ERROR, FATAL };
#define EXPORT __attribute__((visibility("default")))

#define INSTANTIATE_ARGUMENTS                                                                                          \
    const char *name, const char *token, const char *resources, bool visible, bool logging, bool event_mode,           \
        bool early_return, const Reference *intermediate, size_t intermediates, Environment environment, Log log,      \
        void *update

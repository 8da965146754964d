/* FMI 3.0 co-simulation: what an instance does, under the standard's names. */
#include "fmi3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "instance.h"

typedef struct {
    fmi3LogMessageCallback log;
    fmi3InstanceEnvironment environment;
} importer;

static void log_to_importer(void *given, int status, const char *category, const char *text)
{
    importer *to = given;
    if (to->log) to->log(to->environment, (fmi3Status)status, category, text);
}

fmi3Status fmi3_fail(fmi3Instance component)
{
    instance *unit = component;
    log_to_importer(unit->importer, fmi3Error, "logStatusError", unit->message);
    return fmi3Error;
}

fmi3Status fmi3_unsupported(fmi3Instance component, const char *function, const char *reason)
{
    snprintf(((instance *)component)->message, MESSAGE_SIZE, "%s is not supported: %s.", function, reason);
    return fmi3_fail(component);
}

static fmi3Status refuse_sizes(fmi3Instance c, size_t wanted, size_t given)
{
    snprintf(((instance *)c)->message, MESSAGE_SIZE, "%zu values were expected, %zu given; all variables are scalar.",
             wanted, given);
    return fmi3_fail(c);
}

EXPORT const char *fmi3GetVersion(void)
{
    return "3.0";
}

EXPORT fmi3Status fmi3SetDebugLogging(fmi3Instance c, fmi3Boolean on, size_t count, const fmi3String categories[])
{
    (void)count, (void)categories; /* errors are always logged */
    instance_talk(c, on);
    return fmi3OK;
}

EXPORT fmi3Instance fmi3InstantiateCoSimulation(fmi3String name, fmi3String token, fmi3String resources,
                                                fmi3Boolean visible, fmi3Boolean logging, fmi3Boolean event_mode,
                                                fmi3Boolean early_return, const fmi3ValueReference intermediate[],
                                                size_t intermediate_count, fmi3InstanceEnvironment environment,
                                                fmi3LogMessageCallback log, fmi3IntermediateUpdateCallback update)
{
    char message[MESSAGE_SIZE];
    /* Without events nothing differs in event mode, returns early, or happens between communication points. */
    (void)name, (void)visible, (void)event_mode, (void)early_return;
    (void)intermediate, (void)intermediate_count, (void)update;
    importer *to = malloc(sizeof *to);
    if (!to) {
        if (log) log(environment, fmi3Error, "logStatusError", "out of memory.");
        return NULL;
    }
    to->log = log;
    to->environment = environment;
    host told = {to, log_to_importer, logging};
    instance *unit = instance_create(resources, token, &told, message);
    if (!unit) {
        log_to_importer(to, fmi3Error, "logStatusError", message);
        free(to);
    }
    return unit;
}

EXPORT void fmi3FreeInstance(fmi3Instance c)
{
    instance_free(c);
}

EXPORT fmi3Status fmi3EnterInitializationMode(fmi3Instance c, fmi3Boolean tolerance_defined, fmi3Float64 tolerance,
                                              fmi3Float64 start, fmi3Boolean stop_defined, fmi3Float64 stop)
{
    (void)tolerance_defined, (void)tolerance, (void)stop_defined, (void)stop;
    ((instance *)c)->time = start;
    return instance_enter(c) ? fmi3OK : fmi3_fail(c);
}

EXPORT fmi3Status fmi3ExitInitializationMode(fmi3Instance c)
{
    return instance_leave(c) ? fmi3OK : fmi3_fail(c);
}

EXPORT fmi3Status fmi3EnterStepMode(fmi3Instance c)
{
    instance *unit = c;
    if (unit->mode == STEPPING) return fmi3OK; /* there is no event mode to come from */
    snprintf(unit->message, MESSAGE_SIZE, "step mode follows initialisation, which must have ended.");
    return fmi3_fail(c);
}

EXPORT fmi3Status fmi3Terminate(fmi3Instance c)
{
    return instance_terminate(c) ? fmi3OK : fmi3_fail(c);
}

EXPORT fmi3Status fmi3Reset(fmi3Instance c)
{
    return instance_reset(c) ? fmi3OK : fmi3_fail(c);
}

EXPORT fmi3Status fmi3GetFloat64(fmi3Instance c, const fmi3ValueReference references[], size_t count,
                                 fmi3Float64 values[], size_t value_count)
{
    if (count != value_count) return refuse_sizes(c, count, value_count);
    for (size_t i = 0; i < count; i++)
        if (!instance_get(c, references[i], values + i)) return fmi3_fail(c);
    return fmi3OK;
}

EXPORT fmi3Status fmi3SetFloat64(fmi3Instance c, const fmi3ValueReference references[], size_t count,
                                 const fmi3Float64 values[], size_t value_count)
{
    if (count != value_count) return refuse_sizes(c, count, value_count);
    for (size_t i = 0; i < count; i++)
        if (!instance_set(c, references[i], values[i])) return fmi3_fail(c);
    return fmi3OK;
}

EXPORT fmi3Status fmi3DoStep(fmi3Instance c, fmi3Float64 time, fmi3Float64 duration, fmi3Boolean no_return,
                             fmi3Boolean *event_needed, fmi3Boolean *terminate, fmi3Boolean *early_return,
                             fmi3Float64 *last_time)
{
    (void)no_return;
    *event_needed = *terminate = *early_return = false;
    if (!instance_step(c, time, duration)) return fmi3_fail(c);
    *last_time = ((instance *)c)->time;
    *terminate = instance_ended(c) != 0;
    return fmi3OK;
}

EXPORT fmi3Status fmi3GetDirectionalDerivative(fmi3Instance c, const fmi3ValueReference unknowns[],
                                               size_t unknown_count, const fmi3ValueReference knowns[],
                                               size_t known_count, const fmi3Float64 seed[], size_t seed_count,
                                               fmi3Float64 result[], size_t result_count)
{
    jacobian what = {unknowns, knowns, unknown_count, known_count};
    if (seed_count != known_count) return refuse_sizes(c, known_count, seed_count);
    if (result_count != unknown_count) return refuse_sizes(c, unknown_count, result_count);
    return instance_directional(c, &what, seed, result) ? fmi3OK : fmi3_fail(c);
}

EXPORT fmi3Status fmi3GetAdjointDerivative(fmi3Instance c, const fmi3ValueReference unknowns[], size_t unknown_count,
                                           const fmi3ValueReference knowns[], size_t known_count,
                                           const fmi3Float64 seed[], size_t seed_count, fmi3Float64 result[],
                                           size_t result_count)
{
    jacobian what = {unknowns, knowns, unknown_count, known_count};
    if (seed_count != unknown_count) return refuse_sizes(c, unknown_count, seed_count);
    if (result_count != known_count) return refuse_sizes(c, known_count, result_count);
    return instance_adjoint(c, &what, seed, result) ? fmi3OK : fmi3_fail(c);
}

EXPORT fmi3Status fmi3GetFMUState(fmi3Instance c, fmi3FMUState *state)
{
    return instance_save(c, state) ? fmi3OK : fmi3_fail(c);
}

EXPORT fmi3Status fmi3SetFMUState(fmi3Instance c, fmi3FMUState state)
{
    return instance_restore(c, state) ? fmi3OK : fmi3_fail(c);
}

EXPORT fmi3Status fmi3FreeFMUState(fmi3Instance c, fmi3FMUState *state)
{
    instance_free_state(c, state);
    return fmi3OK;
}

EXPORT fmi3Status fmi3SerializedFMUStateSize(fmi3Instance c, fmi3FMUState state, size_t *size)
{
    return instance_state_size(c, state, size) ? fmi3OK : fmi3_fail(c);
}

EXPORT fmi3Status fmi3SerializeFMUState(fmi3Instance c, fmi3FMUState state, fmi3Byte bytes[], size_t size)
{
    return instance_serialise(c, state, bytes, size) ? fmi3OK : fmi3_fail(c);
}

EXPORT fmi3Status fmi3DeserializeFMUState(fmi3Instance c, const fmi3Byte bytes[], size_t size, fmi3FMUState *state)
{
    return instance_deserialise(c, bytes, size, state) ? fmi3OK : fmi3_fail(c);
}

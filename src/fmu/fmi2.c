/* FMI 2.0 co-simulation: what an instance does (a linear unit, or with src/coupling a whole coupling), under the
 * standard's names. */
#include "fmi2.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "instance.h"

typedef struct {
    fmi2CallbackLogger logger;
    fmi2ComponentEnvironment environment;
    char name[]; /* of the instance */
} importer;

/* The message is a format to the logger: per cent signs, which a path may hold, are doubled. */
static void log_text(fmi2CallbackLogger logger, fmi2ComponentEnvironment environment, const char *name, int status,
                     const char *category, const char *text)
{
    char format[2 * MESSAGE_SIZE], *end = format;
    if (!logger) return;
    for (const char *last = text + MESSAGE_SIZE - 1; *text && text < last; text++) {
        if (*text == '%') *end++ = '%';
        *end++ = *text;
    }
    *end = '\0';
    logger(environment, name, (fmi2Status)status, category, format);
}

static void log_error(fmi2CallbackLogger logger, fmi2ComponentEnvironment environment, const char *name,
                      const char *text)
{
    log_text(logger, environment, name, fmi2Error, "logStatusError", text);
}

static void log_to_importer(void *given, int status, const char *category, const char *text)
{
    importer *to = given;
    log_text(to->logger, to->environment, to->name, status, category, text);
}

fmi2Status fmi2_fail(fmi2Component component)
{
    instance *unit = component;
    importer *to = unit->importer;
    log_error(to->logger, to->environment, to->name, unit->message);
    return fmi2Error;
}

fmi2Status fmi2_unsupported(fmi2Component component, const char *function, const char *reason)
{
    snprintf(((instance *)component)->message, MESSAGE_SIZE, "%s is not supported: %s.", function, reason);
    return fmi2_fail(component);
}

EXPORT const char *fmi2GetTypesPlatform(void)
{
    return "default";
}

EXPORT const char *fmi2GetVersion(void)
{
    return "2.0";
}

EXPORT fmi2Status fmi2SetDebugLogging(fmi2Component c, fmi2Boolean on, size_t count, const fmi2String categories[])
{
    (void)count, (void)categories; /* errors are always logged */
    instance_talk(c, on);
    return fmi2OK;
}

EXPORT fmi2Component fmi2Instantiate(fmi2String name, fmi2Type type, fmi2String guid, fmi2String location,
                                     const fmi2CallbackFunctions *functions, fmi2Boolean visible, fmi2Boolean logging)
{
    char message[MESSAGE_SIZE] = "this library offers co-simulation only.";
    fmi2CallbackLogger logger = functions ? functions->logger : NULL;
    fmi2ComponentEnvironment environment = functions ? functions->componentEnvironment : NULL;
    (void)visible;
    if (!name) name = "";
    importer *to = malloc(sizeof *to + strlen(name) + 1);
    if (!to) {
        log_error(logger, environment, name, "out of memory.");
        return NULL;
    }
    to->logger = logger;
    to->environment = environment;
    strcpy(to->name, name);
    host told = {to, log_to_importer, logging};
    instance *unit = type == fmi2CoSimulation ? instance_create(location, guid, &told, message) : NULL;
    if (!unit) {
        log_error(logger, environment, name, message);
        free(to);
    }
    return unit;
}

EXPORT void fmi2FreeInstance(fmi2Component c)
{
    instance_free(c);
}

EXPORT fmi2Status fmi2SetupExperiment(fmi2Component c, fmi2Boolean tolerance_defined, fmi2Real tolerance,
                                      fmi2Real start, fmi2Boolean stop_defined, fmi2Real stop)
{
    (void)tolerance_defined, (void)tolerance, (void)stop_defined, (void)stop;
    ((instance *)c)->time = start;
    return fmi2OK;
}

EXPORT fmi2Status fmi2EnterInitializationMode(fmi2Component c)
{
    return instance_enter(c) ? fmi2OK : fmi2_fail(c);
}

EXPORT fmi2Status fmi2ExitInitializationMode(fmi2Component c)
{
    return instance_leave(c) ? fmi2OK : fmi2_fail(c);
}

EXPORT fmi2Status fmi2Terminate(fmi2Component c)
{
    return instance_terminate(c) ? fmi2OK : fmi2_fail(c);
}

EXPORT fmi2Status fmi2Reset(fmi2Component c)
{
    return instance_reset(c) ? fmi2OK : fmi2_fail(c);
}

EXPORT fmi2Status fmi2GetReal(fmi2Component c, const fmi2ValueReference references[], size_t count, fmi2Real values[])
{
    for (size_t i = 0; i < count; i++)
        if (!instance_get(c, references[i], values + i)) return fmi2_fail(c);
    return fmi2OK;
}

EXPORT fmi2Status fmi2SetReal(fmi2Component c, const fmi2ValueReference references[], size_t count,
                              const fmi2Real values[])
{
    for (size_t i = 0; i < count; i++)
        if (!instance_set(c, references[i], values[i])) return fmi2_fail(c);
    return fmi2OK;
}

EXPORT fmi2Status fmi2SetRealInputDerivatives(fmi2Component c, const fmi2ValueReference references[], size_t count,
                                              const fmi2Integer orders[], const fmi2Real values[])
{
    for (size_t i = 0; i < count; i++)
        if (!instance_set_derivative(c, references[i], orders[i], values[i])) return fmi2_fail(c);
    return fmi2OK;
}

EXPORT fmi2Status fmi2DoStep(fmi2Component c, fmi2Real time, fmi2Real duration, fmi2Boolean no_return)
{
    (void)no_return;
    if (!instance_step(c, time, duration)) return fmi2_fail(c);
    return instance_ended(c) ? fmi2Discard : fmi2OK;
}

EXPORT fmi2Status fmi2GetDirectionalDerivative(fmi2Component c, const fmi2ValueReference unknowns[],
                                               size_t unknown_count, const fmi2ValueReference knowns[],
                                               size_t known_count, const fmi2Real seed[], fmi2Real result[])
{
    jacobian what = {unknowns, knowns, unknown_count, known_count};
    return instance_directional(c, &what, seed, result) ? fmi2OK : fmi2_fail(c);
}

EXPORT fmi2Status fmi2GetFMUstate(fmi2Component c, fmi2FMUstate *state)
{
    return instance_save(c, state) ? fmi2OK : fmi2_fail(c);
}

EXPORT fmi2Status fmi2SetFMUstate(fmi2Component c, fmi2FMUstate state)
{
    return instance_restore(c, state) ? fmi2OK : fmi2_fail(c);
}

EXPORT fmi2Status fmi2FreeFMUstate(fmi2Component c, fmi2FMUstate *state)
{
    instance_free_state(c, state);
    return fmi2OK;
}

EXPORT fmi2Status fmi2SerializedFMUstateSize(fmi2Component c, fmi2FMUstate state, size_t *size)
{
    return instance_state_size(c, state, size) ? fmi2OK : fmi2_fail(c);
}

EXPORT fmi2Status fmi2SerializeFMUstate(fmi2Component c, fmi2FMUstate state, fmi2Byte bytes[], size_t size)
{
    return instance_serialise(c, state, bytes, size) ? fmi2OK : fmi2_fail(c);
}

EXPORT fmi2Status fmi2DeSerializeFMUstate(fmi2Component c, const fmi2Byte bytes[], size_t size, fmi2FMUstate *state)
{
    return instance_deserialise(c, bytes, size, state) ? fmi2OK : fmi2_fail(c);
}

EXPORT fmi2Status fmi2GetRealStatus(fmi2Component c, const fmi2StatusKind kind, fmi2Real *value)
{
    if (kind != fmi2LastSuccessfulTime) return fmi2_unsupported(c, "fmi2GetRealStatus", "only the last time is known");
    *value = ((instance *)c)->time;
    return fmi2OK;
}

EXPORT fmi2Status fmi2GetBooleanStatus(fmi2Component c, const fmi2StatusKind kind, fmi2Boolean *value)
{
    if (kind != fmi2Terminated) return fmi2_unsupported(c, "fmi2GetBooleanStatus", "only the end is known");
    *value = instance_ended(c);
    return fmi2OK;
}

/* FMI 3.0 functions that importers look up and a linear unit for co-simulation has no use for. Asked for nothing (no
 * variables), the typed ones succeed: importers call them so. */
#include "description.h"
#include "fmi3.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define TYPED(Name)                                                                                                    \
    EXPORT fmi3Status fmi3Get##Name(fmi3Instance c, const fmi3ValueReference vr[], size_t n, fmi3##Name values[],      \
                                    size_t value_count)                                                                \
    {                                                                                                                  \
        return n ? fmi3_unsupported(c, "fmi3Get" #Name, "all variables are Float64") : fmi3OK;                         \
    }                                                                                                                  \
    EXPORT fmi3Status fmi3Set##Name(fmi3Instance c, const fmi3ValueReference vr[], size_t n, const fmi3##Name values[],\
                                    size_t value_count)                                                                \
    {                                                                                                                  \
        return n ? fmi3_unsupported(c, "fmi3Set" #Name, "all variables are Float64") : fmi3OK;                         \
    }

TYPED(Float32)
TYPED(Int8)
TYPED(UInt8)
TYPED(Int16)
TYPED(UInt16)
TYPED(Int32)
TYPED(UInt32)
TYPED(Int64)
TYPED(UInt64)
TYPED(Boolean)
TYPED(String)

/* The other functions on variables, with what stands between the number of variables and the end. */
#define VARIABLES(Name, ...)                                                                                           \
    EXPORT fmi3Status fmi3##Name(fmi3Instance c, const fmi3ValueReference vr[], size_t n, __VA_ARGS__)                 \
    {                                                                                                                  \
        return n ? fmi3_unsupported(c, "fmi3" #Name, "all variables are continuous Float64") : fmi3OK;                 \
    }

VARIABLES(GetBinary, size_t sizes[], fmi3Binary values[], size_t value_count)
VARIABLES(SetBinary, const size_t sizes[], const fmi3Binary values[], size_t value_count)
VARIABLES(GetClock, fmi3Clock values[])
VARIABLES(SetClock, const fmi3Clock values[])
VARIABLES(GetIntervalDecimal, fmi3Float64 intervals[], fmi3IntervalQualifier qualifiers[])
VARIABLES(GetIntervalFraction, fmi3UInt64 counters[], fmi3UInt64 resolutions[], fmi3IntervalQualifier qualifiers[])
VARIABLES(GetShiftDecimal, fmi3Float64 shifts[])
VARIABLES(GetShiftFraction, fmi3UInt64 counters[], fmi3UInt64 resolutions[])
VARIABLES(SetIntervalDecimal, const fmi3Float64 intervals[])
VARIABLES(SetIntervalFraction, const fmi3UInt64 counters[], const fmi3UInt64 resolutions[])
VARIABLES(SetShiftDecimal, const fmi3Float64 shifts[])
VARIABLES(SetShiftFraction, const fmi3UInt64 counters[], const fmi3UInt64 resolutions[])
VARIABLES(GetOutputDerivatives, const fmi3Int32 orders[], fmi3Float64 values[], size_t value_count)

/* The rest: (arguments), reason. */
#define REFUSED(Name, parameters, reason)                                                                              \
    EXPORT fmi3Status fmi3##Name parameters                                                                            \
    {                                                                                                                  \
        return fmi3_unsupported(c, "fmi3" #Name, reason);                                                              \
    }

#define NO_EVENTS "the unit has no event mode"
#define NO_SIZES "the unit has no structural parameters"
#define NO_EXCHANGE "this is a unit for co-simulation"

REFUSED(EnterEventMode, (fmi3Instance c), NO_EVENTS)
REFUSED(EvaluateDiscreteStates, (fmi3Instance c), NO_EVENTS)
REFUSED(UpdateDiscreteStates,
        (fmi3Instance c, fmi3Boolean *needed, fmi3Boolean *terminate, fmi3Boolean *nominals, fmi3Boolean *values,
         fmi3Boolean *next_defined, fmi3Float64 *next),
        NO_EVENTS)
REFUSED(EnterConfigurationMode, (fmi3Instance c), NO_SIZES)
REFUSED(ExitConfigurationMode, (fmi3Instance c), NO_SIZES)
REFUSED(GetNumberOfVariableDependencies, (fmi3Instance c, fmi3ValueReference vr, size_t *n),
        "all variables are scalar and their dependencies stand in the description")
REFUSED(GetVariableDependencies,
        (fmi3Instance c, fmi3ValueReference dependent, size_t dependent_elements[], fmi3ValueReference independents[],
         size_t elements[], fmi3DependencyKind kinds[], size_t n),
        "all variables are scalar and their dependencies stand in the description")
REFUSED(EnterContinuousTimeMode, (fmi3Instance c), NO_EXCHANGE)
REFUSED(CompletedIntegratorStep, (fmi3Instance c, fmi3Boolean no_return, fmi3Boolean *event, fmi3Boolean *terminate),
        NO_EXCHANGE)
REFUSED(SetTime, (fmi3Instance c, fmi3Float64 time), NO_EXCHANGE)
REFUSED(SetContinuousStates, (fmi3Instance c, const fmi3Float64 x[], size_t n), NO_EXCHANGE)
REFUSED(GetContinuousStateDerivatives, (fmi3Instance c, fmi3Float64 derivatives[], size_t n), NO_EXCHANGE)
REFUSED(GetEventIndicators, (fmi3Instance c, fmi3Float64 indicators[], size_t n), NO_EXCHANGE)
REFUSED(GetContinuousStates, (fmi3Instance c, fmi3Float64 x[], size_t n), NO_EXCHANGE)
REFUSED(GetNominalsOfContinuousStates, (fmi3Instance c, fmi3Float64 nominals[], size_t n), NO_EXCHANGE)
REFUSED(GetNumberOfEventIndicators, (fmi3Instance c, size_t *n), NO_EXCHANGE)
REFUSED(GetNumberOfContinuousStates, (fmi3Instance c, size_t *n), NO_EXCHANGE)
REFUSED(ActivateModelPartition, (fmi3Instance c, fmi3ValueReference clock, fmi3Float64 time), NO_EXCHANGE)

static fmi3Instance refuse_kind(fmi3InstanceEnvironment environment, fmi3LogMessageCallback log)
{
    if (log) log(environment, fmi3Error, "logStatusError", "this library offers co-simulation only.");
    return NULL;
}

EXPORT fmi3Instance fmi3InstantiateModelExchange(fmi3String name, fmi3String token, fmi3String resources,
                                                 fmi3Boolean visible, fmi3Boolean logging,
                                                 fmi3InstanceEnvironment environment, fmi3LogMessageCallback log)
{
    return refuse_kind(environment, log);
}

EXPORT fmi3Instance fmi3InstantiateScheduledExecution(fmi3String name, fmi3String token, fmi3String resources,
                                                      fmi3Boolean visible, fmi3Boolean logging,
                                                      fmi3InstanceEnvironment environment, fmi3LogMessageCallback log,
                                                      fmi3ClockUpdateCallback update, fmi3LockPreemptionCallback lock,
                                                      fmi3LockPreemptionCallback unlock)
{
    return refuse_kind(environment, log);
}

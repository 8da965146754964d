/* FMI 2.0 functions that importers look up and a linear unit for co-simulation has no use for. Asked for nothing (no
 * variables), the typed ones succeed: importers call them so. */
#include "description.h"
#include "fmi2.h"

#define TYPED(Name, type)                                                                                              \
    EXPORT fmi2Status fmi2Get##Name(fmi2Component c, const fmi2ValueReference vr[], size_t n, type values[])           \
    {                                                                                                                  \
        (void)vr, (void)values;                                                                                        \
        return n ? fmi2_unsupported(c, "fmi2Get" #Name, "all variables are Real") : fmi2OK;                            \
    }                                                                                                                  \
    EXPORT fmi2Status fmi2Set##Name(fmi2Component c, const fmi2ValueReference vr[], size_t n, const type values[])     \
    {                                                                                                                  \
        (void)vr, (void)values;                                                                                        \
        return n ? fmi2_unsupported(c, "fmi2Set" #Name, "all variables are Real") : fmi2OK;                            \
    }

TYPED(Integer, fmi2Integer)
TYPED(Boolean, fmi2Boolean)
TYPED(String, fmi2String)

#define STATUS(Name, type)                                                                                             \
    EXPORT fmi2Status fmi2Get##Name(fmi2Component c, const fmi2StatusKind kind, type *value)                           \
    {                                                                                                                  \
        (void)kind, (void)value;                                                                                       \
        return fmi2_unsupported(c, "fmi2Get" #Name, "every step ends before fmi2DoStep returns");                      \
    }

STATUS(Status, fmi2Status)
STATUS(IntegerStatus, fmi2Integer)
STATUS(StringStatus, fmi2String)

EXPORT fmi2Status fmi2CancelStep(fmi2Component c)
{
    return fmi2_unsupported(c, "fmi2CancelStep", "every step ends before fmi2DoStep returns");
}

EXPORT fmi2Status fmi2GetRealOutputDerivatives(fmi2Component c, const fmi2ValueReference vr[], size_t n,
                                               const fmi2Integer orders[], fmi2Real values[])
{
    (void)vr, (void)orders, (void)values;
    return n ? fmi2_unsupported(c, "fmi2GetRealOutputDerivatives", "maxOutputDerivativeOrder is 0") : fmi2OK;
}

/* Model exchange. */
#define EXCHANGE(Name, ...)                                                                                            \
    EXPORT fmi2Status fmi2##Name(fmi2Component c, __VA_ARGS__)                                                         \
    {                                                                                                                  \
        return fmi2_unsupported(c, "fmi2" #Name, "this is a unit for co-simulation");                                  \
    }

EXPORT fmi2Status fmi2EnterEventMode(fmi2Component c)
{
    return fmi2_unsupported(c, "fmi2EnterEventMode", "this is a unit for co-simulation");
}

EXPORT fmi2Status fmi2EnterContinuousTimeMode(fmi2Component c)
{
    return fmi2_unsupported(c, "fmi2EnterContinuousTimeMode", "this is a unit for co-simulation");
}

#pragma GCC diagnostic ignored "-Wunused-parameter"
EXCHANGE(NewDiscreteStates, fmi2EventInfo *info)
EXCHANGE(CompletedIntegratorStep, fmi2Boolean no_return, fmi2Boolean *enter_event_mode, fmi2Boolean *terminate)
EXCHANGE(SetTime, fmi2Real time)
EXCHANGE(SetContinuousStates, const fmi2Real x[], size_t n)
EXCHANGE(GetDerivatives, fmi2Real derivatives[], size_t n)
EXCHANGE(GetEventIndicators, fmi2Real indicators[], size_t n)
EXCHANGE(GetContinuousStates, fmi2Real x[], size_t n)
EXCHANGE(GetNominalsOfContinuousStates, fmi2Real nominals[], size_t n)

// The functions of FMI 3.0 for co-simulation, each sent to the worker. Intermediate updates, which nothing here exchanges,
// have none.
#include <cmath>

#include "proxy.hpp"

using namespace cosimo::isolation;
using F = Function;

EXPORTED const char *fmi3GetVersion() { return "3.0"; }

EXPORTED void *fmi3InstantiateCoSimulation(const char *name, const char *token, const char *resources, bool visible, bool logging,
                                           bool event_mode, bool early_return, References, std::size_t, void *, void *, void *) {
    Connection *c = take_next();
    if (!c) return nullptr;
    c->begin(F::fmi3InstantiateCoSimulation);
    for (const char *text : {name, token, resources}) c->out.text(text);
    for (bool flag : {visible, logging, event_mode, early_return}) c->out.put<std::uint8_t>(flag);
    return c->send() <= status_warning ? c : nullptr;
}
EXPORTED void fmi3FreeInstance(void *c) {
    if (c) plain(c, F::fmi3FreeInstance);
}
EXPORTED int fmi3SetDebugLogging(void *c, bool on, std::size_t count, const char *const *names) {
    return debug(c, F::fmi3SetDebugLogging, on, count, names);
}
EXPORTED int fmi3EnterInitializationMode(void *c, bool tolerance_given, double tolerance, double start, bool stop_given, double stop) {
    return setup(c, F::fmi3EnterInitializationMode, tolerance_given, tolerance, start, stop_given, stop);
}

#define PLAIN(name) \
    EXPORTED int fmi3##name(void *c) { return plain(c, F::fmi3##name); }
PLAIN(ExitInitializationMode)
PLAIN(EnterEventMode)
PLAIN(EnterStepMode)
PLAIN(EnterConfigurationMode)
PLAIN(ExitConfigurationMode)
PLAIN(EvaluateDiscreteStates)
PLAIN(Terminate)
PLAIN(Reset)

#define VALUES(type, c_type)                                                                                       \
    EXPORTED int fmi3Set##type(void *c, References r, std::size_t n, const c_type *v, std::size_t given) {         \
        return set_values(c, F::fmi3Set##type, r, n, v, given);                                                    \
    }                                                                                                              \
    EXPORTED int fmi3Get##type(void *c, References r, std::size_t n, c_type *v, std::size_t wanted) {              \
        return at(c).get(F::fmi3Get##type, r, n, v, wanted);                                                       \
    }
VALUES(Float32, float)
VALUES(Float64, double)
VALUES(Int8, std::int8_t)
VALUES(UInt8, std::uint8_t)
VALUES(Int16, std::int16_t)
VALUES(UInt16, std::uint16_t)
VALUES(Int32, std::int32_t)
VALUES(UInt32, std::uint32_t)
VALUES(Int64, std::int64_t)
VALUES(UInt64, std::uint64_t)
VALUES(Boolean, bool)
EXPORTED int fmi3SetString(void *c, References r, std::size_t n, const char *const *v, std::size_t given) {
    return set_texts(c, F::fmi3SetString, r, n, v, given);
}
EXPORTED int fmi3GetString(void *c, References r, std::size_t n, const char **v, std::size_t wanted) {
    return get_texts(c, F::fmi3GetString, r, n, v, wanted);
}

EXPORTED int fmi3SetClock(void *c, References r, std::size_t n, const bool *v) { return set_values(c, F::fmi3SetClock, r, n, v, n); }

// What may be asked in event mode only is never asked for ahead, as other values are.
static int ask(void *component, F function, References r, std::size_t n, void *v, int *qualifiers = nullptr) {
    Connection &c = at(component);
    begin_values(c, function, r, n, n);
    const int status = c.send();
    if (status > status_warning) return status;
    const std::size_t bytes = n * described(function).size;
    const void *values = c.results.take(bytes), *found = qualifiers ? c.results.take(n * sizeof(int)) : values;
    if (!values || !found) return status_error;
    std::memcpy(v, values, bytes);
    if (qualifiers) std::memcpy(qualifiers, found, n * sizeof(int));
    return status;
}
EXPORTED int fmi3GetClock(void *c, References r, std::size_t n, bool *v) { return ask(c, F::fmi3GetClock, r, n, v); }
EXPORTED int fmi3GetShiftDecimal(void *c, References r, std::size_t n, double *v) { return ask(c, F::fmi3GetShiftDecimal, r, n, v); }
EXPORTED int fmi3GetIntervalDecimal(void *c, References r, std::size_t n, double *v, int *qualifiers) {
    return ask(c, F::fmi3GetIntervalDecimal, r, n, v, qualifiers);
}
EXPORTED int fmi3SetBinary(void *component, References r, std::size_t n, const std::size_t *sizes, const char *const *v, std::size_t given) {
    Connection &c = at(component);
    begin_values(c, F::fmi3SetBinary, r, n, given);
    for (std::size_t i = 0; i < given; ++i) c.out.text(v[i], sizes[i]);
    return c.keep();
}
EXPORTED int fmi3GetBinary(void *component, References r, std::size_t n, std::size_t *sizes, const char **v, std::size_t wanted) {
    const int status = get_texts(component, F::fmi3GetBinary, r, n, v, wanted);
    for (std::size_t i = 0; status <= status_warning && i < wanted; ++i) sizes[i] = at(component).texts[i].size();
    return status;
}

EXPORTED int fmi3GetFMUState(void *c, void **s) { return state(c, F::fmi3GetFMUState, s); }
EXPORTED int fmi3FreeFMUState(void *c, void **s) { return *s ? state(c, F::fmi3FreeFMUState, s) : status_ok; }
EXPORTED int fmi3SetFMUState(void *c, void *s) { return put_state(c, F::fmi3SetFMUState, s); }
EXPORTED int fmi3SerializedFMUStateSize(void *c, void *s, std::size_t *size) { return state_size(c, F::fmi3SerializedFMUStateSize, s, size); }
EXPORTED int fmi3SerializeFMUState(void *c, void *s, unsigned char *bytes, std::size_t size) {
    return serialise(c, F::fmi3SerializeFMUState, s, bytes, size);
}
EXPORTED int fmi3DeserializeFMUState(void *c, const unsigned char *bytes, std::size_t size, void **s) {
    return deserialise(c, F::fmi3DeserializeFMUState, bytes, size, s);
}
EXPORTED int fmi3GetDirectionalDerivative(void *c, References u, std::size_t nu, References k, std::size_t nk, const double *seed,
                                          std::size_t seeds, double *v, std::size_t values) {
    return derivatives(c, F::fmi3GetDirectionalDerivative, {u, nu, k, nk, seed, seeds, v, values});
}
EXPORTED int fmi3GetOutputDerivatives(void *c, References r, std::size_t n, const std::int32_t *orders, double *v, std::size_t values) {
    return derivatives(c, F::fmi3GetOutputDerivatives, {r, n, orders, n, nullptr, 0, v, values});
}

static void read_flags(Connection &c, std::initializer_list<bool *> flags, double *time) {
    const auto *found = static_cast<const std::uint8_t *>(c.results.take(8));
    std::size_t place = 0;
    for (bool *flag : flags) *flag = found && found[place++] != 0;
    *time = c.results.get<double>();
}

EXPORTED int fmi3UpdateDiscreteStates(void *component, bool *need, bool *terminate, bool *nominals, bool *values, bool *defined, double *next) {
    Connection &c = at(component);
    const int status = plain(component, F::fmi3UpdateDiscreteStates);
    if (status <= status_warning) read_flags(c, {need, terminate, nominals, values, defined}, next);
    return status;
}

// Sends the step without waiting for it; fmi3DoStep then only waits.
EXPORTED void cosimoPostStep3(void *c, double time, double duration, int final) {
    at(c).post_step(F::fmi3DoStep, time, duration, final, std::nan(""));
}
EXPORTED int fmi3DoStep(void *component, double time, double duration, bool final, bool *event, bool *terminate, bool *early, double *reached) {
    Connection &c = at(component);
    c.post_step(F::fmi3DoStep, time, duration, final, *reached);
    const int status = c.collect_step();
    if (status <= status_discard) read_flags(c, {event, terminate, early}, reached);
    return status;
}

// The functions of a co-simulation FMU (FMI 2.0 and 3.0) over a model-exchange instance: whoever loads this library instead
// of the unit's own has a unit with a solver. `cosimoAdapterUse` says which library the next instance is of.
#include <cstring>
#include <memory>

#include "exchange.hpp"

using namespace cosimo::exchange;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using References = const std::uint32_t *;

struct Next {
    void *library = nullptr;
    Settings settings;
};
thread_local Next next;
thread_local std::string problem;

Exchange &at(void *component) { return *static_cast<Exchange *>(component); }

// A function of the unit's own library that is only passed on.
template <class... Arguments>
int pass(void *component, const char *name, Arguments... arguments) {
    Exchange &unit = at(component);
    if (auto function = reinterpret_cast<int (*)(void *, Arguments...)>(unit.model.found(name)))
        return function(unit.model.component, arguments...);
    return unit.fail(status_error, std::string("its library has no function ") + name);
}

#define PASS(name, ...) pass(c, name, ##__VA_ARGS__)

void *opened(std::unique_ptr<Exchange> unit, const char *function) {
    const std::string missing = unit->model.open(next.library, unit->settings.version);
    if (!missing.empty() || !unit->model.find(function)) {
        unit->fail(status_error, "its library has no function " + (missing.empty() ? std::string(function) : missing));
        return nullptr;
    }
    return unit.release();
}

int leave_initialisation(void *c, const char *name) {
    if (const int asked = at(c).ask_intervals(); bad(asked)) return asked;
    const int status = PASS(name);
    if (bad(status)) return status;
    const int begun = at(c).begin();
    return bad(begun) ? begun : status;
}

int reset(void *c, const char *name) {
    at(c).reset();
    return PASS(name);
}

void free_instance(void *c, const char *name) {
    if (!c) return;
    if (auto function = reinterpret_cast<void (*)(void *)>(at(c).model.find(name))) function(at(c).model.component);
    delete static_cast<Exchange *>(c);
}

template <class... Arguments>
int change(void *c, const char *name, Arguments... arguments) {
    const int status = at(c).before_change();
    return bad(status) ? status : PASS(name, arguments...);
}

}  // namespace

// Null, or why the instance that is made next by this thread cannot be had; valid until the next call.
EXPORT const char *cosimoAdapterUse(void *library, const char *settings) {
    next = {library, read_settings(settings)};
    problem = missing_solver(next.settings);
    return problem.empty() ? nullptr : problem.c_str();
}

// ---- FMI 2.0 --------------------------------------------------------------------------------------------------------

struct Callbacks2 {
    void (*log)(void *, const char *, int, const char *, const char *, ...);
    void *(*allocate)(std::size_t, std::size_t);
    void (*free)(void *);
    void (*step_finished)(void *, int);
    void *environment;
};

EXPORT void *fmi2Instantiate(const char *name, int, const char *token, const char *resources, const Callbacks2 *callbacks, int visible,
                             int logging) {
    auto unit = std::make_unique<Exchange>(next.settings);
    if (callbacks && callbacks->log)
        unit->log = [callbacks, known = std::string(name)](int status, const char *text) {
            callbacks->log(callbacks->environment, known.c_str(), status, "logStatusError", "%s", text);
        };
    auto *found = static_cast<Exchange *>(opened(std::move(unit), "fmi2Instantiate"));
    if (!found) return nullptr;
    using F = void *(*)(const char *, int, const char *, const char *, const Callbacks2 *, int, int);
    constexpr int model_exchange = 0;
    found->model.component = reinterpret_cast<F>(found->model.find("fmi2Instantiate"))(name, model_exchange, token, resources, callbacks, visible, logging);
    if (found->model.component) return found;
    delete found;
    return nullptr;
}
EXPORT void fmi2FreeInstance(void *c) { free_instance(c, "fmi2FreeInstance"); }
EXPORT int fmi2SetDebugLogging(void *c, int on, std::size_t n, const char *const *names) { return PASS("fmi2SetDebugLogging", on, n, names); }
EXPORT int fmi2SetupExperiment(void *c, int has_tolerance, double tolerance, double start, int has_stop, double stop) {
    at(c).start = start;
    return PASS("fmi2SetupExperiment", has_tolerance, tolerance, start, has_stop, stop);
}
EXPORT int fmi2EnterInitializationMode(void *c) { return PASS("fmi2EnterInitializationMode"); }
EXPORT int fmi2ExitInitializationMode(void *c) { return leave_initialisation(c, "fmi2ExitInitializationMode"); }
EXPORT int fmi2Terminate(void *c) { return PASS("fmi2Terminate"); }
EXPORT int fmi2Reset(void *c) { return reset(c, "fmi2Reset"); }
EXPORT int fmi2SetReal(void *c, References r, std::size_t n, const double *v) { return at(c).set_inputs(r, n, v, n); }
EXPORT int fmi2GetReal(void *c, References r, std::size_t n, double *v) { return at(c).model.get_doubles(r, n, v, n); }
EXPORT int fmi2SetInteger(void *c, References r, std::size_t n, const int *v) { return change(c, "fmi2SetInteger", r, n, v); }
EXPORT int fmi2GetInteger(void *c, References r, std::size_t n, int *v) { return PASS("fmi2GetInteger", r, n, v); }
EXPORT int fmi2SetBoolean(void *c, References r, std::size_t n, const int *v) { return change(c, "fmi2SetBoolean", r, n, v); }
EXPORT int fmi2GetBoolean(void *c, References r, std::size_t n, int *v) { return PASS("fmi2GetBoolean", r, n, v); }
EXPORT int fmi2SetString(void *c, References r, std::size_t n, const char *const *v) { return change(c, "fmi2SetString", r, n, v); }
EXPORT int fmi2GetString(void *c, References r, std::size_t n, const char **v) { return PASS("fmi2GetString", r, n, v); }
EXPORT int fmi2GetFMUstate(void *c, void **state) { return at(c).save(state); }
EXPORT int fmi2SetFMUstate(void *c, void *state) { return at(c).restore(state); }
EXPORT int fmi2FreeFMUstate(void *c, void **state) { return at(c).release(state); }
EXPORT int fmi2SerializedFMUstateSize(void *c, void *state, std::size_t *size) { return at(c).size(state, size); }
EXPORT int fmi2SerializeFMUstate(void *c, void *state, char *bytes, std::size_t n) {
    return at(c).serialise(state, reinterpret_cast<unsigned char *>(bytes), n);
}
EXPORT int fmi2DeSerializeFMUstate(void *c, const char *bytes, std::size_t n, void **state) {
    return at(c).deserialise(reinterpret_cast<const unsigned char *>(bytes), n, state);
}
EXPORT int fmi2GetDirectionalDerivative(void *c, References unknowns, std::size_t n, References knowns, std::size_t m, const double *seed,
                                        double *v) {
    return PASS("fmi2GetDirectionalDerivative", unknowns, n, knowns, m, seed, v);
}
// Also of units of FMI 3.0, which has no such function: derivatives of an array come element by element.
EXPORT int fmi2SetRealInputDerivatives(void *c, References r, std::size_t n, const int *orders, const double *v) {
    return at(c).set_derivatives(r, n, orders, v);
}
EXPORT int fmi2DoStep(void *c, double time, double duration, int final) {
    const int status = at(c).step(time, duration, final != 0);
    return !bad(status) && at(c).terminated() ? status_discard : status;
}
EXPORT int fmi2GetRealStatus(void *c, int kind, double *value) {
    constexpr int last_successful_time = 2;
    if (kind != last_successful_time) return status_discard;
    *value = at(c).now();
    return status_ok;
}
EXPORT int fmi2GetBooleanStatus(void *c, int kind, int *value) {
    constexpr int terminated = 3;
    if (kind != terminated) return status_discard;
    *value = at(c).terminated();
    return status_ok;
}

// ---- FMI 3.0 --------------------------------------------------------------------------------------------------------

using Log3 = void (*)(void *, int, const char *, const char *);

EXPORT void *fmi3InstantiateCoSimulation(const char *name, const char *token, const char *resources, bool visible, bool logging, bool, bool,
                                         References, std::size_t, void *environment, Log3 log, void *) {
    auto unit = std::make_unique<Exchange>(next.settings);
    if (log) unit->log = [environment, log](int status, const char *text) { log(environment, status, "logStatusError", text); };
    constexpr const char *function = "fmi3InstantiateModelExchange";
    auto *found = static_cast<Exchange *>(opened(std::move(unit), function));
    if (!found) return nullptr;
    using F = void *(*)(const char *, const char *, const char *, bool, bool, void *, Log3);
    found->model.component = reinterpret_cast<F>(found->model.find(function))(name, token, resources, visible, logging, environment, log);
    if (found->model.component) return found;
    delete found;
    return nullptr;
}
EXPORT void fmi3FreeInstance(void *c) { free_instance(c, "fmi3FreeInstance"); }
EXPORT int fmi3SetDebugLogging(void *c, bool on, std::size_t n, const char *const *names) { return PASS("fmi3SetDebugLogging", on, n, names); }
EXPORT int fmi3EnterInitializationMode(void *c, bool has_tolerance, double tolerance, double start, bool has_stop, double stop) {
    at(c).start = start;
    return PASS("fmi3EnterInitializationMode", has_tolerance, tolerance, start, has_stop, stop);
}
EXPORT int fmi3ExitInitializationMode(void *c) { return leave_initialisation(c, "fmi3ExitInitializationMode"); }
EXPORT int fmi3EnterConfigurationMode(void *c) { return PASS("fmi3EnterConfigurationMode"); }
EXPORT int fmi3ExitConfigurationMode(void *c) { return PASS("fmi3ExitConfigurationMode"); }
EXPORT int fmi3Terminate(void *c) { return PASS("fmi3Terminate"); }
EXPORT int fmi3Reset(void *c) { return reset(c, "fmi3Reset"); }
EXPORT int fmi3SetFloat64(void *c, References r, std::size_t n, const double *v, std::size_t size) { return at(c).set_inputs(r, n, v, size); }
EXPORT int fmi3GetFloat64(void *c, References r, std::size_t n, double *v, std::size_t size) { return at(c).model.get_doubles(r, n, v, size); }
#define VALUES(name, type)                                                                                               \
    EXPORT int fmi3Set##name(void *c, References r, std::size_t n, const type *v, std::size_t size) {                    \
        return change(c, "fmi3Set" #name, r, n, v, size);                                                                \
    }                                                                                                                    \
    EXPORT int fmi3Get##name(void *c, References r, std::size_t n, type *v, std::size_t size) {                          \
        return PASS("fmi3Get" #name, r, n, v, size);                                                                     \
    }
VALUES(Float32, float)
VALUES(Int8, std::int8_t)
VALUES(UInt8, std::uint8_t)
VALUES(Int16, std::int16_t)
VALUES(UInt16, std::uint16_t)
VALUES(Int32, std::int32_t)
VALUES(UInt32, std::uint32_t)
VALUES(Int64, std::int64_t)
VALUES(UInt64, std::uint64_t)
VALUES(Boolean, bool)
VALUES(String, char *)
EXPORT int fmi3SetBinary(void *c, References r, std::size_t n, const std::size_t *sizes, const unsigned char *const *v, std::size_t size) {
    return change(c, "fmi3SetBinary", r, n, sizes, v, size);
}
EXPORT int fmi3GetBinary(void *c, References r, std::size_t n, std::size_t *sizes, const unsigned char **v, std::size_t size) {
    return PASS("fmi3GetBinary", r, n, sizes, v, size);
}
EXPORT int fmi3GetFMUState(void *c, void **state) { return at(c).save(state); }
EXPORT int fmi3SetFMUState(void *c, void *state) { return at(c).restore(state); }
EXPORT int fmi3FreeFMUState(void *c, void **state) { return at(c).release(state); }
EXPORT int fmi3SerializedFMUStateSize(void *c, void *state, std::size_t *size) { return at(c).size(state, size); }
EXPORT int fmi3SerializeFMUState(void *c, void *state, unsigned char *bytes, std::size_t n) { return at(c).serialise(state, bytes, n); }
EXPORT int fmi3DeserializeFMUState(void *c, const unsigned char *bytes, std::size_t n, void **state) { return at(c).deserialise(bytes, n, state); }
EXPORT int fmi3GetDirectionalDerivative(void *c, References unknowns, std::size_t n, References knowns, std::size_t m, const double *seed,
                                        std::size_t seeds, double *v, std::size_t size) {
    return PASS("fmi3GetDirectionalDerivative", unknowns, n, knowns, m, seed, seeds, v, size);
}
EXPORT int fmi3DoStep(void *c, double time, double duration, bool final, bool *event, bool *terminate, bool *early, double *reached) {
    const int status = at(c).step(time, duration, final);
    *event = *early = false;
    *terminate = at(c).terminated();
    *reached = *terminate ? at(c).now() : time + duration;
    return status;
}

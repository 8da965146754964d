// Co-simulation FMUs of FMI 3.0 that ask for inputs within a step (intermediate update): the functions here are called in place
// of the unit's own, all others are the unit's. `cosimoAdapterUse` says which library the next instance is of.
//
// A request is answered with the value that the input's polynomial has at that time. Early return is never asked for: the master
// steps units to the events that it knows of.
#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "../kernel/platform.hpp"
#include "inputs.hpp"

using namespace cosimo::exchange;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using References = const std::uint32_t *;
using Log = void (*)(void *, int, const char *, const char *);
using Set = int (*)(void *, References, std::size_t, const double *, std::size_t);
using Get = int (*)(void *, References, std::size_t, double *, std::size_t);
using Step = int (*)(void *, double, double, bool, bool *, bool *, bool *, double *);

struct Next {
    void *library = nullptr;
    Settings settings;
};
thread_local Next next;

struct Instance {
    void *library, *component = nullptr, *environment;
    Log log;
    InputPolynomial inputs;
    bool begins = false;  // the polynomial begins where the next step does
    int refused = status_ok;
    Set set = nullptr;
    Get get = nullptr;
    Step step = nullptr;

    Instance(const Next &of, void *environment_, Log log_) : library(of.library), environment(environment_), log(log_), inputs(of.settings.inputs) {
        set = reinterpret_cast<Set>(find("fmi3SetFloat64"));
        get = reinterpret_cast<Get>(find("fmi3GetFloat64"));
        step = reinterpret_cast<Step>(find("fmi3DoStep"));
    }
    void *find(const char *name) const { return cosimo::find_function(library, name); }
    int fail(const std::string &text) const {
        if (log) log(environment, status_error, "logStatusError", text.c_str());
        return status_error;
    }
    int give(double time) {
        const auto &values = inputs.at(time);
        return set(component, inputs.references.data(), inputs.references.size(), values.data(), values.size());
    }
};

// Instances by the unit's own component, which all other functions are called with.
std::shared_mutex changing;
std::unordered_map<void *, std::unique_ptr<Instance>> instances;
std::atomic<unsigned> changes{1};

Instance &at(void *component) {
    thread_local struct {
        void *component = nullptr;
        Instance *instance = nullptr;
        unsigned changes = 0;
    } last;
    const unsigned now = changes.load(std::memory_order_acquire);
    if (last.component != component || last.changes != now) {
        const std::shared_lock lock(changing);
        last = {component, instances.at(component).get(), now};
    }
    return *last.instance;
}

extern "C" void log_message(void *environment, int status, const char *category, const char *message) {
    const auto &unit = *static_cast<Instance *>(environment);
    if (unit.log) unit.log(unit.environment, status, category, message);
}

extern "C" void update(void *environment, double time, bool set_requested, bool, bool, bool, bool *early_return, double *) {
    auto &unit = *static_cast<Instance *>(environment);
    if (early_return) *early_return = false;
    if (!set_requested || !unit.inputs.moves) return;
    if (const int status = unit.give(time); bad(status) && !bad(unit.refused)) unit.refused = status;
}

}  // namespace

// Null, or why the instance that is made next by this thread cannot be had; valid until the next call.
EXPORT const char *cosimoAdapterUse(void *library, const char *settings) {
    next = {library, read_settings(settings)};
    return nullptr;
}

// A component is the unit's own: functions that are not here are called in the unit's library.
EXPORT void cosimoAdapterKeepsComponent() {}

EXPORT void *fmi3InstantiateCoSimulation(const char *name, const char *token, const char *resources, bool visible, bool logging, bool event_mode,
                                         bool early_return, References, std::size_t, void *environment, Log log, void *) {
    auto unit = std::make_unique<Instance>(next, environment, log);
    constexpr const char *function = "fmi3InstantiateCoSimulation";
    using F = void *(*)(const char *, const char *, const char *, bool, bool, bool, bool, References, std::size_t, void *, Log, decltype(&update));
    const auto instantiate = reinterpret_cast<F>(unit->find(function));
    for (const auto &[found, missing] : {std::pair{reinterpret_cast<void *>(instantiate), function}, {reinterpret_cast<void *>(unit->step), "fmi3DoStep"}})
        if (!found) return unit->fail(std::string("its library has no function ") + missing), nullptr;
    const auto &references = unit->inputs.references;
    void *component = instantiate(name, token, resources, visible, logging, event_mode, early_return, references.data(), references.size(), unit.get(),
                                  log_message, update);
    if (!component) return nullptr;
    unit->component = component;
    const std::unique_lock lock(changing);
    instances[component] = std::move(unit);
    ++changes;
    return component;
}

EXPORT void fmi3FreeInstance(void *c) {
    if (!c) return;
    if (auto function = reinterpret_cast<void (*)(void *)>(at(c).find("fmi3FreeInstance"))) function(c);
    const std::unique_lock lock(changing);
    instances.erase(c);
    ++changes;
}

EXPORT int fmi3SetFloat64(void *c, References r, std::size_t n, const double *v, std::size_t size) {
    Instance &unit = at(c);
    unit.inputs.hold();  // what is set stays until derivatives are given, too
    return unit.set ? unit.set(c, r, n, v, size) : unit.fail("its library has no function fmi3SetFloat64");
}

// FMI 3.0 has no such function. Derivatives belong to the values that were set last.
EXPORT int fmi2SetRealInputDerivatives(void *c, References r, std::size_t n, const int *orders, const double *v) {
    Instance &unit = at(c);
    InputPolynomial &inputs = unit.inputs;
    inputs.hold();
    if (!unit.set || !unit.get) return unit.fail("its library has no functions fmi3SetFloat64 and fmi3GetFloat64");
    if (const int status = unit.get(c, inputs.references.data(), inputs.references.size(), inputs.value.data(), inputs.value.size()); bad(status)) return status;
    const std::string wrong = inputs.set_derivatives(r, n, orders, v);
    unit.begins = true;
    return wrong.empty() ? status_ok : unit.fail(wrong);
}

EXPORT int fmi3DoStep(void *c, double time, double duration, bool final, bool *event, bool *terminate, bool *early, double *reached) {
    Instance &unit = at(c);
    if (!unit.inputs.moves) return unit.step(c, time, duration, final, event, terminate, early, reached);
    if (unit.begins)
        unit.inputs.begun = time;
    else if (const int status = unit.give(time); bad(status))  // the rest of a step that returned early
        return status;
    unit.begins = false;
    unit.refused = status_ok;
    const int status = unit.step(c, time, duration, final, event, terminate, early, reached);
    if (bad(status) || bad(unit.refused)) return bad(status) ? status : unit.refused;
    const double end = *early || *terminate ? *reached : time + duration;
    const int given = end >= time ? unit.give(end) : status_ok;
    return bad(given) ? given : status;
}

// The functions of a co-simulation FMU of FMI 2.0 over one of FMI 1.0 (FMI for Co-Simulation 1.0, sections 3.3-3.5): whoever loads
// this library instead of the unit's own has a unit of FMI 2.0. `cosimoAdapterUse` says which library the next instance is of.
//
// FMI 1.0 has one initialisation, fmiInitializeSlave, after which parameters are fixed and outputs are known. It is called when
// the first value is asked for in initialisation mode, or at its end: all start values are given before it.
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "../kernel/platform.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int status_ok = 0, status_warning = 1, status_discard = 2, status_error = 3, status_pending = 5;
bool bad(int status) { return status < 0 || status > status_warning; }

using References = const std::uint32_t *;

struct Callbacks2 {
    void (*log)(void *, const char *, int, const char *, const char *, ...);
    void *(*allocate)(std::size_t, std::size_t);
    void (*free)(void *);
    void (*step_finished)(void *, int);
    void *environment;
};
struct Callbacks1 {
    void (*log)(void *, const char *, int, const char *, const char *, ...);
    void *(*allocate)(std::size_t, std::size_t);
    void (*free)(void *);
    void (*step_finished)(void *, int);
};

struct Next {
    void *library = nullptr;
    std::string identifier;
};
thread_local Next next;
thread_local std::string problem;

struct Slave {
    Next unit;
    const Callbacks2 *callbacks = nullptr;
    std::string name;
    void *component = nullptr;
    double start = 0.0, stop = 0.0;
    bool stops = false, initialised = false;

    void *find(const char *function) const { return cosimo::find_function(unit.library, (unit.identifier + "_" + function).c_str()); }
    void say(const std::string &text) const {
        if (callbacks && callbacks->log) callbacks->log(callbacks->environment, name.c_str(), status_error, "logStatusError", "%s", text.c_str());
    }
};
// The instance that is being called: loggers of FMI 1.0 are told nothing else that could be looked up.
thread_local const Slave *called = nullptr;

void log1(void *, const char *name, int status, const char *category, const char *format, ...) {
    if (!called || !called->callbacks || !called->callbacks->log) return;
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format ? format : "", arguments);
    va_end(arguments);
    called->callbacks->log(called->callbacks->environment, name, status, category, "%s", text);
}
void finished(void *, int) {}

Slave &at(void *component) { return *static_cast<Slave *>(component); }

template <class... Arguments>
int pass(void *c, const char *name, Arguments... arguments) {
    Slave &slave = at(c);
    called = &slave;
    if (auto function = reinterpret_cast<int (*)(void *, Arguments...)>(slave.find(name))) return function(slave.component, arguments...);
    slave.say("its library has no function " + slave.unit.identifier + "_" + name);
    return status_error;
}

int initialise(void *c) {
    Slave &slave = at(c);
    if (slave.initialised) return status_ok;
    slave.initialised = true;
    return pass(c, "fmiInitializeSlave", slave.start, static_cast<char>(slave.stops), slave.stop);
}

// Values can be asked for once the unit is initialised.
template <class... Arguments>
int ask(void *c, const char *name, Arguments... arguments) {
    const int status = initialise(c);
    return bad(status) ? status : pass(c, name, arguments...);
}

}  // namespace

// Null, or why the instance that is made next by this thread cannot be had; valid until the next call.
EXPORT const char *cosimoAdapterUse(void *library, const char *settings) {
    next = {library, ""};
    std::istringstream lines(settings ? settings : "");
    for (std::string line; std::getline(lines, line);)
        if (line.rfind("identifier=", 0) == 0) next.identifier = line.substr(11);
    problem.clear();
    Slave slave;
    slave.unit = next;
    for (const char *name : {"fmiInstantiateSlave", "fmiInitializeSlave", "fmiDoStep"})
        if (problem.empty() && !slave.find(name)) problem = "its library has no function " + next.identifier + "_" + name;
    return problem.empty() ? nullptr : problem.c_str();
}

EXPORT void *fmi2Instantiate(const char *name, int, const char *token, const char *resources, const Callbacks2 *callbacks, int visible, int logging) {
    auto *slave = new Slave;
    slave->unit = next;
    slave->callbacks = callbacks;
    slave->name = name ? name : "";
    called = slave;
    // FMI 1.0 wants the folder of the FMU, not that of its resources.
    std::string location = resources ? resources : "";
    for (const char *end : {"/", "/resources"})
        if (const std::size_t length = std::strlen(end); location.size() > length && location.compare(location.size() - length, length, end) == 0)
            location.resize(location.size() - length);
    using F = void *(*)(const char *, const char *, const char *, const char *, double, char, char, Callbacks1, char);
    const Callbacks1 own{log1, callbacks ? callbacks->allocate : nullptr, callbacks ? callbacks->free : nullptr, finished};
    slave->component = reinterpret_cast<F>(slave->find("fmiInstantiateSlave"))(
        slave->name.c_str(), token, location.c_str(), "application/x-fmu-sharedlibrary", 0.0, static_cast<char>(visible), 0, own, static_cast<char>(logging));
    if (slave->component) return slave;
    delete slave;
    return nullptr;
}
EXPORT void fmi2FreeInstance(void *c) {
    if (!c) return;
    called = &at(c);
    if (auto function = reinterpret_cast<void (*)(void *)>(at(c).find("fmiFreeSlaveInstance"))) function(at(c).component);
    called = nullptr;
    delete static_cast<Slave *>(c);
}
EXPORT int fmi2SetDebugLogging(void *c, int on, std::size_t, const char *const *) { return pass(c, "fmiSetDebugLogging", static_cast<char>(on)); }
EXPORT int fmi2SetupExperiment(void *c, int, double, double start, int stops, double stop) {
    at(c).start = start;
    at(c).stop = stop;
    at(c).stops = stops != 0;
    return status_ok;
}
EXPORT int fmi2EnterInitializationMode(void *) { return status_ok; }
EXPORT int fmi2ExitInitializationMode(void *c) { return initialise(c); }
EXPORT int fmi2Terminate(void *c) { return pass(c, "fmiTerminateSlave"); }
EXPORT int fmi2Reset(void *c) {
    at(c).initialised = false;
    return pass(c, "fmiResetSlave");
}
EXPORT int fmi2SetReal(void *c, References r, std::size_t n, const double *v) { return pass(c, "fmiSetReal", r, n, v); }
EXPORT int fmi2GetReal(void *c, References r, std::size_t n, double *v) { return ask(c, "fmiGetReal", r, n, v); }
EXPORT int fmi2SetInteger(void *c, References r, std::size_t n, const int *v) { return pass(c, "fmiSetInteger", r, n, v); }
EXPORT int fmi2GetInteger(void *c, References r, std::size_t n, int *v) { return ask(c, "fmiGetInteger", r, n, v); }
// fmiBoolean is a char, fmi2Boolean an int.
EXPORT int fmi2SetBoolean(void *c, References r, std::size_t n, const int *v) {
    const std::vector<char> own(v, v + n);
    return pass(c, "fmiSetBoolean", r, n, own.data());
}
EXPORT int fmi2GetBoolean(void *c, References r, std::size_t n, int *v) {
    std::vector<char> own(n);
    const int status = ask(c, "fmiGetBoolean", r, n, own.data());
    if (!bad(status))
        for (std::size_t i = 0; i < n; ++i) v[i] = own[i] != 0;
    return status;
}
EXPORT int fmi2SetString(void *c, References r, std::size_t n, const char *const *v) { return pass(c, "fmiSetString", r, n, v); }
EXPORT int fmi2GetString(void *c, References r, std::size_t n, const char **v) { return ask(c, "fmiGetString", r, n, v); }
EXPORT int fmi2SetRealInputDerivatives(void *c, References r, std::size_t n, const int *orders, const double *v) {
    return pass(c, "fmiSetRealInputDerivatives", r, n, orders, v);
}
EXPORT int fmi2GetRealOutputDerivatives(void *c, References r, std::size_t n, const int *orders, double *v) {
    return ask(c, "fmiGetRealOutputDerivatives", r, n, orders, v);
}
EXPORT int fmi2DoStep(void *c, double time, double duration, int) {
    constexpr char new_step = 1;
    constexpr int do_step_status = 0;
    int status = pass(c, "fmiDoStep", time, duration, new_step);
    // A unit that goes on by itself is waited for: whoever called has no use for a step that is not over.
    while (status == status_pending) {
        std::this_thread::yield();
        int now = status_error;
        status = bad(pass(c, "fmiGetStatus", do_step_status, &now)) ? status_error : now;
    }
    return status;
}
EXPORT int fmi2GetRealStatus(void *c, int kind, double *value) { return pass(c, "fmiGetRealStatus", kind, value); }
// FMI 1.0 has no way to ask for the end of a simulation.
EXPORT int fmi2GetBooleanStatus(void *, int, int *) { return status_discard; }

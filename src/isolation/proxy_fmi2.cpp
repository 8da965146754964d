// The functions of FMI 2.0 for co-simulation, each sent to the worker.
#include "proxy.hpp"

using namespace cosimo::isolation;
using F = Function;

EXPORTED const char *fmi2GetTypesPlatform() { return "default"; }
EXPORTED const char *fmi2GetVersion() { return "2.0"; }

EXPORTED void *fmi2Instantiate(const char *name, int, const char *token, const char *resources, const void *, int visible, int logging) {
    Connection *c = take_next();
    if (!c) return nullptr;
    c->begin(F::fmi2Instantiate);
    for (const char *text : {name, token, resources}) c->out.text(text);
    c->out.put(visible);
    c->out.put(logging);
    return c->send() <= status_warning ? c : nullptr;
}
EXPORTED void fmi2FreeInstance(void *c) {
    if (c) plain(c, F::fmi2FreeInstance);
}
EXPORTED int fmi2SetDebugLogging(void *c, int on, std::size_t count, const char *const *names) {
    return debug(c, F::fmi2SetDebugLogging, on, count, names);
}
EXPORTED int fmi2SetupExperiment(void *c, int tolerance_given, double tolerance, double start, int stop_given, double stop) {
    return setup(c, F::fmi2SetupExperiment, tolerance_given, tolerance, start, stop_given, stop);
}
EXPORTED int fmi2EnterInitializationMode(void *c) { return plain(c, F::fmi2EnterInitializationMode); }
EXPORTED int fmi2ExitInitializationMode(void *c) { return plain(c, F::fmi2ExitInitializationMode); }
EXPORTED int fmi2Terminate(void *c) { return plain(c, F::fmi2Terminate); }
EXPORTED int fmi2Reset(void *c) { return plain(c, F::fmi2Reset); }
EXPORTED int fmi2CancelStep(void *c) { return plain(c, F::fmi2CancelStep); }

#define VALUES(type, c_type)                                                                             \
    EXPORTED int fmi2Set##type(void *c, References r, std::size_t n, const c_type *v) {                  \
        return set_values(c, F::fmi2Set##type, r, n, v, n);                                              \
    }                                                                                                    \
    EXPORTED int fmi2Get##type(void *c, References r, std::size_t n, c_type *v) {                        \
        return at(c).get(F::fmi2Get##type, r, n, v, n);                                                  \
    }
VALUES(Real, double)
VALUES(Integer, int)
VALUES(Boolean, int)
EXPORTED int fmi2SetString(void *c, References r, std::size_t n, const char *const *v) { return set_texts(c, F::fmi2SetString, r, n, v, n); }
EXPORTED int fmi2GetString(void *c, References r, std::size_t n, const char **v) { return get_texts(c, F::fmi2GetString, r, n, v, n); }

EXPORTED int fmi2GetFMUstate(void *c, void **s) { return state(c, F::fmi2GetFMUstate, s); }
EXPORTED int fmi2FreeFMUstate(void *c, void **s) { return *s ? state(c, F::fmi2FreeFMUstate, s) : status_ok; }
EXPORTED int fmi2SetFMUstate(void *c, void *s) { return put_state(c, F::fmi2SetFMUstate, s); }
EXPORTED int fmi2SerializedFMUstateSize(void *c, void *s, std::size_t *size) { return state_size(c, F::fmi2SerializedFMUstateSize, s, size); }
EXPORTED int fmi2SerializeFMUstate(void *c, void *s, char *bytes, std::size_t size) { return serialise(c, F::fmi2SerializeFMUstate, s, bytes, size); }
EXPORTED int fmi2DeSerializeFMUstate(void *c, const char *bytes, std::size_t size, void **s) {
    return deserialise(c, F::fmi2DeSerializeFMUstate, bytes, size, s);
}
EXPORTED int fmi2GetDirectionalDerivative(void *c, References u, std::size_t nu, References k, std::size_t nk, const double *seed, double *v) {
    return derivatives(c, F::fmi2GetDirectionalDerivative, {u, nu, k, nk, seed, nk, v, nu});
}
EXPORTED int fmi2SetRealInputDerivatives(void *c, References r, std::size_t n, const int *orders, const double *v) {
    return derivatives(c, F::fmi2SetRealInputDerivatives, {r, n, orders, n, nullptr, 0, const_cast<double *>(v), n});
}
EXPORTED int fmi2GetRealOutputDerivatives(void *c, References r, std::size_t n, const int *orders, double *v) {
    return derivatives(c, F::fmi2GetRealOutputDerivatives, {r, n, orders, n, nullptr, 0, v, n});
}

// Sends the step without waiting for it; fmi2DoStep then only waits.
EXPORTED void cosimoPostStep2(void *c, double time, double duration, int final) {
    at(c).post_step(F::fmi2DoStep, time, duration, final, 0.0);
}
EXPORTED int fmi2DoStep(void *c, double time, double duration, int final) {
    at(c).post_step(F::fmi2DoStep, time, duration, final, 0.0);
    return at(c).collect_step();
}

static int status_of(void *component, Function function, int kind, void *value) {
    Connection &c = at(component);
    c.begin(function);
    c.out.put(kind);
    const int status = c.send();
    const auto found = c.results.get<std::uint64_t>();
    if (status <= status_warning) std::memcpy(value, &found, described(function).size);
    return status;
}
EXPORTED int fmi2GetStatus(void *c, int kind, int *value) { return status_of(c, F::fmi2GetStatus, kind, value); }
EXPORTED int fmi2GetRealStatus(void *c, int kind, double *value) { return status_of(c, F::fmi2GetRealStatus, kind, value); }
EXPORTED int fmi2GetIntegerStatus(void *c, int kind, int *value) { return status_of(c, F::fmi2GetIntegerStatus, kind, value); }
EXPORTED int fmi2GetBooleanStatus(void *c, int kind, int *value) { return status_of(c, F::fmi2GetBooleanStatus, kind, value); }
EXPORTED int fmi2GetStringStatus(void *component, int kind, const char **value) {
    Connection &c = at(component);
    c.begin(F::fmi2GetStringStatus);
    c.out.put(kind);
    const int status = c.send();
    if (status > status_warning) return status;
    c.texts.assign(1, read_text(c));
    *value = c.texts[0].c_str();
    return status;
}

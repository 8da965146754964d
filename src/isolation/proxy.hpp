// Shared by the exported FMI functions of both versions.
#pragma once
#include <utility>

#include "connection.hpp"

namespace cosimo::isolation {

Connection *take_next();

using References = const std::uint32_t *;

inline Connection &at(void *component) { return *static_cast<Connection *>(component); }

inline int plain(void *component, Function function) {
    at(component).begin(function);
    return at(component).send();
}

// A call about variables: how many there are, how many values they have, and which they are.
inline void begin_values(Connection &c, Function function, References references, std::size_t count, std::size_t values) {
    c.begin(function);
    c.out.put<std::uint64_t>(count);
    c.out.put<std::uint64_t>(values);
    c.out.bytes(references, count * 4);
}

inline int set_values(void *component, Function function, References references, std::size_t count, const void *values, std::size_t given) {
    Connection &c = at(component);
    begin_values(c, function, references, count, given);
    c.out.bytes(values, given * described(function).size);
    return c.keep();
}

inline int set_texts(void *component, Function function, References references, std::size_t count, const char *const *values, std::size_t given) {
    Connection &c = at(component);
    begin_values(c, function, references, count, given);
    for (std::size_t i = 0; i < given; ++i) c.out.text(values[i]);
    return c.keep();
}

inline std::string read_text(Connection &c) {
    const auto length = c.results.get<std::uint64_t>();
    const auto *text = static_cast<const char *>(c.results.take(length));
    return text ? std::string(text, length) : std::string();
}

inline int get_texts(void *component, Function function, References references, std::size_t count, const char **values, std::size_t wanted) {
    Connection &c = at(component);
    begin_values(c, function, references, count, wanted);
    const int status = c.send();
    if (status > status_warning) return status;
    c.texts.assign(wanted, {});
    for (std::size_t i = 0; i < wanted; ++i) {
        c.texts[i] = read_text(c);
        values[i] = c.texts[i].c_str();
    }
    return status;
}

inline int debug(void *component, Function function, int on, std::size_t count, const char *const *names) {
    Connection &c = at(component);
    c.begin(function);
    c.out.put(on);
    c.out.put<std::uint64_t>(count);
    for (std::size_t i = 0; i < count; ++i) c.out.text(names[i]);
    return c.send();
}

inline int setup(void *component, Function function, int tolerance_given, double tolerance, double start, int stop_given, double stop) {
    Connection &c = at(component);
    c.begin(function);
    c.out.put(tolerance_given);
    c.out.put(stop_given);
    c.out.put(tolerance);
    c.out.put(start);
    c.out.put(stop);
    return c.send();
}

// A pointer of the unit's process, which is only a number here.
inline int state(void *component, Function function, void **state) {
    Connection &c = at(component);
    c.begin(function);
    c.out.put(reinterpret_cast<std::uint64_t>(*state));
    const int status = c.send();
    if (status <= status_warning) *state = reinterpret_cast<void *>(c.results.get<std::uint64_t>());
    return status;
}
inline int put_state(void *component, Function function, void *state) {
    Connection &c = at(component);
    c.begin(function);
    c.out.put(reinterpret_cast<std::uint64_t>(state));
    return c.keep();
}
inline int state_size(void *component, Function function, void *state, std::size_t *size) {
    Connection &c = at(component);
    c.begin(function);
    c.out.put(reinterpret_cast<std::uint64_t>(state));
    const int status = c.send();
    if (status <= status_warning) *size = c.results.get<std::uint64_t>();
    return status;
}
inline int serialise(void *component, Function function, void *state, void *bytes, std::size_t size) {
    Connection &c = at(component);
    c.begin(function);
    c.out.put(reinterpret_cast<std::uint64_t>(state));
    c.out.put<std::uint64_t>(size);
    const int status = c.send();
    if (status > status_warning) return status;
    const void *found = c.results.take(size);
    if (!found) return status_error;
    std::memcpy(bytes, found, size);
    return status;
}
inline int deserialise(void *component, Function function, const void *bytes, std::size_t size, void **state) {
    Connection &c = at(component);
    c.begin(function);
    c.out.put<std::uint64_t>(size);
    c.out.bytes(bytes, size);
    const int status = c.send();
    if (status <= status_warning) *state = reinterpret_cast<void *>(c.results.get<std::uint64_t>());
    return status;
}

struct Derivatives {
    References unknowns;
    std::size_t unknown_count;
    const void *second;  // value references of knowns, or orders
    std::size_t second_count;
    const double *seeds;
    std::size_t seed_count;
    double *values;
    std::size_t value_count;
};

inline int derivatives(void *component, Function function, const Derivatives &d) {
    Connection &c = at(component);
    c.begin(function);
    for (std::size_t size : {d.unknown_count, d.second_count, d.seed_count, d.value_count}) c.out.put<std::uint64_t>(size);
    c.out.bytes(d.unknowns, d.unknown_count * 4);
    c.out.bytes(d.second, d.second_count * 4);
    if (described(function).kind == Kind::set_derivatives) {
        c.out.bytes(d.values, d.value_count * 8);
        return c.send();  // at once: what a unit refuses is given it in lower orders, before its step
    }
    if (described(function).kind == Kind::directional) c.out.bytes(d.seeds, d.seed_count * 8);
    const int status = c.send();
    if (status > status_warning) return status;
    const void *found = c.results.take(d.value_count * 8);
    if (!found) return status_error;
    std::memcpy(d.values, found, d.value_count * 8);
    return status;
}

}  // namespace cosimo::isolation

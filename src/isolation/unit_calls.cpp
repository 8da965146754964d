#include "unit_calls.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "../kernel/platform.hpp"
#include "worker_log.hpp"

namespace cosimo::isolation {
namespace {

using References = const std::uint32_t *;

template <class F>
F as(void *address) {
    return reinterpret_cast<F>(address);
}

bool is_fmi3(Function function) { return described(function).name[3] == '3'; }

// FMI 2.0 hands a format and its arguments over, FMI 3.0 the finished text.
extern "C" void log_fmi2(void *, const char *, int status, const char *, const char *format, ...) {
    if (!log_has_room(status)) return;
    char text[text_bytes];
    va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(text, sizeof text, format ? format : "", arguments);
    va_end(arguments);
    log_record(status, text, length < 0 ? 0 : std::min<std::size_t>(static_cast<std::size_t>(length), sizeof text - 1));
}
extern "C" void log_fmi3(void *, int status, const char *, const char *message) {
    if (message && log_has_room(status)) log_record(status, message, std::strlen(message));
}
extern "C" void step_finished(void *, int) {}

struct Callbacks2 {
    void (*log)(void *, const char *, int, const char *, const char *, ...);
    void *(*allocate)(std::size_t, std::size_t);
    void (*free)(void *);
    void (*step_finished)(void *, int);
    void *environment;
};
#ifndef _WIN32
// How many threads this process has.
long threads() {
    std::error_code none;
    return std::distance(std::filesystem::directory_iterator("/proc/self/task", none), std::filesystem::directory_iterator());
}
#endif

const Callbacks2 callbacks2 = {log_fmi2, std::calloc, std::free, step_finished, nullptr};

}  // namespace

std::string UnitCalls::load(const char *path, const char *adapter, const char *settings) {
    // Units may leave the mathematics, dynamic loading and threads to the program that loads them.
#ifndef _WIN32
    for (const char *name : {"libm.so.6", "libdl.so.2", "libpthread.so.0"}) dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    threads_before_ = threads();
#endif
    std::string missing;
    library_ = open_library(path, missing);
    if (!library_) return missing;
    if (!adapter) return {};
    // A library of ours is called, and calls the unit's. Where both know the same component, what it lacks is the unit's own.
    void *own = library_;
    library_ = open_library(adapter, missing);
    if (!library_) return missing;
    if (find_function(library_, "cosimoAdapterKeepsComponent")) own_ = own;
    const char *problem = as<const char *(*)(void *, const char *)>(find_function(library_, "cosimoAdapterUse"))(own, settings);
    return problem ? problem : std::string();
}

void UnitCalls::unload() {
#ifndef _WIN32  // which unloads it when the process ends, after its threads
    // Threads that the unit has started and not ended would go on in code that is gone.
    if (library_ && threads() <= threads_before_) dlclose(library_);
#endif
}

void *UnitCalls::find(const char *name) const {
    void *found = find_function(library_, name);
    return found || !own_ ? found : find_function(own_, name);
}

void *UnitCalls::symbol(Function function) {
    const auto number = static_cast<std::size_t>(function);
    if (!looked_up_[number]) {
        symbols_[number] = find(functions[number].name);
        looked_up_[number] = true;
    }
    return symbols_[number];
}

int UnitCalls::call(Function function, Reader &arguments, Writer &results) {
    if (function == Function::cosimoHas) {
        const auto &names = read_texts(arguments, 1);
        results.put<std::uint64_t>(!names.empty() && find(names[0]) != nullptr);
        return status_ok;
    }
    void *address = symbol(function);
    if (!address) {
        const std::string text = std::string("its library has no function ") + described(function).name;
        log_record(status_error, text.data(), text.size());
        return status_error;
    }
    int status = status_ok;
    switch (described(function).kind) {
        case Kind::instantiate2: status = instantiate2(address, arguments); break;
        case Kind::instantiate3: status = instantiate3(address, arguments); break;
        case Kind::set:
        case Kind::get:
        case Kind::interval: status = variables(function, address, arguments, results); break;
        case Kind::set_binaries:
        case Kind::get_binaries: status = binaries(function, address, arguments, results); break;
        case Kind::set_texts:
        case Kind::get_texts:
        case Kind::debug: status = strings(function, address, arguments, results); break;
        case Kind::state_get:
        case Kind::state_set:
        case Kind::state_free:
        case Kind::state_size:
        case Kind::serialise:
        case Kind::deserialise: status = states(function, address, arguments, results); break;
        case Kind::directional:
        case Kind::set_derivatives:
        case Kind::get_derivatives: status = derivatives(function, address, arguments, results); break;
        default: status = other(function, address, arguments, results);
    }
    return status < 0 ? status_illegal : status;
}

int UnitCalls::instantiate2(void *address, Reader &arguments) {
    const auto names = read_texts(arguments, 3);
    const int visible = arguments.get<int>(), logging = arguments.get<int>();
    if (names.size() != 3) return status_error;
    using F = void *(*)(const char *, int, const char *, const char *, const Callbacks2 *, int, int);
    component_ = as<F>(address)(names[0], 1, names[1], names[2], &callbacks2, visible, logging);
    return component_ ? status_ok : status_error;
}

int UnitCalls::instantiate3(void *address, Reader &arguments) {
    const auto names = read_texts(arguments, 3);
    bool flags[4];
    for (bool &flag : flags) flag = arguments.get<std::uint8_t>() != 0;
    if (names.size() != 3) return status_error;
    using Log = void (*)(void *, int, const char *, const char *);
    using F = void *(*)(const char *, const char *, const char *, bool, bool, bool, bool, References, std::size_t, void *, Log, void *);
    const std::uint32_t none = 0;
    component_ = as<F>(address)(names[0], names[1], names[2], flags[0], flags[1], flags[2], flags[3], &none, 0, nullptr, log_fmi3, nullptr);
    return component_ ? status_ok : status_error;
}

int UnitCalls::variables(Function function, void *address, Reader &arguments, Writer &results) {
    const auto count = arguments.get<std::uint64_t>(), values = arguments.get<std::uint64_t>();
    const auto *references = static_cast<References>(arguments.take(count * 4));
    const std::size_t bytes = values * described(function).size;
    const bool setting = described(function).kind == Kind::set;
    // What a unit sets it may not change; that both have one signature but for `const` does not matter to C.
    void *place = setting ? const_cast<void *>(arguments.take(bytes)) : results.take(bytes);
    if (arguments.failed() || !place) return status_error;
    if (described(function).kind == Kind::interval) {
        auto *qualifiers = static_cast<int *>(results.take(values * sizeof(int)));
        if (!qualifiers) return status_error;
        return as<int (*)(void *, References, std::size_t, void *, int *)>(address)(component_, references, count, place, qualifiers);
    }
    const bool clock = function == Function::fmi3SetClock || function == Function::fmi3GetClock || function == Function::fmi3GetShiftDecimal;
    if (is_fmi3(function) && !clock)  // clocks are no arrays
        return as<int (*)(void *, References, std::size_t, void *, std::size_t)>(address)(component_, references, count, place, values);
    return as<int (*)(void *, References, std::size_t, void *)>(address)(component_, references, count, place);
}

int UnitCalls::strings(Function function, void *address, Reader &arguments, Writer &results) {
    if (described(function).kind == Kind::debug) {
        const int on = arguments.get<int>();
        const auto names = read_texts(arguments, arguments.get<std::uint64_t>());
        if (is_fmi3(function))
            return as<int (*)(void *, bool, std::size_t, const char *const *)>(address)(component_, on != 0, names.size(), names.data());
        return as<int (*)(void *, int, std::size_t, const char *const *)>(address)(component_, on, names.size(), names.data());
    }
    const auto count = arguments.get<std::uint64_t>(), values = arguments.get<std::uint64_t>();
    const auto *references = static_cast<References>(arguments.take(count * 4));
    if (arguments.failed()) return status_error;
    const bool setting = described(function).kind == Kind::set_texts;
    std::vector<const char *> texts = setting ? read_texts(arguments, values) : std::vector<const char *>(values);
    if (texts.size() != values) return status_error;
    const int status = is_fmi3(function)
        ? as<int (*)(void *, References, std::size_t, const char **, std::size_t)>(address)(component_, references, count, texts.data(), values)
        : as<int (*)(void *, References, std::size_t, const char **)>(address)(component_, references, count, texts.data());
    if (!setting && status >= 0 && status <= status_warning)
        for (const char *text : texts) results.text(text);
    return status;
}

int UnitCalls::binaries(Function function, void *address, Reader &arguments, Writer &results) {
    const auto count = arguments.get<std::uint64_t>(), values = arguments.get<std::uint64_t>();
    const auto *references = static_cast<References>(arguments.take(count * 4));
    if (arguments.failed()) return status_error;
    const bool setting = described(function).kind == Kind::set_binaries;
    std::vector<const char *> bytes = setting ? read_texts(arguments, values) : std::vector<const char *>(values);
    std::vector<std::size_t> sizes(values, 0);
    if (bytes.size() != values) return status_error;
    for (std::size_t i = 0; setting && i < values; ++i) sizes[i] = texts_[i].size();
    const int status = as<int (*)(void *, References, std::size_t, std::size_t *, const char **, std::size_t)>(address)(
        component_, references, count, sizes.data(), bytes.data(), values);
    if (!setting && status >= 0 && status <= status_warning)
        for (std::size_t i = 0; i < values; ++i) results.text(bytes[i], sizes[i]);
    return results.failed() ? status_error : status;
}

int UnitCalls::states(Function function, void *address, Reader &arguments, Writer &results) {
    // The master keeps states as the numbers that the unit's pointers are here.
    auto pointer = [&] { return reinterpret_cast<void *>(arguments.get<std::uint64_t>()); };
    int status = status_ok;
    switch (described(function).kind) {
        case Kind::state_get:
        case Kind::state_free: {
            void *state = pointer();
            status = as<int (*)(void *, void **)>(address)(component_, &state);
            results.put(reinterpret_cast<std::uint64_t>(state));
            return status;
        }
        case Kind::state_set: return as<int (*)(void *, void *)>(address)(component_, pointer());
        case Kind::state_size: {
            std::size_t size = 0;
            status = as<int (*)(void *, void *, std::size_t *)>(address)(component_, pointer(), &size);
            results.put<std::uint64_t>(size);
            return status;
        }
        case Kind::serialise: {
            void *state = pointer();
            const auto size = arguments.get<std::uint64_t>();
            void *place = results.take(size);
            if (!place) {
                char text[100];
                const int length = std::snprintf(text, sizeof text, "its state of %.0f MB is more than an isolated unit can pass on (%zu MB)",
                                                 static_cast<double>(size) / (1 << 20), area >> 20);
                log_record(status_error, text, static_cast<std::size_t>(length));
                return status_error;
            }
            return as<int (*)(void *, void *, unsigned char *, std::size_t)>(address)(component_, state, static_cast<unsigned char *>(place), size);
        }
        default: {
            const auto size = arguments.get<std::uint64_t>();
            const void *bytes = arguments.take(size);
            if (arguments.failed()) return status_error;
            void *state = nullptr;
            status = as<int (*)(void *, const void *, std::size_t, void **)>(address)(component_, bytes, size, &state);
            results.put(reinterpret_cast<std::uint64_t>(state));
            return status;
        }
    }
}

int UnitCalls::derivatives(Function function, void *address, Reader &arguments, Writer &results) {
    const auto first = arguments.get<std::uint64_t>(), second = arguments.get<std::uint64_t>();
    const auto seeds = arguments.get<std::uint64_t>(), values = arguments.get<std::uint64_t>();
    const auto *unknowns = static_cast<References>(arguments.take(first * 4));
    if (described(function).kind == Kind::directional) {
        const auto *knowns = static_cast<References>(arguments.take(second * 4));
        const auto *seed = static_cast<const double *>(arguments.take(seeds * 8));
        auto *found = static_cast<double *>(results.take(values * 8));
        if (arguments.failed() || !found) return status_error;
        if (is_fmi3(function))
            return as<int (*)(void *, References, std::size_t, References, std::size_t, const double *, std::size_t, double *, std::size_t)>(
                address)(component_, unknowns, first, knowns, second, seed, seeds, found, values);
        return as<int (*)(void *, References, std::size_t, References, std::size_t, const double *, double *)>(address)(
            component_, unknowns, first, knowns, second, seed, found);
    }
    const auto *orders = static_cast<const int *>(arguments.take(first * 4));
    const bool setting = described(function).kind == Kind::set_derivatives;
    auto *place = static_cast<double *>(setting ? const_cast<void *>(arguments.take(values * 8)) : results.take(values * 8));
    if (arguments.failed() || !place) return status_error;
    if (is_fmi3(function))
        return as<int (*)(void *, References, std::size_t, const int *, double *, std::size_t)>(address)(component_, unknowns, first, orders, place, values);
    return as<int (*)(void *, References, std::size_t, const int *, double *)>(address)(component_, unknowns, first, orders, place);
}

int UnitCalls::other(Function function, void *address, Reader &arguments, Writer &results) {
    switch (described(function).kind) {
        case Kind::plain: return as<int (*)(void *)>(address)(component_);
        case Kind::free:
            as<void (*)(void *)>(address)(component_);
            component_ = nullptr;
            return status_ok;
        case Kind::setup: {
            const int tolerance_given = arguments.get<int>(), stop_given = arguments.get<int>();
            const double tolerance = arguments.get<double>(), start = arguments.get<double>(), stop = arguments.get<double>();
            if (is_fmi3(function))
                return as<int (*)(void *, bool, double, double, bool, double)>(address)(component_, tolerance_given != 0, tolerance, start, stop_given != 0, stop);
            return as<int (*)(void *, int, double, double, int, double)>(address)(component_, tolerance_given, tolerance, start, stop_given, stop);
        }
        case Kind::step2: {
            const double time = arguments.get<double>(), duration = arguments.get<double>();
            return as<int (*)(void *, double, double, int)>(address)(component_, time, duration, arguments.get<int>());
        }
        case Kind::step3: {
            const double time = arguments.get<double>(), duration = arguments.get<double>();
            const bool final = arguments.get<std::uint8_t>() != 0;
            double reached = arguments.get<double>();
            bool flags[8] = {};  // event, terminate, early
            const int status = as<int (*)(void *, double, double, bool, bool *, bool *, bool *, double *)>(address)(
                component_, time, duration, final, flags, flags + 1, flags + 2, &reached);
            results.bytes(flags, sizeof flags);
            results.put(reached);
            return status;
        }
        case Kind::update: {
            bool flags[8] = {};
            double next = 0.0;
            const int status = as<int (*)(void *, bool *, bool *, bool *, bool *, bool *, double *)>(address)(
                component_, flags, flags + 1, flags + 2, flags + 3, flags + 4, &next);
            results.bytes(flags, sizeof flags);
            results.put(next);
            return status;
        }
        case Kind::status: {
            std::uint64_t value = 0;
            const int what = arguments.get<int>();
            const int status = as<int (*)(void *, int, void *)>(address)(component_, what, &value);
            results.put(value);
            return status;
        }
        case Kind::status_text: {
            const char *text = nullptr;
            const int status = as<int (*)(void *, int, const char **)>(address)(component_, arguments.get<int>(), &text);
            results.text(text);
            return status;
        }
        default: return status_error;
    }
}

const std::vector<const char *> &UnitCalls::read_texts(Reader &arguments, std::size_t count) {
    texts_.clear();
    pointers_.clear();
    for (std::size_t i = 0; i < count && !arguments.failed(); ++i) {
        const auto length = arguments.get<std::uint64_t>();
        const auto *text = static_cast<const char *>(arguments.take(length));
        if (!arguments.failed()) texts_.emplace_back(text, length);
    }
    for (const std::string &text : texts_) pointers_.push_back(text.c_str());
    return pointers_;
}

}  // namespace cosimo::isolation

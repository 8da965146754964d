#include "unit_library.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <unordered_set>

#include "../kernel/platform.hpp"

namespace cosimo {
namespace {

// Units hand over anything as the environment: only what was given out is used, or the single one there is.
std::mutex known_mutex;
std::unordered_set<void *> known;

void hear(void *environment, int status, const char *text) {
    std::lock_guard lock(known_mutex);
    void *found = known.contains(environment) ? environment : known.size() == 1 ? *known.begin() : nullptr;
    if (found) static_cast<UnitLibrary *>(found)->heard(status, text);
}

void log2(void *environment, const char *, int status, const char *, const char *format, ...) {
    char text[2000];
    va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(text, sizeof text, format ? format : "", arguments);
    va_end(arguments);
    if (length > 0) hear(environment, status, text);
}

void log3(void *environment, int status, const char *, const char *message) {
    if (message && *message) hear(environment, status, message);
}

struct Callbacks2 {
    void (*log)(void *, const char *, int, const char *, const char *, ...);
    void *(*allocate)(std::size_t, std::size_t);
    void (*free)(void *);
    void (*step_finished)(void *, int);
    void *environment;
};

std::string label(int status, int version) {
    static const char *const words[] = {"OK", "Warning", "Discard", "Error", "Fatal", "Pending"};
    if (status < 0 || status == fmi_illegal) return "a negative status";
    if (status > 5) return "the unknown status " + std::to_string(status);
    return "fmi" + std::to_string(version) + words[status];
}

// A folder as a URI, in which all but letters, digits and a few marks are written as %XX: the ':' of a drive too, which
// those who read URIs turn back.
std::string uri(const std::string &folder) {
    std::string found = folder.starts_with('/') ? "file://" : "file:///";
    for (const char c : folder) {
        const auto byte = static_cast<unsigned char>(c);
        if (std::isalnum(byte) || std::string("/-_.~").find(c) != std::string::npos) {
            found += c;
        } else {
            char code[4];
            std::snprintf(code, sizeof code, "%%%02X", byte);
            found += code;
        }
    }
    return found;
}

std::string replaced(std::string text, const std::string &mark, const std::string &by) {
    for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += by.size()) text.replace(at, mark.size(), by);
    return text;
}

}  // namespace

std::string unit_failed(const std::string &unit, int status, int version, const std::string &where, const std::string &said) {
    return "unit '" + unit + "' returned " + label(status, version) + " from " + where + said + ".";
}

UnitLibrary::UnitLibrary(const FmuFile &given, const std::string &resources, Log log)
    : file(given), talks(given.talks), folder_(resources + "/" + given.folder), label_("unit '" + given.name + "'"), log_(std::move(log)) {
    {
        std::lock_guard lock(known_mutex);
        known.insert(this);
    }
    try {
        library_ = functions_ = loaded(folder_ + "/" + library());
        if (!file.adapter.empty()) functions_ = loaded(resources + "/" + file.adapter);
    } catch (...) {
        std::lock_guard lock(known_mutex);
        known.erase(this);
        throw;
    }
    // What an adapter must know may name files beside it.
    if (const auto end = file.adapter.rfind('/'); end != std::string::npos)
        const_cast<std::string &>(file.settings) = replaced(file.settings, "@/", resources + "/" + file.adapter.substr(0, end) + "/");
}

UnitLibrary::~UnitLibrary() {
    if (component && !dead) {
        terminate();
        if (const auto free = address("fmi" + std::to_string(file.version) + "FreeInstance")) reinterpret_cast<void (*)(void *)>(free)(component);
    }
    // Libraries stay loaded: threads that a unit has started may still be in their code.
    std::lock_guard lock(known_mutex);
    known.erase(this);
}

const std::string &UnitLibrary::library() const {
    std::string others;
    for (const auto &[platform, path] : file.libraries) {
        if (platform == platform_name) return path;
        others += (others.empty() ? "" : ", ") + platform;
    }
    throw std::runtime_error(label_ + " has no library for this platform (" + platform_name + "); it has: " + others +
                             ". Export the coupling again with an FMU for this platform.");
}

void *UnitLibrary::loaded(const std::string &path) {
    std::string problem;
    void *found = open_library(path, problem);
    if (!found) throw std::runtime_error(label_ + " cannot be loaded: " + problem + "; export the coupling on this platform.");
    return found;
}

std::uintptr_t UnitLibrary::address(const std::string &function) const {
    if (void *found = find_function(functions_, function.c_str())) return reinterpret_cast<std::uintptr_t>(found);
    // Where an adapter hands out the unit's own component, what it lacks is the unit's own.
    if (functions_ != library_ && find_function(functions_, "cosimoAdapterKeepsComponent"))
        if (void *found = find_function(library_, function.c_str())) return reinterpret_cast<std::uintptr_t>(found);
    if (function.ends_with("Status") || function.ends_with("SetDebugLogging")) return 0;  // optional
    throw std::runtime_error("the library of " + label_ + " lacks the function " + function + ", which is needed here; contact its supplier.");
}

void UnitLibrary::heard(int status, const char *text) {
    std::string line = text;
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
    if (line.empty()) return;
    if (status >= worst_status_) {
        worst_ = line;
        worst_status_ = status;
    }
    if (talks || status >= fmi_warning) log_(file.name, status, line);
}

std::string UnitLibrary::said() const {
    if (worst_.empty()) return "";
    return "; it says: " + (worst_.ends_with('.') ? worst_.substr(0, worst_.size() - 1) : worst_);
}

template <class... Arguments>
void UnitLibrary::call(const std::string &verb, Arguments... arguments) {
    const std::string name = "fmi" + std::to_string(file.version) + verb;
    const auto function = reinterpret_cast<int (*)(void *, Arguments...)>(address(name));
    const int status = bad(function(component, arguments...));
    if (!status) return;
    dead = dead || status == fmi_fatal;
    running = false;
    throw std::runtime_error(unit_failed(file.name, status, file.version, name, said()));
}

void UnitLibrary::instantiate() {
    if (!file.adapter.empty()) {
        const auto use = reinterpret_cast<const char *(*)(void *, const char *)>(address("cosimoAdapterUse"));
        if (const char *problem = use(library_, file.settings.c_str()))
            throw std::runtime_error(label_ + " cannot be loaded: " + problem + ".");
    }
    const std::string resources = folder_ + "/resources";
    if (file.version == 2) {
        callbacks_.resize(sizeof(Callbacks2));  // units keep the pointer
        auto *callbacks = reinterpret_cast<Callbacks2 *>(callbacks_.data());
        *callbacks = {log2, std::calloc, std::free, nullptr, this};
        using Make = void *(*)(const char *, int, const char *, const char *, const Callbacks2 *, int, int);
        const auto make = reinterpret_cast<Make>(address("fmi2Instantiate"));
        component = make(file.name.c_str(), 1, file.token.c_str(), uri(resources).c_str(), callbacks, 0, talks);
    } else {
        using Make = void *(*)(const char *, const char *, const char *, bool, bool, bool, bool, const std::uint32_t *, std::size_t, void *,
                               void (*)(void *, int, const char *, const char *), void *);
        const auto make = reinterpret_cast<Make>(address("fmi3InstantiateCoSimulation"));
        component = make(file.name.c_str(), file.token.c_str(), (resources + "/").c_str(), false, talks, false, false, nullptr, 0, this, log3, nullptr);
    }
    if (!component) throw std::runtime_error(label_ + " could not be instantiated" + said() + ".");
}

void UnitLibrary::forget_given() { values.erase(values.begin() + static_cast<std::ptrdiff_t>(recorded), values.end()); }

void UnitLibrary::enter(double start) {
    const double tolerance = file.tolerance.empty() ? 0.0 : file.tolerance[0], stop = file.stop.empty() ? 0.0 : file.stop[0];
    const bool with_tolerance = !file.tolerance.empty(), with_stop = !file.stop.empty();
    if (file.version == 2) call("SetupExperiment", static_cast<int>(with_tolerance), tolerance, start, static_cast<int>(with_stop), stop);
    const std::string talk = "fmi" + std::to_string(file.version) + "SetDebugLogging";
    if (!talks && !file.categories.empty() && address(talk)) {
        std::vector<const char *> names;
        for (const std::string &one : file.categories) names.push_back(one.c_str());
        if (file.version == 2)
            reinterpret_cast<int (*)(void *, int, std::size_t, const char *const *)>(address(talk))(component, 1, names.size(), names.data());
        else
            reinterpret_cast<int (*)(void *, bool, std::size_t, const char *const *)>(address(talk))(component, true, names.size(), names.data());
    }
    if (std::any_of(values.begin(), values.end(), [](const Values &one) { return one.stage == Stage::configuring; })) {
        call("EnterConfigurationMode");
        give(Stage::configuring);
        call("ExitConfigurationMode");
    }
    give(Stage::before);
    if (file.version == 2) call("EnterInitializationMode");
    else call("EnterInitializationMode", with_tolerance, tolerance, start, with_stop, stop);
    give(Stage::within);
}

void UnitLibrary::give(Stage stage) {
    for (const Values &one : values)
        if (one.stage == stage) give(one);
}

void UnitLibrary::give(const Values &given) {
    std::vector<unsigned char> buffer;
    std::size_t count = given.numbers.size();
    if (given.type < 0) {
        count = given.texts.size();
        buffer.resize(count * sizeof(const char *));
        for (std::size_t i = 0; i < count; ++i) reinterpret_cast<const char **>(buffer.data())[i] = given.texts[i].c_str();
    } else {
        Group group{static_cast<Type>(given.type), {}, {}, 0, {}};
        for (std::uint32_t i = 0; i < count; ++i) group.positions.push_back(i);
        buffer.resize(count * sizeof(double));
        if (!with_type(group.type, [&](auto kind) { return pack<decltype(kind)>(given.numbers.data(), group, buffer.data()); }))
            throw std::runtime_error(label_ + " was given a value that is no " + given.code + "; give a whole number in its range.");
    }
    const std::size_t references = given.references.size();
    if (file.version == 2) call("Set" + given.code, given.references.data(), references, static_cast<const void *>(buffer.data()));
    else call("Set" + given.code, given.references.data(), references, static_cast<const void *>(buffer.data()), count);
}

void UnitLibrary::leave() {
    call("ExitInitializationMode");
    running = true;
}

void UnitLibrary::terminate() {
    if (!running || dead) return;
    running = false;
    try {
        call("Terminate");
    } catch (const std::runtime_error &problem) {
        const std::string text = problem.what();  // which the log begins with the unit too
        log_(file.name, fmi_warning, text.starts_with(label_ + " ") ? text.substr(label_.size() + 1) : text);
    }
}

// The two versions differ in one letter.
std::string UnitLibrary::state_function(const char *before, const char *after) const {
    return std::string(before) + (file.version == 2 ? "FMUstate" : "FMUState") + after;
}

void UnitLibrary::save(void *&state) { call(state_function("Get", ""), &state); }
void UnitLibrary::restore(void *state) { call(state_function("Set", ""), state); }
void UnitLibrary::free_state(void *&state) {
    if (state && !dead) call(state_function("Free", ""), &state);
}

std::vector<unsigned char> UnitLibrary::serialise(void *state) {
    std::size_t size = 0;
    call(state_function("Serialized", "Size"), state, &size);
    std::vector<unsigned char> bytes(size);
    call(state_function("Serialize", ""), state, bytes.data(), size);
    return bytes;
}

void *UnitLibrary::deserialise(const unsigned char *bytes, std::size_t size) {
    void *state = nullptr;
    call(state_function(file.version == 2 ? "DeSerialize" : "Deserialize", ""), bytes, size, &state);
    return state;
}

}  // namespace cosimo

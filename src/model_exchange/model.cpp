#include "model.hpp"

#include <cstdlib>
#include <locale>
#include <sstream>
#include <utility>

#include "../kernel/platform.hpp"

namespace cosimo::exchange {

Settings read_settings(const char *text) {
    Settings found;
    std::istringstream lines(text ? text : "");
    for (std::string line; std::getline(lines, line);) {
        const auto place = line.find('=');
        if (place == std::string::npos) continue;
        const std::string key = line.substr(0, place), value = line.substr(place + 1);
        auto whole = [&] { return std::strtoul(value.c_str(), nullptr, 10); };
        std::istringstream words(value);
        words.imbue(std::locale::classic());  // alike in every locale
        auto number = [&] {
            double x = 0.0;
            words >> x;
            return x;
        };
        if (key == "version") found.version = static_cast<int>(whole());
        if (key == "states") found.states = whole();
        if (key == "indicators") found.indicators = whole();
        if (key == "solver") found.solver = value;
        if (key == "micro-steps") found.micro_steps = static_cast<long>(whole());
        if (key == "micro-step") found.micro_step = number();
        if (key == "tolerance") found.tolerance = number();
        if (key == "completed") found.completed = whole() != 0;
        if (key == "core") found.core = value;
        if (key == "cvode") found.cvode = value;
        if (key == "state") found.names.push_back(value);
        if (key == "state-reference") found.references.push_back(static_cast<std::uint32_t>(whole()));
        if (key == "input") {
            char *rest = nullptr;
            const auto reference = static_cast<std::uint32_t>(std::strtoul(value.c_str(), &rest, 10));
            const std::size_t size = *rest ? std::strtoul(rest + 1, &rest, 10) : 1;
            found.inputs.push_back({reference, size, *rest && rest[1] == 'c'});
        }
        if (key == "clock") {
            ClockVariable clock{};
            words >> clock.reference >> clock.aperiodic >> clock.interval >> clock.first >> std::ws;
            std::getline(words, clock.name);
            found.clocks.push_back(clock);
        }
    }
    return found;
}

void *Model::find(const char *name) const { return find_function(library_, name); }

std::string Model::open(void *library, int version) {
    library_ = library;
    version_ = version;
    const std::string prefix = version == 3 ? "fmi3" : "fmi2";
    const std::pair<void **, const char *> wanted[] = {
        {&time_, "SetTime"},
        {&set_states_, "SetContinuousStates"},
        {&get_states_, "GetContinuousStates"},
        {&nominals_, "GetNominalsOfContinuousStates"},
        {&derivatives_, version == 3 ? "GetContinuousStateDerivatives" : "GetDerivatives"},
        {&indicators_, "GetEventIndicators"},
        {&event_mode_, "EnterEventMode"},
        {&continuous_mode_, "EnterContinuousTimeMode"},
        {&completed_, "CompletedIntegratorStep"},
        {&update_, version == 3 ? "UpdateDiscreteStates" : "NewDiscreteStates"},
        {&set_, version == 3 ? "SetFloat64" : "SetReal"},
        {&get_, version == 3 ? "GetFloat64" : "GetReal"},
    };
    for (auto [place, name] : wanted)
        if (!(*place = find((prefix + name).c_str()))) return prefix + name;
    return {};
}

int Model::completed(bool final, bool &event, bool &terminate) {
    if (fmi3()) return as<int (*)(void *, bool, bool *, bool *)>(completed_)(component, final, &event, &terminate);
    int enter = 0, end = 0;
    const int status = as<int (*)(void *, int, int *, int *)>(completed_)(component, final, &enter, &end);
    event = enter != 0;
    terminate = end != 0;
    return status;
}

int Model::update(Update &u) {
    if (fmi3())
        return as<int (*)(void *, bool *, bool *, bool *, bool *, bool *, double *)>(update_)(
            component, &u.again, &u.terminate, &u.nominals, &u.states, &u.timed, &u.next);
    struct {
        int again, terminate, nominals, states, timed;
        double next;
    } info{};
    const int status = as<int (*)(void *, void *)>(update_)(component, &info);
    u = {info.again != 0, info.terminate != 0, info.nominals != 0, info.states != 0, info.timed != 0, info.next};
    return status;
}

int Model::set_doubles(const std::uint32_t *references, std::size_t count, const double *values, std::size_t size) {
    if (!count) return 0;
    if (fmi3()) return as<int (*)(void *, const std::uint32_t *, std::size_t, const double *, std::size_t)>(set_)(component, references, count, values, size);
    return as<int (*)(void *, const std::uint32_t *, std::size_t, const double *)>(set_)(component, references, count, values);
}

int Model::get_doubles(const std::uint32_t *references, std::size_t count, double *values, std::size_t size) {
    if (!count) return 0;
    if (fmi3()) return as<int (*)(void *, const std::uint32_t *, std::size_t, double *, std::size_t)>(get_)(component, references, count, values, size);
    return as<int (*)(void *, const std::uint32_t *, std::size_t, double *)>(get_)(component, references, count, values);
}

}  // namespace cosimo::exchange

// A model-exchange instance of FMI 2.0 or 3.0 through its own functions: time, states, derivatives, indicators, events.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace cosimo::exchange {

constexpr int status_ok = 0, status_warning = 1, status_discard = 2, status_error = 3, status_fatal = 4;

inline bool bad(int status) { return status < 0 || status > status_warning; }

// All doubles that are inputs: an array of FMI 3.0 has one reference and `size` values.
struct InputVariable {
    std::uint32_t reference;
    std::size_t size;
    bool continuous;
};

// An input clock that ticks by time (`Clock` of units/fmi/variables.py); an interval of 0 is asked for.
struct ClockVariable {
    std::uint32_t reference;
    bool aperiodic;
    double interval, first;
    std::string name;
};

// What Python says of a unit, as lines "key=value".
struct Settings {
    int version = 2;
    std::size_t states = 0, indicators = 0;
    std::string solver = "cvode";
    long micro_steps = 1;
    double micro_step = 0.0;  // seconds; 0: `micro_steps` in each macro step
    double tolerance = 1e-6;
    bool completed = true;  // the unit wants to hear of every step of the integrator
    std::string core, cvode;  // the libraries of SUNDIALS
    std::vector<std::string> names;  // of states
    std::vector<std::uint32_t> references;  // of the variables that have the states, in order
    std::vector<InputVariable> inputs;
    std::vector<ClockVariable> clocks;
};
Settings read_settings(const char *text);

// What an update of discrete states says.
struct Update {
    bool again = false, terminate = false, nominals = false, states = false, timed = false;
    double next = 0.0;
};

class Model {
public:
    void *component = nullptr;

    // An empty text, or which function is missing.
    std::string open(void *library, int version);
    void *find(const char *name) const;
    // The same, looked up once; `name` must be a literal.
    void *found(const char *name) {
        const auto [place, added] = known_.try_emplace(name, nullptr);
        if (added) place->second = find(name);
        return place->second;
    }
    bool fmi3() const { return version_ == 3; }

    int set_time(double time) { return as<int (*)(void *, double)>(time_)(component, time); }
    int set_states(const double *x, std::size_t n) { return n ? as<Write>(set_states_)(component, x, n) : 0; }
    int get_states(double *x, std::size_t n) { return n ? as<Read>(get_states_)(component, x, n) : 0; }
    int nominals(double *x, std::size_t n) { return n ? as<Read>(nominals_)(component, x, n) : 0; }
    int derivatives(double *x, std::size_t n) { return n ? as<Read>(derivatives_)(component, x, n) : 0; }
    int indicators(double *z, std::size_t n) { return n ? as<Read>(indicators_)(component, z, n) : 0; }
    int enter_event_mode() { return as<int (*)(void *)>(event_mode_)(component); }
    int enter_continuous_mode() { return as<int (*)(void *)>(continuous_mode_)(component); }
    int completed(bool final, bool &event, bool &terminate);
    int update(Update &found);
    int set_doubles(const std::uint32_t *references, std::size_t count, const double *values, std::size_t size);
    int get_doubles(const std::uint32_t *references, std::size_t count, double *values, std::size_t size);

private:
    using Write = int (*)(void *, const double *, std::size_t);
    using Read = int (*)(void *, double *, std::size_t);
    template <class F>
    static F as(void *address) {
        return reinterpret_cast<F>(address);
    }
    void *library_ = nullptr;
    std::unordered_map<const char *, void *> known_;
    int version_ = 2;
    void *time_ = nullptr, *set_states_ = nullptr, *get_states_ = nullptr, *nominals_ = nullptr, *derivatives_ = nullptr,
         *indicators_ = nullptr, *event_mode_ = nullptr, *continuous_mode_ = nullptr, *completed_ = nullptr, *update_ = nullptr,
         *set_ = nullptr, *get_ = nullptr;
};

}  // namespace cosimo::exchange

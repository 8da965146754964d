// A model-exchange instance with an integrator: what a co-simulation unit can do.
//
// A step is a function of the unit's state and its inputs alone: the integrator starts anew at every communication point.
// So a step repeated from a saved state gives the same bits, whether states are saved changes nothing (checkpoints come by
// the clock), and the analysis finds a map that holds for every step. Inputs jump at most communication points anyway.
#pragma once
#include <functional>
#include <limits>
#include <memory>

#include "inputs.hpp"
#include "integrators.hpp"

namespace cosimo::exchange {

// What is kept of a unit beside its own state; the integrator starts anew from it.
struct Saved {
    void *own = nullptr;
    double now = 0.0, next_event = 0.0;
    std::uint8_t events = 0, terminated = 0;
    std::vector<double> inputs, ticks;
};

class Exchange final : Equations {
public:
    explicit Exchange(Settings settings);

    Model model;
    Settings settings;
    std::function<void(int, const char *)> log;
    double start = 0.0;

    // Before initialisation ends: intervals of clocks that the description leaves open.
    int ask_intervals();
    // The sizes are known, and the unit is initialised: in event mode.
    int begin();
    void reset();
    // An input that jumps is an event, and so is whatever else is set while the unit runs.
    int set_inputs(const std::uint32_t *references, std::size_t count, const double *values, std::size_t size);
    int before_change();
    int set_derivatives(const std::uint32_t *references, std::size_t count, const int *orders, const double *values);
    // Advances from `time`; how far it got is `now()`, and `terminated()` whether it wants no more.
    int step(double time, double duration, bool final);
    double now() const { return now_; }
    bool terminated() const { return terminated_; }
    int save(void **state);
    int restore(void *state);
    int release(void **state);
    int size(void *state, std::size_t *bytes);
    int serialise(void *state, unsigned char *bytes, std::size_t size);
    int deserialise(const unsigned char *bytes, std::size_t size, void **state);
    int fail(int status, const std::string &text);

private:
    std::size_t nx_ = 0, nz_ = 0;
    std::unique_ptr<Integrator> integrator_;
    std::vector<double> x_;
    InputPolynomial inputs_;
    std::vector<std::uint8_t> continuous_;
    double now_ = 0.0, next_event_ = std::numeric_limits<double>::infinity();
    // Up to when clocks have ticked, and when each of them, if it is aperiodic, ticks next.
    std::vector<double> ticks_;
    bool running_ = false, events_ = false, terminated_ = false, fresh_ = true, nominals_ = true;
    std::string problem_;  // what the unit did wrong in the last evaluation

    int bring(double t, const double *x);
    int derivatives(double t, const double *x, double *dx) override;
    int indicators(double t, const double *x, double *z) override;
    int nominals(double *x) override { return bad(model.nominals(x, nx_)) ? -1 : 0; }
    int refused(const char *function, int status);
    int update_inputs(double t);
    int enter_events();
    int settle();
    double next_tick(std::size_t clock) const;
    double next() const;
    int interval(const ClockVariable &clock, double &seconds, bool &changed);
    int tick();
    int announced();
    int advance(double stop, bool final);
    void end_inputs(double t);
};

}  // namespace cosimo::exchange

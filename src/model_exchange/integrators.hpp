// How the states of a model-exchange unit advance: explicit Euler, the classical Runge-Kutta method, CVODE.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "model.hpp"

namespace cosimo::exchange {

// x' = f(t, x) with z(t, x), whose components give an event where they change between positive and not positive.
class Equations {
public:
    virtual ~Equations() = default;
    // 0, 1 where a shorter step may help (the unit discards the point, or a derivative is not finite), -1 where nothing does.
    virtual int derivatives(double t, const double *x, double *dx) = 0;
    virtual int indicators(double t, const double *x, double *z) = 0;
    virtual int nominals(double *x) = 0;
};

// Of a solver that chooses its steps itself, in one macro step, and what is said then.
constexpr long most_steps = 1000000;
constexpr const char *too_many_steps = "its solver has made a million steps; choose a larger relative tolerance or a shorter macro step";

// Where a part of a step led, or why it led nowhere.
struct Advance {
    double time = 0.0;
    bool crossed = false;  // at an event of the indicators, just after it
    bool failed = false;
};

class Integrator {
public:
    Integrator(Equations &equations, std::size_t states, std::size_t indicators) : f(equations), nx(states), nz(indicators) {}
    virtual ~Integrator() = default;
    // Forget all that came before; `nominals` may be others now.
    virtual bool restart(double t, const double *x, bool nominals) = 0;
    // From `t` to `stop` or to an event before it, `once` by a single step at most; x is where it led.
    virtual Advance advance(double t, double stop, bool once, double *x) = 0;
    // How long a step of the integrator is within a macro step of h; infinite where it knows by itself.
    virtual double micro_step(double h) const = 0;
    std::string problem;  // why it failed, where the unit is not to blame

protected:
    Equations &f;
    std::size_t nx, nz;
};

// Raises std::runtime_error with a sentence where the solver is not to be had.
std::unique_ptr<Integrator> make_integrator(const Settings &settings, Equations &equations, std::size_t states, std::size_t indicators);

// Empty, or why the solver cannot be used here.
std::string missing_solver(const Settings &settings);

}  // namespace cosimo::exchange

#include "exchange.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cosimo::exchange {
namespace {

constexpr int most_updates = 1000;  // of discrete states at one instant, as for co-simulation units (versions.py)

std::string text_of(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.12g", value);
    return text;
}

// Times that differ by less are the same: sums and products of a few rounded numbers.
double rounding(double a, double b) {
    return 8.0 * std::numeric_limits<double>::epsilon() * std::max({std::abs(a), std::abs(b), std::abs(b - a)});
}

}  // namespace

Exchange::Exchange(Settings given) : settings(std::move(given)) {
    for (const InputVariable &input : settings.inputs) {
        references_.push_back(input.reference);
        continuous_.insert(continuous_.end(), input.size, input.continuous);
    }
    const std::size_t n = continuous_.size();
    for (auto *values : {&value_, &first_, &second_, &at_}) values->assign(n, 0.0);
}

int Exchange::fail(int status, const std::string &text) {
    if (log) log(status_error, text.c_str());
    return status == status_fatal ? status_fatal : status_error;
}

int Exchange::refused(const char *function, int status) {
    static const char *const names[] = {"OK", "Warning", "Discard", "Error", "Fatal"};
    const std::string prefix = model.fmi3() ? "fmi3" : "fmi2";
    problem_ = prefix + function + " returned " + (status >= 0 && status <= status_fatal ? prefix + names[status] : std::to_string(status));
    return status;
}

void Exchange::reset() {
    running_ = terminated_ = events_ = false;
    polynomial_ = false;
    nominals_ = true;
    next_event_ = std::numeric_limits<double>::infinity();
}

int Exchange::begin() {
    nx_ = settings.states;
    nz_ = settings.indicators;
    if (model.fmi3()) {
        // Structural parameters may have changed what the description says.
        using Count = int (*)(void *, std::size_t *);
        if (auto count = reinterpret_cast<Count>(model.find("fmi3GetNumberOfContinuousStates"))) count(model.component, &nx_);
        if (auto count = reinterpret_cast<Count>(model.find("fmi3GetNumberOfEventIndicators"))) count(model.component, &nz_);
    }
    x_.assign(nx_, 0.0);
    try {
        integrator_ = make_integrator(settings, *this, nx_, nz_);
    } catch (const std::exception &error) {
        return fail(status_error, error.what());
    }
    now_ = begun_ = start;
    running_ = events_ = true;
    if (int status = model.get_doubles(references_.data(), references_.size(), value_.data(), value_.size()); bad(status)) return status;
    return settle();
}

// ---- inputs ---------------------------------------------------------------------------------------------------------

int Exchange::enter_events() {
    if (events_ || terminated_) return 0;
    const int status = model.enter_event_mode();
    events_ = !bad(status);
    return status;
}

int Exchange::before_change() { return running_ ? enter_events() : 0; }

int Exchange::set_inputs(const std::uint32_t *references, std::size_t count, const double *values, std::size_t size) {
    if (!running_) return model.set_doubles(references, count, values, size);
    auto are = [&](const std::vector<std::uint32_t> &known, std::size_t values_of) {
        return count == known.size() && size == values_of && std::memcmp(references, known.data(), count * sizeof *references) == 0;
    };
    if (count > 0 && are(settings.references, nx_)) {
        // States are set as a solver sets them: in continuous time.
        if (events_)
            if (int status = settle(); bad(status)) return status;
        return model.set_states(values, size);
    }
    if (!are(references_, value_.size())) {
        if (int status = enter_events(); bad(status)) return status;
        const int status = model.set_doubles(references, count, values, size);
        if (!bad(status) && !references_.empty()) return model.get_doubles(references_.data(), references_.size(), value_.data(), value_.size());
        return status;
    }
    bool changed = false, jumped = false;
    for (std::size_t i = 0; i < size; ++i) {
        changed = changed || values[i] != value_[i];
        // The end of one polynomial and the beginning of the next differ by rounding where the coupling is continuous.
        const double same = continuous_[i] ? 64.0 * std::numeric_limits<double>::epsilon() : 0.0;
        jumped = jumped || !(std::abs(values[i] - value_[i]) <= same * std::max(std::abs(values[i]), std::abs(value_[i])));
    }
    if (!changed) return 0;
    if (jumped)
        if (int status = enter_events(); bad(status)) return status;
    std::copy(values, values + size, value_.begin());
    return model.set_doubles(references, count, values, size);
}

int Exchange::set_derivatives(const std::uint32_t *references, std::size_t count, const int *orders, const double *values) {
    std::vector<std::uint8_t> used(2 * value_.size(), 0);
    for (std::size_t i = 0; i < count; ++i) {
        if (orders[i] < 1 || orders[i] > 2) return fail(status_error, "input derivatives of orders 1 and 2 are taken, not of order " + std::to_string(orders[i]));
        // The next value of this variable and order: arrays are given element by element.
        bool found = false;
        std::size_t place = 0;
        for (const InputVariable &input : settings.inputs) {
            for (std::size_t k = 0; k < input.size && !found && input.reference == references[i]; ++k) {
                const std::size_t slot = place + k, mark = 2 * slot + static_cast<std::size_t>(orders[i]) - 1;
                if (used[mark]) continue;
                used[mark] = 1;
                (orders[i] == 1 ? first_ : second_)[slot] = values[i];
                found = true;
            }
            place += input.size;
        }
        if (!found) return fail(status_error, "a derivative was given of something that is no real input");
    }
    polynomial_ = false;
    for (std::size_t i = 0; i < value_.size(); ++i) polynomial_ = polynomial_ || first_[i] != 0.0 || second_[i] != 0.0;
    return 0;
}

int Exchange::update_inputs(double t) {
    const double d = t - begun_;
    for (std::size_t i = 0; i < value_.size(); ++i) at_[i] = value_[i] + d * (first_[i] + 0.5 * d * second_[i]);
    return model.set_doubles(references_.data(), references_.size(), at_.data(), at_.size());
}

void Exchange::end_inputs(double t) {
    if (!polynomial_) return;
    const double d = t - begun_;
    for (std::size_t i = 0; i < value_.size(); ++i) {
        value_[i] += d * (first_[i] + 0.5 * d * second_[i]);
        first_[i] = second_[i] = 0.0;
    }
    polynomial_ = false;
}

// ---- equations ------------------------------------------------------------------------------------------------------

int Exchange::bring(double t, const double *x) {
    if (int status = model.set_time(t); bad(status)) return refused("SetTime", status);
    if (polynomial_)
        if (int status = update_inputs(t); bad(status)) return refused(model.fmi3() ? "SetFloat64" : "SetReal", status);
    if (int status = model.set_states(x, nx_); bad(status)) return refused("SetContinuousStates", status);
    return 0;
}

int Exchange::derivatives(double t, const double *x, double *dx) {
    int status = bring(t, x);
    if (!status && bad(status = model.derivatives(dx, nx_))) refused(model.fmi3() ? "GetContinuousStateDerivatives" : "GetDerivatives", status);
    if (bad(status)) {
        problem_ += " at t = " + text_of(t);
        return status == status_discard ? 1 : -1;
    }
    for (std::size_t i = 0; i < nx_; ++i)
        if (!std::isfinite(dx[i])) {
            const std::string name = i < settings.names.size() ? "'" + settings.names[i] + "'" : "number " + std::to_string(i + 1);
            problem_ = "the derivative of state " + name + " is " + text_of(dx[i]) + " at t = " + text_of(t) + "; check its parameters and inputs";
            return 1;
        }
    return 0;
}

int Exchange::indicators(double t, const double *x, double *z) {
    int status = bring(t, x);
    if (!status && bad(status = model.indicators(z, nz_))) refused("GetEventIndicators", status);
    if (bad(status)) problem_ += " at t = " + text_of(t);
    return bad(status) ? -1 : 0;
}

// ---- events ---------------------------------------------------------------------------------------------------------

// In event mode: update discrete states until they stay, then go on in continuous time.
int Exchange::settle() {
    fresh_ = true;
    for (int i = 0; i < most_updates; ++i) {
        Update found;
        if (int status = model.update(found); bad(status)) return fail(status, (refused(model.fmi3() ? "UpdateDiscreteStates" : "NewDiscreteStates", status), problem_ + " at t = " + text_of(now_)));
        nominals_ = nominals_ || found.nominals;
        if (found.terminate) {
            terminated_ = true;
            return 0;
        }
        if (found.again) continue;
        next_event_ = found.timed ? found.next : std::numeric_limits<double>::infinity();
        if (int status = model.enter_continuous_mode(); bad(status)) return status;
        events_ = false;
        return 0;
    }
    return fail(status_error, "its discrete states do not settle at t = " + text_of(now_) + "; contact its supplier");
}

// One step of the integrator, and the event at its end.
int Exchange::advance(double stop, bool final) {
    problem_.clear();
    if (fresh_) {
        if (int status = model.get_states(x_.data(), nx_); bad(status)) return fail(status, (refused("GetContinuousStates", status), problem_));
        if (!integrator_->restart(now_, x_.data(), nominals_)) return fail(status_error, problem_.empty() ? "its solver cannot be started" : problem_);
        fresh_ = nominals_ = false;
    }
    const Advance found = nx_ + nz_ > 0 ? integrator_->advance(now_, stop, settings.completed, x_.data()) : Advance{stop, false, false};
    if (found.failed) {
        const std::string why = !problem_.empty() ? problem_ : integrator_->problem;
        return fail(status_error, "its solver stopped at t = " + text_of(now_) + ": " + why);
    }
    now_ = found.time;
    if (int status = bring(now_, x_.data()); bad(status)) return fail(status, problem_);
    bool event = found.crossed, asked = false;
    if (settings.completed) {
        bool terminate = false;
        if (int status = model.completed(final, asked, terminate); bad(status)) return fail(status, (refused("CompletedIntegratorStep", status), problem_));
        terminated_ = terminate;
    }
    if (terminated_ || !(event || asked)) return 0;
    if (int status = enter_events(); bad(status)) return status;
    return settle();
}

int Exchange::step(double time, double duration, bool final) {
    const double target = time + duration, near = rounding(time, target);
    if (terminated_) return 0;
    if (std::abs(time - now_) > near)
        return fail(status_error, "it was to step from t = " + text_of(time) + " but is at t = " + text_of(now_));
    if (events_)
        if (int status = settle(); bad(status)) return status;
    begun_ = time;
    fresh_ = true;
    const double micro = integrator_->micro_step(duration);
    double before = now_;
    long steps = 0;
    for (int stuck = 0; !terminated_; stuck = now_ > before ? 0 : stuck + 1) {
        if (stuck > most_updates) return fail(status_error, "it does not get beyond t = " + text_of(now_) + ": its events follow each other without end");
        before = now_;
        if (next_event_ <= now_ + near) {
            if (int status = enter_events(); bad(status)) return status;
            if (int status = settle(); bad(status)) return status;
            continue;
        }
        if (now_ >= target - near) break;
        double stop = next_event_ <= target + near ? next_event_ : target;
        if (std::isfinite(micro)) {
            // The micro steps of this macro step end at time + i·micro, also after an event between two of them.
            const double end = time + (std::floor((now_ - time + near) / micro) + 1.0) * micro;
            if (end < stop - near) stop = end;
        } else if (++steps > most_steps) {
            return fail(status_error, "it is only at t = " + text_of(now_) + ": " + too_many_steps);
        }
        if (int status = advance(stop, final); bad(status)) return status;
    }
    end_inputs(now_);
    return 0;
}

// ---- saved states ---------------------------------------------------------------------------------------------------

namespace {
using State = int (*)(void *, void **);
using PutState = int (*)(void *, void *);
using StateSize = int (*)(void *, void *, std::size_t *);
using Serialise = int (*)(void *, void *, unsigned char *, std::size_t);
using Deserialise = int (*)(void *, const unsigned char *, std::size_t, void **);

template <class F, class... Arguments>
int call(Exchange &unit, const char *name2, const char *name3, Arguments... arguments) {
    const char *name = unit.model.fmi3() ? name3 : name2;
    if (auto function = reinterpret_cast<F>(unit.model.found(name))) return function(unit.model.component, arguments...);
    return unit.fail(status_error, std::string("its library has no function ") + name);
}
}  // namespace

int Exchange::save(void **state) {
    auto *saved = static_cast<Saved *>(*state);
    if (!saved) saved = new Saved;
    const int status = call<State>(*this, "fmi2GetFMUstate", "fmi3GetFMUState", &saved->own);
    if (bad(status)) {
        if (!*state) delete saved;
        return status;
    }
    saved->now = now_;
    saved->next_event = next_event_;
    saved->events = events_;
    saved->terminated = terminated_;
    saved->inputs = value_;
    *state = saved;
    return status;
}

int Exchange::restore(void *state) {
    const auto &saved = *static_cast<const Saved *>(state);
    const int status = call<PutState>(*this, "fmi2SetFMUstate", "fmi3SetFMUState", saved.own);
    if (bad(status)) return status;
    now_ = saved.now;
    next_event_ = saved.next_event;
    events_ = saved.events != 0;
    terminated_ = saved.terminated != 0;
    value_ = saved.inputs;
    nominals_ = true;
    polynomial_ = false;
    std::fill(first_.begin(), first_.end(), 0.0);
    std::fill(second_.begin(), second_.end(), 0.0);
    return status;
}

int Exchange::release(void **state) {
    auto *saved = static_cast<Saved *>(*state);
    if (!saved) return 0;
    const int status = call<State>(*this, "fmi2FreeFMUstate", "fmi3FreeFMUState", &saved->own);
    delete saved;
    *state = nullptr;
    return status;
}

namespace {
std::size_t header_bytes(std::size_t inputs) { return (3 + inputs) * sizeof(double); }
}  // namespace

int Exchange::size(void *state, std::size_t *bytes) {
    const int status = call<StateSize>(*this, "fmi2SerializedFMUstateSize", "fmi3SerializedFMUStateSize", static_cast<Saved *>(state)->own, bytes);
    *bytes += header_bytes(value_.size());
    return status;
}

int Exchange::serialise(void *state, unsigned char *bytes, std::size_t size) {
    const auto &saved = *static_cast<const Saved *>(state);
    const std::size_t header = header_bytes(saved.inputs.size());
    if (size < header) return fail(status_error, "its state is longer than the bytes for it");
    std::vector<double> values = {saved.now, saved.next_event, static_cast<double>(saved.events + 2 * saved.terminated)};
    values.insert(values.end(), saved.inputs.begin(), saved.inputs.end());
    std::memcpy(bytes, values.data(), header);
    return call<Serialise>(*this, "fmi2SerializeFMUstate", "fmi3SerializeFMUState", saved.own, bytes + header, size - header);
}

int Exchange::deserialise(const unsigned char *bytes, std::size_t size, void **state) {
    const std::size_t header = header_bytes(value_.size());
    if (size < header) return fail(status_error, "these bytes are no state of this unit");
    std::vector<double> values(3 + value_.size());
    std::memcpy(values.data(), bytes, header);
    auto saved = std::make_unique<Saved>();
    const int flags = static_cast<int>(values[2]);
    saved->now = values[0];
    saved->next_event = values[1];
    saved->events = flags & 1;
    saved->terminated = flags >> 1 & 1;
    saved->inputs.assign(values.begin() + 3, values.end());
    const int status = call<Deserialise>(*this, "fmi2DeSerializeFMUstate", "fmi3DeserializeFMUState", bytes + header, size - header, &saved->own);
    if (!bad(status)) *state = saved.release();
    return status;
}

}  // namespace cosimo::exchange

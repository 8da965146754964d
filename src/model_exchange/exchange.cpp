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

// As `time_rounding` of core/timing.py, where no step is given.
double time_rounding(double a, double b) {
    const double size = std::max(std::abs(a), std::abs(b));
    return 8.0 * (std::nextafter(size, std::numeric_limits<double>::infinity()) - size);
}

// Times that differ by less are the same: sums and products of a few rounded numbers.
double rounding(double a, double b) {
    return 8.0 * std::numeric_limits<double>::epsilon() * std::max({std::abs(a), std::abs(b), std::abs(b - a)});
}

}  // namespace

Exchange::Exchange(Settings given) : settings(std::move(given)), inputs_(settings.inputs) {
    for (const InputVariable &input : settings.inputs) continuous_.insert(continuous_.end(), input.size, input.continuous);
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
    inputs_.hold();
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
    now_ = inputs_.begun = start;
    running_ = events_ = true;
    if (int status = model.get_doubles(inputs_.references.data(), inputs_.references.size(), inputs_.value.data(), inputs_.value.size()); bad(status)) return status;
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
    if (!are(inputs_.references, inputs_.value.size())) {
        if (int status = enter_events(); bad(status)) return status;
        const int status = model.set_doubles(references, count, values, size);
        if (!bad(status) && !inputs_.references.empty()) return model.get_doubles(inputs_.references.data(), inputs_.references.size(), inputs_.value.data(), inputs_.value.size());
        return status;
    }
    bool changed = false, jumped = false;
    for (std::size_t i = 0; i < size; ++i) {
        changed = changed || values[i] != inputs_.value[i];
        // The end of one polynomial and the beginning of the next differ by rounding where the coupling is continuous.
        const double same = continuous_[i] ? 64.0 * std::numeric_limits<double>::epsilon() : 0.0;
        jumped = jumped || !(std::abs(values[i] - inputs_.value[i]) <= same * std::max(std::abs(values[i]), std::abs(inputs_.value[i])));
    }
    if (!changed) return 0;
    if (jumped)
        if (int status = enter_events(); bad(status)) return status;
    std::copy(values, values + size, inputs_.value.begin());
    return model.set_doubles(references, count, values, size);
}

int Exchange::set_derivatives(const std::uint32_t *references, std::size_t count, const int *orders, const double *values) {
    const std::string wrong = inputs_.set_derivatives(references, count, orders, values);
    return wrong.empty() ? status_ok : fail(status_error, wrong);
}

int Exchange::update_inputs(double t) {
    const auto &values = inputs_.at(t);
    return model.set_doubles(inputs_.references.data(), inputs_.references.size(), values.data(), values.size());
}

void Exchange::end_inputs(double t) {
    if (!inputs_.moves) return;
    inputs_.value = inputs_.at(t);
    inputs_.hold();
}

// ---- equations ------------------------------------------------------------------------------------------------------

int Exchange::bring(double t, const double *x) {
    if (int status = model.set_time(t); bad(status)) return refused("SetTime", status);
    if (inputs_.moves)
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
        if (!settings.clocks.empty())
            if (int status = tick(); bad(status)) return status;
        Update found;
        if (int status = model.update(found); bad(status)) return fail(status, (refused(model.fmi3() ? "UpdateDiscreteStates" : "NewDiscreteStates", status), problem_ + " at t = " + text_of(now_)));
        nominals_ = nominals_ || found.nominals;
        if (found.terminate) {
            terminated_ = true;
            return 0;
        }
        if (found.again) continue;
        next_event_ = found.timed ? found.next : std::numeric_limits<double>::infinity();
        if (int status = announced(); bad(status)) return status;
        if (std::any_of(ticks_.begin() + 1, ticks_.end(), [&](double due) { return due <= now_; })) continue;
        if (int status = model.enter_continuous_mode(); bad(status)) return status;
        events_ = false;
        return 0;
    }
    return fail(status_error, "its discrete states do not settle at t = " + text_of(now_) + "; contact its supplier");
}

// ---- clocks: input clocks that tick by time, each at its instant (`Fmi3` of units/fmi/versions.py, to the bit) ----------

double Exchange::next_tick(std::size_t i) const {
    const ClockVariable &clock = settings.clocks[i];
    if (clock.aperiodic) return ticks_[i + 1];
    const double first = start + clock.first, since = ticks_[0];
    if (since < start) return first;
    double k = std::floor((since - first) / clock.interval);
    while (first + k * clock.interval <= since + time_rounding(since, first)) ++k;
    return first + std::max(k, 0.0) * clock.interval;
}

double Exchange::next() const {
    double found = next_event_;
    for (std::size_t i = 0; i < settings.clocks.size(); ++i) found = std::min(found, next_tick(i));
    return found;
}

int Exchange::interval(const ClockVariable &clock, double &seconds, bool &changed) {
    constexpr int changed_interval = 2;
    using Interval = int (*)(void *, const std::uint32_t *, std::size_t, double *, int *);
    int qualifier = 0;
    const auto function = reinterpret_cast<Interval>(model.found("fmi3GetIntervalDecimal"));
    if (!function) return fail(status_error, "its library has no function fmi3GetIntervalDecimal");
    if (int status = function(model.component, &clock.reference, 1, &seconds, &qualifier); bad(status)) return status;
    changed = qualifier == changed_interval;
    if (qualifier && !(seconds >= 0.0 && std::isfinite(seconds)))
        return fail(status_error, "it gives " + text_of(seconds) + " s as the interval of its clock '" + clock.name + "'; contact its supplier");
    return status_ok;
}

int Exchange::ask_intervals() {
    ticks_.assign(1 + settings.clocks.size(), std::numeric_limits<double>::infinity());
    ticks_[0] = -ticks_[0];
    for (std::size_t i = 0; i < settings.clocks.size(); ++i) {
        ClockVariable &clock = settings.clocks[i];
        if (!clock.aperiodic && clock.interval > 0.0) continue;
        double seconds = 0.0;
        bool changed = false;
        if (int status = interval(clock, seconds, changed); bad(status)) return status;
        if (clock.aperiodic) {
            if (changed) ticks_[i + 1] = start + seconds;
            continue;
        }
        using Shift = int (*)(void *, const std::uint32_t *, std::size_t, double *);
        const auto shift = reinterpret_cast<Shift>(clock.first ? nullptr : model.found("fmi3GetShiftDecimal"));
        if (shift && bad(shift(model.component, &clock.reference, 1, &clock.first))) clock.first = 0.0;
        clock.interval = seconds;
        if (!(seconds > 0.0 && clock.first >= 0.0 && std::isfinite(clock.first)))
            return fail(status_error, "it gives no interval of its clock '" + clock.name + "', which would never tick; contact its supplier");
    }
    return status_ok;
}

// In event mode: activate the clocks that tick now.
int Exchange::tick() {
    std::vector<std::uint32_t> due;
    const double now = now_ + time_rounding(now_, now_);
    for (std::size_t i = 0; i < settings.clocks.size(); ++i) {
        if (next_tick(i) > now) continue;
        due.push_back(settings.clocks[i].reference);
        ticks_[i + 1] = std::numeric_limits<double>::infinity();
    }
    ticks_[0] = now_;
    if (due.empty()) return status_ok;
    using Set = int (*)(void *, const std::uint32_t *, std::size_t, const bool *);
    const auto function = reinterpret_cast<Set>(model.found("fmi3SetClock"));
    if (!function) return fail(status_error, "its library has no function fmi3SetClock");
    const auto active = std::make_unique<bool[]>(due.size());
    std::fill_n(active.get(), due.size(), true);
    return function(model.component, due.data(), due.size(), active.get());
}

// After an update: when aperiodic clocks tick next.
int Exchange::announced() {
    for (std::size_t i = 0; i < settings.clocks.size(); ++i) {
        if (!settings.clocks[i].aperiodic) continue;
        double seconds = 0.0;
        bool changed = false;
        if (int status = interval(settings.clocks[i], seconds, changed); bad(status)) return status;
        if (changed) ticks_[i + 1] = now_ + seconds;
    }
    return status_ok;
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
    inputs_.begun = time;
    fresh_ = true;
    const double micro = integrator_->micro_step(duration);
    double before = now_;
    long steps = 0;
    for (int stuck = 0; !terminated_; stuck = now_ > before ? 0 : stuck + 1) {
        if (stuck > most_updates) return fail(status_error, "it does not get beyond t = " + text_of(now_) + ": its events follow each other without end");
        before = now_;
        const double event = next();
        if (event <= now_ + near) {
            if (int status = enter_events(); bad(status)) return status;
            if (int status = settle(); bad(status)) return status;
            continue;
        }
        if (now_ >= target - near) break;
        double stop = event <= target + near ? event : target;
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
    saved->inputs = inputs_.value;
    saved->ticks = ticks_;
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
    inputs_.value = saved.inputs;
    ticks_ = saved.ticks;
    nominals_ = true;
    inputs_.hold();
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
std::size_t header_bytes(std::size_t values) { return (3 + values) * sizeof(double); }
}  // namespace

int Exchange::size(void *state, std::size_t *bytes) {
    const int status = call<StateSize>(*this, "fmi2SerializedFMUstateSize", "fmi3SerializedFMUStateSize", static_cast<Saved *>(state)->own, bytes);
    *bytes += header_bytes(inputs_.value.size() + ticks_.size());
    return status;
}

int Exchange::serialise(void *state, unsigned char *bytes, std::size_t size) {
    const auto &saved = *static_cast<const Saved *>(state);
    const std::size_t header = header_bytes(saved.inputs.size() + saved.ticks.size());
    if (size < header) return fail(status_error, "its state is longer than the bytes for it");
    std::vector<double> values = {saved.now, saved.next_event, static_cast<double>(saved.events + 2 * saved.terminated)};
    values.insert(values.end(), saved.inputs.begin(), saved.inputs.end());
    values.insert(values.end(), saved.ticks.begin(), saved.ticks.end());
    std::memcpy(bytes, values.data(), header);
    return call<Serialise>(*this, "fmi2SerializeFMUstate", "fmi3SerializeFMUState", saved.own, bytes + header, size - header);
}

int Exchange::deserialise(const unsigned char *bytes, std::size_t size, void **state) {
    const std::size_t inputs = inputs_.value.size(), header = header_bytes(inputs + ticks_.size());
    if (size < header) return fail(status_error, "these bytes are no state of this unit");
    std::vector<double> values(3 + inputs + ticks_.size());
    std::memcpy(values.data(), bytes, header);
    auto saved = std::make_unique<Saved>();
    const int flags = static_cast<int>(values[2]);
    saved->now = values[0];
    saved->next_event = values[1];
    saved->events = flags & 1;
    saved->terminated = flags >> 1 & 1;
    saved->inputs.assign(values.begin() + 3, values.begin() + 3 + static_cast<std::ptrdiff_t>(inputs));
    saved->ticks.assign(values.begin() + 3 + static_cast<std::ptrdiff_t>(inputs), values.end());
    const int status = call<Deserialise>(*this, "fmi2DeSerializeFMUstate", "fmi3DeserializeFMUState", bytes + header, size - header, &saved->own);
    if (!bad(status)) *state = saved.release();
    return status;
}

}  // namespace cosimo::exchange

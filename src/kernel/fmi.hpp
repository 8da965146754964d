// FMUs through their own functions; instances are made, initialised and freed by the Python side.
#pragma once
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <vector>

#include "unit.hpp"

namespace cosimo {

constexpr int fmi_warning = 1, fmi_discard = 2, fmi_fatal = 4;
constexpr int fmi2_last_successful_time = 2, fmi2_terminated = 3;  // kinds of status that can be asked for
constexpr int fmi_illegal = 102;  // stands for a negative status, which no version of FMI knows
using PostStep = void (*)(void *, double, double, int);
constexpr int fmi3_returned_early = 100;  // not a status of FMI: the step ended before its time, or wants an event handled
// Nor are these: a unit that does not advance, whose discrete states do not settle, that wants the run to end when it is given inputs.
constexpr int fmi3_stuck = 104, fmi3_unsettled = 105, fmi3_ended = 106;
// Added to the status of the functions of event mode, to say which it was.
constexpr int fmi3_enter_event = 1000, fmi3_update = 2000, fmi3_enter_step = 3000;
constexpr int event_iterations = 1000;  // as EVENT_ITERATIONS of units/fmi/versions.py

inline int bad(int status) {
    if (static_cast<unsigned>(status) <= static_cast<unsigned>(fmi_warning)) [[likely]]
        return 0;
    return status < 0 ? fmi_illegal : status;
}

// The status of a step. A unit may leave another rounding mode behind, in which all that follows would be computed.
// Of all modes only in the usual one are 1 + 2^-60 and 1 − 2^-60 the same; asking the processor takes longer.
inline int stepped(int status) {
    static const volatile double one = 1.0, little = 0x1p-60;
    const double x = one, e = little;
    if ((x + e) != (x - e)) [[unlikely]]
        std::fesetround(FE_TONEAREST);
    return bad(status);
}

// Inputs that are polynomials within a step: derivatives of the coefficients are handed over before each step, and the
// polynomial is moved along after it.
struct Following : Unit {
    using Derive = int (*)(void *, const std::uint32_t *, std::size_t, const int *, const double *);
    Derive derive = nullptr;
    std::vector<std::uint32_t> derived;
    std::vector<int> orders;
    std::vector<double> scale, derivatives, along, c, moved, saved_c;
    std::size_t powers = 1;
    bool shifted = false, saved_shifted = false;

    virtual int set_now(const double *) = 0;
    virtual int step_now(double time, double duration) = 0;
    std::size_t maps() const override { return along.size() / (powers * powers); }
    void forget_maps() override { along.clear(); }
    // d^j u / dt^j = j! c_j / h^j
    bool stretch(double h) override {
        for (std::size_t i = 0; i < orders.size(); ++i) {
            double factorial = 1.0;
            for (int j = 2; j <= orders[i]; ++j) factorial *= j;
            scale[i] = factorial / std::pow(h, static_cast<double>(orders[i]));
        }
        return powers > 1;
    }
    void remember(StateBytes &bytes) override {
        bytes.array(c);
        bytes.value(shifted);
        leave_out(bytes.count(derivatives.size()));
    }
    void begin(const double *given) {
        if (powers == 1) return;
        c.assign(given, given + powers * inputs);
        shifted = false;
    }
    void keep() {
        if (powers == 1) return;
        saved_c = c;
        saved_shifted = shifted;
    }
    void put_back() {
        if (powers == 1) return;
        c = saved_c;
        shifted = saved_shifted;
    }
    void leave_out(std::size_t kept) {
        for (; derivatives.size() > kept; derivatives.pop_back()) {
            orders.pop_back();
            derived.pop_back();
        }
    }
    // What a unit refuses is given it in lower orders, and in the end not at all; never an empty list, which some refuse.
    int give_derivatives(void *component) {
        for (std::size_t i = 0; i < derivatives.size(); ++i) derivatives[i] = c[inputs + i] * scale[i];
        while (!derivatives.empty()) {
            const int status = bad(derive(component, derived.data(), derived.size(), orders.data(), derivatives.data()));
            if (!status || status == fmi_fatal) return status;
            leave_out(derivatives.size() - inputs);
        }
        return 0;
    }
    int step_along(void *component, double time, double duration, int map) {
        if (shifted)
            if (int status = set_now(c.data())) return status;
        if (int status = give_derivatives(component)) return status;
        if (int status = step_now(time, duration)) return status;
        const double *T = along.data() + static_cast<std::size_t>(map) * powers * powers;
        for (std::size_t i = 0; i < powers; ++i)
            for (std::size_t input = 0; input < inputs; ++input) {
                double sum = T[i * powers] * c[input];
                for (std::size_t j = 1; j < powers; ++j) sum += T[i * powers + j] * c[j * inputs + input];
                moved[i * inputs + input] = sum;
            }
        c.swap(moved);
        shifted = true;
        return 0;
    }
};

struct Fmi2 final : Following {
    using Set = int (*)(void *, const std::uint32_t *, std::size_t, const double *);
    using Get = int (*)(void *, const std::uint32_t *, std::size_t, double *);
    using Step = int (*)(void *, double, double, int);
    using State = int (*)(void *, void **);
    using PutState = int (*)(void *, void *);
    using RealStatus = int (*)(void *, int, double *);
    using BooleanStatus = int (*)(void *, int, int *);
    void *component;
    Set set_values;
    Get get_values;
    Step do_step;
    State get_state = nullptr, free_state = nullptr;
    PutState set_state = nullptr;
    PostStep post_step = nullptr;
    RealStatus real_status = nullptr;        // optional, as is
    BooleanStatus boolean_status = nullptr;  // this one
    std::vector<std::uint32_t> in, out;
    int final_step = 1;
    void *state = nullptr;

    ~Fmi2() override {
        if (state && free_state) free_state(component, &state);
    }
    void abandon() override { state = nullptr; }
    // Whether its functions can be called without a detour.
    bool plain() const { return powers == 1 && !in.empty() && !out.empty(); }
    bool plain_step() const { return plain(); }
    bool posts() const override { return post_step && powers == 1; }
    void post(double time, double duration) override { post_step(component, time, duration, final_step); }
    int set(const double *given) override {
        begin(given);
        return set_now(given);
    }
    int set_now(const double *given) override { return inputs ? bad(set_values(component, in.data(), inputs, given)) : 0; }
    int step(double time, double duration, int map) override {
        return powers == 1 ? step_now(time, duration) : step_along(component, time, duration, map);
    }
    int step_now(double time, double duration) override {
        return told(stepped(do_step(component, time, duration, final_step)), time, duration);
    }
    // A discarded step may mean that the unit wants the run to end.
    int told(int status, double time, double duration) {
        int terminated = 0;
        if (status != fmi_discard || !boolean_status || bad(boolean_status(component, fmi2_terminated, &terminated)) || !terminated)
            return status;
        double last = time;
        if (!real_status || bad(real_status(component, fmi2_last_successful_time, &last)) || !(last >= time)) last = time;
        return ends_at(std::min(last, time + duration));
    }
    int get(double *y) override { return outputs ? bad(get_values(component, out.data(), outputs, y)) : 0; }
    int save() override {
        final_step = 0;
        keep();
        return bad(get_state(component, &state));
    }
    int restore() override {
        put_back();
        return bad(set_state(component, state));
    }
};

// By how much a time in a step from `begin` to `end` may miss the end and still have reached it (core/timing.py).
inline double time_rounding(double begin, double end, double step) {
    const double size = std::max(std::fabs(begin), std::fabs(end));
    return std::min(8.0 * (std::nextafter(size, INFINITY) - size), 0.01 * step);
}

struct Fmi3 final : Following {
    using Set = int (*)(void *, const std::uint32_t *, std::size_t, const double *, std::size_t);
    using Get = int (*)(void *, const std::uint32_t *, std::size_t, double *, std::size_t);
    using Step = int (*)(void *, double, double, bool, bool *, bool *, bool *, double *);
    using State = int (*)(void *, void **);
    using PutState = int (*)(void *, void *);
    using Mode = int (*)(void *);
    using Update = int (*)(void *, bool *, bool *, bool *, bool *, bool *, double *);
    void *component;
    Set set_values;
    Get get_values;
    Step do_step;
    State get_state = nullptr, free_state = nullptr;
    PutState set_state = nullptr;
    PostStep post_step = nullptr;
    std::vector<std::uint32_t> in, out;
    bool final_step = true;
    // Where a step may be several calls: the unit returns early, or has events, which it handles in event mode.
    bool several = false, variable_step = false;
    Mode enter_event = nullptr, enter_step = nullptr;  // none without event mode
    Update update = nullptr;
    double next_event = INFINITY, reached = 0.0, saved_next = INFINITY, saved_reached = 0.0;
    bool went_back = false;  // a step gave a last successful time before its beginning: the first, and the time it gave
    double back_from = 0.0, back_to = 0.0;
    void *state = nullptr;

    ~Fmi3() override {
        if (state && free_state) free_state(component, &state);
    }
    void abandon() override { state = nullptr; }
    bool posts() const override { return post_step && powers == 1 && !several; }
    void post(double time, double duration) override { post_step(component, time, duration, final_step); }
    void remember(StateBytes &bytes) override {
        Following::remember(bytes);
        bytes.value(next_event);
        bytes.value(reached);
    }
    int set(const double *given) override {
        begin(given);
        return set_now(given);
    }
    int set_now(const double *given) override { return inputs ? bad(set_values(component, in.data(), in.size(), given, inputs)) : 0; }
    // What a step says of itself; units may leave `reached` alone.
    struct Said {
        bool event = false, terminate = false, early = false;
        double reached = NAN;
    };
    int step(double time, double duration, int map) override {
        return powers == 1 ? step_now(time, duration) : step_along(component, time, duration, map);
    }
    int step_now(double time, double duration) override {
        if (several) return step_through(time, duration);
        Said said;
        return told(call(said, time, duration), said, time, duration);
    }
    int call(Said &said, double time, double duration) {
        return stepped(do_step(component, time, duration, final_step, &said.event, &said.terminate, &said.early, &said.reached));
    }
    // To the end, as often as the unit returns early or an event lies between: Fmi3.step of units/fmi/versions.py, to the bit.
    int step_through(double time, double duration) {
        const double end = time + duration, near = time_rounding(time, end, duration);
        double now = time;
        if (next_event <= now) [[unlikely]] {
            if (int status = handle_event(now)) return status;
            if (wants_end) return 0;
        }
        for (int stuck = 0;;) {
            const bool met = now < next_event && next_event <= end + near && variable_step;
            const double target = met ? next_event : end;
            const double ahead = now == time && target == end ? duration : target - now;
            Said said;
            if (int status = call(said, now, ahead)) return failed(status, now, ahead);
            if (said.early ? !(said.reached >= now) : said.reached < now) [[unlikely]]
                goes_back(said, now);
            if (said.terminate) return ends_at(std::isnan(said.reached) ? now + ahead : std::clamp(said.reached, now, now + ahead));
            const double got = !said.early ? target : said.reached >= now ? said.reached : now;
            stuck = got <= now ? stuck + 1 : 0;
            if (stuck > event_iterations) return failed(fmi3_stuck, now, end - now);
            if (said.event || got >= next_event - near)
                if (int status = handle_event(got)) return status;
            if (wants_end) return 0;
            if (got >= end - near) break;
            now = got;
        }
        reached = end;
        return 0;
    }
    int failed(int status, double at, double lasting = 0.0) {
        failed_at = at;
        failed_for = lasting;
        return status;
    }
    // An event at `time`; discrete inputs are set by `change`.
    template <class Change>
    int handle_event(double time, Change change) {
        if (!update) return change();
        if (int status = stepped(enter_event(component))) return failed(fmi3_enter_event + status, time);
        if (int status = change()) return status;
        bool need, terminate, nominals, values, defined;
        double next = INFINITY;
        for (int i = 0; i < event_iterations; ++i) {
            need = terminate = nominals = values = defined = false;
            if (int status = stepped(update(component, &need, &terminate, &nominals, &values, &defined, &next)))
                return failed(fmi3_update + status, time);
            if (terminate) return ends_at(time);
            if (need) continue;
            next_event = defined ? next : INFINITY;
            const int status = stepped(enter_step(component));
            return status ? failed(fmi3_enter_step + status, time) : 0;
        }
        return failed(fmi3_unsettled, time);
    }
    int handle_event(double time) {
        return handle_event(time, [] { return 0; });
    }
    void goes_back(const Said &said, double time) {
        if (went_back) return;
        went_back = true;
        back_from = time;
        back_to = said.reached;
    }
    int told(int status, const Said &said, double time, double duration) {
        if (status) return status;
        if (said.reached < time) [[unlikely]]
            goes_back(said, time);
        if (said.terminate) return ends_at(std::isnan(said.reached) ? time + duration : std::clamp(said.reached, time, time + duration));
        return said.event || said.early ? fmi3_returned_early : 0;
    }
    // Whether its functions can be called without a detour.
    bool plain() const { return powers == 1 && !in.empty() && !out.empty(); }
    bool plain_step() const { return plain() && !several; }
    int get(double *y) override { return outputs ? bad(get_values(component, out.data(), out.size(), y, outputs)) : 0; }
    int save() override {
        final_step = false;
        keep();
        saved_next = next_event;
        saved_reached = reached;
        return bad(get_state(component, &state));
    }
    int restore() override {
        put_back();
        next_event = saved_next;
        reached = saved_reached;
        failed_at = NAN;
        return bad(set_state(component, state));
    }
};

}  // namespace cosimo

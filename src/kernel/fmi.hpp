// FMUs through their own functions; instances are made, initialised and freed by the Python side.
#pragma once
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <vector>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "unit.hpp"

namespace cosimo {

constexpr int fmi_warning = 1, fmi_discard = 2, fmi_fatal = 4;
constexpr int fmi2_last_successful_time = 2, fmi2_terminated = 3;  // kinds of status that can be asked for
constexpr int fmi_illegal = 102;  // stands for a negative status, which no version of FMI knows
using PostStep = void (*)(void *, double, double, int);
constexpr int fmi3_returned_early = 100;  // not a status of FMI: the step ended before its time, or wants an event handled

inline int bad(int status) {
    if (static_cast<unsigned>(status) <= static_cast<unsigned>(fmi_warning)) [[likely]]
        return 0;
    return status < 0 ? fmi_illegal : status;
}

// The status of a step. A unit may leave another rounding mode behind, in which all that follows would be computed.
inline int stepped(int status) {
#if defined(__SSE__)
    const bool other = (_mm_getcsr() & _MM_ROUND_MASK) != _MM_ROUND_NEAREST;  // quicker than the C library's way
#else
    const bool other = std::fegetround() != FE_TONEAREST;
#endif
    if (other) [[unlikely]]
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

struct Fmi3 final : Following {
    using Set = int (*)(void *, const std::uint32_t *, std::size_t, const double *, std::size_t);
    using Get = int (*)(void *, const std::uint32_t *, std::size_t, double *, std::size_t);
    using Step = int (*)(void *, double, double, bool, bool *, bool *, bool *, double *);
    using State = int (*)(void *, void **);
    using PutState = int (*)(void *, void *);
    void *component;
    Set set_values;
    Get get_values;
    Step do_step;
    State get_state = nullptr, free_state = nullptr;
    PutState set_state = nullptr;
    PostStep post_step = nullptr;
    std::vector<std::uint32_t> in, out;
    bool final_step = true;
    bool went_back = false;  // a step gave a last successful time before its beginning: the first, and the time it gave
    double back_from = 0.0, back_to = 0.0;
    void *state = nullptr;

    ~Fmi3() override {
        if (state && free_state) free_state(component, &state);
    }
    void abandon() override { state = nullptr; }
    bool posts() const override { return post_step && powers == 1; }
    void post(double time, double duration) override { post_step(component, time, duration, final_step); }
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
        Said said;
        return told(stepped(do_step(component, time, duration, final_step, &said.event, &said.terminate, &said.early, &said.reached)),
                    said, time, duration);
    }
    int told(int status, const Said &said, double time, double duration) {
        if (status) return status;
        if (said.reached < time && !went_back) [[unlikely]] {
            went_back = true;
            back_from = time;
            back_to = said.reached;
        }
        if (said.terminate) return ends_at(std::isnan(said.reached) ? time + duration : std::clamp(said.reached, time, time + duration));
        return said.event || said.early ? fmi3_returned_early : 0;
    }
    // Whether its functions can be called without a detour.
    bool plain() const { return powers == 1 && !in.empty() && !out.empty(); }
    int get(double *y) override { return outputs ? bad(get_values(component, out.data(), out.size(), y, outputs)) : 0; }
    int save() override {
        final_step = false;
        keep();
        return bad(get_state(component, &state));
    }
    int restore() override {
        put_back();
        return bad(set_state(component, state));
    }
};

}  // namespace cosimo

// What Python sees of macro steps that vary: how a stepper is made, and what came of it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <memory>
#include <utility>

#include "bindings.hpp"
#include "builder.hpp"
#include "stepper.hpp"

namespace nb = nanobind;
using namespace cosimo;

namespace {

using Options = nb::typed<nb::dict, nb::str, nb::any>;

void take(const nb::object &found, double *to) {
    for (nb::handle value : found) *to++ = nb::cast<double>(value);
}

std::function<void(long long, long long, double *)> asking(nb::object given) {
    return [given = std::move(given)](long long place, long long parts, double *to) {
        nb::gil_scoped_acquire lock;
        take(given(place, parts), to);
    };
}

// Whoever calls back holds Python's lock; the loop may have let go of it.
void set_outside(Stepper &stepper, nb::object jump, nb::object given, nb::object sampled) {
    stepper.outside.jump = [jump = std::move(jump)](long long place, long long ahead) {
        nb::gil_scoped_acquire lock;
        nb::object found = jump(place, ahead);
        return found.is_none() ? -1LL : nb::cast<long long>(found);
    };
    stepper.outside.given = asking(std::move(given));
    stepper.outside.sampled = [sampled = std::move(sampled)](long long place, double *to) {
        nb::gil_scoped_acquire lock;
        take(sampled(place), to);
    };
}

// What all steppers go by. `outside`: None, or what is asked about external inputs (Outside).
void set_up(Stepper &stepper, const Options &plan) {
    auto number = [&](const char *name) { return nb::cast<double>(plan[name]); };
    auto whole = [&](const char *name) { return nb::cast<long long>(plan[name]); };
    stepper.control = {number("safety"), number("now"), number("past"), number("shrink"), number("grow"),
                       number("least_error"), number("exponent"), whole("settling"), whole("stuck")};
    stepper.lengths = {whole("first"), whole("shortest"), whole("longest")};
    stepper.tolerances = {number("relative"), number("absolute")};
    for (const Signal &one : nb::cast<std::vector<Signal>>(plan["exchanged"])) stepper.exchanged.push_back(exchanged(one));
    stepper.given = nb::cast<Numbers>(plan["given"]);
    stepper.external = nb::cast<Numbers>(plan["external"]);
    stepper.links = stepper.exchanged.size() - stepper.external.size();
    if (nb::object outside = plan["outside"]; !outside.is_none()) set_outside(stepper, outside[0], outside[1], outside[2]);
}

void begin(Builder &builder, std::unique_ptr<Stepper> stepper) {
    builder.program.with_python = builder.program.with_python || static_cast<bool>(stepper->outside.jump);
    stepper->begin(builder.program);
    builder.program.stepper = std::move(stepper);
}

void by_energy(Builder &builder, const Options &plan, double nominal, const Bonds &bonds) {
    auto made = std::make_unique<EnergyStepper>();
    set_up(*made, plan);
    made->nominal = nominal;
    for (auto [forward, back, gain] : bonds) made->bonds.push_back({forward, back, gain});
    begin(builder, std::move(made));
}

void by_doubling(Builder &builder, const Options &plan, int order, std::pair<double, double> changes, std::vector<bool> counts) {
    auto made = std::make_unique<DoublingStepper>();
    set_up(*made, plan);
    made->shrinks = std::pow(2.0, order) - 1.0;
    made->steeper = (order + 1.0) / order;
    made->changes = {changes.first, changes.second};
    made->counts.assign(counts.begin(), counts.end());
    begin(builder, std::move(made));
}

// Source, gain and offset of a link; where its memory is, and how long; how it is resampled.
using Resampled = std::tuple<std::uint32_t, double, double, std::uint32_t, std::uint32_t, Numbers>;

// Equal macro steps of 2^halvings quanta, in parts where a unit discards them; `given`: None, or what gives the samples.
void carefully(Builder &builder, int halvings, const std::vector<Resampled> &links, std::size_t samples, nb::object given) {
    auto made = std::make_unique<CarefulStepper>();
    made->halvings = halvings;
    for (const auto &[source, gain, offset, first, history, matrices] : links)
        made->resampled.push_back({source, gain, offset, first, history, matrices});
    made->given.resize(samples);
    if (!given.is_none()) made->outside.given = asking(std::move(given));
    builder.program.with_python = builder.program.with_python || static_cast<bool>(made->outside.given);
    builder.program.stepper = std::move(made);
}

void prepare_with(Builder &builder, nb::object prepare) {
    builder.program.prepare = [prepare = std::move(prepare)](long long parts) {
        nb::gil_scoped_acquire lock;
        return nb::cast<int>(prepare(parts));
    };
}

}  // namespace

void cosimo::bind_steppers(nb::class_<Builder> &program) {
    program.def("vary", &Builder::vary)
        .def("fraction", &Builder::fraction)
        .def("timed_link", &Builder::timed_link)
        .def("by_energy", &by_energy)
        .def("by_doubling", &by_doubling)
        .def("carefully", &carefully, nb::arg("halvings"), nb::arg("links"), nb::arg("samples"), nb::arg("given").none())
        .def("kept", &Builder::go_back_to)
        .def("asked", &Builder::ask)
        .def("retry", &Builder::retry)
        .def("prepare_with", &prepare_with)
        .def("forget_lengths", &Builder::forget_lengths)
        .def_prop_ro("tally", &Builder::tally)
        .def_prop_ro("judged", &Builder::judged);
}

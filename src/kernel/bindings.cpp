// What Python sees of the kernel: how a program is built (Builder), run, and asked what came of it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bindings.hpp"
#include "builder.hpp"
#include "dmd.hpp"
#include "fmi.hpp"
#include "python_unit.hpp"
#include "stepper.hpp"

namespace nb = nanobind;
using namespace cosimo;
using Rows = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Given = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

namespace {

// All that is remembered between two macro steps, except what lives in units and predictors outside the kernel.
nb::bytes memory(Builder &builder) {
    StateBytes found;
    builder.program.remember(found);
    return nb::bytes(reinterpret_cast<const char *>(found.bytes.data()), found.bytes.size());
}

void set_memory(Builder &builder, nb::bytes given) {
    const auto *from = reinterpret_cast<const unsigned char *>(given.c_str());
    StateBytes found({from, from + given.size()});
    builder.program.remember(found);
}

int run(Builder &builder, long long first, long long count, Given given, Rows rows) {
    Program &program = builder.program;
    if (static_cast<long long>(rows.shape(0)) < count || rows.shape(1) != program.columns.size() + (program.stepper && program.stepper->tells_length ? 2 : 1))
        throw nb::value_error("the rows do not fit the program");
    std::optional<nb::gil_scoped_release> release;
    if (!program.with_python) release.emplace();
    const int outcome = program.run(first, count, given.data(), given.shape(1), rows.data());
    release.reset();
    return builder.told(outcome);
}

}  // namespace

NB_MODULE(_kernel, m) {
    bind_predictors(m);
    bind_guard(m);
    m.doc() = "Runs a lowered schedule: see cosimo.execution.engines.";
    nb::class_<Builder> program(m, "Program");
    bind_steppers(program);
    program.def(nb::init<double, double, Numbers, Numbers, Numbers>())
        .def("linear", &Builder::linear)
        .def("linear_map", &Builder::linear_map)
        .def("compiled", &Builder::compiled)
        .def("fmi2", &Builder::fmi2)
        .def("input_derivatives", &Builder::input_derivatives)
        .def("input_map", &Builder::input_map)
        .def("fmi3", &Builder::fmi3)
        .def("events", &Builder::events)
        .def("post", &Builder::post)
        .def("name_units", [](Builder &b, std::vector<std::string> names) { b.program.machine.names = std::move(names); })
        .def("typed", &Builder::typed)
        .def("typed_group", &Builder::typed_group)
        .def("discrete_inputs", &Builder::discrete_inputs)
        .def("python_object", &add_python_object)
        .def("python_instance", &add_python_instance)
        .def("copy", &Builder::copy)
        .def("scale", &Builder::scale)
        .def("link", &Builder::link)
        .def("mix", &Builder::mix)
        .def("settle", &Builder::settle)
        .def("hold", &Builder::hold)
        .def("check_models", &Builder::check_models)
        .def("check_model", &Builder::check_model)
        .def_prop_ro("switches", [](const Builder &b) {
            std::vector<std::pair<long long, long long>> found;
            for (const auto &one : b.program.machine.switches) found.emplace_back(one.k, one.number);
            return found;
        })
        .def("predict", &Builder::predict)
        .def("external", &Builder::external)
        .def("couple", &Builder::couple)
        .def("shift", &Builder::shift)
        .def("step", &Builder::step)
        .def("read", &Builder::read)
        .def("keep", &Builder::keep)
        .def("begin_repeat", &Builder::begin_repeat)
        .def("accelerate", &Builder::accelerate)
        .def("begin_sweep", &Builder::begin_sweep)
        .def("end_sweep", &Builder::end_sweep)
        .def("end_repeat", &Builder::end_repeat)
        .def("barrier", &Builder::barrier)
        .def("column", &Builder::column)
        .def("memory_column", &Builder::memory_column)
        .def("watch", &Builder::watch)
        .def("findings", [](Builder &b, bool final) { return b.program.monitor->findings(final); }, nb::arg("final") = true)
        .def("can_go_back", &Builder::can_go_back)
        .def("finish", &Builder::finish)
        // Rows are filled in place: a converted copy of them would be lost.
        .def("run", &run, nb::arg("first"), nb::arg("count"), nb::arg("given"), nb::arg("rows").noconvert())
        .def("time_units", [](Builder &b, double seconds) { b.program.time_units(seconds); })
        .def_prop_ro("unit_samples", [](const Builder &b) {
            return std::vector<std::uint64_t>(b.program.samples.begin(), b.program.samples.end());
        })
        .def("release", &Builder::release)
        .def("went_back", &Builder::went_back)
        .def_prop_ro("shared", &Builder::shared)
        .def_prop_ro("made", [](const Builder &b) { return b.program.made; })
        .def_prop_ro("busy", [](const Builder &b) { return b.program.machine.busy(); })
        .def_prop_ro("failure", [](const Builder &b) {
            const Machine &machine = b.program.machine;
            return std::make_tuple(machine.unit, static_cast<int>(machine.phase), machine.status, machine.output, machine.at,
                                   machine.duration, machine.value);
        })
        .def_prop_ro("ending", [](const Builder &b) { return b.program.machine.ending; })
        .def_prop_ro("polynomials", [](const Builder &b) { return b.program.machine.c; })
        .def("memory", &memory)
        .def("set_memory", &set_memory)
        .def_prop_ro("signals", [](const Builder &b) {
            const Machine &machine = b.program.machine;
            return std::make_tuple(machine.y, machine.c, machine.w);
        })
        .def("tolerate", [](Builder &b) { b.program.machine.tolerant = true; })
        .def("not_finite", [](const Builder &b) {
            std::vector<std::tuple<std::uint64_t, double, double>> found;
            for (const auto &one : b.program.machine.not_finite) found.emplace_back(one.place, one.at, one.value);
            return found;
        })
        // Handed over, not copied and kept: a long iterated run must not grow.
        .def("take_sweeps", [](Builder &b) {
            return std::make_pair(std::exchange(b.program.sweep_counts, {}), std::exchange(b.program.sweep_residuals, {}));
        });
}

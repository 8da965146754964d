// What Python sees of the guard: see cosimo.core.guarding.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <cstdio>

#include "bindings.hpp"
#include "crash_report.hpp"
#include "guard.hpp"
#include "program.hpp"

namespace cosimo {
namespace nb = nanobind;

void bind_guard(nb::module_ &m) {
    // Counted up by Ctrl-C; units in other processes are then no longer waited for.
    m.def("count_signals", &count_signals);
    m.def("count_signals_no_more", &count_signals_no_more);
    m.def("count_signals_again", &count_signals_again);
    m.def("interrupts", [] { return reinterpret_cast<std::uintptr_t>(&interrupts); });
    m.def("guard", &guard, nb::arg("exits"), nb::arg("document"), nb::arg("kept"), nb::arg("limit"), nb::arg("rescue"),
          nb::arg("fixed") = "");
    m.def("unguard", &unguard, nb::arg("number"), nb::arg("rescue"));
    m.def("crashed", &report_crash);
    m.def("take_copies", &take_copies);
    m.def("enter", [](const char *unit, const char *phase, double time) {
        end_if_copy();
        Mark &here = mark();
        std::snprintf(here.phase, sizeof here.phase, "%s", phase);
        here.time = time;
        here.calls.fetch_add(1, std::memory_order_relaxed);
        std::snprintf(here.unit, sizeof here.unit, "%s", unit);
    });
    m.def("phase", [](const char *phase) { std::snprintf(mark().phase, sizeof mark().phase, "%s", phase); });
    // One call of a unit begins; `away`: in another process, which has its own limit, until it has returned. True where
    // this thread was in a unit already, for which the call is made.
    m.def("call", [](bool away) {
        end_if_copy();
        Mark &here = mark();
        here.calls.fetch_add(1, std::memory_order_relaxed);
        if (away) here.away.fetch_add(1, std::memory_order_relaxed);
        return here.active();
    });
    m.def("returned", [] {
        Mark &here = mark();
        if (here.away.load() > 0) here.away.fetch_sub(1, std::memory_order_relaxed);
    });
    m.def("leave", [] {
        end_if_copy();
        mark().unit[0] = '\0';
        mark().away.store(0, std::memory_order_relaxed);
    });
    // A folder that nobody else removes when the process ends in a unit, until it is gone.
    m.def("bind_imports", &bind_imports);
    m.def("temporary", &remember_folder);
    m.def("not_temporary", &forget_folder);
}

}  // namespace cosimo

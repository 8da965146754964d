// The kernel's view of a unit: set, step, get, save, restore. Nothing else is known of it.
#pragma once
#include <cmath>
#include <cstddef>
#include <exception>

#include "state_bytes.hpp"

namespace cosimo {

// What an instruction returns; anything but ok ends the run.
enum Outcome : int { ok = 0, bad_status = 1, non_finite = 2, stopped = 3, diverged = 4, ended = 5, too_short = 6 };

constexpr int raised = -1;
constexpr int ended_inside = 103;  // not a status of FMI: the unit wants the run to end before the end of the macro step

// What a unit was doing when it failed.
enum Phase : int { setting = 0, stepping = 1, reading = 2, saving = 3, restoring = 4 };

// Methods return 0, or the unit's own status when it refuses. Inputs are polynomials: c_0 of all inputs, then c_1, …
struct Unit {
    std::size_t inputs = 0, outputs = 0;
    virtual ~Unit() = default;
    virtual int set(const double *c) = 0;
    virtual int step(double time, double duration, int map) = 0;
    virtual int get(double *y) = 0;
    virtual int save() = 0;
    virtual int restore() = 0;
    // A step can be sent to a unit in another process before `step` waits for it, so that several step at once.
    virtual bool posts() const { return false; }
    virtual void post(double, double) {}
    virtual void abandon() {}  // after a fatal status: no further call, not even to free
    virtual bool needs_python() const { return false; }
    // Where macro steps vary: how many constants of lengths `step` can name, and whether the unit goes by the length h itself.
    virtual std::size_t maps() const { return 0; }
    virtual void forget_maps() {}
    virtual bool stretch(double) { return false; }
    virtual void remember(StateBytes &) {}  // what only the kernel knows of the unit, between two macro steps
    // Set by a step that went well, but after which the unit wants no more: how far it got.
    bool wants_end = false;
    double got_to = 0.0;
    int ends_at(double time) {
        wants_end = true;
        got_to = time;
        return 0;
    }
    // Of a step that is several calls: where the one that failed began, and how long it was to last.
    double failed_at = NAN, failed_for = 0.0;
    std::exception_ptr error;  // what the unit threw; its status is then `raised`
    int keep_error() {
        error = std::current_exception();
        return raised;
    }
};

// Exceptions become a status, so that the loop ends the same way for all units and on all threads; the caller raises
// them again. Costs nothing where nothing is thrown.
template <class Work>
int caught(Unit &unit, Work work) {
    try {
        return work();
    } catch (...) {
        return unit.keep_error();
    }
}

}  // namespace cosimo

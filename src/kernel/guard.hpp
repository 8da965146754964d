// Which unit this thread is in, for the case that it takes the process down: a signal, a call of exit, a call that takes
// too long. Then one line says so. Nothing of this costs the loop more than storing a number per call.
#pragma once
#include <signal.h>

#include <atomic>
#include <string>
#include <utility>

#include "unit.hpp"

namespace cosimo {

struct Machine;

// What a thread is doing. Either a schedule is run by it (`machine`, which knows the unit), or `unit` is called from Python.
struct Mark {
    const Machine *machine = nullptr;
    int number = -1;  // of the unit, where several threads step units of one machine; −1: the machine knows
    char unit[128] = {}, phase[32] = {};
    double time = 0.0;
    std::atomic<unsigned> calls{0};  // made from Python so far
    std::atomic<int> away{0};        // > 0: in something that is not this process's unit, whose time is not watched
    bool active() const { return machine || unit[0]; }
};
Mark &mark();

// ---- what units do to the whole process (imports.cpp, copies.cpp) ------------------------------------------------------

// Whether a run is guarded, and in this process: not in one that a unit has started.
bool guarding();
void guard_this_process();
// A unit of this process ends it, or wants another program in its place: one line, and the end. Returns where none does.
void report_end(int code);
void report_replaced(const char *program);
// Bind what the libraries in a folder import to functions that leave this process alive and its signals ours.
void bind_imports(const char *folder);
// What units asked for on signals that we handle, by number.
extern struct sigaction wanted[];

// The unit that this thread is in, and its name; none: nullptr.
const Mark *unit_of_this_thread();
const char *unit_name(const Mark &);
// A copy of this process that a unit has made, and that came back from the unit's call, ends here. How many did since this
// was asked before, and the unit that made the first.
extern bool copied;
void watch_copies();
[[noreturn]] void end_copy();
inline void end_if_copy() {
    if (copied) [[unlikely]]
        end_copy();
}
std::pair<unsigned, std::string> take_copies();

// A machine is run by this thread; one of its units is stepped by this thread of the pool.
class Running {
public:
    explicit Running(const Machine &machine, int number = -1);
    ~Running();

private:
    const Machine *before_;
    int number_before_;
};

// Signals can be handled although the stack of this thread is used up.
class OtherStack {
public:
    OtherStack();
    ~OtherStack();

private:
    void *memory_ = nullptr;
};

}  // namespace cosimo

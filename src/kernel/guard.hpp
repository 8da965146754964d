// What units do to the whole process: a signal, a call of exit, a call that takes too long, a copy (fork). Then one line says
// so. Nothing of this costs the loop more than storing a number per call.
#pragma once
#include <atomic>

#include <string>
#include <utility>

#include "marks.hpp"

namespace cosimo {

// Whether a run is guarded, and in this process: not in one that a unit has started.
bool guarding();
void guard_this_process();
// A unit of this process ends it, or wants another program in its place: one line, and the end. Returns where none does.
void report_end(int code);
void report_replaced(const char *program);
// What this thread called crashed, and came back all the same: said, and ended where a crash ends the process.
void report_crash(const char *fault);

// ---- imports.cpp -----------------------------------------------------------------------------------------------------

// Bind what the libraries in a folder import to functions that leave this process alive and its signals ours.
void bind_imports(const char *folder);

// ---- copies.cpp ------------------------------------------------------------------------------------------------------

// A copy of this process that a unit has made, and that came back from the unit's call, ends here. How many did since this
// was asked before, and the unit that made the first.
extern std::atomic<bool> copied;  // of the process: runs in several threads ask for it
void watch_copies();
[[noreturn]] void end_copy();
inline void end_if_copy() {
    if (copied.load(std::memory_order_relaxed)) [[unlikely]]
        end_copy();
}
std::pair<unsigned, std::string> take_copies();

}  // namespace cosimo

// What the kernel asks of the process that Python guards. Here the process belongs to whoever imports the FMU: its signals,
// its copies and its threads are left alone.
#include <cstdlib>

#include "../kernel/guard.hpp"
#include "../kernel/program.hpp"

namespace cosimo {

void count_signals() {}
void count_signals_no_more() {}
void count_signals_again() {}

std::atomic<bool> copied{false};
void end_copy() { std::abort(); }

Running::Running(const Machine &, int) : before_(nullptr), number_before_(-1) {}
Running::~Running() = default;
OtherStack::OtherStack() = default;
OtherStack::~OtherStack() = default;

}  // namespace cosimo

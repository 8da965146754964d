// Which unit this thread is in, for the case that it takes the process down: a signal, a call of exit, a call that takes
// too long. Then one line says so. Nothing of this costs the loop more than storing a number per call.
#pragma once
#include <atomic>

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

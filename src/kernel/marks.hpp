// Which unit each thread is in, and where in the run: all that can be said of a unit that takes the process down.
#pragma once
#include <atomic>
#include <mutex>
#include <vector>

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
// The mark of this thread, made where it has none.
Mark &mark();
// The unit that this thread is in; and that it, or another one (for threads that a unit has started), is in. None: nullptr.
const Mark *own_unit();
const Mark *any_unit();

struct Place {
    const char *unit, *phase;
    double time;
};
Place place(const Mark &);

// The marks of all threads that ever called a unit, for the thread that watches the time.
extern std::mutex listing;
extern std::vector<Mark *> marks;

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
    [[maybe_unused]] void *memory_ = nullptr;  // Windows needs none
};

}  // namespace cosimo

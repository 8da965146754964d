// Copies of this process that a unit makes (fork) end when they come back from the unit's call: there is one run.
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <new>

#include "crash_report.hpp"
#include "guard.hpp"
#include "program.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#include <signal.h>
#include <sys/prctl.h>

#include "copy_pipe.hpp"
#endif

namespace cosimo {

std::atomic<bool> copied = false;

namespace {

constexpr int ended_with = 4;  // as after a crash

// Shared by all copies.
struct Count {
    std::atomic<unsigned> copies{0};
    char unit[128] = {};
};
Count *count = nullptr;
#if defined(__linux__)
CopyPipe copies;
#endif

const Mark *unit_here() { return present.load() ? own_unit() : nullptr; }

void before_copy() {
#if defined(__linux__)
    if (unit_here()) copies.before();
#endif
}

void in_copy() {
    if (copied) return;
    const Mark *here = unit_here();
    if (!here) {  // made by our own Python, which knows what it does
#if defined(__linux__)
        copies.leave();
#endif
        return guard_this_process();
    }
    copied = true;
    attention.fetch_add(1);
    if (count && !count->unit[0]) std::snprintf(count->unit, sizeof count->unit, "%s", place(*here).unit);
#if defined(__linux__)
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // whatever becomes of it, it does not outlive the run
#endif
}

}  // namespace

void watch_copies() {
    static const bool once = [] {
#if defined(__linux__)
        void *page = mmap(nullptr, sizeof(Count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (page != MAP_FAILED) count = new (page) Count;
#endif
        return pthread_atfork(before_copy, nullptr, in_copy) == 0;
    }();
    (void)once;
    copied = false;  // a copy that begins a run of its own is none that came back
}

void end_copy() {
    if (count) count->copies.fetch_add(1);
    _exit(ended_with);
}

std::pair<unsigned, std::string> take_copies() {
    if (!count) return {};
#if defined(__linux__)
    copies.wait();  // they come back when the system lets them
#endif
    std::pair<unsigned, std::string> found{count->copies.exchange(0), count->unit};
    count->unit[0] = '\0';
    return found;
}

}  // namespace cosimo

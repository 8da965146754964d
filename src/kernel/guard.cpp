#include "guard.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "bindings.hpp"
#include "crash_report.hpp"
#include "watchdog.hpp"

namespace cosimo {
namespace {

constexpr int watched[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
struct sigaction previous[std::size(watched)];

// Guards that hold, oldest first. The newest counts, and the one before it again when it is taken away: a run inside of a
// verb knows where its rows are, the verb goes on without.
struct Guard {
    int number;
    std::unique_ptr<const GuardOptions> options;
};
std::vector<Guard> guards;
pid_t guarded_in = 0;  // the process that is guarded: one that a unit has started is not

const char *signal_name(int number) {
    switch (number) {
        case SIGSEGV: return "SIGSEGV (segmentation fault)";
        case SIGBUS: return "SIGBUS (bus error)";
        case SIGFPE: return "SIGFPE (floating point exception)";
        case SIGILL: return "SIGILL (illegal instruction)";
        default: return "SIGABRT (aborted)";
    }
}

// What a unit has asked for, such as a runtime that finds null pointers in this way, comes first.
bool handled_by_unit(int number, siginfo_t *info, void *context) {
    const struct sigaction &asked = wanted[number];
    if (asked.sa_flags & SA_SIGINFO) {
        if (!asked.sa_sigaction) return false;
        asked.sa_sigaction(number, info, context);
        return true;
    }
    if (asked.sa_handler == SIG_DFL || asked.sa_handler == SIG_IGN) return false;
    asked.sa_handler(number);
    return true;
}

void on_crash(int number, siginfo_t *info, void *context) {
    const auto which = static_cast<std::size_t>(std::find(std::begin(watched), std::end(watched), number) - std::begin(watched));
    leave_to_who_ends(crashed);
    if (handled_by_unit(number, info, context) && number != SIGABRT) return;
    if (guarding()) {
        char cause[256];
        if (const Mark *mark = any_unit()) {
            std::snprintf(cause, sizeof cause, "the unit crashed: %s", signal_name(number));
            report(*mark, cause, crashed);
            if (present.load()->exits) end_process(crashed);
        } else if (present.load()->exits) {
            std::snprintf(cause, sizeof cause, "crashed outside of a unit's call: %s; a unit may have damaged the memory of this process",
                          signal_name(number));
            report({}, cause, crashed);
            end_process(crashed);
        }
    }
    // Whoever handled it before does now: the fault happens again.
    sigaction(number, &previous[which], nullptr);
    if (number == SIGABRT) raise(number);
}

void on_exit_called(int code, void *) {
    const Mark *mark = guarding() ? any_unit() : nullptr;
    if (!mark) return;
    char cause[128];
    std::snprintf(cause, sizeof cause, "the unit ended the process (exit code %d)", code);
    report(*mark, cause, crashed);
    end_process(crashed);
}

std::unique_ptr<Watchdog> watchdog;

void install() {
    static const bool once = [] {
#ifdef __GLIBC__
        on_exit(on_exit_called, nullptr);
#else
        std::atexit([] { on_exit_called(0, nullptr); });
#endif
        return true;
    }();
    (void)once;
    struct sigaction action {};
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < std::size(watched); ++i) sigaction(watched[i], &action, &previous[i]);
}

void uninstall() {
    std::fill(wanted, wanted + NSIG, (struct sigaction){});
    for (std::size_t i = 0; i < std::size(watched); ++i) sigaction(watched[i], &previous[i], nullptr);
}

// The newest guard counts. Who calls holds a lock.
void follow_newest(const nb::object &rescue) {
    present.store(guards.empty() ? nullptr : guards.back().options.get());
    const double limit = guards.empty() ? 0.0 : guards.back().options->limit;
    if (watchdog && watchdog->limit == limit) return;
    watchdog.reset();
    if (limit > 0) watchdog = std::make_unique<Watchdog>(limit, rescue);
}

}  // namespace

int guard(bool exits, int document, const char *kept, double limit, const nb::object &rescue, const char *fixed) {
    static int last = 0;
    auto options = std::make_unique<GuardOptions>(GuardOptions{exits, document, {}, limit, {}});
    std::snprintf(options->kept, sizeof options->kept, "%s", kept);
    std::snprintf(options->fixed, sizeof options->fixed, "%s", fixed);
    if (guards.empty()) install();
    guarded_in = getpid();
    watch_copies();
    guards.push_back({++last, std::move(options)});
    follow_newest(rescue);
    return last;
}

void unguard(int number, const nb::object &rescue) {
    const auto found = std::find_if(guards.begin(), guards.end(), [&](const Guard &one) { return one.number == number; });
    if (found == guards.end()) return;
    const Guard ended = std::move(*found);  // its options live until nobody follows them any more
    guards.erase(found);
    follow_newest(rescue);
    if (guards.empty()) uninstall();
}

void guard_this_process() { guarded_in = getpid(); }

bool guarding() { return present.load() && guarded_in == getpid(); }

void report_end(int code) { on_exit_called(code, nullptr); }

void report_replaced(const char *program) {
    const Mark *mark = guarding() ? any_unit() : nullptr;
    if (!mark) return;
    char cause[256];
    std::snprintf(cause, sizeof cause, "the unit wanted to replace the process by '%.128s'", program);
    report(*mark, cause, crashed);
    end_process(crashed);
}

}  // namespace cosimo

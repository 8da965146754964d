#include "guard.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "bindings.hpp"
#include "crash_report.hpp"
#include "platform.hpp"
#include "watchdog.hpp"

namespace cosimo {
namespace {

// Guards that hold, oldest first. The newest counts, and the one before it again when it is taken away: a run inside of a
// verb knows where its rows are, the verb goes on without.
struct Guard {
    int number;
    std::unique_ptr<const GuardOptions> options;
};
std::vector<Guard> guards;
pid_t guarded_in = 0;  // the process that is guarded: one that a unit has started is not

void on_fault(const char *fault) {
    if (!guarding()) return;
    char cause[256];
    if (const Mark *mark = any_unit()) {
        std::snprintf(cause, sizeof cause, "the unit crashed: %s", fault);
        report(*mark, cause, crashed);
        if (present.load()->exits) end_process(crashed);
    } else if (present.load()->exits) {
        std::snprintf(cause, sizeof cause, "crashed outside of a unit's call: %s; a unit may have damaged the memory of this process", fault);
        report({}, cause, crashed);
        end_process(crashed);
    }
}

void on_exit_called(int code) {
    const Mark *mark = guarding() ? any_unit() : nullptr;
    if (!mark) return;
    char cause[128];
    std::snprintf(cause, sizeof cause, "the unit ended the process (exit code %d)", code);
    report(*mark, cause, crashed);
    end_process(crashed);
}

std::unique_ptr<Watchdog> watchdog;

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
    if (guards.empty()) watch_faults(on_fault, on_exit_called);
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
    if (guards.empty()) watch_faults_no_more();
}

void guard_this_process() { guarded_in = getpid(); }

bool guarding() { return present.load() && guarded_in == getpid(); }

void report_crash(const char *fault) { on_fault(fault); }

void report_end(int code) { on_exit_called(code); }

void report_replaced(const char *program) {
    const Mark *mark = guarding() ? any_unit() : nullptr;
    if (!mark) return;
    char cause[256];
    std::snprintf(cause, sizeof cause, "the unit wanted to replace the process by '%.128s'", program);
    report(*mark, cause, crashed);
    end_process(crashed);
}

}  // namespace cosimo

#include "platform.hpp"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <mutex>

#include "crash_report.hpp"
#include "program.hpp"

extern char **environ;

namespace cosimo {

extern struct sigaction wanted[];  // imports.cpp: what units asked for on signals that we handle, by number

// ---- faults ----------------------------------------------------------------------------------------------------------

namespace {

constexpr int watched[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
struct sigaction previous[std::size(watched)];

void (*on_fault)(const char *) = nullptr;
void (*on_end)(int) = nullptr;

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
    on_fault(signal_name(number));
    // Whoever handled it before does now: the fault happens again.
    sigaction(number, &previous[which], nullptr);
    if (number == SIGABRT) raise(number);
}

}  // namespace

void watch_faults(void (*fault)(const char *), void (*ended)(int)) {
    on_fault = fault;
    on_end = ended;
    static const bool once = [] {
#ifdef __GLIBC__
        on_exit([](int code, void *) { on_end(code); }, nullptr);
#else
        std::atexit([] { on_end(0); });
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

void watch_faults_no_more() {
    std::fill(wanted, wanted + NSIG, (struct sigaction){});
    for (std::size_t i = 0; i < std::size(watched); ++i) sigaction(watched[i], &previous[i], nullptr);
}

namespace {
constexpr std::size_t stack_bytes = 1 << 16;
}

OtherStack::OtherStack() {
    stack_t present{};
    if (sigaltstack(nullptr, &present) == 0 && !(present.ss_flags & SS_DISABLE)) return;  // somebody else's will do
    memory_ = std::malloc(stack_bytes);
    stack_t stack{};
    stack.ss_sp = memory_;
    stack.ss_size = stack_bytes;
    sigaltstack(&stack, nullptr);
}
OtherStack::~OtherStack() {
    if (!memory_) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
    std::free(memory_);
}

// ---- interrupts ------------------------------------------------------------------------------------------------------

namespace {

constexpr int counted[] = {SIGINT, SIGTERM, SIGHUP};
struct sigaction previous_of[NSIG];  // whoever handled it before: Python, whose own table says what follows
std::mutex counting;
int counters = 0;

void on_signal(int number, siginfo_t *info, void *context) {
    const struct sigaction &previous = previous_of[number];
    if (previous.sa_flags & SA_SIGINFO) {
        if (previous.sa_sigaction) previous.sa_sigaction(number, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(number);
    }
    // Counted when Python knows: the signal may come in another thread than the one that looks at the count, and what that
    // one raises for the count must not be raised once more, later.
    interrupts.fetch_add(1, std::memory_order_relaxed);
    attention.fetch_add(1, std::memory_order_release);
}

bool is_ours(const struct sigaction &action) { return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == on_signal; }

void take(int number) {
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, nullptr);
}

bool taken[NSIG] = {};

// Whoever handles a signal now is called after us; what is ignored stays so, and so does what ends the process, but for
// Ctrl-C.
void install() {
    for (int number : counted) {
        struct sigaction now {};
        sigaction(number, nullptr, &now);
        if (is_ours(now)) continue;
        previous_of[number] = now;
        taken[number] = now.sa_handler != SIG_IGN && (now.sa_handler != SIG_DFL || number == SIGINT);
        if (taken[number]) take(number);
    }
}

// A unit may have put a handler of its own in the place of ours.
void put_back() {
    for (int number : counted) {
        struct sigaction now {};
        if (taken[number] && sigaction(number, nullptr, &now) == 0 && !is_ours(now)) take(number);
    }
}

void uninstall() {
    put_back();
    for (int number : counted)
        if (taken[number]) sigaction(number, &previous_of[number], nullptr);
    std::fill(std::begin(taken), std::end(taken), false);
}

}  // namespace

void count_signals() {
    std::lock_guard lock(counting);
    if (counters++ == 0) install();
}

void count_signals_no_more() {
    std::lock_guard lock(counting);
    if (--counters)
        put_back();
    else
        uninstall();
}

void count_signals_again() {
    std::lock_guard lock(counting);
    if (counters) install();
}

// ---- the end ------------------------------------------------------------------------------------------

void put_line(const char *text, std::size_t length) { put(STDERR_FILENO, text, length); }

void end_now(int code) { _exit(code); }

void run_program(const char *path, const char *const *arguments) {
    // Not vfork: on the stack of a signal handler the sanitizer takes its frames for those of the thread.
    pid_t child = 0;
    if (posix_spawn(&child, path, nullptr, nullptr, const_cast<char *const *>(arguments), environ) == 0) waitpid(child, nullptr, 0);
}

}  // namespace cosimo

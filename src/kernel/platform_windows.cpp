// Windows: a fault that nobody handles ends the process with the unit's name. What units import is not looked at, and a
// process has no copies (fork).
#include "platform.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iterator>
#include <mutex>

#include "crash_report.hpp"
#include "guard.hpp"
#include "program.hpp"

namespace cosimo {

// ---- faults ----------------------------------------------------------------------------------------------------------

namespace {

void (*on_fault)(const char *) = nullptr;
void (*on_end)(int) = nullptr;
LPTOP_LEVEL_EXCEPTION_FILTER filter_before = nullptr;
void (*abort_before)(int) = SIG_DFL;

const char *fault_name(DWORD code) {
    switch (code) {
        case EXCEPTION_ACCESS_VIOLATION: return "access violation (segmentation fault)";
        case EXCEPTION_IN_PAGE_ERROR: return "page error (bus error)";
        case EXCEPTION_STACK_OVERFLOW: return "stack overflow";
        case EXCEPTION_ILLEGAL_INSTRUCTION: return "illegal instruction";
        case EXCEPTION_INT_DIVIDE_BY_ZERO: return "integer division by zero (floating point exception)";
        default: return "an exception of Windows";
    }
}

// Called last, after whatever a unit has of its own for this. The stack of a thread that used it up is not enough.
LONG WINAPI on_unhandled(EXCEPTION_POINTERS *found) {
    leave_to_who_ends(crashed);
    on_fault(fault_name(found->ExceptionRecord->ExceptionCode));
    return filter_before ? filter_before(found) : EXCEPTION_CONTINUE_SEARCH;
}

void on_abort(int number) {
    leave_to_who_ends(crashed);
    on_fault("aborted");
    std::signal(number, abort_before);
}

}  // namespace

void watch_faults(void (*fault)(const char *), void (*ended)(int)) {
    on_fault = fault;
    on_end = ended;
    static const bool once = std::atexit([] { on_end(0); }) == 0;
    (void)once;
    filter_before = SetUnhandledExceptionFilter(on_unhandled);
    abort_before = std::signal(SIGABRT, on_abort);
}

void watch_faults_no_more() {
    SetUnhandledExceptionFilter(filter_before);
    std::signal(SIGABRT, abort_before);
}

// Windows keeps enough of a thread's stack for its own report only where it is told so.
OtherStack::OtherStack() {
    ULONG bytes = 1 << 16;
    SetThreadStackGuarantee(&bytes);
}
OtherStack::~OtherStack() = default;

// A console takes any character. Files and pipes have those of the system, unless Python is told otherwise.
void put_line(const char *text, std::size_t length) {
    static wchar_t wide[8192];
    static char narrow[3 * 8192];
    const HANDLE console = GetStdHandle(STD_ERROR_HANDLE);
    DWORD mode = 0, written = 0;
    const int count = MultiByteToWideChar(CP_UTF8, 0, text, static_cast<int>(length), wide, static_cast<int>(std::size(wide)));
    if (GetConsoleMode(console, &mode)) {
        WriteConsoleW(console, wide, static_cast<DWORD>(count), &written, nullptr);
        return;
    }
    const char *all = std::getenv("PYTHONUTF8");
    const UINT page = all && *all == '1' ? CP_UTF8 : CP_ACP;
    const int bytes = WideCharToMultiByte(page, 0, wide, count, narrow, sizeof narrow, nullptr, nullptr);
    put(STDERR_FILENO, narrow, static_cast<std::size_t>(bytes));
}

// _exit would call what libraries, also this one, have for the end of the process.
void end_now(int code) {
    TerminateProcess(GetCurrentProcess(), static_cast<UINT>(code));
    std::abort();
}

// A library that is loaded cannot be removed: the next process removes the folders that this one leaves.
void run_program(const char *, const char *const *) {}

// ---- interrupts ------------------------------------------------------------------------------------------------------

namespace {

constexpr int counted[] = {SIGINT, SIGTERM, SIGBREAK};
void (*previous_of[NSIG])(int) = {};
bool taken[NSIG] = {};
std::mutex counting;
int counters = 0;

// Windows forgets the handler before it calls it, and Python puts its own back: ours again afterwards.
void on_signal(int number) {
    const auto previous = previous_of[number];
    if (previous != SIG_DFL && previous != SIG_IGN) previous(number);
    if (taken[number]) std::signal(number, on_signal);
    interrupts.fetch_add(1, std::memory_order_relaxed);  // when Python knows, as on other systems
    attention.fetch_add(1, std::memory_order_release);
}

void install() {
    for (int number : counted) {
        const auto now = std::signal(number, on_signal);
        if (now == on_signal) continue;
        previous_of[number] = now;
        taken[number] = now != SIG_ERR && now != SIG_IGN && (now != SIG_DFL || number == SIGINT);
        if (!taken[number] && now != SIG_ERR) std::signal(number, now);
    }
}

// A unit may have put a handler of its own in the place of ours.
void put_back() {
    for (int number : counted)
        if (taken[number]) std::signal(number, on_signal);
}

void uninstall() {
    for (int number : counted) {
        if (!taken[number]) continue;
        taken[number] = false;
        std::signal(number, previous_of[number]);
    }
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

// ---- what Windows does without ---------------------------------------------------------------------------------------

std::atomic<bool> copied = false;
void watch_copies() {}
void end_copy() { std::abort(); }
std::pair<unsigned, std::string> take_copies() { return {}; }
void bind_imports(const char *) {}

}  // namespace cosimo

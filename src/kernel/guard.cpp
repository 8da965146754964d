#include "guard.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "guard_bindings.hpp"
#include "program.hpp"

namespace cosimo {
namespace {

namespace nb = nanobind;

constexpr int crashed = 4, too_slow = 5;  // exit codes
constexpr int watched[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr std::size_t stack_bytes = 1 << 16;

struct Options {
    bool exits = false;
    int document = -1;     // the file that the line is also written to as JSON; −1: none
    char kept[1024] = {};  // where the rows are, if any are written
    double limit = 0.0;    // seconds of one call; 0: none
};
// Guards that hold, oldest first. The newest counts, and the one before it again when it is taken away: a run inside of a
// verb knows where its rows are, the verb goes on without.
struct Guard {
    int number;
    std::unique_ptr<const Options> options;
};
std::vector<Guard> guards;
pid_t guarded_in = 0;  // the process that is guarded: one that a unit has started is not
std::atomic<const Options *> present{nullptr};  // of the newest; where a signal is handled only this is looked at
struct sigaction previous[std::size(watched)];

// The marks of all threads that ever called a unit, for the thread that watches the time.
std::mutex listing;
std::vector<Mark *> marks;

struct Listed : Mark {
    Listed() {
        std::lock_guard lock(listing);
        marks.push_back(this);
    }
    ~Listed() {
        std::lock_guard lock(listing);
        std::erase(marks, this);
    }
};
// Only a pointer is looked at where a signal is handled: making the mark of a thread there could wait forever.
thread_local Mark *own = nullptr;

Mark &made() {
    thread_local OtherStack stack;
    thread_local Listed here;
    own = &here;
    return here;
}

// The unit that this thread, or another one (for threads that a unit has started), is in.
const Mark *found() {
    if (own && own->active()) return own;
    for (const Mark *mark : marks)
        if (mark->active()) return mark;
    return nullptr;
}

// ---- one line ------------------------------------------------------------------------------------------------------

const char *phase_name(Phase phase) {
    switch (phase) {
        case setting: return "set";
        case stepping: return "doStep";
        case reading: return "get";
        case saving: return "save";
        case restoring: return "restore";
    }
    return "";
}

struct Place {
    const char *unit, *phase;
    double time;
};

Place place(const Mark &mark) {
    if (!mark.machine) return {mark.unit, mark.phase, mark.time};
    const Machine &machine = *mark.machine;
    const int number = mark.number >= 0 ? mark.number : machine.busy.load(std::memory_order_relaxed);
    const bool known = number >= 0 && static_cast<std::size_t>(number) < machine.names.size();
    return {known ? machine.names[static_cast<std::size_t>(number)].c_str() : "", phase_name(machine.doing.load(std::memory_order_relaxed)),
            machine.time(0.0)};
}

void put(int file, const char *text, std::size_t length) {
    while (length > 0) {
        const ssize_t written = write(file, text, length);
        if (written <= 0) return;
        text += written;
        length -= static_cast<std::size_t>(written);
    }
}

void escape(const char *from, char *to, std::size_t size) {
    std::size_t used = 0;
    for (; *from && used + 8 < size; ++from) {
        const auto sign = static_cast<unsigned char>(*from);
        if (sign == '"' || sign == '\\') to[used++] = '\\';
        if (sign < 0x20)
            used += static_cast<std::size_t>(std::snprintf(to + used, 8, "\\u%04x", sign));
        else
            to[used++] = *from;
    }
    to[used] = '\0';
}

// A number with a point, whatever locale a unit has set.
struct Decimal {
    char text[40];
    Decimal(double value, int digits) {
        *std::to_chars(text, text + sizeof text - 1, value, std::chars_format::general, digits).ptr = '\0';
    }
};

// Called where nothing may be allocated.
void report(const Mark &mark, const char *cause, int code) {
    const Place at = place(mark);
    const Options &options = *present.load();
    static char line[4096], unit[512], why[3072], document[8192];
    const char *shown = at.unit[0] ? at.unit : "–";
    if (!at.unit[0])
        std::snprintf(line, sizeof line, "%s%s%s; --isolate keeps each unit apart", cause, options.kept[0] ? "; " : "", options.kept);
    else if (options.kept[0])
        std::snprintf(line, sizeof line, "%s; %s; with --isolate %s every completed row would be kept", cause, options.kept, at.unit);
    else
        std::snprintf(line, sizeof line, "%s; with --isolate %s it would have ended alone", cause, at.unit);
    escape(line, why, sizeof why);
    escape(at.unit, unit, sizeof unit);
    int length = std::snprintf(document, sizeof document,
                               "{\"error\": \"%s%s%s%s\", \"exit_code\": %d, \"unit\": %s%s%s, \"phase\": \"%s\", \"time\": %s, "
                               "\"variable\": null, \"cause\": \"%s\", \"log\": null}\n",
                               unit[0] ? "unit '" : "", unit, unit[0] ? "': " : "", why, code, unit[0] ? "\"" : "null", unit,
                               unit[0] ? "\"" : "", at.phase[0] ? at.phase : "–", Decimal(at.time, 17).text, why);
    if (options.document >= 0) put(options.document, document, std::min(static_cast<std::size_t>(length), sizeof document - 1));
    length = std::snprintf(document, sizeof document, "cosimo: %s · %s · t = %s s · – · %s · –\n", shown, at.phase[0] ? at.phase : "–",
                           Decimal(at.time, 12).text, line);
    put(STDERR_FILENO, document, std::min(static_cast<std::size_t>(length), sizeof document - 1));
}

// The temporary folders. Entries are never freed, so that they can be walked through at any time; one whose folder is gone
// is used for the next.
struct Folder {
    std::atomic<char *> path{nullptr};
    Folder *next = nullptr;
};
std::atomic<Folder *> folders{nullptr};
std::mutex filing;
pid_t owner = 0;

void remember_folder(const char *path) {
    if (path[0] != '/') return;  // from where it would be looked for nobody knows
    std::lock_guard lock(filing);
    if (owner != getpid())  // those of a parent are not ours; it may hold their names, which are left alone
        for (Folder *folder = folders.load(); folder; folder = folder->next) folder->path.store(nullptr);
    owner = getpid();
    Folder *place = nullptr;
    for (Folder *folder = folders.load(); folder; folder = folder->next) {
        const char *known = folder->path.load();
        if (known && std::strcmp(known, path) == 0) return;
        if (!known) place = folder;
    }
    char *copy = strdup(path);
    if (place) {
        place->path.store(copy);
        return;
    }
    place = new Folder;
    place->path.store(copy);
    place->next = folders.load();
    folders.store(place);
}

void forget_folder(const char *path) {
    std::lock_guard lock(filing);
    for (Folder *folder = folders.load(); folder; folder = folder->next) {
        char *known = folder->path.load();
        if (!known || std::strcmp(known, path) != 0) continue;
        folder->path.store(nullptr);
        std::free(known);
    }
}

// By another program: nothing of this process can be relied on any more. A forked child leaves them to its parent.
void remove_folders() {
    if (owner != getpid()) return;
    constexpr std::size_t first = 3, most = 64;
    const Folder *folder = folders.load();
    while (folder) {
        const char *arguments[first + most + 1] = {"rm", "-rf", "--"};
        std::size_t count = first;
        for (; folder && count < first + most; folder = folder->next)
            if (const char *path = folder->path.load()) arguments[count++] = path;
        if (count == first) return;
        // Not vfork: on the stack of a signal handler the sanitizer takes its frames for those of the thread.
        pid_t child = 0;
        if (posix_spawn(&child, "/bin/rm", nullptr, nullptr, const_cast<char *const *>(arguments), environ) == 0)
            waitpid(child, nullptr, 0);
    }
}

// The thread that ends the process. A fault on its way does not begin it anew; other threads that crash meanwhile wait.
std::atomic<pid_t> ends_process{0};

void leave_to_who_ends(int code) {
    const pid_t who = ends_process.load();
    if (who == static_cast<pid_t>(syscall(SYS_gettid))) _exit(code);
    while (who) pause();
}

[[noreturn]] void end_process(int code) {
    pid_t nobody = 0;
    if (!ends_process.compare_exchange_strong(nobody, static_cast<pid_t>(syscall(SYS_gettid)))) leave_to_who_ends(code);
    remove_folders();
    _exit(code);
}

// ---- signals and exit ----------------------------------------------------------------------------------------------

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
        if (const Mark *mark = found()) {
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
    const Mark *mark = guarding() ? found() : nullptr;
    if (!mark) return;
    char cause[128];
    std::snprintf(cause, sizeof cause, "the unit ended the process (exit code %d)", code);
    report(*mark, cause, crashed);
    end_process(crashed);
}

// ---- time ----------------------------------------------------------------------------------------------------------

class Watchdog {
public:
    const double limit;
    Watchdog(double seconds, nb::object rescue) : limit(seconds), rescue_(std::move(rescue)), thread_([this] { watch(); }) {}
    ~Watchdog() {
        {
            std::lock_guard lock(mutex_);
            ending_ = true;
        }
        wake_.notify_all();
        nb::gil_scoped_release release;
        thread_.join();
    }

private:
    using Clock = std::chrono::steady_clock;
    struct Seen {
        const Mark *mark;
        unsigned long long calls;
        int unit, phase;
        Clock::time_point since;
        bool same(const Seen &other) const {
            return mark == other.mark && calls == other.calls && unit == other.unit && phase == other.phase;
        }
    };
    nb::object rescue_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool ending_ = false;
    std::vector<Seen> seen_;
    std::thread thread_;

    void watch() {
        const auto pause = std::chrono::duration<double>(std::min(0.05, limit / 10));
        std::unique_lock lock(mutex_);
        while (!wake_.wait_for(lock, pause, [this] { return ending_; })) {
            const Mark *late = look();
            if (late) end(*late);
        }
    }
    const Mark *look() {
        std::lock_guard lock(listing);
        const auto now = Clock::now();
        std::vector<Seen> next;
        for (const Mark *mark : marks) {
            if (!mark->active() || mark->away.load(std::memory_order_relaxed) > 0) continue;
            Seen call{mark, mark->calls.load(std::memory_order_relaxed), mark->number, 0, now};
            if (const Machine *machine = mark->machine) {
                call.calls += machine->calls.load(std::memory_order_relaxed);
                call.phase = machine->doing.load(std::memory_order_relaxed);
                if (call.unit < 0) call.unit = machine->busy.load(std::memory_order_relaxed);
                // Several at once: each thread has a mark of its own. Units in other processes have their own limit.
                if (call.unit < 0 || machine->is_away(call.unit)) continue;
            }
            auto before = std::find_if(seen_.begin(), seen_.end(), [&](const Seen &one) { return one.same(call); });
            if (before != seen_.end()) call.since = before->since;
            next.push_back(call);
            if (std::chrono::duration<double>(now - call.since).count() > limit) return mark;
        }
        seen_.swap(next);
        return nullptr;
    }
    void end(const Mark &late) {
        char cause[128];
        std::snprintf(cause, sizeof cause, "the unit took longer than its limit of %s s", Decimal(limit, 6).text);
        report(late, cause, too_slow);
        // Rows are saved where the interpreter can still be had: it cannot while a unit in Python or beside one hangs.
        if (!rescue_.is_none()) {
            std::thread([this] {
                nb::gil_scoped_acquire acquire;
                try {
                    rescue_();
                } catch (...) {
                }
                end_process(too_slow);
            }).detach();
            std::this_thread::sleep_for(std::chrono::milliseconds(600));
        }
        end_process(too_slow);
    }
};

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

int guard(bool exits, int document, const char *kept, double limit, const nb::object &rescue) {
    static int last = 0;
    auto options = std::make_unique<Options>(Options{exits, document, {}, limit});
    std::snprintf(options->kept, sizeof options->kept, "%s", kept);
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

}  // namespace

const Mark *unit_of_this_thread() { return present.load() && own && own->active() ? own : nullptr; }

const char *unit_name(const Mark &mark) { return place(mark).unit; }

void guard_this_process() { guarded_in = getpid(); }

bool guarding() { return present.load() && guarded_in == getpid(); }

void report_end(int code) { on_exit_called(code, nullptr); }

void report_replaced(const char *program) {
    const Mark *mark = guarding() ? found() : nullptr;
    if (!mark) return;
    char cause[256];
    std::snprintf(cause, sizeof cause, "the unit wanted to replace the process by '%.128s'", program);
    report(*mark, cause, crashed);
    end_process(crashed);
}

Mark &mark() { return own ? *own : made(); }

Running::Running(const Machine &machine, int number) : before_(mark().machine), number_before_(mark().number) {
    mark().number = number;
    mark().machine = &machine;
}
Running::~Running() {
    mark().machine = before_;
    mark().number = number_before_;
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

void bind_guard(nb::module_ &m) {
    // Counted up by Ctrl-C; units in other processes are then no longer waited for.
    m.def("count_signals", &count_signals);
    m.def("count_signals_no_more", &count_signals_no_more);
    m.def("count_signals_again", &count_signals_again);
    m.def("interrupts", [] { return reinterpret_cast<std::uintptr_t>(&interrupts); });
    m.def("guard", &guard, nb::arg("exits"), nb::arg("document"), nb::arg("kept"), nb::arg("limit"), nb::arg("rescue"));
    m.def("unguard", &unguard, nb::arg("number"), nb::arg("rescue"));
    m.def("take_copies", &take_copies);
    m.def("enter", [](const char *unit, const char *phase, double time) {
        end_if_copy();
        Mark &here = mark();
        std::snprintf(here.phase, sizeof here.phase, "%s", phase);
        here.time = time;
        here.calls.fetch_add(1, std::memory_order_relaxed);
        std::snprintf(here.unit, sizeof here.unit, "%s", unit);
    });
    m.def("phase", [](const char *phase) { std::snprintf(mark().phase, sizeof mark().phase, "%s", phase); });
    // One call of a unit begins; `away`: in another process, which has its own limit, until it has returned. True where
    // this thread was in a unit already, for which the call is made.
    m.def("call", [](bool away) {
        end_if_copy();
        Mark &here = mark();
        here.calls.fetch_add(1, std::memory_order_relaxed);
        if (away) here.away.fetch_add(1, std::memory_order_relaxed);
        return here.active();
    });
    m.def("returned", [] {
        Mark &here = mark();
        if (here.away.load() > 0) here.away.fetch_sub(1, std::memory_order_relaxed);
    });
    m.def("leave", [] {
        end_if_copy();
        mark().unit[0] = '\0';
        mark().away.store(0, std::memory_order_relaxed);
    });
    // A folder that nobody else removes when the process ends in a unit, until it is gone.
    m.def("bind_imports", &bind_imports);
    m.def("temporary", &remember_folder);
    m.def("not_temporary", &forget_folder);
}

}  // namespace cosimo

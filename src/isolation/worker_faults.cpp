#include "worker_faults.hpp"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "../kernel/copy_pipe.hpp"
#include "descendants.hpp"
#include "waiting.hpp"
#include "worker_log.hpp"

namespace cosimo::isolation {
namespace {

Header *shared = nullptr;
std::uintptr_t stack_end = 0;
alignas(16) unsigned char other_stack[65536];
std::atomic<bool> crashing{false}, passing_on{false};
std::atomic<int> watching{0};
pid_t worker = 0;     // this process, unless it is a copy that the unit has made
bool copied = false, copying = false;
CopyPipe copies;

std::uintptr_t stack_pointer(const void *context) {
#if defined(__x86_64__)
    return static_cast<std::uintptr_t>(static_cast<const ucontext_t *>(context)->uc_mcontext.gregs[REG_RSP]);
#elif defined(__aarch64__)
    return static_cast<std::uintptr_t>(static_cast<const ucontext_t *>(context)->uc_mcontext.sp);
#else
    (void)context;
    return 0;
#endif
}

void on_crash(int number, siginfo_t *info, void *context) {
    constexpr std::uintptr_t near = 1 << 20;
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr), sp = stack_pointer(context);
    const bool at_stack = address + near > sp && address < sp + near;
    if (number == SIGSEGV && at_stack && sp < stack_end + near) shared->overflow.store(1);
    // What the unit printed last is either passed on before the end, or left in the pipe for the master to read.
    crashing.store(true);
    const timespec moment{0, 100'000};
    for (int i = 0; i < 1000 && passing_on.load(); ++i) nanosleep(&moment, nullptr);
    shared->signal.store(static_cast<std::uint32_t>(number));
    wake(shared->reply);
    end_children();
    signal(number, SIG_DFL);
    raise(number);
}

// All that the unit has started ends with it.
[[noreturn]] void end_group() {
    end_children();
    kill(0, SIGKILL);
    _exit(0);
}

void *watch(void *) {
    // Descriptors of its own: the unit may close or replace those of the process.
    watching.store(unshare(CLONE_FILES) == 0 ? 1 : -1);
    char text[4096];
    std::size_t held = 0;
    pollfd watched[2] = {{master_fd, POLLIN, 0}, {printed_fd, POLLIN, 0}};
    for (;;) {
        if (poll(watched, 2, -1) < 0) continue;
        if (watched[0].revents) end_group();
        if (!watched[1].revents) continue;
        passing_on.store(true);
        const ssize_t got = crashing.load() ? 0 : read(printed_fd, text + held, sizeof text - held);
        if (got <= 0) {
            passing_on.store(false);
            watched[1].fd = -1;
            continue;
        }
        held += static_cast<std::size_t>(got);
        std::size_t begin = 0;
        for (std::size_t i = 0; i < held; ++i)
            if (text[i] == '\n' || (begin == 0 && i + 1 == sizeof text)) {
                if (log_has_room(record_printed)) log_record(record_printed, text + begin, i - begin);
                begin = i + 1;
            }
        held -= begin;
        std::memmove(text, text + begin, held);
        passing_on.store(false);
    }
}

std::uint64_t data_bytes() {
    // In pages: size, resident, shared, text, library, data + stack.
    unsigned long long field[6] = {};
    if (FILE *file = std::fopen("/proc/self/statm", "r")) {
        for (auto &value : field)
            if (std::fscanf(file, "%llu", &value) != 1) break;
        std::fclose(file);
    }
    return field[5] * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

Header *attach(int &, char **&) {
    void *memory = mmap(nullptr, total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
    close(memory_fd);
    return memory == MAP_FAILED ? nullptr : static_cast<Header *>(memory);
}

void notice_crashes(Header *header) {
    shared = header;
    pthread_attr_t attributes;
    void *low = nullptr;
    std::size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &low, &size);
        pthread_attr_destroy(&attributes);
    }
    stack_end = reinterpret_cast<std::uintptr_t>(low);
    stack_t stack{};
    stack.ss_sp = other_stack;
    stack.ss_size = sizeof other_stack;
    sigaltstack(&stack, nullptr);
    struct sigaction action {};
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(number, &action, nullptr);
    std::setvbuf(stdout, nullptr, _IOLBF, 4096);
    rlimit none{0, 0};  // writing a large core file would keep the master from hearing of it
    setrlimit(RLIMIT_CORE, &none);
}

void own_children(Header *header) {
    shared = header;
    worker = getpid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pthread_atfork([] { copies.before(), copying = true; }, nullptr, [] { copied = true; });
    std::atexit(end_children);
}

void end_children() {
    if (worker == getpid()) end_descendants("/proc/self/task");
}

void end_if_copy() {
    if (!copying) [[likely]]
        return;
    if (copied) {
        shared->copies.fetch_add(1);
        _exit(0);
    }
    copies.wait();  // so that they are counted before the master asks
    copying = false;
}

bool watch_master(Header *header) {
    shared = header;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the unit's own
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 * 1024);
    pthread_t thread;
    const bool started = pthread_create(&thread, &attributes, watch, nullptr) == 0;
    if (started) pthread_detach(thread);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    while (started && watching.load() == 0) sched_yield();
    return watching.load() == 1;
}

const char *limit_memory(Header *header) {
    shared = header;
    if (!header->memory_limit) return nullptr;
    const rlim_t limit = data_bytes() + header->memory_limit;
    rlimit both{limit, limit};
    return setrlimit(RLIMIT_DATA, &both) == 0 ? nullptr : "its memory cannot be limited here";
}

void note_refused_memory() {}  // done where it is requested, below

}  // namespace cosimo::isolation

// A unit that ends the worker at once does not leave behind what it has started.
extern "C" {
__attribute__((noreturn, visibility("default"))) void _exit(int code) {
    cosimo::isolation::end_children();
    for (;;) syscall(SYS_exit_group, code);
}
__attribute__((noreturn, visibility("default"))) void _Exit(int code) { _exit(code); }
}

// Sanitizers bring functions of their own in place of these.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The unit's requests for memory pass through here, as this executable comes first in the search for symbols: one that the
// limit refuses is noted, whatever the unit then does.
extern "C" {
void *__libc_malloc(std::size_t);
void *__libc_calloc(std::size_t, std::size_t);
void *__libc_realloc(void *, std::size_t);
void *__libc_memalign(std::size_t, std::size_t);

static void *noted(void *found, std::size_t size) {
    using cosimo::isolation::shared;
    if (!found && size && shared && shared->memory_limit) shared->memory_refused.store(1);
    return found;
}
__attribute__((visibility("default"))) void *malloc(std::size_t size) { return noted(__libc_malloc(size), size); }
__attribute__((visibility("default"))) void *calloc(std::size_t count, std::size_t size) {
    return noted(__libc_calloc(count, size), count && size);
}
__attribute__((visibility("default"))) void *realloc(void *old, std::size_t size) {
    return noted(__libc_realloc(old, size), size);
}
__attribute__((visibility("default"))) void *memalign(std::size_t alignment, std::size_t size) {
    return noted(__libc_memalign(alignment, size), size);
}
__attribute__((visibility("default"))) void *aligned_alloc(std::size_t alignment, std::size_t size) {
    return noted(__libc_memalign(alignment, size), size);
}
__attribute__((visibility("default"))) int posix_memalign(void **place, std::size_t alignment, std::size_t size) {
    if (alignment % sizeof(void *) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) return EINVAL;
    void *found = noted(__libc_memalign(alignment, size), size);
    if (!found) return ENOMEM;
    *place = found;
    return 0;
}
}
#endif

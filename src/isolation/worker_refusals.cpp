// What a unit in a sandbox is refused beyond what its namespaces lack: processes and sockets, by a filter of system calls.
// Attempts trap into a handler that counts them, so that they can be named, and fail with "not permitted". Files that
// cannot be opened are named too.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <initializer_list>
#include <vector>

#include "worker_faults.hpp"
#include "worker_log.hpp"

namespace cosimo::isolation {
namespace {

Header *shared = nullptr;

#if defined(__x86_64__)
constexpr std::uint32_t architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t architecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t architecture = 0;
#endif

void on_refused(int, siginfo_t *info, void *context) {
    const int call = info->si_syscall;
    (call == SYS_socket || call == SYS_socketpair ? shared->sockets : shared->forks).fetch_add(1);
    auto &registers = static_cast<ucontext_t *>(context)->uc_mcontext;
#if defined(__x86_64__)
    registers.gregs[REG_RAX] = -EPERM;
#elif defined(__aarch64__)
    registers.regs[0] = static_cast<unsigned long long>(-EPERM);
#endif
}

using Filter = std::vector<sock_filter>;

void when(Filter &filter, long number, std::initializer_list<sock_filter> then) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, static_cast<std::uint8_t>(then.size())));
    filter.insert(filter.end(), then);
}

constexpr std::uint32_t low_argument = offsetof(seccomp_data, args);

Filter made() {
    const sock_filter trap = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP), allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const sock_filter denied = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    const sock_filter unknown = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    const sock_filter argument = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low_argument);
    Filter filter = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, architecture, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
#if defined(__x86_64__)
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1),  // the calls of another convention
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
#endif
    };
    // Threads are allowed; clone3 hides its flags from filters, so that libraries are made to use clone.
    when(filter, SYS_clone3, {unknown});
    when(filter, SYS_clone, {argument, BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x00010000u /* CLONE_THREAD */, 0, 1), allow, trap});
#ifdef SYS_fork
    when(filter, SYS_fork, {trap});
    when(filter, SYS_vfork, {trap});
#endif
    when(filter, SYS_execve, {trap});
    when(filter, SYS_execveat, {trap});
    // Sockets of the local kind lead nowhere in an empty file system; libraries use them for pairs.
    when(filter, SYS_socket, {argument, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 1), allow, trap});
    for (long number : {SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_unshare,
                        SYS_setns, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_keyctl, SYS_add_key, SYS_request_key,
                        SYS_kexec_load, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_reboot, SYS_io_uring_setup,
                        SYS_open_by_handle_at, SYS_pidfd_send_signal,
#ifdef SYS_pidfd_getfd
                        SYS_pidfd_getfd,
#endif
#ifdef SYS_mount_setattr
                        SYS_move_mount, SYS_open_tree, SYS_fsopen, SYS_fsmount, SYS_mount_setattr,
#endif
                        SYS_chroot})
        when(filter, number, {denied});
    filter.push_back(allow);
    return filter;
}

}  // namespace

const char *refuse_calls(Header *header) {
    if (!architecture) return "no filter of system calls is known for this processor";
    shared = header;
    struct sigaction action {};
    action.sa_sigaction = on_refused;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSYS, &action, nullptr);
    Filter filter = made();
    sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program))
        return "system calls cannot be filtered here (seccomp)";
    return nullptr;
}

namespace {

void note_refusal(const char *path, bool writing, bool failed) {
    const int error = errno;
    if (failed && shared && path && (error == EACCES || error == EPERM || error == EROFS || error == ENOENT) &&
        log_has_room(record_refused)) {
        char text[512];
        const int length = std::snprintf(text, sizeof text, "%c%s", writing ? 'w' : 'r', path);
        log_record(record_refused, text, std::min<std::size_t>(static_cast<std::size_t>(length), sizeof text - 1));
    }
    errno = error;
}

template <class F>
F next(const char *name) {
    return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

}  // namespace
}  // namespace cosimo::isolation

// This executable comes first in the search for symbols: what a unit in a sandbox fails to open is named.
using cosimo::isolation::next;
using cosimo::isolation::note_refusal;

#define OPENS_STREAM(name)                                                             \
    EXPORTED FILE *name(const char *path, const char *mode) {                          \
        static const auto real = next<FILE *(*)(const char *, const char *)>(#name);   \
        FILE *file = real(path, mode);                                                 \
        note_refusal(path, mode && mode[0] != 'r', !file);                             \
        return file;                                                                   \
    }
#define OPENS(name)                                                                    \
    EXPORTED int name(const char *path, int flags, ...) {                              \
        static const auto real = next<int (*)(const char *, int, ...)>(#name);         \
        va_list more;                                                                  \
        va_start(more, flags);                                                         \
        const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;  \
        va_end(more);                                                                  \
        const int file = real(path, flags, mode);                                      \
        note_refusal(path, (flags & O_ACCMODE) != O_RDONLY, file < 0);                 \
        return file;                                                                   \
    }

#undef fopen
#undef fopen64
#undef open
#undef open64
OPENS_STREAM(fopen)
OPENS_STREAM(fopen64)
OPENS(open)
OPENS(open64)

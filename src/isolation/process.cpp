#include "process.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "descendants.hpp"
#include "protocol.hpp"

namespace cosimo::isolation {
namespace {

int open_process(int pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

// Whatever else is open here is not for the unit: through a folder that somebody left open it would leave its sandbox.
void close_from(posix_spawn_file_actions_t &files, int first) {
#if defined(__GLIBC_PREREQ) && __GLIBC_PREREQ(2, 34)
    posix_spawn_file_actions_addclosefrom_np(&files, first);
#else
    std::error_code none;
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd", none))
        if (const int fd = std::atoi(entry.path().filename().c_str()); fd >= first) posix_spawn_file_actions_addclose(&files, fd);
#endif
}

// Out of the way of the numbers that the worker expects.
int high(int fd) {
    if (fd < 0) return fd;
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, 32);
    ::close(fd);
    return moved;
}

void shut(int &fd) {
    if (fd >= 0) ::close(fd);
    fd = -1;
}

}  // namespace

Process::~Process() {
    for (int *fd : {&process_, &inner_, &printed_, &information_, &memory_}) shut(*fd);
    if (header_) munmap(header_, total_bytes);
}

Header *Process::share(std::string &problem) {
    memory_ = high(static_cast<int>(syscall(SYS_memfd_create, "cosimo-unit", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
    void *mapped = MAP_FAILED;
    // Of this size for good: memory that the unit cut off would take the master with it.
    if (memory_ >= 0 && ftruncate(memory_, static_cast<off_t>(total_bytes)) == 0 &&
        fcntl(memory_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        mapped = mmap(nullptr, total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_, 0);
    if (mapped == MAP_FAILED) {
        problem = std::string("no memory to share with it: ") + std::strerror(errno);
        return nullptr;
    }
    madvise(mapped, total_bytes, MADV_DONTFORK);  // a copy of this process has no say in it
    return header_ = new (mapped) Header;
}

std::string Process::start(const char *const *arguments, const char *const *environment, bool sandboxed) {
    int printed[2] = {-1, -1}, information[2] = {-1, -1};
    int master = high(open_process(getpid()));
    const bool opened = master >= 0 && pipe2(printed, O_CLOEXEC) == 0 && pipe2(information, O_CLOEXEC) == 0;
    for (int *fd : {printed, printed + 1, information, information + 1}) *fd = high(*fd);
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    const int given[][2] = {{printed[1], 1}, {printed[1], 2}, {memory_, memory_fd}, {master, master_fd}, {printed[0], printed_fd}};
    for (auto [from, to] : given) posix_spawn_file_actions_adddup2(&files, from, to);
    if (sandboxed) posix_spawn_file_actions_adddup2(&files, information[1], information_fd);
    close_from(files, sandboxed ? information_fd + 1 : information_fd);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    // A group of its own: Ctrl-C is for the master, and children of the unit can be ended with it.
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    const int error = opened ? posix_spawn(&pid_, arguments[0], &files, &attributes, const_cast<char *const *>(arguments),
                                           const_cast<char *const *>(environment))
                             : errno;
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    for (int *fd : {&master, printed + 1, information + 1}) shut(*fd);
    printed_ = printed[0];
    information_ = information[0];  // open as long as the worker is: its starter may write more
    if (error) {
        pid_ = 0;
        return std::string(arguments[0]) + ": " + std::strerror(error);
    }
    process_ = high(open_process(pid_));
    if (process_ < 0) {  // nobody would notice its end
        const int reason = errno;
        ::kill(-pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = 0;
        return std::string("no descriptor for its process: ") + std::strerror(reason);
    }
    fcntl(printed_, F_SETFL, O_NONBLOCK);
    if (sandboxed) find_inner();
    return {};
}

// The starter of a sandbox writes {"child-pid": N, …}: ending that one ends all in the sandbox, ending its starter does not.
void Process::find_inner() {
    std::string text;
    char part[256];
    ssize_t got;
    while (text.find('}') == std::string::npos && (got = read(information_, part, sizeof part)) > 0)
        text.append(part, static_cast<std::size_t>(got));
    const std::size_t place = text.find("\"child-pid\":");
    if (place != std::string::npos) inner_ = high(open_process(std::atoi(text.c_str() + place + 12)));
}

bool Process::ended(bool block, Ending &how) {
    if (process_ < 0 || pid_ == 0) return false;
    siginfo_t found{};
    const auto kind = static_cast<idtype_t>(3 /* P_PIDFD */);
    const auto descriptor = static_cast<id_t>(process_);
    // First only looked at: while it is not buried its number is its own, and so is the group of what the unit has started.
    if (waitid(kind, descriptor, &found, WEXITED | WNOWAIT | (block ? 0 : WNOHANG)) == 0) {
        if (found.si_pid == 0) return false;
        ::kill(-pid_, SIGKILL);
        waitid(kind, descriptor, &found, WEXITED);
    } else if (errno != ECHILD) {
        return false;
    } else {
        // Somebody else has buried it, or nobody wants to hear of children (SIGCHLD is ignored): how it ended is not known.
        found.si_code = CLD_EXITED;
    }
    pid_ = 0;
    how = {found.si_code != CLD_EXITED, found.si_status};
    return true;
}

std::size_t Process::read_printed(char *text, std::size_t size) {
    const ssize_t got = read(printed_, text, size);
    return got > 0 ? static_cast<std::size_t>(got) : 0;
}

void Process::wait(int milliseconds) const {
    pollfd watched{process_, POLLIN, 0};
    poll(&watched, 1, milliseconds);
}

void Process::kill() {
    if (inner_ >= 0) {
        // All in the sandbox; its starter then ends by itself.
        syscall(SYS_pidfd_send_signal, inner_, SIGKILL, nullptr, 0);
        wait(500);
    }
    if (pid_ > 0) {
        if (inner_ < 0) end_descendants(("/proc/" + std::to_string(pid_) + "/task").c_str());
        ::kill(-pid_, SIGKILL);
        if (process_ >= 0) syscall(SYS_pidfd_send_signal, process_, SIGKILL, nullptr, 0);
    }
}

}  // namespace cosimo::isolation

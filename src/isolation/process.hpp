// The process of an isolated unit, as its master holds it: given memory that both share, started, waited for, ended.
// `process.cpp` defines it for Linux, `process_windows.cpp` for Windows.
#pragma once
#include <string>

#include "protocol.hpp"

namespace cosimo::isolation {

struct Ending {
    bool killed;  // by a signal, or on Windows by an exception
    int number;   // of it, or the code that the process exited with
};

class Process {
public:
    Process() = default;
    ~Process();
    Process(const Process &) = delete;
    Process &operator=(const Process &) = delete;

    // The memory that it will share; null, with what is wrong in `problem`.
    Header *share(std::string &problem);
    // Starts the worker; what is wrong, where it cannot be started.
    std::string start(const char *const *arguments, const char *const *environment, bool sandboxed);
    // Whether it has ended, and how; true once.
    bool ended(bool block, Ending &how);
    void wait(int milliseconds) const;
    void kill();
    int pid() const { return pid_; }
    // What it has printed and nobody has read, as much as there is; 0: nothing.
    std::size_t read_printed(char *text, std::size_t size);

private:
    int pid_ = 0;
    Header *header_ = nullptr;
#ifdef _WIN32
    void *process_ = nullptr, *job_ = nullptr, *memory_ = nullptr, *printed_ = nullptr, *events_[2] = {};
#else
    int memory_ = -1, process_ = -1, inner_ = -1, printed_ = -1, information_ = -1;

    void find_inner();
#endif
};

}  // namespace cosimo::isolation

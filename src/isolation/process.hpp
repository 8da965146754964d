// The process of an isolated unit, as its master holds it: started, waited for, ended.
#pragma once
#include <signal.h>

#include <string>

namespace cosimo::isolation {

class Process {
public:
    Process() = default;
    ~Process();
    Process(const Process &) = delete;
    Process &operator=(const Process &) = delete;

    // Starts the worker with the shared memory open; what is wrong, where it cannot be started.
    std::string start(const char *const *arguments, const char *const *environment, int memory, bool sandboxed);
    // Whether it has ended, and how; true once.
    bool ended(bool block, siginfo_t &how);
    void wait(int milliseconds) const;
    void kill();
    int pid() const { return pid_; }
    int printed() const { return printed_; }  // the pipe that it prints into

private:
    int pid_ = 0;
    int process_ = -1, inner_ = -1, printed_ = -1, information_ = -1;

    void find_inner();
};

int high(int fd);  // out of the way of the numbers that the worker expects
void shut(int &fd);

}  // namespace cosimo::isolation

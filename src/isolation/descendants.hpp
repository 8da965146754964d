// Ends what a unit has started, also what it let go as a daemon: a worker takes such processes over. Nothing is allocated,
// so that it can be called where a signal is handled.
#pragma once
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace cosimo::isolation {

// The processes that one thread has started, or taken over.
inline int end_children(const char *tasks, const char *thread) {
    char path[128], text[4096];
    std::snprintf(path, sizeof path, "%s/%s/children", tasks, thread);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    const ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    int found = 0, number = 0;
    for (ssize_t i = 0; i < got; ++i) {
        if (text[i] >= '0' && text[i] <= '9') {
            number = 10 * number + (text[i] - '0');
        } else {
            if (number > 1 && kill(number, SIGKILL) == 0) ++found;
            number = 0;
        }
    }
    return found;
}

// `tasks` is the folder in /proc with the threads of the worker. Children of those that end here are taken over in turn.
inline void end_descendants(const char *tasks) {
    constexpr int generations = 8;
    for (int i = 0; i < generations; ++i) {
        const int folder = open(tasks, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder < 0) return;
        alignas(8) char entries[4096];
        long got;
        int found = 0;
        while ((got = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0)
            for (long at = 0; at < got;) {
                // As the kernel writes them: number, offset, length, kind, name.
                const auto length = *reinterpret_cast<const std::uint16_t *>(entries + at + 16);
                const char *name = entries + at + 19;
                if (name[0] != '.') found += end_children(tasks, name);
                at += length;
            }
        close(folder);
        if (!found) return;
    }
}

}  // namespace cosimo::isolation

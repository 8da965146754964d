// What a process knows of the copies (fork) that its unit makes: each holds one end of a pipe until it ends or becomes
// another program. Linux.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

namespace cosimo {

class CopyPipe {
public:
    // Before a copy is made, which may be in several threads at once, or in a copy that was made meanwhile.
    void before() {
        std::unique_lock lock(mutex_, std::try_to_lock);
        if (lock && ends_[0] < 0 && pipe2(ends_, O_CLOEXEC) != 0) ends_[0] = ends_[1] = -1;
    }
    // In a copy that is not the unit's.
    void leave() {
        for (int &end : ends_)
            if (end >= 0) close(std::exchange(end, -1));
    }
    // Until all copies came to an end; in all no longer than a second, as one may be meant to stay.
    void wait() {
        using Clock = std::chrono::steady_clock;
        std::lock_guard lock(mutex_);
        if (ends_[0] < 0) return;
        close(std::exchange(ends_[1], -1));
        pollfd other{ends_[0], POLLIN, 0};
        const auto begin = Clock::now();
        poll(&other, 1, static_cast<int>(left_.count()));
        left_ -= std::min(left_, std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin));
        leave();
    }

private:
    int ends_[2] = {-1, -1};
    std::chrono::milliseconds left_{1000};
    std::mutex mutex_;
};

}  // namespace cosimo

// Ends the process when one call of a unit takes longer than its limit.
#pragma once
#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

#include "crash_report.hpp"
#include "program.hpp"

namespace cosimo {
namespace nb = nanobind;

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
                call.calls += machine->stages.load(std::memory_order_relaxed);
                call.phase = machine->doing();
                if (call.unit < 0) call.unit = machine->busy();
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

}  // namespace cosimo

// Where a worker runs when there are more processes than processors. Short work at short intervals is done soonest when
// the master keeps a processor to itself and the workers take turns on the others: one change of processes per macro step
// instead of two. Work that is worth a processor of its own, or a busy machine, undoes it.
#pragma once
#include <algorithm>

#include "waiting.hpp"

namespace cosimo::isolation {

#ifdef _WIN32
inline int usable_processors() {
    DWORD_PTR usable = 0, all = 0;
    return GetProcessAffinityMask(GetCurrentProcess(), &usable, &all) ? std::max(1, __builtin_popcountll(usable)) : 1;
}
inline int present_processor() { return static_cast<int>(GetCurrentProcessorNumber()); }

class Placement {  // left to Windows
public:
    explicit Placement(Header *) {}
    bool begins() { return false; }
    void ends(bool) {}
};
#else
inline int usable_processors() {
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}
inline int present_processor() { return sched_getcpu(); }

class Placement {
public:
    explicit Placement(Header *header) : header_(header) { sched_getaffinity(0, sizeof allowed_, &allowed_); }

    // Around the work on a request: `begins` says whether this one is timed.
    bool begins() {
        if (++count_ % sampled != 0) return false;
        begun_ = now();
        return true;
    }
    void ends(bool timed) {
        if (!timed) return;
        const double time = now();
        busy_ = std::min(busy_, time - begun_);
        if (++samples_ % judged != 0) return;
        const double cycle = (time - since_) / (sampled * judged);
        const bool crowded = header_->crowded.load(std::memory_order_relaxed);
        const int master = header_->master_cpu.load(std::memory_order_relaxed);
        if (away_from_ >= 0 && (!crowded || busy_ > longer || cycle > far_apart)) {
            leave_to(-1);
            wait_ = patience;
        } else if (crowded && busy_ < short_work && cycle < close_together && away_from_ != master && --wait_ < 0) {
            leave_to(master);
        }
        since_ = time;
        busy_ = 1.0;
    }

private:
    static constexpr std::uint32_t sampled = 16, judged = 16;
    static constexpr double short_work = 3e-6, longer = 6e-6, close_together = 50e-6, far_apart = 150e-6;
    static constexpr int patience = 64;
    Header *header_;
    cpu_set_t allowed_;
    std::uint32_t count_ = 0, samples_ = 0;
    int away_from_ = -1, wait_ = 0;
    double since_ = 0.0, begun_ = 0.0, busy_ = 1.0;

    void leave_to(int master) {
        cpu_set_t wanted = allowed_;
        if (master >= 0) CPU_CLR(master, &wanted);
        if (CPU_COUNT(&wanted) == 0) return;
        if (sched_setaffinity(0, sizeof wanted, &wanted) == 0) away_from_ = master;
    }
};
#endif

}  // namespace cosimo::isolation

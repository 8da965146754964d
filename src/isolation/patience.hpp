// How long to look for a word before sleeping. Looking pays when the answer comes within a few microseconds; yielding the
// processor pays when whoever answers waits for this very processor and nobody else does. Both are given up where they
// were in vain, and tried again now and then: on a busy machine a yield takes milliseconds, a sleep some microseconds.
#pragma once
#include <algorithm>
#include <utility>

#include "waiting.hpp"

namespace cosimo::isolation {

class Patience {
public:
    // Of processes that take turns on one processor, `turns`: who was made to wait for its turn is the last one to answer,
    // and the next word soon comes; who got the word while looking has others waiting behind it, and gives way at once.
    explicit Patience(bool turns = false) : turns_(turns) {}

    bool look(const Word &word, std::uint32_t number, std::uint32_t spins, bool crowded) {
        if (arrived(word, number)) {
            last_ = true;
            return true;
        }
        if (turns_ && crowded && spins && !std::exchange(last_, false)) spins = 1;
        if (spins == 0 || (misses_ >= 8 && ++skipped_ % 16 != 0)) return false;
        const bool came = watch(word, number, spins) || (crowded && give_way(word, number));
        misses_ = came ? 0 : misses_ + 1;
        return came;
    }

private:
    static constexpr std::uint32_t longest_pause = 1u << 16;
    static constexpr double too_long = 50e-6, in_all = 150e-6;  // seconds: of one yield, of all
    bool turns_, last_ = false;
    std::uint32_t misses_ = 0, skipped_ = 0, pause_ = 256, no_yield_for_ = 0;

    static bool watch(const Word &word, std::uint32_t number, std::uint32_t spins) {
        for (std::uint32_t i = 0; i < spins; ++i) {
            if (arrived(word, number)) return true;
            relax();
        }
        return arrived(word, number);
    }
    bool give_way(const Word &word, std::uint32_t number) {
        if (no_yield_for_ > 0) {
            --no_yield_for_;
            return false;
        }
        const double begin = now();
        for (double before = begin; before - begin < in_all;) {
            sched_yield();
            if (arrived(word, number)) {
                last_ = true;
                return true;
            }
            const double after = now();
            if (after - before > too_long) {
                no_yield_for_ = pause_;
                pause_ = std::min(pause_ * 4, longest_pause);
                return false;
            }
            before = after;
        }
        return false;
    }
};

}  // namespace cosimo::isolation

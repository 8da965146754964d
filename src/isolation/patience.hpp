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
        if (spins == 0 || (misses_ >= 8 && ++skipped_ % 16 != 0)) return false;
        const bool at_once = turns_ && crowded && !std::exchange(last_, false);
        const bool came = (!at_once && watch(word, number, spins)) || (crowded && give_way(word, number));
        misses_ = came ? 0 : misses_ + 1;
        return came;
    }

private:
    static constexpr std::uint32_t shortest_pause = 64, longest_pause = 1u << 16, worth_one_slow = 256, timed = 4;
    static constexpr int most_yields = 64;
    static constexpr double too_long = 50e-6;  // seconds of one yield
    bool turns_, last_ = false;
    std::uint32_t misses_ = 0, skipped_ = 0, yields_ = 0, pause_ = shortest_pause, no_yield_for_ = 0;

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
        for (int i = 0; i < most_yields; ++i) {
            // Reading the clock is a fiftieth of a macro step: not every time.
            const double before = ++yields_ % timed == 0 ? now() : 0.0;
            let_others_run();
            const bool slow = before > 0.0 && now() - before > too_long;
            if (slow) no_yield_for_ = pause_after_a_slow_one();
            if (arrived(word, number)) {
                last_ = true;
                return true;
            }
            if (slow) return false;
        }
        return false;
    }
    // Short where many quick ones lie before it, which have saved more than one slow one costs; longer and longer otherwise.
    std::uint32_t pause_after_a_slow_one() {
        pause_ = yields_ > worth_one_slow ? shortest_pause : std::min(pause_ * 4, longest_pause);
        yields_ = 0;
        return pause_;
    }
};

}  // namespace cosimo::isolation

// Whether outputs grow without bound: the rules and their reasons are in growth.py, which does the same.
#pragma once
#include <cstdint>
#include <vector>

#include "state_bytes.hpp"

namespace cosimo {

struct Grown {
    std::uint64_t output;  // as wide as what follows: no bytes between them that a checkpoint would keep
    long long step;
    double first, last, over;
};

// [low, high] as the pair (high, −low): both grow by one comparison, and their sum is the range.
typedef double Interval __attribute__((vector_size(16)));

// Number by number a > b ? a : b, which is what the processor's own instruction gives, of NaN and of zeros too.
inline Interval joined(Interval a, Interval b) {
#ifdef __SSE2__
    return __builtin_ia32_maxpd(a, b);
#else
    return a > b ? a : b;
#endif
}
inline double range_of(Interval interval) { return interval[0] + interval[1]; }

// An interval, and when its two ends were reached: in macro steps, to the end of a block of them.
struct Extent {
    Interval values, times;
};

inline Extent joined(const Extent &a, const Extent &b) {
    const auto larger = a.values > b.values;
    return {larger ? a.values : b.values, larger ? a.times : b.times};
}

class Growth {
public:
    static constexpr int window_steps = 8;

    // `start`: outputs, then external inputs, at t0. `owners`: the group of each output; `groups`: per group the outputs
    // that may have given their energy.
    void begin(const std::vector<double> &start, std::vector<std::uint32_t> owners, std::vector<std::vector<std::uint32_t>> groups);
    // The intervals of every signal in the next macro steps.
    void window(const Interval *now);
    std::size_t signals() const { return start_.size(); }
    std::vector<Grown> found;
    void remember(StateBytes &);

private:
    static constexpr long long kept = 20, ring = 32;  // windows looked at; a power of two that holds them

    // The newest windows of one length: a ring of extents, signal after signal in each. Those before number `left` are
    // only known as one interval, `old`.
    struct Level {
        long long width, count = 0, left = 0;
        std::vector<Extent> windows;
        std::vector<Interval> old;
    };
    typedef std::vector<Level> Ladder;  // every length twice the one before
    std::vector<Interval> start_;
    std::vector<Extent> block_, merged_;
    std::vector<std::uint32_t> owners_;
    std::vector<std::vector<std::uint32_t>> groups_;
    std::vector<char> silent_;
    Ladder doubled_, thirds_;  // from one block on, and from three
    long long steps_ = 0;

    Level fresh(long long width) const;
    void remember(StateBytes &, Ladder &);
    void climb(Ladder &, long long width, const Extent *now);
    const Extent *merge(const Extent *a, const Extent *b);
    void push(Level &, const Extent *now);
    void forget(Level &);
    void look(const Level &);
    void examine(const Level &, std::size_t output);
    long long begin_of(const Level &, std::size_t output) const;
    bool steady(const Level &, std::size_t output, long long first, double factor) const;
    bool forced(const Level &) const;
    bool explained(const Level &, std::size_t output, long long first) const;
    template <class Passed>
    bool straight(const Level &, std::size_t output, long long first, Passed passed) const;
    double passed(const Level &, std::size_t output, long long from, long long to) const;
    // Window number `number` of a level.
    std::size_t place(long long number) const { return static_cast<std::size_t>(number & (ring - 1)) * start_.size(); }
    // The window `back` before the newest.
    const Extent *at(const Level &level, long long back) const {
        return level.windows.data() + place(level.count - 1 - back);
    }
};

}  // namespace cosimo

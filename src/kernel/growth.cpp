#include "growth.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cosimo {
namespace {

constexpr long long least = 6, many = 8, under_inputs = 10;   // windows
constexpr double swift = 4.0, steadily = 2.0, driven = 30.0;  // the factor F over these
constexpr double even = 0.25, bend = 0.2, input = 1.5, slack = 0.02, side = 0.25, shrunk = 0.95, noise = 1e-9;

// Whether a window has grown out of the one before.
inline bool contains(Interval later, Interval before) {
    const double size = range_of(before), next = range_of(later), missed = slack * next;
    // Without branches: which of the four fails first cannot be foreseen.
    return (size < next) & (0.0 < size) & !(before[0] > later[0] + missed) & !(before[1] > later[1] + missed);
}

}  // namespace

void Growth::begin(const std::vector<double> &start, std::vector<std::uint32_t> owners,
                   std::vector<std::vector<std::uint32_t>> groups) {
    for (double value : start) start_.push_back(Interval{value, -value});
    owners_ = std::move(owners);
    groups_ = std::move(groups);
    silent_.assign(owners_.size(), 0);
    merged_.resize(start_.size());
    levels_.reserve(64);
    found.reserve(owners_.size());
}

void Growth::remember(StateBytes &bytes) {
    const std::size_t n = start_.size();
    bytes.array(start_);
    bytes.array(silent_);
    bytes.value(steps_);
    bytes.list(found, owners_.size());
    bytes.resize(levels_, 60, {0, 0, 0, std::vector<Interval>(static_cast<std::size_t>(ring) * n), start_});
    for (Level &level : levels_) {
        bytes.value(level.width);
        bytes.value(level.count);
        bytes.value(level.left);
        bytes.array(level.windows);
        bytes.array(level.old);
        if (level.left < 0 || level.count < level.left || level.count - level.left > ring) StateBytes::refuse();
    }
    for (const Grown &one : found)
        if (one.output >= owners_.size()) StateBytes::refuse();
}

void Growth::window(const Interval *now) {
    steps_ += window_steps;
    const std::size_t n = start_.size();
    for (std::size_t number = 0; number < 60; ++number) {
        if (number == levels_.size()) [[unlikely]]
            levels_.push_back({static_cast<long long>(window_steps) << number, 0, 0,
                               std::vector<Interval>(static_cast<std::size_t>(ring) * n), start_});
        Level &level = levels_[number];
        push(level, now);
        if (level.count >= least) look(level);
        if (level.count & 1) return;
        const Interval *before = at(level, 1);
        for (std::size_t i = 0; i < n; ++i) merged_[i] = joined(now[i], before[i]);
        now = merged_.data();
    }
}

void Growth::push(Level &level, const Interval *now) {
    if (level.count - level.left == ring) [[unlikely]]
        forget(level);
    Interval *to = level.windows.data() + place(level.count);
    for (std::size_t i = 0; i < start_.size(); ++i) to[i] = now[i];
    ++level.count;
}

// Room for more windows: those that nobody looks at any more, many at a time.
void Growth::forget(Level &level) {
    for (; level.left < level.count - kept + 1; ++level.left) {
        const Interval *from = level.windows.data() + place(level.left);
        for (std::size_t i = 0; i < start_.size(); ++i) level.old[i] = joined(level.old[i], from[i]);
    }
}

// Nearly always an interval does not contain the one before, at the latest after some windows.
void Growth::look(const Level &level) {
    const Interval *newest = at(level, 0), *before = at(level, 1);
    const std::size_t count = owners_.size();
    for (std::size_t output = 0; output < count; ++output)
        if (contains(newest[output], before[output])) examine(level, output);
}

void Growth::examine(const Level &level, std::size_t output) {
    if (silent_[output]) return;
    const long long first = begin_of(level, output);
    if (first < 0) return;
    const double sizes[] = {range_of(at(level, first)[output]), range_of(at(level, 0)[output])};
    found.push_back({static_cast<std::uint32_t>(output), steps_, sizes[0], sizes[1], first * level.width});
    silent_[output] = 1;
}

// How many windows ago steady growth began; −1 where it is none.
long long Growth::begin_of(const Level &level, std::size_t output) const {
    Interval later = at(level, 0)[output];
    const double last = range_of(later);
    for (long long back = 1; back < least; ++back) {
        const Interval now = at(level, back)[output];
        if (!contains(later, now)) return -1;
        later = now;
    }
    later = at(level, 0)[output];
    if (!(noise * std::max(std::fabs(later[0]), std::fabs(later[1])) < last && last < INFINITY)) return -1;
    const bool inputs_vary = forced(level);
    const long long windows = inputs_vary ? under_inputs : least, there = std::min(level.count, kept);
    for (long long back = 1; back < there; ++back) {
        const Interval now = at(level, back)[output];
        if (!contains(later, now)) return -1;
        const double wanted = inputs_vary ? driven : back + 1 < many ? swift : steadily;
        if (back + 1 >= windows && last >= wanted * range_of(now)) return steady(level, output, back, wanted) ? back : -1;
        later = now;
    }
    return -1;
}

bool Growth::steady(const Level &level, std::size_t output, long long first, double factor) const {
    auto size = [&](long long back) { return range_of(at(level, back)[output]); };
    const double last = size(0), begun = size(first), mean = std::log(last / begun) / static_cast<double>(first);
    for (long long back = first; back > 0; --back) {
        const double step = std::log(size(back - 1) / size(back));
        if (!((1.0 - even) * mean <= step && step <= (1.0 + even) * mean)) return false;
    }
    const long long half = first / 2;
    const double early = std::log(size(first - half) / begun), late = std::log(last / size(half));
    if (std::fabs(late - early) > bend * mean * static_cast<double>(half)) return false;
    const Interval newest = at(level, 0)[output], oldest = at(level, first)[output];
    const double part = side * (last - begun);
    if (newest[0] - oldest[0] < part || newest[1] - oldest[1] < part) return false;
    Interval before = level.old[output];
    for (long long number = level.left; number < level.count - 1 - first; ++number)
        before = joined(before, level.windows[place(number) + output]);
    return last >= factor * range_of(before) && !explained(level, output, first);
}

bool Growth::forced(const Level &level) const {
    const Interval *newest = at(level, 0);
    for (std::size_t i = owners_.size(); i < start_.size(); ++i)
        if (range_of(newest[i]) > 0.0) return true;
    return false;
}

bool Growth::explained(const Level &level, std::size_t output, long long first) const {
    const Interval *newest = at(level, 0), *oldest = at(level, first);
    for (std::size_t i = owners_.size(); i < start_.size(); ++i)
        if (range_of(newest[i]) > input * range_of(oldest[i])) return true;
    for (std::uint32_t other : groups_[owners_[output]])
        if (range_of(newest[other]) < shrunk * range_of(oldest[other])) return true;
    return false;
}

}  // namespace cosimo

#include "growth.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cosimo {
namespace {

constexpr std::size_t lengths = 58;                           // of windows: their steps fit in 63 bits
constexpr long long least = 6, many = 8, under_inputs = 10;   // windows
constexpr double swift = 4.0, steadily = 2.0, driven = 30.0;  // the factor F over these
constexpr double even = 0.25, bend = 0.1, input = 1.5, slack = 0.02, side = 0.25, shrunk = 0.99, noise = 1e-9;

// Whether a window has grown out of the one before: its range is larger, none was empty, and no end is left behind by more
// than the slack. Without branches: which of these fails first cannot be foreseen.
inline bool contains(Interval later, Interval before) {
    const double size = range_of(before), next = range_of(later), missed = slack * next;
    const Interval ends = later + Interval{missed, missed}, sizes = {size, 0.0}, larger = {next, size};
    const auto failed = (before > ends) | ~(sizes < larger);
    return !(failed[0] | failed[1]);
}

// Whether an output oscillates less than it did, as one that gives energy away. A drift that slows down has moved on.
inline bool gave(Interval then, Interval now) {
    return range_of(now) < shrunk * range_of(then) && now[0] <= then[0] && now[1] <= then[1];
}

}  // namespace

void Growth::begin(const std::vector<double> &start, std::vector<std::uint32_t> owners,
                   std::vector<std::vector<std::uint32_t>> groups) {
    for (double value : start) start_.push_back(Interval{value, -value});
    owners_ = std::move(owners);
    groups_ = std::move(groups);
    silent_.assign(owners_.size(), 0);
    block_.resize(start_.size());
    merged_.resize(start_.size());
    doubled_.reserve(lengths);
    thirds_.reserve(lengths);
    found.reserve(owners_.size());
}

void Growth::remember(StateBytes &bytes) {
    bytes.array(start_);
    bytes.array(silent_);
    bytes.value(steps_);
    bytes.list(found, owners_.size());
    remember(bytes, doubled_);
    remember(bytes, thirds_);
    for (const Grown &one : found)
        if (one.output >= owners_.size()) StateBytes::refuse();
}

void Growth::remember(StateBytes &bytes, Ladder &ladder) {
    bytes.resize(ladder, lengths, fresh(0));
    for (Level &level : ladder) {
        bytes.value(level.width);
        bytes.value(level.count);
        bytes.value(level.left);
        bytes.array(level.windows);
        bytes.array(level.old);
        if (level.left < 0 || level.count < level.left || level.count - level.left > ring) StateBytes::refuse();
    }
}

Growth::Level Growth::fresh(long long width) const {
    return {width, 0, 0, std::vector<Extent>(static_cast<std::size_t>(ring) * start_.size()), start_};
}

void Growth::window(const Interval *now) {
    if (owners_.empty()) return;  // nothing that could grow
    steps_ += window_steps;
    const double time = static_cast<double>(steps_);
    for (std::size_t i = 0; i < start_.size(); ++i) block_[i] = Extent{now[i], Interval{time, time}};
    climb(doubled_, window_steps, block_.data());
    const Level &blocks = doubled_.front();
    if (blocks.count % 3 == 0) climb(thirds_, 3 * window_steps, merge(at(blocks, 0), merge(at(blocks, 1), at(blocks, 2))));
}

// Two windows of one length make one of the next.
void Growth::climb(Ladder &ladder, long long width, const Extent *now) {
    for (std::size_t number = 0; number < lengths; ++number) {
        if (number == ladder.size()) [[unlikely]]
            ladder.push_back(fresh(width << number));
        Level &level = ladder[number];
        push(level, now);
        if (level.count >= least) look(level);
        if (level.count & 1) return;
        now = merge(now, at(level, 1));
    }
}

const Extent *Growth::merge(const Extent *a, const Extent *b) {
    for (std::size_t i = 0; i < start_.size(); ++i) merged_[i] = joined(a[i], b[i]);
    return merged_.data();
}

void Growth::push(Level &level, const Extent *now) {
    if (level.count - level.left == ring) [[unlikely]]
        forget(level);
    Extent *to = level.windows.data() + place(level.count);
    for (std::size_t i = 0; i < start_.size(); ++i) to[i] = now[i];
    ++level.count;
}

// Room for more windows: those that nobody looks at any more, many at a time.
void Growth::forget(Level &level) {
    for (; level.left < level.count - kept + 1; ++level.left) {
        const Extent *from = level.windows.data() + place(level.left);
        for (std::size_t i = 0; i < start_.size(); ++i) level.old[i] = joined(level.old[i], from[i].values);
    }
}

// Nearly always an interval does not contain the one before, at the latest after some windows.
void Growth::look(const Level &level) {
    const Extent *newest = at(level, 0), *before = at(level, 1);
    const std::size_t count = owners_.size();
    for (std::size_t output = 0; output < count; ++output)
        if (contains(newest[output].values, before[output].values)) examine(level, output);
}

void Growth::examine(const Level &level, std::size_t output) {
    if (silent_[output]) return;
    const long long first = begin_of(level, output);
    if (first < 0) return;
    const double sizes[] = {range_of(at(level, first)[output].values), range_of(at(level, 0)[output].values)};
    found.push_back({output, steps_, sizes[0], sizes[1], passed(level, output, first, 0)});
    silent_[output] = 1;
}

// How many windows ago steady growth began; −1 where it is none.
long long Growth::begin_of(const Level &level, std::size_t output) const {
    Interval later = at(level, 0)[output].values;
    const double last = range_of(later);
    for (long long back = 1; back < least; ++back) {
        const Interval now = at(level, back)[output].values;
        if (!contains(later, now)) return -1;
        later = now;
    }
    later = at(level, 0)[output].values;
    if (!(noise * std::max(std::fabs(later[0]), std::fabs(later[1])) < last && last < INFINITY)) return -1;
    const bool inputs_vary = forced(level);
    const long long windows = inputs_vary ? under_inputs : least, there = std::min(level.count, kept);
    for (long long back = 1; back < there; ++back) {
        const Interval now = at(level, back)[output].values;
        if (!contains(later, now)) return -1;
        const double wanted = inputs_vary ? driven : back + 1 < many ? swift : steadily;
        if (back + 1 >= windows && last >= wanted * range_of(now)) return steady(level, output, back, wanted) ? back : -1;
        later = now;
    }
    return -1;
}

// Macro steps between the ranges of two windows: the time of a range is the mean of those of its ends.
double Growth::passed(const Level &level, std::size_t output, long long from, long long to) const {
    const Interval a = at(level, from)[output].times, b = at(level, to)[output].times;
    return 0.5 * (b[0] + b[1]) - 0.5 * (a[0] + a[1]);
}

// log A rises in a straight line; `passed`: what the clock says between two windows.
template <class Passed>
bool Growth::straight(const Level &level, std::size_t output, long long first, Passed passed) const {
    auto size = [&](long long back) { return range_of(at(level, back)[output].values); };
    auto rate = [&](long long from, long long to) { return std::log(size(to) / size(from)) / passed(from, to); };
    const double mean = rate(first, 0);
    for (long long back = first; back > 0; --back) {
        const double step = rate(back, back - 1);
        if (!((1.0 - even) * mean <= step && step <= (1.0 + even) * mean)) return false;
    }
    const long long half = first / 2;
    return std::fabs(rate(half, 0) - rate(first, first - half)) <= bend * mean;
}

bool Growth::steady(const Level &level, std::size_t output, long long first, double factor) const {
    auto windows = [](long long from, long long to) { return static_cast<double>(from - to); };
    auto times = [&](long long from, long long to) { return passed(level, output, from, to); };
    if (!straight(level, output, first, windows) && !straight(level, output, first, times)) return false;
    const Interval newest = at(level, 0)[output].values, oldest = at(level, first)[output].values;
    const double last = range_of(newest), part = side * (last - range_of(oldest));
    if (newest[0] - oldest[0] < part || newest[1] - oldest[1] < part) return false;
    Interval before = level.old[output];
    for (long long number = level.left; number < level.count - 1 - first; ++number)
        before = joined(before, level.windows[place(number) + output].values);
    return last >= factor * range_of(before) && !explained(level, output, first);
}

bool Growth::forced(const Level &level) const {
    const Extent *newest = at(level, 0);
    for (std::size_t i = owners_.size(); i < start_.size(); ++i)
        if (range_of(newest[i].values) > 0.0) return true;
    return false;
}

bool Growth::explained(const Level &level, std::size_t output, long long first) const {
    const Extent *newest = at(level, 0), *oldest = at(level, first);
    for (std::size_t i = owners_.size(); i < start_.size(); ++i)
        if (range_of(newest[i].values) > input * range_of(oldest[i].values)) return true;
    for (std::uint32_t other : groups_[owners_[output]])
        if (gave(oldest[other].values, newest[other].values)) return true;
    return false;
}

}  // namespace cosimo

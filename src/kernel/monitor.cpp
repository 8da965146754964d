#include "monitor.hpp"

#include <cstring>

namespace cosimo {
namespace {

constexpr std::size_t block = Monitor::block;
static_assert(block == 8 && Growth::window_steps == 8);

// Vectors of the size that every processor of the family has; wider ones bring little for eight values.
typedef double Two __attribute__((vector_size(16)));
typedef long long TwoBits __attribute__((vector_size(16)));

// Two of a block's values. The last ones were just written, one by one, and are read so: a processor waits where a wider load
// spans two stores that are under way.
inline Two load(const double *from, int pair) {
    if (pair == block / 2 - 1) {
        const volatile double *last = from + 2 * pair;
        return Two{last[0], last[1]};
    }
    Two x;
    std::memcpy(&x, from + 2 * pair, sizeof x);
    return x;
}
inline Two larger(Two a, Two b) { return joined(a, b); }
inline Two absolute(Two x) { return (Two)((TwoBits)x & 0x7fffffffffffffffLL); }

// Eight values of one signal, one per macro step.
struct Eight {
    Two part[4];

    template <class Work>
    explicit Eight(Work work) : part{work(0), work(1), work(2), work(3)} {}

    // Sums and maxima are formed in halves, and so does monitoring.py.
    double sum() const {
        const Two two = (part[0] + part[2]) + (part[1] + part[3]);
        return two[0] + two[1];
    }
    double largest() const {
        const Two two = larger(larger(part[0], part[2]), larger(part[1], part[3]));
        return two[0] > two[1] ? two[0] : two[1];
    }
    // Only the first `count` count.
    void clear_from(std::size_t count) {
        for (; count < block; ++count) part[count / 2][count % 2] = 0.0;
    }
    std::size_t place_of(double value) const {
        std::size_t j = 0;
        while (part[j / 2][j % 2] != value) ++j;
        return j;
    }
};

}  // namespace

void Monitor::prepare() {
    trace_.assign((outputs.size() + inputs.size()) * block, 0.0);
    window_.resize(growth.signals());
    plain_ = true;
    for (const Input &input : inputs) {
        places_.push_back(input.first);
        plain_ = plain_ && input.weights.size() == 1 && input.weights[0] == 1.0;
    }
}

void Monitor::evaluate(const double *y, const double *c, double *to) const {
    for (std::size_t i = 0; i < outputs.size(); ++i, to += block) *to = y[i];
    for (const Input &input : inputs) {
        double value = input.weights[0] * c[input.first];
        for (std::size_t j = 1; j < input.weights.size(); ++j) value += input.weights[j] * c[input.first + j * input.stride];
        *to = value;
        to += block;
    }
}

bool Monitor::look() {
    sum_up(block);
    window();
    steps += static_cast<long long>(block);
    filled_ = 0;
    return stop && !growth.found.empty();
}

void Monitor::finish() {
    if (filled_ == 0) return;
    sum_up(filled_);
    steps += static_cast<long long>(filled_);
    filled_ = 0;
}

void Monitor::remember(StateBytes &bytes) {
    for (Output &output : outputs) {
        bytes.value(output.start);
        bytes.value(output.sum);
        bytes.value(output.squares);
        bytes.value(output.seen);
    }
    for (Link &link : links) {
        bytes.value(link.largest);
        bytes.value(link.when);
        bytes.value(link.squares);
    }
    for (Bond &bond : bonds) {
        bytes.value(bond.residual);
        bytes.value(bond.exchanged);
    }
    bytes.value(steps);
    bytes.array(trace_);
    bytes.value(filled_);
    if (filled_ >= block) StateBytes::refuse();
    growth.remember(bytes);
}

void Monitor::sum_up(std::size_t count) {
    const double *y = trace_.data(), *u = y + outputs.size() * block;
    for (std::size_t i = 0; i < outputs.size(); ++i) sum_output(outputs[i], y + i * block, count);
    for (std::size_t i = 0; i < links.size(); ++i) sum_link(links[i], y + links[i].source * block, u + i * block, count);
    for (Bond &bond : bonds) {
        const double *effort = y + links[bond.forward].source * block, *flow = y + links[bond.back].source * block;
        sum_bond(bond, {effort, u + bond.back * block}, {flow, u + bond.forward * block}, count);
    }
}

void Monitor::sum_output(Output &output, const double *y, std::size_t count) {
    Eight moved([&](int i) { return load(y, i) - output.start; });
    if (count < block) moved.clear_from(count);
    const Eight squares([&](int i) { return moved.part[i] * moved.part[i]; });
    output.sum += moved.sum();
    output.squares += squares.sum();
}

void Monitor::sum_link(Link &link, const double *y, const double *u, std::size_t count) {
    Eight missed([&](int i) { return absolute(link.gain * load(y, i) + link.offset - load(u, i)); });
    if (count < block) missed.clear_from(count);
    const Eight squares([&](int i) { return missed.part[i] * missed.part[i]; });
    link.squares += squares.sum();
    if (const double most = missed.largest(); most > link.largest) [[unlikely]] {
        link.largest = most;
        link.when = steps + static_cast<long long>(missed.place_of(most)) + 1;
    }
}

// a: what the sending unit puts out and is given; b: the same of the receiving one.
void Monitor::sum_bond(Bond &bond, Ends a, Ends b, std::size_t count) {
    const Eight received([&](int i) { return load(b.input, i) * load(b.output, i); });
    const Eight given([&](int i) { return bond.ratio * (load(a.output, i) * load(a.input, i)); });
    Eight residual([&](int i) { return received.part[i] - given.part[i]; });
    Eight exchanged([&](int i) { return 0.5 * (absolute(received.part[i]) + absolute(given.part[i])); });
    if (count < block) {
        residual.clear_from(count);
        exchanged.clear_from(count);
    }
    bond.residual += residual.sum();
    bond.exchanged += exchanged.sum();
}

Interval Monitor::interval_of(const double *x) {
    const Two a = load(x, 0), b = load(x, 1), c = load(x, 2), d = load(x, 3);
    const Two high = larger(larger(a, b), larger(c, d)), low = larger(larger(-a, -b), larger(-c, -d));
    return joined(Interval{high[0], low[0]}, Interval{high[1], low[1]});
}

// A block is one window of the growth detector.
void Monitor::window() {
    const std::size_t p = outputs.size();
    Interval *now = window_.data();
    for (std::size_t i = 0; i < p; ++i) {
        now[i] = interval_of(trace_.data() + i * block);
        outputs[i].seen = joined(outputs[i].seen, now[i]);
    }
    // Of the inputs, those of links are of no interest here: external ones come after them.
    for (std::size_t i = p; i < growth.signals(); ++i) now[i] = interval_of(trace_.data() + (i + links.size()) * block);
    growth.window(now);
}

auto Monitor::findings(bool final)
    -> std::tuple<long long, Values, std::vector<long long>, Values, Values, Values, Values, Values, Values, Values, std::vector<GrownValues>> {
    if (final) finish();
    auto all = [](const auto &parts, auto member) {
        std::vector<std::decay_t<decltype(parts[0].*member)>> found;
        for (const auto &part : parts) found.push_back(part.*member);
        return found;
    };
    Values high, low;
    for (const Output &output : outputs) {
        high.push_back(output.seen[0]);
        low.push_back(-output.seen[1]);
    }
    std::vector<GrownValues> grown;
    for (const Grown &one : growth.found) grown.emplace_back(one.output, one.step, one.first, one.last, one.over);
    return {steps, all(links, &Link::largest), all(links, &Link::when), all(links, &Link::squares), high, low, all(outputs, &Output::sum),
            all(outputs, &Output::squares), all(bonds, &Bond::residual), all(bonds, &Bond::exchanged), grown};
}

}  // namespace cosimo

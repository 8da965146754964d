// What is watched in every run: connection defects, energy residuals, growth. monitoring.py says what they are and does
// the same in plain Python, rounding for rounding.
#pragma once
#include <cstdint>
#include <tuple>
#include <vector>

#include "growth.hpp"

namespace cosimo {

class Monitor {
public:
    static constexpr std::size_t block = 8;  // macro steps that are looked at together

    struct Link {
        std::uint32_t source;
        double gain, offset;
        double largest = 0.0;
        long long when = 0;
        double squares = 0.0;
    };
    // The value now of an input polynomial: Σ_j weights_j c[first + j stride].
    struct Input {
        std::uint32_t first, stride;
        std::vector<double> weights;
    };
    struct Output {
        double start, sum = 0.0, squares = 0.0;
        Interval seen;
    };
    // Power that enters one unit, u_b y_b, against what the other sends, ratio · y_a u_a; places among the links.
    struct Bond {
        std::uint32_t forward, back;
        double ratio, residual = 0.0, exchanged = 0.0;
    };

    std::vector<Output> outputs;
    std::vector<Link> links;
    std::vector<Input> inputs;  // of the links, then external ones
    std::vector<Bond> bonds;
    Growth growth;
    bool stop = false;
    long long steps = 0;  // macro steps that have been looked at

    void prepare();
    // Take the signals after a macro step. Whether the run shall end here.
    bool observe(const double *y, const double *c) {
        double *to = trace_.data() + filled_;
        if (plain_) {
            for (const double *end = y + outputs.size(); y != end; ++y, to += block) *to = *y;
            for (const std::uint32_t *place = places_.data(), *end = place + places_.size(); place != end; ++place, to += block) *to = c[*place];
        } else {
            evaluate(y, c, to);
        }
        if (++filled_ < block) return false;
        return look();
    }
    // Look at what a run that ended left over.
    void finish();
    using Values = std::vector<double>;
    using GrownValues = std::tuple<std::uint64_t, long long, double, double, double>;
    // Macro steps; per link the largest defect, its step, the sum of squares; per output its highest, lowest value, the sums of
    // values and squares; per bond residual and exchanged energy; what grew. `final`: with the macro steps since the last
    // whole block, once, at the end of the run.
    std::tuple<long long, Values, std::vector<long long>, Values, Values, Values, Values, Values, Values, Values, std::vector<GrownValues>>
    findings(bool final);
    void remember(StateBytes &);

private:
    std::vector<double> trace_;  // signal after signal, `block` values of each: outputs, then inputs
    std::vector<std::uint32_t> places_;  // of the inputs in c, where these are plain numbers
    std::vector<Interval> window_;  // of a block
    std::size_t filled_ = 0;
    bool plain_ = false;

    void evaluate(const double *y, const double *c, double *to) const;
    bool look();
    void sum_up(std::size_t count);
    static void sum_output(Output &, const double *y, std::size_t count);
    void sum_link(Link &, const double *y, const double *u, std::size_t count);
    struct Ends {
        const double *output, *input;
    };
    static void sum_bond(Bond &, Ends a, Ends b, std::size_t count);
    static Interval interval_of(const double *x);
    void window();
};

}  // namespace cosimo

// One local linear model over one window, in scaled coordinates.
#pragma once
#include <vector>

#include "dmd.hpp"
#include "dmd_factor.hpp"
#include "dmd_windows.hpp"

namespace cosimo::dmd {

// Rows [1, z, y]: the constant first, so that one factor serves both kinds of model. Its first row holds the means; what
// is below belongs to z and y minus their means. Adding the first row again gives the factor without the constant.
struct Rows {
    std::size_t n, q, width, samples;

    explicit Rows(const Options &o) : n(o.n), q((o.n + o.p) * (o.delays + 1)), width(o.n + o.p), samples(o.delays + 1) {}
    std::size_t pivots() const { return 1 + q; }
    std::size_t columns() const { return 1 + q + n; }
};

// It starts from the prior that positions advance by h times their velocities and all else holds.
class Local {
public:
    Local(Memory &memory, const Options &options, bool centred, double tolerance);

    void rescale(const Scales &scales);
    void learn(const double *factor, std::size_t count);
    // z (q) and next (n) scaled. False for a centred model that has not seen a pair yet.
    bool predict(const double *z, double *next) const;
    Model model(const Scales &scales) const;

private:
    Memory *memory_;
    Rows rows_;
    std::vector<Options::Pair> pairs_;
    double step_;
    bool centred_;
    std::size_t S_, means_, ready_;
    LeastChange change_;
    Absorb absorb_;
    std::vector<double> plain_, first_, sums_;
};

}  // namespace cosimo::dmd

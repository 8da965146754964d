// Between the history of samples, in physical units, and the scaled rows [1, z, y] that models learn from.
#pragma once
#include <vector>

#include "dmd_local.hpp"

namespace cosimo::dmd {

struct Samples {
    Rows rows;
    Scales scales;
    std::vector<double> next;  // (n), for the caller

    Samples(Memory &memory, const Options &options)
        : rows(options),
          scales(memory, rows.width),
          next(rows.n),
          row_(rows.columns(), 1.0),
          z_(rows.q),
          ratios_(rows.columns(), 1.0) {}

    // Takes in the newest sample; true where scales changed and what is remembered has to follow by `ratios`.
    bool scale(const double *newest) {
        if (!scales.observe(newest)) return false;
        for (std::size_t j = 0; j < rows.q; ++j) ratios_[1 + j] = scales.ratio(j % rows.width);
        for (std::size_t i = 0; i < rows.n; ++i) ratios_[1 + rows.q + i] = scales.ratio(i);
        return true;
    }
    const double *ratios() const { return ratios_.data(); }

    // z of the newest sample, and the pair that has just become complete: z of the one before, with its outcome.
    const double *regressors(const double *newest) {
        fill(newest, z_.data());
        return z_.data();
    }
    const double *row(const double *newest) {
        fill(newest + rows.width, row_.data() + 1);
        for (std::size_t i = 0; i < rows.n; ++i) row_[1 + rows.q + i] = newest[i] / scales[i];
        return row_.data();
    }
    void unscale(const double *scaled, double *physical) const {
        for (std::size_t i = 0; i < rows.n; ++i) physical[i] = scaled[i] * scales[i];
    }

private:
    void fill(const double *first, double *z) const {
        for (std::size_t j = 0; j < rows.q; ++j) z[j] = first[j] / scales[j % rows.width];
    }
    std::vector<double> row_, z_, ratios_;
};

}  // namespace cosimo::dmd

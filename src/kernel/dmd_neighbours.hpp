// An expert that looks for past pairs near the present point, however long ago: a nonlinear unit that comes by again does
// again what it did there.
//
// The residuals y_i - base(z_i) of the k nearest pairs are fitted by a plane through the present point (weights falling
// with distance, a small ridge on the slopes); its value there corrects the base model.
#pragma once
#include <vector>

#include "dmd_local.hpp"

namespace cosimo::dmd {

class Neighbours {
public:
    Neighbours(Memory &memory, const Rows &rows);

    void rescale(const double *ratios);  // by column of a row [1, z, y]
    // Finds the pairs near z. Call it for every z: `take` replaces what was nearest to the last one.
    void search(const double *z);
    void take(const double *row);
    void correct(const Local &base, const double *z, double *next);

private:
    static constexpr std::size_t capacity = 256;
    // A pair this close to a known one (relative to the largest samples) replaces it: rest does not flush the memory.
    static constexpr double same = 1e-2, ridge = 0.1;

    Memory *memory_;
    Rows rows_;
    std::size_t wanted_;  // k
    std::size_t z_, y_, count_, place_, nearest_, nearest_square_;
    Absorb absorb_;
    std::size_t found_ = 0;
    std::vector<std::size_t> who_;
    std::vector<double> squares_, near_, factor_, row_, sums_, guess_, point_;
};

}  // namespace cosimo::dmd

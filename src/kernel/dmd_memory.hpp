// One flat array for all that a predictor remembers: saving and restoring are copies.
#pragma once
#include <cstddef>
#include <vector>

namespace cosimo::dmd {

// Parts are taken during construction; afterwards the array never moves. Counters are kept as (exact) doubles.
struct Memory {
    std::vector<double> values;

    std::size_t take(std::size_t count, double value = 0.0) {
        const std::size_t first = values.size();
        values.resize(first + count, value);
        return first;
    }
    double *at(std::size_t part) { return values.data() + part; }
    const double *at(std::size_t part) const { return values.data() + part; }
    double &operator[](std::size_t part) { return values[part]; }
    double operator[](std::size_t part) const { return values[part]; }
};

}  // namespace cosimo::dmd

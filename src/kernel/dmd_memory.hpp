// One flat array for all that a predictor remembers: saving and restoring are copies.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace cosimo::dmd {

// Parts are taken during construction; afterwards the array never moves. Counters are kept as (exact) doubles.
struct Memory {
    static constexpr std::size_t any = std::size_t{1} << 53;
    std::vector<double> values;

    std::size_t take(std::size_t count, double value = 0.0) {
        const std::size_t first = values.size();
        values.resize(first + count, value);
        return first;
    }
    // A whole number from 0 to `most`: places are counted with it.
    std::size_t counter(std::size_t most) {
        counters_.push_back({values.size(), static_cast<double>(most)});
        return take(1);
    }
    // What is restored may come from a file: NaN would not be ordered, and a wrong counter leads out of the array.
    bool restore(const std::vector<double> &from) {
        if (from.size() != values.size()) return false;
        if (std::any_of(from.begin(), from.end(), [](double value) { return std::isnan(value); })) return false;
        for (const Counter &counter : counters_) {
            const double value = from[counter.part];
            if (!(value >= 0.0 && value <= counter.most && value == std::floor(value))) return false;
        }
        std::copy(from.begin(), from.end(), values.begin());
        return true;
    }
    double *at(std::size_t part) { return values.data() + part; }
    const double *at(std::size_t part) const { return values.data() + part; }
    double &operator[](std::size_t part) { return values[part]; }
    double operator[](std::size_t part) const { return values[part]; }

private:
    struct Counter {
        std::size_t part;
        double most;
    };
    std::vector<Counter> counters_;
};

}  // namespace cosimo::dmd

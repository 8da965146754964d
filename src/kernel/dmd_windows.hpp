// The last rows of several windows at once as triangular factors, by orthogonal transformations that only ever add rows.
//
// A window drops its oldest row at every step. Subtracting a row from a factor (downdating) loses accuracy for good; here
// nothing is subtracted. Short windows are factored anew, each from the next shorter one. Long ones keep two stacks:
// `back` is the factor of the rows since the last turn, `front` holds one factor for every suffix of the rows before it,
// so that dropping the oldest row is dropping one factor. When the front is used up, the back is turned into it.
#pragma once
#include <cstddef>
#include <vector>

#include "dmd_factor.hpp"
#include "dmd_memory.hpp"

namespace cosimo::dmd {

class Windows {
public:
    // Rows have `columns` numbers, the first `pivots` of which are regressors. `lengths` ascend.
    Windows(Memory &memory, std::vector<std::size_t> lengths, std::size_t pivots, std::size_t columns);

    void push(const double *row);
    void clear();
    // Column c of everything remembered is multiplied by factors[c].
    void rescale(const double *factors);
    // Brings the factors up to date.
    void refresh();

    std::size_t windows() const { return lengths_.size(); }
    std::size_t length(std::size_t window) const { return lengths_[window]; }
    // Rows now in the window, and their factor (pivots, columns), valid since `refresh`.
    std::size_t count(std::size_t window) const;
    const double *factor(std::size_t window) const { return factors_.data() + window * size_; }

private:
    struct Stacks {
        std::size_t front, front_count, back, back_count;  // places in the memory
    };
    static constexpr std::size_t short_length = 20;  // up to here factoring anew is cheaper

    std::size_t rows() const { return static_cast<std::size_t>((*memory_)[count_]); }
    double *row(std::size_t age);
    void turn(std::size_t window);

    Memory *memory_;
    std::vector<std::size_t> lengths_;
    std::size_t pivots_, columns_, size_;
    Absorb absorb_;
    std::size_t ring_, newest_, count_;
    std::vector<Stacks> stacks_;  // of the long windows
    std::size_t first_long_;
    std::vector<double> factors_, block_, sums_;
};

// All rows since the last `clear`, as one factor.
class Growing {
public:
    Growing(Memory &memory, std::size_t pivots, std::size_t columns);
    void push(const double *row);
    void clear();
    void rescale(const double *factors);
    std::size_t count() const { return static_cast<std::size_t>((*memory_)[count_]); }
    const double *factor() const { return memory_->at(factor_); }

private:
    Memory *memory_;
    std::size_t pivots_, columns_, factor_, count_;
    Absorb absorb_;
    std::vector<double> row_, sums_;
};

// Powers of two not below the largest magnitude so far, one per component of a sample [x; u]: multiplying by them is
// exact, and what is divided by them is at most one.
class Scales {
public:
    Scales(Memory &memory, std::size_t width);
    // True where a scale changed; `ratio(j)` is then old / new.
    bool observe(const double *sample);
    double ratio(std::size_t j) const { return ratios_[j]; }
    double operator[](std::size_t j) const { return memory_->at(scales_)[j]; }

private:
    Memory *memory_;
    std::size_t width_, scales_, seen_;
    std::vector<double> ratios_;
};

}  // namespace cosimo::dmd

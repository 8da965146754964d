// How well each expert of a bank has predicted lately, and whether something unexpected has just happened.
#pragma once
#include <cstddef>
#include <vector>

#include "dmd_memory.hpp"

namespace cosimo::dmd {

// One-step errors are squared and discounted twice: by 0.9, which follows a change within ten steps, and by 0.99, which
// remembers that a short window misses at every corner. Errors are relative to the largest deviation from coasting.
class Scores {
public:
    // The first `plain` experts do not learn; they must beat the others clearly, since those keep improving.
    Scores(Memory &memory, std::size_t experts, std::size_t plain);

    // Takes the squared errors of all experts. `fresh`: models are not determined yet, nothing is remembered.
    // True for an event: the one in charge missed by thirty times the median of its last fifteen errors, at a `familiar`
    // place, where it should have known better. Two in a row are no event but a change.
    bool take(const double *squares, std::size_t in_charge, bool familiar, bool fresh);
    // The best expert (the present one where none is better); `weight` is then (best score / score)^3.
    std::size_t best(std::size_t in_charge);
    double weight(std::size_t expert) const { return weights_[expert]; }

private:
    static constexpr std::size_t remembered = 15;
    bool is_event(double mine) const;

    Memory *memory_;
    std::size_t experts_, plain_, fast_, slow_, last_, recent_, count_, event_;
    std::vector<double> weights_;
};

}  // namespace cosimo::dmd

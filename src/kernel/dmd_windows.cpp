#include "dmd_windows.hpp"

#include <algorithm>
#include <cmath>

#include "dmd_factor.hpp"

namespace cosimo::dmd {

Windows::Windows(Memory &memory, std::vector<std::size_t> lengths, std::size_t pivots, std::size_t columns)
    : memory_(&memory),
      lengths_(std::move(lengths)),
      pivots_(pivots),
      columns_(columns),
      size_(pivots * columns),
      absorb_(absorb_for(pivots, columns)) {
    first_long_ = 0;
    while (first_long_ < lengths_.size() && lengths_[first_long_] <= short_length) ++first_long_;
    ring_ = memory.take(lengths_.back() * columns_);
    newest_ = memory.counter(lengths_.back() - 1);
    count_ = memory.counter(lengths_.back());
    for (std::size_t w = first_long_; w < lengths_.size(); ++w) {
        Stacks stacks{};
        stacks.front = memory.take(lengths_[w] * size_);
        stacks.front_count = memory.counter(lengths_[w]);
        stacks.back = memory.take(size_);
        stacks.back_count = memory.counter(lengths_[w]);
        stacks_.push_back(stacks);
    }
    factors_.assign(lengths_.size() * size_, 0.0);
    block_.assign(std::max(short_length, pivots_) * columns_, 0.0);
    sums_.assign(columns_, 0.0);
}

double *Windows::row(std::size_t age) {
    const std::size_t capacity = lengths_.back(), newest = static_cast<std::size_t>((*memory_)[newest_]);
    return memory_->at(ring_) + (newest >= age ? newest - age : newest + capacity - age) * columns_;
}

void Windows::push(const double *given) {
    Memory &memory = *memory_;
    // Stacks first: turning needs the rows of before.
    for (std::size_t s = 0; s < stacks_.size(); ++s) {
        const Stacks &stacks = stacks_[s];
        if (memory[stacks.front_count] + memory[stacks.back_count] >= static_cast<double>(lengths_[first_long_ + s])) {
            if (memory[stacks.front_count] == 0.0) turn(s);
            memory[stacks.front_count] -= 1.0;
        }
        std::copy(given, given + columns_, block_.begin());
        absorb_(memory.at(stacks.back), pivots_, columns_, block_.data(), 1, false, sums_.data());
        memory[stacks.back_count] += 1.0;
    }
    const std::size_t capacity = lengths_.back(), newest = static_cast<std::size_t>(memory[newest_]);
    memory[newest_] = newest + 1 == capacity ? 0.0 : static_cast<double>(newest + 1);
    std::copy(given, given + columns_, row(0));
    if (rows() < capacity) memory[count_] += 1.0;
}

// front[i] becomes the factor of the i + 1 newest rows, for all rows of the back.
void Windows::turn(std::size_t s) {
    Memory &memory = *memory_;
    const Stacks &stacks = stacks_[s];
    // Both counts of a foreign memory may be as large as the window, and the back then grows beyond it.
    const auto count = std::min(static_cast<std::size_t>(memory[stacks.back_count]), lengths_[first_long_ + s]);
    double *front = memory.at(stacks.front);
    for (std::size_t i = 0; i < count; ++i) {
        double *factor = front + i * size_;
        if (i == 0)
            std::fill(factor, factor + size_, 0.0);
        else
            std::copy(factor - size_, factor, factor);
        std::copy(row(i), row(i) + columns_, block_.begin());
        absorb_(factor, pivots_, columns_, block_.data(), 1, false, sums_.data());
    }
    memory[stacks.front_count] = static_cast<double>(count);
    memory[stacks.back_count] = 0.0;
    std::fill(memory.at(stacks.back), memory.at(stacks.back) + size_, 0.0);
}

void Windows::clear() {
    Memory &memory = *memory_;
    memory[count_] = 0.0;
    for (const Stacks &stacks : stacks_) {
        memory[stacks.front_count] = memory[stacks.back_count] = 0.0;
        std::fill(memory.at(stacks.back), memory.at(stacks.back) + size_, 0.0);
    }
}

void Windows::rescale(const double *factors) {
    auto scale = [&](double *first, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
            for (std::size_t c = 0; c < columns_; ++c) first[i * columns_ + c] *= factors[c];
    };
    scale(memory_->at(ring_), lengths_.back());
    for (std::size_t s = 0; s < stacks_.size(); ++s) {
        scale(memory_->at(stacks_[s].front), lengths_[first_long_ + s] * pivots_);
        scale(memory_->at(stacks_[s].back), pivots_);
    }
}

std::size_t Windows::count(std::size_t window) const {
    return std::min(lengths_[window], static_cast<std::size_t>((*memory_)[count_]));
}

void Windows::refresh() {
    std::size_t covered = 0;
    for (std::size_t w = 0; w < first_long_; ++w) {
        double *factor = factors_.data() + w * size_;
        if (w == 0)
            std::fill(factor, factor + size_, 0.0);
        else
            std::copy(factor - size_, factor, factor);
        const std::size_t until = count(w);
        for (std::size_t age = covered; age < until; ++age)
            std::copy(row(age), row(age) + columns_, block_.data() + (age - covered) * columns_);
        absorb_(factor, pivots_, columns_, block_.data(), until - covered, false, sums_.data());
        covered = until;
    }
    for (std::size_t s = 0; s < stacks_.size(); ++s) {
        const Stacks &stacks = stacks_[s];
        double *factor = factors_.data() + (first_long_ + s) * size_;
        const double *back = memory_->at(stacks.back);
        std::copy(back, back + size_, factor);
        const auto count = static_cast<std::size_t>((*memory_)[stacks.front_count]);
        if (count == 0) continue;
        const double *front = memory_->at(stacks.front) + (count - 1) * size_;
        std::copy(front, front + size_, block_.begin());
        absorb_(factor, pivots_, columns_, block_.data(), pivots_, true, sums_.data());
    }
}

Growing::Growing(Memory &memory, std::size_t pivots, std::size_t columns)
    : memory_(&memory),
      pivots_(pivots),
      columns_(columns),
      factor_(memory.take(pivots * columns)),
      count_(memory.counter(Memory::any)),
      absorb_(absorb_for(pivots, columns)),
      row_(columns),
      sums_(columns) {}

void Growing::push(const double *row) {
    std::copy(row, row + columns_, row_.begin());
    absorb_(memory_->at(factor_), pivots_, columns_, row_.data(), 1, false, sums_.data());
    (*memory_)[count_] += 1.0;
}

void Growing::clear() {
    std::fill(memory_->at(factor_), memory_->at(factor_) + pivots_ * columns_, 0.0);
    (*memory_)[count_] = 0.0;
}

void Growing::rescale(const double *factors) {
    double *factor = memory_->at(factor_);
    for (std::size_t i = 0; i < pivots_; ++i)
        for (std::size_t c = 0; c < columns_; ++c) factor[i * columns_ + c] *= factors[c];
}

Scales::Scales(Memory &memory, std::size_t width)
    : memory_(&memory), width_(width), scales_(memory.take(width, 1.0)), seen_(memory.take(width)), ratios_(width, 1.0) {}

bool Scales::observe(const double *sample) {
    double *scales = memory_->at(scales_), *seen = memory_->at(seen_);
    bool changed = false;
    for (std::size_t j = 0; j < width_; ++j) {
        ratios_[j] = 1.0;
        const double size = std::abs(sample[j]);
        if (size == 0.0 || (seen[j] != 0.0 && size <= scales[j])) continue;
        int exponent = 0;
        std::frexp(size, &exponent);
        // Ratios of two scales stay far from overflow; smaller values than 2^-500 count as nothing.
        const double scale = std::ldexp(1.0, std::max(exponent, -500));
        if (seen[j] == 0.0 || scale > scales[j]) {
            ratios_[j] = scales[j] / scale;
            scales[j] = scale;
            changed = true;
        }
        seen[j] = 1.0;
    }
    return changed;
}

}  // namespace cosimo::dmd

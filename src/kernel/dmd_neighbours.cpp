#include "dmd_neighbours.hpp"

#include <algorithm>
#include <cmath>

namespace cosimo::dmd {

Neighbours::Neighbours(Memory &memory, const Rows &rows)
    : memory_(&memory),
      rows_(rows),
      wanted_(rows.q + 5),
      z_(memory.take(rows.q * capacity)),  // component by component
      y_(memory.take(rows.n * capacity)),  // pair by pair
      count_(memory.counter(capacity)),
      place_(memory.counter(capacity - 1)),
      nearest_(memory.counter(capacity - 1)),
      nearest_square_(memory.take(1)),
      absorb_(absorb_for(rows.q + 1, rows.q + 1 + rows.n)),
      who_(wanted_),
      squares_(capacity),
      near_(wanted_),
      factor_((rows.q + 1) * (rows.q + 1 + rows.n)),
      row_(wanted_ * (rows.q + 1 + rows.n)),
      sums_(rows.q + 1 + rows.n),
      guess_(rows.n),
      point_(rows.q) {}

void Neighbours::rescale(const double *ratios) {
    for (std::size_t j = 0; j < rows_.q; ++j)
        for (std::size_t i = 0; i < capacity; ++i) memory_->at(z_)[j * capacity + i] *= ratios[1 + j];
    for (std::size_t i = 0; i < capacity; ++i)
        for (std::size_t k = 0; k < rows_.n; ++k) memory_->at(y_)[i * rows_.n + k] *= ratios[1 + rows_.q + k];
}

void Neighbours::search(const double *z) {
    Memory &memory = *memory_;
    const auto count = static_cast<std::size_t>(memory[count_]);
    std::fill(squares_.begin(), squares_.end(), 0.0);
    for (std::size_t j = 0; j < rows_.q; ++j) {
        const double *column = memory.at(z_) + j * capacity, at = z[j];
        for (std::size_t i = 0; i < capacity; ++i) squares_[i] += (column[i] - at) * (column[i] - at);
    }
    found_ = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const double square = squares_[i];
        if (found_ == wanted_ && !(square < near_[found_ - 1])) continue;
        std::size_t slot = found_ < wanted_ ? found_++ : found_ - 1;
        for (; slot > 0 && near_[slot - 1] > square; --slot) {
            near_[slot] = near_[slot - 1];
            who_[slot] = who_[slot - 1];
        }
        near_[slot] = square;
        who_[slot] = i;
    }
    memory[nearest_] = found_ ? static_cast<double>(who_[0]) : 0.0;
    memory[nearest_square_] = found_ ? near_[0] : 1.0;
}

void Neighbours::take(const double *row) {
    Memory &memory = *memory_;
    const bool known = memory[count_] > 0.0 && memory[nearest_square_] < same * same;
    const auto place = static_cast<std::size_t>(memory[known ? nearest_ : place_]);
    for (std::size_t j = 0; j < rows_.q; ++j) memory.at(z_)[j * capacity + place] = row[1 + j];
    for (std::size_t k = 0; k < rows_.n; ++k) memory.at(y_)[place * rows_.n + k] = row[1 + rows_.q + k];
    if (known) return;
    memory[place_] = place + 1 == capacity ? 0.0 : static_cast<double>(place + 1);
    if (memory[count_] < static_cast<double>(capacity)) memory[count_] += 1.0;
}

void Neighbours::correct(const Local &base, const double *z, double *next) {
    const std::size_t q = rows_.q, n = rows_.n, columns = q + 1 + n;
    base.predict(z, next);
    if (found_ == 0) return;
    const double last = near_[found_ - 1] + 1e-24;
    // The slopes first and the constant last, so that only its equation has to be solved.
    std::fill(factor_.begin(), factor_.end(), 0.0);
    for (std::size_t j = 0; j < q; ++j) factor_[j * columns + j] = ridge * std::sqrt(last);
    factor_[q * columns + q] = 1e-6;
    for (std::size_t a = 0; a < found_; ++a) {
        const double weight = std::sqrt(std::max(1.0 - 0.9 * near_[a] / last, 0.05));
        const double *y = memory_->at(y_) + who_[a] * n;
        double *row = row_.data() + a * columns;
        for (std::size_t j = 0; j < q; ++j) {
            point_[j] = memory_->at(z_)[j * capacity + who_[a]];
            row[j] = weight * (point_[j] - z[j]);
        }
        row[q] = weight;
        base.predict(point_.data(), guess_.data());
        for (std::size_t k = 0; k < n; ++k) row[q + 1 + k] = weight * (y[k] - guess_[k]);
    }
    absorb_(factor_.data(), q + 1, columns, row_.data(), found_, false, sums_.data());
    const double *constant = factor_.data() + q * columns + q;
    for (std::size_t k = 0; k < n; ++k) next[k] += constant[1 + k] / constant[0];
}

}  // namespace cosimo::dmd

// Acceleration of y ← g(y): the twin of `Acceleration` in interpreter.py, operation by operation.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

#include "state_bytes.hpp"

namespace cosimo {

class Acceleration {
public:
    Acceleration() = default;
    // Of `n` outputs, with differences from sweep `first` on; what `lasts` is kept from macro step to macro step.
    Acceleration(std::size_t depth, bool lasts, long long first, std::size_t n, std::vector<double> correction)
        : depth_(depth), size_(n), first_(first), lasts_(lasts), correction_(std::move(correction)) {
        if (!correction_.empty() && correction_.size() != n * n) throw std::invalid_argument("a correction is a square matrix");
    }

    void begin() {
        seen_ = false;
        if (!lasts_) used_ = 0;
    }

    void observe(long long number, const std::vector<double> &y, const std::vector<double> &g) {
        if (depth_ == 0 || number < first_) return;
        const std::size_t n = y.size();
        residual_.resize(n);
        for (std::size_t i = 0; i < n; ++i) residual_[i] = g[i] - y[i];
        if (seen_) {
            // The newest comes first; the oldest one gives its place, so that nothing is allocated in the loop.
            if (used_ < depth_ && used_ == steps_.size()) steps_.emplace_back();
            used_ = std::min(used_ + 1, depth_);
            std::rotate(steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(used_ - 1), steps_.begin() + static_cast<std::ptrdiff_t>(used_));
            Step &step = steps_[0];
            step.dy.resize(n);
            step.df.resize(n);
            for (std::size_t i = 0; i < n; ++i) {
                step.dy[i] = y[i] - last_y_[i];
                step.df[i] = residual_[i] - last_f_[i];
            }
        }
        last_y_ = y;
        last_f_ = residual_;
        seen_ = true;
    }

    // Puts the next argument in the place of g = g(y), which was observed.
    void propose(const std::vector<double> &y, std::vector<double> &g) {
        if (!seen_ || (used_ == 0 && correction_.empty())) return;
        const std::size_t n = g.size();
        rest_ = residual_;
        std::size_t kept = 0;
        for (std::size_t s = 0; s < used_; ++s) {
            if (orthogonal_.size() <= kept) orthogonal_.emplace_back();
            Direction &made = orthogonal_[kept];
            made.column = steps_[s].df;
            made.entries.clear();
            std::vector<double> &column = made.column;
            const double size = std::sqrt(dot(column, column));
            for (std::size_t d = 0; d < kept; ++d) {
                const std::vector<double> &direction = orthogonal_[d].column;
                const double entry = dot(direction, column);
                for (std::size_t i = 0; i < n; ++i) column[i] = column[i] - entry * direction[i];
                made.entries.push_back(entry);
            }
            const double length = std::sqrt(dot(column, column));
            if (!(length > (lasts_ ? FILTER : RANK) * size)) continue;
            for (double &value : column) value = value / length;
            made.entries.push_back(length);
            made.along = dot(column, rest_);
            for (std::size_t i = 0; i < n; ++i) rest_[i] = rest_[i] - made.along * column[i];
            made.step = s;
            ++kept;
        }
        gamma_.resize(kept);
        for (std::size_t i = kept; i-- > 0;) {
            double value = orthogonal_[i].along;
            for (std::size_t j = i + 1; j < kept; ++j) value = value - orthogonal_[j].entries[i] * gamma_[j];
            gamma_[i] = value / orthogonal_[i].entries[i];
        }
        const bool warm = !correction_.empty();
        if (warm) {
            for (std::size_t i = 0; i < n; ++i) {
                double sum = correction_[i * n] * rest_[0];
                for (std::size_t j = 1; j < n; ++j) sum += correction_[i * n + j] * rest_[j];
                g[i] = y[i] + sum;
            }
        }
        for (std::size_t s = 0; s < kept; ++s) {
            const Step &step = steps_[orthogonal_[s].step];
            for (std::size_t i = 0; i < n; ++i) g[i] = g[i] - gamma_[s] * (warm ? step.dy[i] : step.dy[i] + step.df[i]);
            if (lasts_) std::swap(steps_[s], steps_[orthogonal_[s].step]);  // those left out are forgotten
        }
        if (lasts_) used_ = kept;
    }

    // What outlasts the macro step.
    void remember(StateBytes &bytes) {
        begin();
        steps_.resize(used_);
        bytes.resize(steps_, depth_);
        used_ = steps_.size();
        for (Step &step : steps_) {
            step.dy.resize(size_);
            step.df.resize(size_);
            bytes.array(step.dy);
            bytes.array(step.df);
        }
    }

private:
    static constexpr double RANK = 1e-12, FILTER = 1e-8;  // those of interpreter.py
    struct Step {
        std::vector<double> dy, df;
    };
    struct Direction {
        std::vector<double> column, entries;
        double along = 0.0;
        std::size_t step = 0;
    };

    static double dot(const std::vector<double> &a, const std::vector<double> &b) {
        double sum = a[0] * b[0];
        for (std::size_t i = 1; i < a.size(); ++i) sum += a[i] * b[i];
        return sum;
    }

    std::size_t depth_ = 0, size_ = 0, used_ = 0;
    long long first_ = 0;
    bool lasts_ = false, seen_ = false;
    std::vector<double> correction_, last_y_, last_f_, residual_, rest_, gamma_;
    std::vector<Step> steps_;  // the first `used_` of them count, newest first
    std::vector<Direction> orthogonal_;
};

}  // namespace cosimo

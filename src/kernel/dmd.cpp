// What all predictors share: the history of samples, the diagnostics, frozen models.
#include "dmd.hpp"

#include <algorithm>
#include <cmath>

namespace cosimo::dmd {

Predictor::Predictor(Options options) : options_(std::move(options)) {
    // A pair needs one sample more than z has; second-order extrapolation looks two samples back.
    samples_ = std::max<std::size_t>(options_.delays + 2, 3);
    known_ = memory_.counter(samples_);
    history_ = memory_.take(samples_ * width());
    peaks_ = memory_.take(width());
    last_ = memory_.take(options_.n);
    error_ = memory_.take(1);
    expert_ = memory_.counter(Memory::any);
    frozen_ = memory_.counter(1);
    frozen_samples_ = memory_.counter(samples_);
    frozen_S_ = memory_.take(options_.n * width() * samples_);
    frozen_b_ = memory_.take(options_.n);
}

void Predictor::advance(const double *x, const double *u, double *next) {
    const std::size_t n = options_.n, p = options_.p;
    bool fit = true;
    for (std::size_t i = 0; i < n; ++i) fit = fit && std::abs(x[i]) <= largest;
    for (std::size_t i = 0; i < p; ++i) fit = fit && std::abs(u[i]) <= largest;
    if (!fit) {
        memory_[known_] = 0.0;  // no pair spans the gap
        std::copy(x, x + n, next);
        return;
    }
    double *newest = memory_.at(history_), *peaks = memory_.at(peaks_);
    std::copy_backward(newest, newest + (samples_ - 1) * width(), newest + samples_ * width());
    std::copy(x, x + n, newest);
    std::copy(u, u + p, newest + n);
    for (std::size_t i = 0; i < width(); ++i) peaks[i] = std::max(peaks[i], std::abs(newest[i]));

    double *last = memory_.at(last_);
    if (known() > 0 && n > 0) {
        double sum = 0.0;
        for (std::size_t i = 0; i < n; ++i) {
            const double miss = peaks[i] > 0.0 ? (x[i] - last[i]) / peaks[i] : x[i] - last[i];
            sum += std::min(miss * miss, 1e200);
        }
        memory_[error_] = std::sqrt(sum / static_cast<double>(n));
    }
    if (memory_[known_] < static_cast<double>(samples_)) memory_[known_] += 1.0;

    if (frozen())
        apply_frozen(next);
    else
        learn(x, next);
    for (std::size_t i = 0; i < n; ++i)
        if (!(std::abs(next[i]) <= 2.0 * largest)) {  // also true of NaN
            coast(x, next);
            break;
        }
    std::copy(next, next + n, last);
}

bool Predictor::restore(const std::vector<double> &from) {
    return from.size() == memory_.values.size() && from[expert_] < static_cast<double>(experts().size()) && memory_.restore(from);
}

void Predictor::coast(const double *x, double *next) const {
    std::copy(x, x + options_.n, next);
    for (const auto &pair : options_.pairs) next[pair.position] = x[pair.position] + options_.step * x[pair.velocity];
}

Model Predictor::coasting(std::size_t samples) const {
    const std::size_t n = options_.n, columns = width() * samples;
    Model model{samples, std::vector<double>(n * columns, 0.0), std::vector<double>(n, 0.0)};
    for (std::size_t i = 0; i < n; ++i) model.S[i * columns + i] = 1.0;
    for (const auto &pair : options_.pairs) model.S[pair.position * columns + pair.velocity] = options_.step;
    return model;
}

// Signals of sizes 1 and 1e140 have been seen to lead to a constant that no number can hold: such a model is none.
Model Predictor::model() const {
    if (frozen()) return frozen_model();
    Model now = learned();
    auto finite = [](const std::vector<double> &values) {
        return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
    };
    return finite(now.S) && finite(now.b) ? now : coasting(now.samples);
}

void Predictor::freeze() {
    if (frozen()) return;
    const Model now = model();
    memory_[frozen_] = 1.0;
    memory_[frozen_samples_] = static_cast<double>(now.samples);
    std::copy(now.S.begin(), now.S.end(), memory_.at(frozen_S_));
    std::copy(now.b.begin(), now.b.end(), memory_.at(frozen_b_));
}

Model Predictor::frozen_model() const {
    Model model;
    model.samples = static_cast<std::size_t>(memory_[frozen_samples_]);
    const double *S = memory_.at(frozen_S_), *b = memory_.at(frozen_b_);
    model.S.assign(S, S + options_.n * width() * model.samples);
    model.b.assign(b, b + options_.n);
    return model;
}

void Predictor::apply_frozen(double *next) const {
    const std::size_t columns = width() * static_cast<std::size_t>(memory_[frozen_samples_]);
    const double *S = memory_.at(frozen_S_), *b = memory_.at(frozen_b_), *z = memory_.at(history_);
    for (std::size_t i = 0; i < options_.n; ++i) {
        double sum = b[i];
        for (std::size_t j = 0; j < columns; ++j) sum += S[i * columns + j] * z[j];
        next[i] = sum;
    }
}

std::unique_ptr<Predictor> make_predictor(const Options &options) {
    switch (options.method) {
        case Options::Method::recursive:
            return make_recursive(options);
        case Options::Method::robust:
            return make_robust(options);
        default:
            return make_bank(options);
    }
}

}  // namespace cosimo::dmd

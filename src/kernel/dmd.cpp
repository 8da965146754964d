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
    if (!options_.watched) return;
    guess_ = memory_.take(2 * options_.n);   // what the model foresaw, then what is held
    missed_ = memory_.take(2 * options_.n);  // sums of squares by which both missed
    used_ = memory_.counter(1);
    fits_ = memory_.counter(Memory::any);
    count_ = memory_.counter(Memory::any);
    held_ = memory_.counter(Memory::any);
    changes_ = memory_.counter(Memory::any);
    changed_ = memory_.counter(Memory::any);
    for (std::size_t i = 1; i < Watch::listed; ++i) memory_.counter(Memory::any);
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
        if (options_.watched) score(x);
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
    if (options_.watched && !frozen()) hold(x, next);
    std::copy(next, next + n, last);
}

void Predictor::score(const double *x) {
    const std::size_t n = options_.n;
    const double *guess = memory_.at(guess_), *peaks = memory_.at(peaks_);
    double *missed = memory_.at(missed_);
    bool good = true;
    for (std::size_t i = 0; i < n; ++i) {
        const double e = x[i] - guess[i], d = x[i] - guess[n + i], floor = Watch::rounding * peaks[i];
        missed[i] = Watch::fading * missed[i] + std::min(e * e, largest);
        missed[n + i] = Watch::fading * missed[n + i] + std::min(d * d, largest);
        good = good && missed[i] <= Watch::share * Watch::share * missed[n + i] + floor * floor;
    }
    memory_[fits_] = good ? memory_[fits_] + 1.0 : 0.0;
    const bool used = memory_[used_] != 0.0;
    if (used ? good : memory_[fits_] < static_cast<double>(Watch::again)) return;
    memory_[used_] = used ? 0.0 : 1.0;
    const std::size_t place = static_cast<std::size_t>(memory_[changes_]);
    if (place < Watch::listed) memory_[changed_ + place] = memory_[count_];
    memory_[changes_] += 1.0;
}

void Predictor::hold(const double *x, double *next) {
    const std::size_t n = options_.n;
    double *guess = memory_.at(guess_);
    const double *before = history(1);
    std::copy(next, next + n, guess);
    for (std::size_t i = 0; i < n; ++i) guess[n + i] = options_.lines && known() > 1 ? x[i] + (x[i] - before[i]) : x[i];
    memory_[count_] += 1.0;
    if (memory_[used_] != 0.0) return;
    memory_[held_] += 1.0;
    std::copy(guess + n, guess + 2 * n, next);
}

Watch Predictor::watch() const {
    Watch found;
    if (!options_.watched) return found;
    found.used = memory_[used_] != 0.0;
    found.held = static_cast<std::size_t>(memory_[held_]);
    found.changes = static_cast<std::size_t>(memory_[changes_]);
    for (std::size_t i = 0; i < std::min(found.changes, Watch::listed); ++i)
        found.changed.push_back(static_cast<std::size_t>(memory_[changed_ + i]));
    return found;
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

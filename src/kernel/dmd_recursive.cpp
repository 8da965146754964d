// The paper's own recursion (pikulinski2025, Sec. 2.4): a rank-one update with the newest pair and a rank-one downdate with
// the oldest, in physical units. Eq. 19 is corrected: it removes the oldest pair. The soft start of Sec. 3.1: the value is
// held until two pairs are known, then each window is solved in one batch by minimum norm until Z has full row rank.
//
// The recursion drifts for short windows and loses positive definiteness at rest; where that shows (a gain that is not
// positive, or a number that is not finite), it starts again from the batch over its window.
#include <algorithm>
#include <cmath>

#include "dmd.hpp"
#include "dmd_factor.hpp"

namespace cosimo::dmd {

namespace {

class Recursive final : public Predictor {
public:
    enum Phase : std::size_t { holding, batch, recursion };

    explicit Recursive(const Options &options)
        : Predictor(options),
          n_(options_.n),
          q_(width() * (options_.delays + 1)),
          ring_(memory_.take(options_.window * (q_ + n_))),
          oldest_(memory_.counter(options_.window - 1)),
          count_(memory_.counter(options_.window)),
          P_(memory_.take(q_ * q_)),
          S_(memory_.take(n_ * q_)),
          change_(q_, n_, 1e-14),
          factor_(q_ * (q_ + n_)),
          row_(q_ + n_),
          sums_(q_ + n_),
          Pz_(q_) {
        for (std::size_t i = 0; i < n_; ++i) memory_.at(S_)[i * q_ + i] = 1.0;
    }
    std::vector<std::string> experts() const override { return {"hold", "batch", "recursion"}; }

protected:
    void learn(const double *, double *next) override {
        const double *newest = history(0);
        if (known() > options_.delays + 1) take(newest + width(), newest);
        if (known() <= options_.delays || expert() == holding) {
            std::copy(newest, newest + n_, next);
            return;
        }
        const double *S = memory_.at(S_);
        for (std::size_t i = 0; i < n_; ++i, S += q_) {
            next[i] = 0.0;
            for (std::size_t j = 0; j < q_; ++j) next[i] += S[j] * newest[j];
        }
    }
    Model learned() const override {
        const double *S = memory_.at(S_);
        return {options_.delays + 1, std::vector<double>(S, S + n_ * q_), std::vector<double>(n_, 0.0)};
    }

private:
    void take(const double *z, const double *y) {
        const std::size_t w = options_.window, stride = q_ + n_;
        const auto count = static_cast<std::size_t>(memory_[count_]), oldest = static_cast<std::size_t>(memory_[oldest_]);
        double *slot = memory_.at(ring_) + (count < w ? count : oldest) * stride;
        bool sound = expert() == recursion && modify(z, y, 1.0);
        if (count == w) {
            sound = sound && modify(slot, slot + q_, -1.0);
            memory_[oldest_] = oldest + 1 == w ? 0.0 : static_cast<double>(oldest + 1);
        } else {
            memory_[count_] += 1.0;
        }
        std::copy(z, z + q_, slot);
        std::copy(y, y + n_, slot + q_);
        if (!sound && memory_[count_] >= std::min<double>(2.0, static_cast<double>(w))) in_charge(solve());
    }
    // Eqs. 12-14 (sign 1) and 17-19 (sign -1): gamma = sign / (1 + sign z'Pz).
    bool modify(const double *z, const double *y, double sign) {
        double *P = memory_.at(P_), *S = memory_.at(S_), form = 0.0;
        for (std::size_t i = 0; i < q_; ++i) {
            Pz_[i] = 0.0;
            for (std::size_t j = 0; j < q_; ++j) Pz_[i] += P[i * q_ + j] * z[j];
            form += z[i] * Pz_[i];
        }
        const double denominator = 1.0 + sign * form;
        if (!(form >= 0.0 && denominator > 0.0 && std::isfinite(denominator))) return false;
        const double gamma = sign / denominator;
        for (std::size_t k = 0; k < n_; ++k) {
            double rest = y[k];
            for (std::size_t j = 0; j < q_; ++j) rest -= S[k * q_ + j] * z[j];
            for (std::size_t j = 0; j < q_; ++j) S[k * q_ + j] += gamma * rest * Pz_[j];
        }
        bool finite = true;
        for (std::size_t i = 0; i < q_; ++i)
            for (std::size_t j = 0; j < q_; ++j) {
                P[i * q_ + j] -= gamma * Pz_[i] * Pz_[j];
                finite = finite && std::isfinite(P[i * q_ + j]);
            }
        return finite;
    }
    // Eq. 4 over the window, by minimum norm; P (Eq. 8) where Z has full row rank.
    Phase solve() {
        const std::size_t stride = q_ + n_;
        const auto count = static_cast<std::size_t>(memory_[count_]);
        const double *ring = memory_.at(ring_);
        double z_size = 0.0, y_size = 0.0;  // one number each: the norm that is minimal remains the physical one
        for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t j = 0; j < q_; ++j) z_size = std::max(z_size, std::abs(ring[i * stride + j]));
            for (std::size_t j = q_; j < stride; ++j) y_size = std::max(y_size, std::abs(ring[i * stride + j]));
        }
        double *S = memory_.at(S_);
        std::fill(S, S + n_ * q_, 0.0);
        if (!(z_size > 1e-150)) return batch;
        if (!(y_size > 1e-150)) y_size = 1.0;
        std::fill(factor_.begin(), factor_.end(), 0.0);
        for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t j = 0; j < stride; ++j) row_[j] = ring[i * stride + j] / (j < q_ ? z_size : y_size);
            absorb(factor_.data(), q_, stride, row_.data(), 1, false, sums_.data());
        }
        change_.update(factor_.data(), stride, static_cast<double>(count), S);
        for (std::size_t i = 0; i < n_ * q_; ++i) S[i] *= y_size / z_size;
        return invert(z_size) ? recursion : batch;
    }
    // P = R^-1 R^-T / size^2, column by column of R^-1.
    bool invert(double size) {
        const std::size_t stride = q_ + n_;
        double least = std::abs(factor_[0]), most = least;
        for (std::size_t i = 1; i < q_; ++i) {
            least = std::min(least, std::abs(factor_[i * stride + i]));
            most = std::max(most, std::abs(factor_[i * stride + i]));
        }
        if (!(least > 1e-13 * most)) return false;
        double *P = memory_.at(P_);
        std::fill(P, P + q_ * q_, 0.0);
        bool finite = true;
        for (std::size_t c = 0; c < q_; ++c) {
            std::fill(Pz_.begin(), Pz_.end(), 0.0);
            for (std::size_t i = c + 1; i-- > 0;) {
                double sum = i == c ? 1.0 : 0.0;
                for (std::size_t j = i + 1; j <= c; ++j) sum -= factor_[i * stride + j] * Pz_[j];
                Pz_[i] = sum / factor_[i * stride + i];
            }
            for (std::size_t i = 0; i < q_; ++i)
                for (std::size_t j = 0; j < q_; ++j) P[i * q_ + j] += Pz_[i] * Pz_[j] / size / size;
        }
        for (std::size_t i = 0; i < q_ * q_; ++i) finite = finite && std::isfinite(P[i]);
        return finite;
    }

    std::size_t n_, q_, ring_, oldest_, count_, P_, S_;
    LeastChange change_;
    std::vector<double> factor_, row_, sums_, Pz_;
};

}  // namespace

std::unique_ptr<Predictor> make_recursive(const Options &options) { return std::make_unique<Recursive>(options); }

}  // namespace cosimo::dmd

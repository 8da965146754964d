// Triangular factors of growing sets of rows, and the least change of a model that explains them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace cosimo::dmd {

// R (m, columns), upper trapezoidal with m pivots, becomes the factor of [R; B] by Householder reflections, one per
// pivot. B (count, columns) is overwritten. Where B is itself a factor (`triangular`), its zeros are left alone.
// Entries are at most about one in size (see Scales), so squares need no care. M and C, where not zero, are m and columns
// known to the compiler: loops over a handful of numbers are several times faster then.
template <std::size_t M = 0, std::size_t C = 0>
void absorb(double *R, std::size_t m_, std::size_t columns_, double *B, std::size_t count, bool triangular, double *sums) {
    const std::size_t m = M ? M : m_, columns = C ? C : columns_;
    for (std::size_t j = 0; j < m; ++j) {
        const std::size_t rows = triangular ? std::min(j + 1, count) : count;
        double below = 0.0;
        for (std::size_t i = 0; i < rows; ++i) below += B[i * columns + j] * B[i * columns + j];
        if (below < 1e-290) continue;
        double *pivot = R + j * columns;
        const double a = pivot[j], r = std::sqrt(a * a + below), beta = 1.0 / (r * (r + std::abs(a)));
        const double v = a >= 0.0 ? a + r : a - r;
        pivot[j] = a >= 0.0 ? -r : r;
        if (rows == 1) {
            const double b = B[j], vb = v * beta, bb = b * beta;
            for (std::size_t c = j + 1; c < columns; ++c) {
                const double sum = v * pivot[c] + b * B[c];
                pivot[c] -= sum * vb;
                B[c] -= sum * bb;
            }
            continue;
        }
        for (std::size_t c = j + 1; c < columns; ++c) sums[c] = v * pivot[c];
        for (std::size_t i = 0; i < rows; ++i) {
            const double *row = B + i * columns;
            const double b = row[j];
            for (std::size_t c = j + 1; c < columns; ++c) sums[c] += b * row[c];
        }
        for (std::size_t c = j + 1; c < columns; ++c) {
            sums[c] *= beta;
            pivot[c] -= sums[c] * v;
        }
        for (std::size_t i = 0; i < rows; ++i) {
            double *row = B + i * columns;
            const double b = row[j];
            for (std::size_t c = j + 1; c < columns; ++c) row[c] -= sums[c] * b;
        }
    }
}

using Absorb = void (*)(double *, std::size_t, std::size_t, double *, std::size_t, bool, double *);

// The absorb for these sizes: for n samples and p inputs, with and without the constant, no delays.
inline Absorb absorb_for(std::size_t m, std::size_t columns) {
    switch (m * 100 + columns) {
        case 203: return absorb<2, 3>;    // n = 1, p = 1
        case 304: return absorb<3, 4>;
        case 305: return absorb<3, 5>;    // 2, 1
        case 406: return absorb<4, 6>;    // 2, 1 and 2, 2
        case 507: return absorb<5, 7>;    // 2, 2
        case 610: return absorb<6, 10>;   // 4, 2
        case 711: return absorb<7, 11>;
        default: return absorb<>;
    }
}

// S (n, q) changes as little as possible so that it explains Z (rows) in the least-squares sense,
//     S <- S + (Y - S Z) Z^+,
// where the factor F (q, q + n) = [R, Q'Y] of [Z, Y] stands for all rows (pikulinski2025, Eq. 4, from a prior).
class LeastChange {
public:
    LeastChange(std::size_t q, std::size_t n, double tolerance)
        : q_(q), n_(n), tolerance_(tolerance), work_(q * (q + n)), inverse_(q * q), squares_(q), noise_(n) {
        switch (q * 100 + n) {
            case 201: run_ = &LeastChange::run<2, 1>; break;
            case 302: run_ = &LeastChange::run<3, 2>; break;
            case 402: run_ = &LeastChange::run<4, 2>; break;
            case 604: run_ = &LeastChange::run<6, 4>; break;
            default: run_ = &LeastChange::run<0, 0>;
        }
    }
    // F has `stride` numbers per row; `count` rows are behind it.
    void update(const double *F, std::size_t stride, double count, double *S) { (this->*run_)(F, stride, count, S); }

private:
    template <std::size_t Q, std::size_t N>
    void run(const double *F, std::size_t stride, double count, double *S) {
        residual<Q, N>(F, stride, S);
        if (solve_directly<Q, N>(S)) return;
        orthogonalise<Q, N>();
        solve_by_directions(count, S);
    }
    // work = [R, E] with E = Q'Y - R S'.
    template <std::size_t Q, std::size_t N>
    void residual(const double *F, std::size_t stride, const double *S) {
        const std::size_t q = Q ? Q : q_, n = N ? N : n_, width = q + n;
        for (std::size_t i = 0; i < q; ++i) {
            double *row = work_.data() + i * width;
            for (std::size_t j = 0; j < i; ++j) row[j] = 0.0;
            for (std::size_t j = i; j < width; ++j) row[j] = F[i * stride + j];
            for (std::size_t k = 0; k < n; ++k) {
                double sum = row[q + k];
                for (std::size_t j = i; j < q; ++j) sum -= row[j] * S[k * q + j];
                row[q + k] = sum;
            }
        }
    }
    // Where the condition is good all directions are learned: dS' = R^-1 E.
    template <std::size_t Q, std::size_t N>
    bool solve_directly(double *S) {
        const std::size_t q = Q ? Q : q_, n = N ? N : n_, width = q + n;
        double size = 0.0, inverse_size = 0.0;
        double *X = inverse_.data();
        for (std::size_t i = q; i-- > 0;) {
            const double *row = work_.data() + i * width;
            if (!(std::abs(row[i]) > smallest)) return false;
            const double over = 1.0 / row[i];
            for (std::size_t j = i; j < q; ++j) {
                double sum = i == j ? 1.0 : 0.0;
                for (std::size_t k = i + 1; k <= j; ++k) sum -= row[k] * X[k * q + j];
                X[i * q + j] = sum * over;
                inverse_size += X[i * q + j] * X[i * q + j];
                size += row[j] * row[j];
            }
        }
        if (!(inverse_size * smallest * smallest < 1.0 && size * inverse_size < worst * worst)) return false;
        for (std::size_t k = 0; k < n; ++k)
            for (std::size_t i = 0; i < q; ++i) {
                double sum = 0.0;
                for (std::size_t j = i; j < q; ++j) sum += X[i * q + j] * work_[j * width + q + k];
                S[k * q + i] += sum;
            }
        return true;
    }
    // Singular value decomposition by rotating the rows of [R, E] until those of R are orthogonal: row i of R is then
    // sigma_i v_i' and row i of E is u_i' E.
    template <std::size_t Q, std::size_t N>
    void orthogonalise() {
        const std::size_t q = Q ? Q : q_, width = q + (N ? N : n_);
        for (int sweep = 0; sweep < 20; ++sweep) {
            bool done = true;
            for (std::size_t i = 0; i < q; ++i) {
                const double *row = work_.data() + i * width;
                squares_[i] = 0.0;
                for (std::size_t j = 0; j < q; ++j) squares_[i] += row[j] * row[j];
            }
            for (std::size_t a = 0; a + 1 < q; ++a)
                for (std::size_t b = a + 1; b < q; ++b) {
                    double *first = work_.data() + a * width, *second = work_.data() + b * width, dot = 0.0;
                    for (std::size_t j = 0; j < q; ++j) dot += first[j] * second[j];
                    const double both = squares_[a] * squares_[b];
                    // Convergence is quadratic: cosines of 1e-8 now are rounding after this sweep.
                    if (!(dot * dot > 1e-28 * both)) continue;
                    if (dot * dot > 1e-16 * both) done = false;
                    const double zeta = (squares_[b] - squares_[a]) / (2.0 * dot);
                    const double t = (zeta >= 0.0 ? 1.0 : -1.0) / (std::abs(zeta) + std::sqrt(1.0 + zeta * zeta));
                    const double c = 1.0 / std::sqrt(1.0 + t * t), s = c * t;
                    for (std::size_t j = 0; j < width; ++j) {
                        const double x = first[j], y = second[j];
                        first[j] = c * x - s * y;
                        second[j] = s * x + c * y;
                    }
                    squares_[a] -= t * dot;
                    squares_[b] += t * dot;
                }
            if (done) break;
        }
    }
    // A direction that the data hardly contain is not learned, nor one whose residual is no larger than rounding: there
    // the model keeps what it learned when it knew better. This is what survives rest.
    void solve_by_directions(double count, double *S) {
        const std::size_t width = q_ + n_;
        const double root = std::sqrt(count), floor = tolerance_ * root;
        for (std::size_t k = 0; k < n_; ++k) {
            double sum = 1.0;
            for (std::size_t j = 0; j < q_; ++j) sum += std::abs(S[k * q_ + j]);
            noise_[k] = 4.5e-16 * root * sum;
        }
        for (std::size_t i = 0; i < q_; ++i) {
            const double *row = work_.data() + i * width;
            double square = 0.0;
            for (std::size_t j = 0; j < q_; ++j) square += row[j] * row[j];
            if (!(square > floor * floor)) continue;
            const double over = 1.0 / square;
            for (std::size_t k = 0; k < n_; ++k) {
                if (!(std::abs(row[q_ + k]) > noise_[k])) continue;
                const double factor = row[q_ + k] * over;
                for (std::size_t j = 0; j < q_; ++j) S[k * q_ + j] += factor * row[j];
            }
        }
    }

    static constexpr double smallest = 1e-5, worst = 1e4;
    std::size_t q_, n_;
    double tolerance_;
    void (LeastChange::*run_)(const double *, std::size_t, double, double *);
    std::vector<double> work_, inverse_, squares_, noise_;
};

}  // namespace cosimo::dmd

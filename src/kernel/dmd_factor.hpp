// Triangular factors of growing sets of rows, and the least change of a model that explains them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace cosimo::dmd {

// R (m, columns), upper trapezoidal with m pivots, becomes the factor of [R; B] by Householder reflections, one per
// pivot. B (count, columns) is overwritten. Where B is itself a factor (`triangular`), its zeros are left alone.
// Entries are at most about one in size (see Scales), so squares need no care.
inline void absorb(double *R, std::size_t m, std::size_t columns, double *B, std::size_t count, bool triangular,
                   double *sums) {
    for (std::size_t j = 0; j < m; ++j) {
        const std::size_t rows = triangular ? std::min(j + 1, count) : count;
        double below = 0.0;
        for (std::size_t i = 0; i < rows; ++i) below += B[i * columns + j] * B[i * columns + j];
        if (below < 1e-290) continue;
        double *pivot = R + j * columns;
        const double a = pivot[j], r = std::sqrt(a * a + below), size = std::abs(a);
        const double v = a >= 0.0 ? a + r : a - r, beta = 1.0 / (r * (r + size));
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

// S (n, q) changes as little as possible so that it explains Z (rows) in the least-squares sense,
//     S <- S + (Y - S Z) Z^+,
// where the factor F (q, q + n) = [R, Q'Y] of [Z, Y] stands for all rows (pikulinski2025, Eq. 4, from a prior).
class LeastChange {
public:
    LeastChange(std::size_t q, std::size_t n, double tolerance)
        : q_(q), n_(n), tolerance_(tolerance), work_(q * (q + n)), inverse_(q * q), squares_(q), noise_(n) {}

    // F has `stride` numbers per row; `count` rows are behind it.
    void update(const double *F, std::size_t stride, double count, double *S) {
        residual(F, stride, S);
        if (!solve_directly(S)) solve_by_directions(count, S);
    }

private:
    // work = [R, E] with E = Q'Y - R S'.
    void residual(const double *F, std::size_t stride, const double *S) {
        const std::size_t width = q_ + n_;
        for (std::size_t i = 0; i < q_; ++i) {
            double *row = work_.data() + i * width;
            std::fill(row, row + i, 0.0);
            std::copy(F + i * stride + i, F + i * stride + width, row + i);
            for (std::size_t k = 0; k < n_; ++k) {
                double sum = row[q_ + k];
                for (std::size_t j = i; j < q_; ++j) sum -= row[j] * S[k * q_ + j];
                row[q_ + k] = sum;
            }
        }
    }
    // Where the condition is good all directions are learned: dS' = R^-1 E.
    bool solve_directly(double *S) {
        const std::size_t width = q_ + n_;
        double size = 0.0, inverse_size = 0.0;
        double *X = inverse_.data();
        for (std::size_t i = q_; i-- > 0;) {
            const double *row = work_.data() + i * width;
            if (!(std::abs(row[i]) > smallest)) return false;
            const double over = 1.0 / row[i];
            for (std::size_t j = i; j < q_; ++j) {
                double sum = i == j ? 1.0 : 0.0;
                for (std::size_t k = i + 1; k <= j; ++k) sum -= row[k] * X[k * q_ + j];
                X[i * q_ + j] = sum * over;
                inverse_size += X[i * q_ + j] * X[i * q_ + j];
                size += row[j] * row[j];
            }
        }
        if (!(inverse_size * smallest * smallest < 1.0 && size * inverse_size < worst * worst)) return false;
        for (std::size_t k = 0; k < n_; ++k)
            for (std::size_t i = 0; i < q_; ++i) {
                double sum = 0.0;
                for (std::size_t j = i; j < q_; ++j) sum += X[i * q_ + j] * work_[j * width + q_ + k];
                S[k * q_ + i] += sum;
            }
        return true;
    }
    // Singular value decomposition by rotating the rows of [R, E] until those of R are orthogonal: row i of R is then
    // sigma_i v_i' and row i of E is u_i' E. A direction that the data hardly contain is not learned, nor one whose
    // residual is no larger than rounding: there the model keeps what it learned when it knew better.
    void solve_by_directions(double count, double *S) {
        const std::size_t width = q_ + n_;
        orthogonalise();
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
            for (std::size_t k = 0; k < n_; ++k) {
                if (!(std::abs(row[q_ + k]) > noise_[k])) continue;
                const double factor = row[q_ + k] / square;
                for (std::size_t j = 0; j < q_; ++j) S[k * q_ + j] += factor * row[j];
            }
        }
    }
    void orthogonalise() {
        const std::size_t width = q_ + n_;
        for (int sweep = 0; sweep < 20; ++sweep) {
            bool done = true;
            for (std::size_t i = 0; i < q_; ++i) {
                const double *row = work_.data() + i * width;
                squares_[i] = 0.0;
                for (std::size_t j = 0; j < q_; ++j) squares_[i] += row[j] * row[j];
            }
            for (std::size_t a = 0; a + 1 < q_; ++a)
                for (std::size_t b = a + 1; b < q_; ++b) {
                    double *first = work_.data() + a * width, *second = work_.data() + b * width, dot = 0.0;
                    for (std::size_t j = 0; j < q_; ++j) dot += first[j] * second[j];
                    // Convergence is quadratic: cosines of 1e-8 now are rounding after this sweep's rotations.
                    if (!(dot * dot > 1e-28 * squares_[a] * squares_[b])) continue;
                    if (dot * dot > 1e-16 * squares_[a] * squares_[b]) done = false;
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

    static constexpr double smallest = 1e-5, worst = 1e4;
    std::size_t q_, n_;
    double tolerance_;
    std::vector<double> work_, inverse_, squares_, noise_;
};

}  // namespace cosimo::dmd

// Anderson acceleration of y ← g(y): the twin of anderson.py, operation by operation.
#pragma once
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace cosimo {

class Anderson {
public:
    explicit Anderson(std::size_t depth) : depth_(depth) {}

    std::vector<double> propose(const std::vector<double> &y, const std::vector<double> &g) {
        const std::size_t n = y.size();
        std::vector<double> residual(n);
        for (std::size_t i = 0; i < n; ++i) residual[i] = g[i] - y[i];
        if (!last_y_.empty() && depth_) {
            std::vector<double> dy(n), df(n);
            for (std::size_t i = 0; i < n; ++i) {
                dy[i] = y[i] - last_y_[i];
                df[i] = residual[i] - last_f_[i];
            }
            steps_.insert(steps_.begin(), {std::move(dy), std::move(df)});
            if (steps_.size() > depth_) steps_.pop_back();
        }
        last_y_ = y;
        last_f_ = residual;
        if (steps_.empty()) return g;
        return correct(g, residual);
    }

private:
    using Step = std::pair<std::vector<double>, std::vector<double>>;

    static double dot(const std::vector<double> &a, const std::vector<double> &b) {
        double sum = a[0] * b[0];
        for (std::size_t i = 1; i < a.size(); ++i) sum += a[i] * b[i];
        return sum;
    }

    std::vector<double> correct(const std::vector<double> &g, std::vector<double> rest) const {
        const std::size_t n = g.size();
        std::vector<std::vector<double>> q, r;
        std::vector<double> right;
        std::vector<std::size_t> kept;
        for (std::size_t s = 0; s < steps_.size(); ++s) {
            std::vector<double> column = steps_[s].second, entries;
            const double size = std::sqrt(dot(column, column));
            for (const auto &direction : q) {
                const double entry = dot(direction, column);
                for (std::size_t i = 0; i < n; ++i) column[i] = column[i] - entry * direction[i];
                entries.push_back(entry);
            }
            const double length = std::sqrt(dot(column, column));
            if (length <= 1e-12 * size) continue;
            for (double &value : column) value = value / length;
            entries.push_back(length);
            const double along = dot(column, rest);
            for (std::size_t i = 0; i < n; ++i) rest[i] = rest[i] - along * column[i];
            q.push_back(std::move(column));
            r.push_back(std::move(entries));
            right.push_back(along);
            kept.push_back(s);
        }
        std::vector<double> gamma(q.size());
        for (std::size_t i = q.size(); i-- > 0;) {
            double value = right[i];
            for (std::size_t j = i + 1; j < q.size(); ++j) value = value - r[j][i] * gamma[j];
            gamma[i] = value / r[i][i];
        }
        std::vector<double> proposal = g;
        for (std::size_t s = 0; s < kept.size(); ++s) {
            const Step &step = steps_[kept[s]];
            for (std::size_t i = 0; i < n; ++i) proposal[i] = proposal[i] - gamma[s] * (step.first[i] + step.second[i]);
        }
        return proposal;
    }

    std::size_t depth_;
    std::vector<double> last_y_, last_f_;
    std::vector<Step> steps_;
};

}  // namespace cosimo

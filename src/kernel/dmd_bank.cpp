// The window chosen while running: a bank of experts, scored by their one-step errors.
//
// Every expert predicts at every step: hold, coasting (x + h v), linear and quadratic extrapolation, homogeneous and centred
// models over six windows and over all pairs since the last event, and the centred model of the longest window corrected
// from near neighbours. The prediction is the mean of all, weighted by score so that a clear winner decides alone.
//
// - Guard: the deviation from coasting is at most four times the largest ever seen (or the last change, if larger).
// - Event: an error far above its median, at a familiar place, is a jump of the unit. The pair that spans it is kept out
//   (quarantined), and models restarted there compete with those that continue. A jump of what is sent to the unit is no
//   event: it leads to an unfamiliar place (high leverage), from where there is much to learn.
// - Rest: where nothing happens the scores stand still.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>

#include "dmd_neighbours.hpp"
#include "dmd_samples.hpp"
#include "dmd_scores.hpp"

namespace cosimo::dmd {

namespace {

constexpr std::array<std::size_t, 6> lengths{4, 6, 10, 20, 50, 100};
constexpr std::size_t judge = 3;  // leverage is measured against 20 pairs
constexpr double guard = 4.0, familiar = 4.0, rest = 1e-12, unknown = 1e300;

class Bank final : public Predictor {
public:
    enum Plain : std::size_t { holding, coasting, linear, quadratic, plain };
    static constexpr std::size_t windows = lengths.size(), models = 2 * (windows + 1), count = plain + models + 1;
    static constexpr std::size_t first = plain + 2 * (windows - 1);  // in charge while no comparison is possible
    static constexpr std::size_t nearby = plain + models;

    explicit Bank(const Options &options)
        : Predictor(options),
          samples_(memory_, options_),
          windows_(memory_, {lengths.begin(), lengths.end()}, samples_.rows.pivots(), samples_.rows.columns()),
          since_(memory_, samples_.rows.pivots(), samples_.rows.columns()),
          neighbours_(memory_, samples_.rows),
          scores_(memory_, count, plain),
          predictions_(memory_.take(count * options_.n)),
          reach_(memory_.take(options_.n)),
          leverage_(memory_.take(1, unknown)),
          forward_(samples_.rows.q) {
        for (std::size_t m = 0; m < models; ++m) models_.emplace_back(memory_, options_, m % 2 == 1, options_.tolerance);
        in_charge(first);
    }
    std::vector<std::string> experts() const override {
        std::vector<std::string> names{"hold", "coast", "linear", "quadratic"};
        for (const std::size_t length : lengths) {
            names.push_back("window " + std::to_string(length));
            names.push_back("centred window " + std::to_string(length));
        }
        names.insert(names.end(), {"since event", "centred since event", "neighbours"});
        return names;
    }

protected:
    void learn(const double *x, double *next) override {
        if (samples_.scale(history(0))) {
            windows_.rescale(samples_.ratios());
            since_.rescale(samples_.ratios());
            neighbours_.rescale(samples_.ratios());
            for (Local &model : models_) model.rescale(samples_.scales);
        }
        if (!(known() > options_.delays + 1 && take(x))) windows_.refresh();
        predict(x);
        choose(x, next);
    }
    Model learned() const override {
        const std::size_t n = options_.n, e = expert();
        if (e >= plain) return models_[e == nearby ? models - 3 : e - plain].model(samples_.scales);
        static constexpr double weights[plain][3] = {{1, 0, 0}, {1, 0, 0}, {2, -1, 0}, {3, -3, 1}};
        Model model{3, std::vector<double>(n * 3 * width()), std::vector<double>(n)};
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t age = 0; age < 3; ++age) model.S[(3 * i + age) * width() + i] = weights[e][age];
        if (e == coasting)
            for (const auto &pair : options_.pairs) model.S[3 * pair.position * width() + pair.velocity] = options_.step;
        return model;
    }

private:
    double *prediction(std::size_t expert) { return memory_.at(predictions_) + expert * options_.n; }
    bool determined() const { return windows_.count(windows - 1) >= samples_.rows.q + 2; }

    // The pair that has just become complete: judge by it, then learn from it. False where it is kept out.
    bool take(const double *x) {
        const std::size_t n = options_.n;
        double *reach = memory_.at(reach_);
        const double *coasted = prediction(coasting);
        bool still = true, event = false;
        for (std::size_t i = 0; i < n; ++i) {
            const double deviation = std::abs(x[i] - coasted[i]);
            reach[i] = std::max(reach[i], deviation);
            still = still && deviation <= rest * peak(i);
        }
        if (!still) {
            for (std::size_t e = 0; e < count; ++e) {
                const double *guess = prediction(e);
                squares_[e] = 0.0;
                for (std::size_t i = 0; i < n; ++i) {
                    const double miss = reach[i] > 0.0 ? (x[i] - guess[i]) / reach[i] : 0.0;
                    squares_[e] += std::min(miss * miss, 1e100);
                }
            }
            event = scores_.take(squares_.data(), expert(), memory_[leverage_] < familiar, !determined());
        }
        if (event) {
            since_.clear();
            return false;
        }
        const double *row = samples_.row(history(0));
        if (!still) neighbours_.take(row);
        windows_.push(row);
        since_.push(row);
        windows_.refresh();
        for (std::size_t m = 0; m < models; ++m) {
            const std::size_t w = m / 2;
            if (w < windows)
                models_[m].learn(windows_.factor(w), windows_.count(w));
            else
                models_[m].learn(since_.factor(), since_.count());
        }
        return true;
    }
    void predict(const double *x) {
        const std::size_t n = options_.n;
        const double *a = history(0), *b = history(1), *c = history(2);
        std::copy(x, x + n, prediction(holding));
        coast(x, prediction(coasting));
        for (std::size_t i = 0; i < n; ++i) {
            prediction(linear)[i] = known() > 1 ? a[i] + (a[i] - b[i]) : prediction(coasting)[i];
            prediction(quadratic)[i] = known() > 2 ? a[i] + (2.0 * (a[i] - b[i]) - (b[i] - c[i])) : prediction(linear)[i];
        }
        if (known() <= options_.delays) {
            for (std::size_t e = plain; e < count; ++e) coast(x, prediction(e));
            return;
        }
        const double *z = samples_.regressors(history(0));
        double *scaled = samples_.next.data();
        for (std::size_t m = 0; m < models; ++m)
            if (models_[m].predict(z, scaled))
                samples_.unscale(scaled, prediction(plain + m));
            else
                coast(x, prediction(plain + m));
        neighbours_.search(z);
        neighbours_.correct(models_[models - 3], z, scaled);  // the centred model of the longest window
        samples_.unscale(scaled, prediction(nearby));
        memory_[leverage_] = leverage(z);
    }
    // 1/w + |R^-T (z - mean)|^2: how far z is from the last pairs, in units of their own spread.
    double leverage(const double *z) {
        const std::size_t rows = windows_.count(judge), columns = samples_.rows.columns();
        if (rows < 2) return unknown;
        const double *F = windows_.factor(judge);
        double sum = 1.0 / static_cast<double>(rows);
        for (std::size_t j = 0; j < samples_.rows.q; ++j) {
            double value = z[j] - F[1 + j] / F[0];
            for (std::size_t i = 0; i < j; ++i) value -= forward_[i] * F[(1 + i) * columns + 1 + j];
            const double pivot = F[(1 + j) * columns + 1 + j];
            if (std::abs(pivot) < rest) {
                if (std::abs(value) > 10.0 * rest) return unknown;
                forward_[j] = 0.0;
                continue;
            }
            forward_[j] = value / pivot;
            sum += forward_[j] * forward_[j];
        }
        return std::min(sum, unknown);
    }
    void choose(const double *x, double *next) {
        const std::size_t n = options_.n;
        const double *coasted = prediction(coasting), *before = history(1), *reach = memory_.at(reach_);
        if (!determined()) {
            in_charge(first);
            std::copy(prediction(first), prediction(first) + n, next);
        } else {
            in_charge(scores_.best(expert()));
            double total = 0.0;
            std::fill(next, next + n, 0.0);
            for (std::size_t e = 0; e < count; ++e) {
                const double weight = scores_.weight(e);
                if (weight == 0.0) continue;
                total += weight;
                for (std::size_t i = 0; i < n; ++i) next[i] += weight * (prediction(e)[i] - coasted[i]);
            }
            for (std::size_t i = 0; i < n; ++i) next[i] = coasted[i] + next[i] / total;
        }
        for (std::size_t i = 0; i < n; ++i) {
            const double most = guard * std::max(reach[i], known() > 1 ? std::abs(x[i] - before[i]) : 0.0);
            next[i] = coasted[i] + std::clamp(next[i] - coasted[i], -most, most);
        }
    }

    Samples samples_;
    Windows windows_;
    Growing since_;
    Neighbours neighbours_;
    Scores scores_;
    std::deque<Local> models_;
    std::size_t predictions_, reach_, leverage_;
    std::array<double, count> squares_{};
    std::vector<double> forward_;
};

}  // namespace

std::unique_ptr<Predictor> make_bank(const Options &options) { return std::make_unique<Bank>(options); }

}  // namespace cosimo::dmd

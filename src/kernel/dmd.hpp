// Predicting the other side of a connection from the exchanged values alone (pikulinski2025, Sec. 2.3 and 2.4).
//
// At a communication point the samples x_k (n values) have arrived and u_k (p values) is sent, to be applied until the
// next one. With z_k = [x_k; u_k] (and, with delays, the earlier z_{k-1}, ... after it) a model
//     x_{k+1} = S z_k + b,        S (n, columns),  b (n)
// is learned from the last pairs (z_j, x_{j+1}) and used one step ahead.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "dmd_memory.hpp"

namespace cosimo::dmd {

struct Options {
    enum class Method { recursive, robust, automatic };
    struct Pair {
        std::size_t position, velocity;  // indices into x
    };

    std::size_t n = 0, p = 0;
    Method method = Method::robust;
    std::size_t window = 100;  // pairs; not used by automatic
    bool centred = false;      // x_{k+1} = mean + S (z_k - mean) instead of S z_k
    std::size_t delays = 0;    // earlier samples in z
    std::vector<Pair> pairs;   // the prior advances these positions by h times their velocities
    double step = 0.0;         // h, needed by pairs
    double tolerance = 1e-6;   // directions of z smaller than this, relative to the largest samples, are not learned
    bool watched = false;      // hold the samples where the model does not predict clearly better than that
    bool lines = false;        // … and hold means a straight line through the last two samples
};

// Whether a watched predictor's model is used, for how many samples it was not, how often that changed, and when: the
// numbers of the first samples at which it did.
struct Watch {
    static constexpr double fading = 0.8, share = 0.3, rounding = 1e-11;
    static constexpr std::size_t again = 10, listed = 10;
    bool used = true;
    std::size_t held = 0, changes = 0;
    std::vector<std::size_t> changed;
};

// x_{k+1} = S z + b; z holds `samples` samples [x; u], the newest first.
struct Model {
    std::size_t samples = 1;
    std::vector<double> S, b;  // (n, (n + p) samples) by rows; (n)
};

class Predictor {
public:
    explicit Predictor(Options options);
    virtual ~Predictor() = default;
    Predictor(const Predictor &) = delete;
    Predictor &operator=(const Predictor &) = delete;

    // x (n): samples of now; u (p): sent now and applied over the coming step; next (n): x one step ahead.
    // Never allocates, never throws. A sample that is not finite or above `largest` is handed back as it came and not
    // learned from: whoever checks the values of units sees it.
    void advance(const double *x, const double *u, double *next);

    // Everything that the coming predictions depend on, as numbers.
    void save(std::vector<double> &into) const { into = memory_.values; }
    bool restore(const std::vector<double> &from);

    // From now on x_{k+1} = S z_k + b with the present model, whatever arrives.
    void freeze();
    bool frozen() const { return memory_[frozen_] != 0.0; }
    Model model() const;

    const Options &options() const { return options_; }
    // Which predictor is in charge (an index into `experts`), and by how much the last prediction missed x_k: root
    // mean square over the components, each relative to its largest magnitude so far.
    std::size_t expert() const { return static_cast<std::size_t>(memory_[expert_]); }
    double error() const { return memory_[error_]; }
    virtual std::vector<std::string> experts() const = 0;
    Watch watch() const;

    static constexpr double largest = 1e150;  // squares of what is learned from must not overflow

protected:
    // One step of learning and predicting. history() already holds the samples of now.
    virtual void learn(const double *x, double *next) = 0;
    virtual Model learned() const = 0;

    void in_charge(std::size_t expert) { memory_[expert_] = static_cast<double>(expert); }
    std::size_t width() const { return options_.n + options_.p; }
    // The sample of `age` steps ago as [x; u]; `known()` of them exist.
    const double *history(std::size_t age) const { return memory_.at(history_) + age * width(); }
    std::size_t known() const { return static_cast<std::size_t>(memory_[known_]); }
    double peak(std::size_t i) const { return memory_.at(peaks_)[i]; }
    // x advanced by h v where pairs are declared, held otherwise: what is expected before anything is learned.
    void coast(const double *x, double *next) const;

    Options options_;
    Memory memory_;

private:
    Model frozen_model() const;
    Model coasting(std::size_t samples) const;
    void apply_frozen(double *next) const;
    // With e the misses of the model and d those of the hold, summed with the weight `fading` per sample, the model is used
    // from the time on at which Σ e² ≤ share² Σ d² for all signals and `again` samples in a row, until it is not.
    void score(const double *x);
    void hold(const double *x, double *next);

    std::size_t samples_;  // kept in the history
    std::size_t known_, history_, peaks_, last_, error_, expert_, frozen_, frozen_samples_, frozen_S_, frozen_b_;
    std::size_t guess_ = 0, missed_ = 0, used_ = 0, fits_ = 0, count_ = 0, held_ = 0, changes_ = 0, changed_ = 0;
};

std::unique_ptr<Predictor> make_predictor(const Options &options);
std::unique_ptr<Predictor> make_recursive(const Options &options);
std::unique_ptr<Predictor> make_robust(const Options &options);
std::unique_ptr<Predictor> make_bank(const Options &options);

}  // namespace cosimo::dmd

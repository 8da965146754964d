// One window of fixed length, learned by sliding least squares from a prior.
#include "dmd_local.hpp"
#include "dmd_samples.hpp"

namespace cosimo::dmd {

namespace {

class Robust final : public Predictor {
public:
    explicit Robust(const Options &options)
        : Predictor(options),
          samples_(memory_, options_),
          windows_(memory_, {options_.window}, Rows(options_).pivots(), Rows(options_).columns()),
          local_(memory_, options_, options_.centred, options_.tolerance) {}
    std::vector<std::string> experts() const override {
        return {(options_.centred ? "centred window " : "window ") + std::to_string(options_.window)};
    }

protected:
    void learn(const double *x, double *next) override {
        if (samples_.scale(history(0))) {
            windows_.rescale(samples_.ratios());
            local_.rescale(samples_.scales);
        }
        if (known() > options_.delays + 1) {
            windows_.push(samples_.row(history(0)));
            windows_.refresh();
            local_.learn(windows_.factor(0), windows_.count(0));
        }
        if (known() > options_.delays && local_.predict(samples_.regressors(history(0)), samples_.next.data()))
            samples_.unscale(samples_.next.data(), next);
        else
            coast(x, next);
    }
    Model learned() const override { return local_.model(samples_.scales); }

private:
    Samples samples_;
    Windows windows_;
    Local local_;
};

}  // namespace

std::unique_ptr<Predictor> make_robust(const Options &options) { return std::make_unique<Robust>(options); }

}  // namespace cosimo::dmd

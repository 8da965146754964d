#include "dmd_scores.hpp"

#include <algorithm>
#include <array>

namespace cosimo::dmd {

namespace {
constexpr double fast_discount = 0.9, slow_discount = 0.99, slow_share = 0.3;
constexpr double event_discount = 0.3;  // a jump tells more about the experts than the calm before it
constexpr double handicap = 3.0;        // of experts that do not learn
constexpr double jump = 30.0 * 30.0, least_jump = 1e-18, rounding = 1e-24;
constexpr double hopeless = 1e6;  // an expert whose last error was a thousand times the least is left out
constexpr double least_weight = 1e-3, excluded = 1e300;
}  // namespace

Scores::Scores(Memory &memory, std::size_t experts, std::size_t plain)
    : memory_(&memory),
      experts_(experts),
      plain_(plain),
      fast_(memory.take(experts)),
      slow_(memory.take(experts)),
      last_(memory.take(experts)),
      recent_(memory.take(remembered)),
      count_(memory.counter(remembered)),
      event_(memory.counter(1)),
      weights_(experts) {}

bool Scores::is_event(double mine) const {
    const Memory &memory = *memory_;
    const auto count = static_cast<std::ptrdiff_t>(memory[count_]);
    if (count < 3 || memory[event_] != 0.0 || !(mine > least_jump)) return false;
    std::array<double, remembered> sorted{};
    std::copy(memory.at(recent_), memory.at(recent_) + count, sorted.begin());
    std::nth_element(sorted.begin(), sorted.begin() + count / 2, sorted.begin() + count);
    return mine > jump * std::max(sorted[static_cast<std::size_t>(count / 2)], rounding);
}

bool Scores::take(const double *squares, std::size_t in_charge, bool familiar, bool fresh) {
    Memory &memory = *memory_;
    double *fast = memory.at(fast_), *slow = memory.at(slow_), *recent = memory.at(recent_);
    const bool event = !fresh && familiar && is_event(squares[in_charge]);
    memory[event_] = event ? 1.0 : 0.0;
    const double keep = fresh ? 0.0 : event ? event_discount : fast_discount;
    const double before = *std::min_element(fast + plain_, fast + experts_);
    for (std::size_t e = 0; e < experts_; ++e) fast[e] = keep * fast[e] + (1.0 - keep) * squares[e];
    if (event) {
        // All miss a jump; one that does not learn must not come out ahead by luck: it keeps its distance.
        const double after = *std::min_element(fast + plain_, fast + experts_);
        for (std::size_t e = 0; e < plain_; ++e) {
            const double previous = (fast[e] - (1.0 - keep) * squares[e]) / keep;
            if (before > 0.0) fast[e] = std::clamp(previous / before * after, fast[e], 1e100);
        }
    } else {
        const double slowly = fresh ? 0.0 : slow_discount;
        for (std::size_t e = 0; e < experts_; ++e) slow[e] = slowly * slow[e] + (1.0 - slowly) * squares[e];
        std::copy(squares, squares + experts_, memory.at(last_));
    }
    if (!fresh) {
        std::copy_backward(recent, recent + remembered - 1, recent + remembered);
        recent[0] = squares[in_charge];
        memory[count_] = std::min(memory[count_] + 1.0, static_cast<double>(remembered));
    }
    return event;
}

std::size_t Scores::best(std::size_t in_charge) {
    const double *fast = memory_->at(fast_), *slow = memory_->at(slow_), *last = memory_->at(last_);
    const double limit = hopeless * std::max(*std::min_element(last, last + experts_), rounding);
    for (std::size_t e = 0; e < experts_; ++e) {
        const double sum = (e < plain_ ? handicap : 1.0) * (fast[e] + slow_share * slow[e]);
        weights_[e] = last[e] > limit ? excluded : std::max(sum, 1e-30);
    }
    std::size_t best = in_charge;
    for (std::size_t e = 0; e < experts_; ++e)
        if (weights_[e] < weights_[best]) best = e;
    const double least = weights_[best];
    for (double &weight : weights_) {
        const double ratio = least / weight;
        weight = ratio * ratio * ratio;
        if (weight < least_weight) weight = 0.0;
    }
    return best;
}

}  // namespace cosimo::dmd

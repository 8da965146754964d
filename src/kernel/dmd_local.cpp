#include "dmd_local.hpp"

#include <algorithm>

namespace cosimo::dmd {

Local::Local(Memory &memory, const Options &options, bool centred, double tolerance)
    : memory_(&memory),
      rows_(options),
      pairs_(options.pairs),
      step_(options.step),
      centred_(centred),
      S_(memory.take(rows_.n * rows_.q)),
      means_(memory.take(rows_.q + rows_.n)),
      ready_(memory.counter(1)),
      change_(rows_.q, rows_.n, tolerance),
      absorb_(absorb_for(rows_.q, rows_.q + rows_.n)),
      plain_(rows_.q * (rows_.q + rows_.n)),
      first_(rows_.q + rows_.n),
      sums_(rows_.q + rows_.n) {
    double *S = memory_->at(S_);
    for (std::size_t i = 0; i < rows_.n; ++i) S[i * rows_.q + i] = 1.0;
    for (const auto &pair : pairs_) S[pair.position * rows_.q + pair.velocity] = step_;
}

void Local::rescale(const Scales &scales) {
    double *S = memory_->at(S_), *means = memory_->at(means_);
    for (std::size_t i = 0; i < rows_.n; ++i)
        for (std::size_t j = 0; j < rows_.q; ++j)
            S[i * rows_.q + j] *= scales.ratio(i) / scales.ratio(j % rows_.width);
    for (std::size_t j = 0; j < rows_.q; ++j) means[j] *= scales.ratio(j % rows_.width);
    for (std::size_t i = 0; i < rows_.n; ++i) means[rows_.q + i] *= scales.ratio(i);
}

void Local::learn(const double *factor, std::size_t count) {
    if (count == 0) return;
    const std::size_t q = rows_.q, width = q + rows_.n, columns = rows_.columns();
    double *S = memory_->at(S_);
    if (centred_) {
        double *means = memory_->at(means_);
        for (std::size_t j = 0; j < width; ++j) means[j] = factor[1 + j] / factor[0];
        (*memory_)[ready_] = 1.0;
        change_.update(factor + columns + 1, columns, static_cast<double>(count), S);
        return;
    }
    for (std::size_t i = 0; i < q; ++i)
        std::copy(factor + (1 + i) * columns + 1, factor + (2 + i) * columns, plain_.data() + i * width);
    std::copy(factor + 1, factor + columns, first_.data());
    absorb_(plain_.data(), q, width, first_.data(), 1, false, sums_.data());
    change_.update(plain_.data(), width, static_cast<double>(count), S);
}

bool Local::predict(const double *z, double *next) const {
    const double *S = memory_->at(S_), *means = memory_->at(means_);
    if (centred_ && (*memory_)[ready_] == 0.0) return false;
    for (std::size_t i = 0; i < rows_.n; ++i, S += rows_.q) {
        double sum = 0.0;
        if (centred_) {
            for (std::size_t j = 0; j < rows_.q; ++j) sum += S[j] * (z[j] - means[j]);
            sum += means[rows_.q + i];
        } else {
            for (std::size_t j = 0; j < rows_.q; ++j) sum += S[j] * z[j];
        }
        next[i] = sum;
    }
    return true;
}

Model Local::model(const Scales &scales) const {
    Model model;
    model.samples = rows_.samples;
    model.S.resize(rows_.n * rows_.q);
    model.b.assign(rows_.n, 0.0);
    const double *S = memory_->at(S_), *means = memory_->at(means_);
    for (std::size_t i = 0; i < rows_.n; ++i) {
        double sum = means[rows_.q + i];
        for (std::size_t j = 0; j < rows_.q; ++j) {
            model.S[i * rows_.q + j] = S[i * rows_.q + j] * (scales[i] / scales[j % rows_.width]);
            sum -= S[i * rows_.q + j] * means[j];
        }
        if (centred_ && (*memory_)[ready_] != 0.0) model.b[i] = sum * scales[i];
    }
    return model;
}

}  // namespace cosimo::dmd

// window = "auto": a bank of experts.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>

#include "dmd_local.hpp"
#include "dmd_samples.hpp"

namespace cosimo::dmd {

namespace {
double tune(const char *name, double value) { const char *s = std::getenv(name); return s ? std::atof(s) : value; }

class Bank final : public Predictor {
public:
    enum Simple : std::size_t { hold, coasting, linear, quadratic, simple };

    explicit Bank(const Options &options)
        : Predictor(options),
          samples_(memory_, options_),
          windows_(memory_, {4, 6, 10, 20, 50, 100}, samples_.rows.pivots(), samples_.rows.columns()),
          since_(memory_, {100}, samples_.rows.pivots(), samples_.rows.columns()) {
        for (std::size_t m = 0; m < 2 * (windows_.windows() + 1); ++m) models_.emplace_back(memory_, options_, m % 2 == 1, options_.tolerance);
        near_ = memory_.take(reach_of * samples_.rows.columns()); near_count_ = memory_.take(1); near_next_ = memory_.take(1);
        count_ = simple + models_.size() + 2;
        predictions_ = memory_.take(count_ * options_.n);
        scores_ = memory_.take(count_);
        reach_ = memory_.take(options_.n);
        median_ = memory_.take(1);
        quarantined_ = memory_.take(1);
        scored_ = memory_.take(1);
        given_ = memory_.take(options_.n);
        lambda_ = tune("LAMBDA", .8); beta_ = tune("BETA", 0.); guard_ = tune("GUARD", 2.); jump_ = tune("JUMP", 30.); use_ = (std::size_t)tune("USE", 0x7fffffff);
        K_=(std::size_t)tune("K",8); levers_=memory_.take(count_); levw_=tune("LEVW",0); gamma_=tune("GAMMA",0); bias_=tune("BIAS",3.); start_=samples_.rows.q+(std::size_t)tune("START",2.); rest_=tune("REST",1e-12); ev_=tune("EV",.3); quar_=tune("QUAR",1)>0; most_lever_=tune("LEVER",4); lw_=(std::size_t)tune("LW",3); lever_=memory_.take(1); recent_=memory_.take(15); slow_=memory_.take(count_); lam2_=tune("LAM2",.99); ev2_=tune("EV2",.99); kappa_=tune("KAPPA",0); ridge_=tune("RIDGE",.05); first_=(std::size_t)tune("FIRST",simple+10);
        power_ = tune("POWER", 2.); stay_=tune("STAY",1.);
    }
    std::size_t experts() const override { return count_; }

protected:
    void learn(const double *x, double *next) override {
        const std::size_t n = options_.n;
        if (samples_.scale(history(0))) {
            windows_.rescale(samples_.ratios());
            since_.rescale(samples_.ratios());
            for (auto &m : models_) m.rescale(samples_.scales);
            const std::size_t C=samples_.rows.columns(); for (std::size_t i = 0; i < reach_of; ++i) for (std::size_t c = 0; c < C; ++c) memory_.at(near_)[i*C+c] *= samples_.ratios()[c];
        }
        if (known() > options_.delays + 1) {
            const bool event = score(x);
            if (event) since_.clear();
            if (event) { windows_.refresh(); since_.refresh(); }
            if (!event) {
                const double *row = samples_.row(history(0));
                if (memory_[given_] == 0.0) { const std::size_t C=samples_.rows.columns(); auto at=(std::size_t)memory_[near_next_]; std::copy(row,row+C,memory_.at(near_)+at*C); memory_[near_next_]=(at+1)%reach_of; if (memory_[near_count_]<reach_of) memory_[near_count_]+=1; }
                windows_.push(row);
                since_.push(row);
                windows_.refresh();
                since_.refresh();
                for (std::size_t w = 0; w < windows_.windows(); ++w) {
                    models_[2 * w].learn(windows_.factor(w), windows_.count(w));
                    models_[2 * w + 1].learn(windows_.factor(w), windows_.count(w));
                }
                models_[12].learn(since_.factor(0), since_.count(0));
                models_[13].learn(since_.factor(0), since_.count(0));
            }
        }
        memory_[lever_] = leverage(samples_.regressors(history(0)));
        predict(x);
        if (levw_ > 0) for (std::size_t m = 0; m < models_.size(); ++m) { auto &W = m < 12 ? windows_ : since_; memory_.at(levers_)[simple+m] = W.count(m<12?m/2:0) ? models_[m].leverage(W.factor(m<12?m/2:0), W.count(m<12?m/2:0), samples_.regressors(history(0))) : 0; }
        choose(x, next);
    }
    Model learned() const override {
        return models_[0].model(samples_.scales);
    }

private:
    double *prediction(std::size_t e) { return memory_.at(predictions_) + e * options_.n; }

    bool score(const double *x) {
        const std::size_t n = options_.n;
        double *reach = memory_.at(reach_), *scores = memory_.at(scores_);
        const double *coast = prediction(coasting);
        for (std::size_t i = 0; i < n; ++i) reach[i] = std::max(reach[i], std::abs(x[i] - coast[i]));
        double mine = 0; bool rest = true;
        for (std::size_t i = 0; i < n; ++i) rest = rest && std::abs(x[i] - coast[i]) <= rest_ * peak(i);
        memory_[given_] = rest ? 1.0 : 0.0;
        if (rest) return false;
        const bool first = memory_[scored_] == 0.0 || windows_.count(5) < start_;
        std::vector<double> errs(count_);
        for (std::size_t e = 0; e < count_; ++e) {
            const double *guess = prediction(e);
            double sum = 0.0;
            for (std::size_t i = 0; i < n; ++i)
                if (reach[i] > 0.0) { const double miss = (x[i] - guess[i]) / reach[i]; sum += miss * miss; }
            errs[e] = std::pow(std::sqrt(sum / n), power_);
            if (levw_ > 0) errs[e] /= 1 + levw_*memory_.at(levers_)[e];
            if (e == expert()) mine = std::sqrt(sum / n);
        }
        double recent[15]; const auto have = (std::size_t)memory_[median_];
        std::copy(memory_.at(recent_), memory_.at(recent_) + have, recent);
        std::nth_element(recent, recent + have / 2, recent + have);
        const double median = have < 3 ? 0.0 : std::max(recent[have / 2], 1e-12);
        bool event = windows_.count(5) >= start_ && median > 0.0 && mine > jump_ * median && mine > 1e-9 && memory_[quarantined_] == 0.0 && memory_[lever_] < most_lever_;
        const double lam = first ? 0.0 : event ? ev_ : lambda_;
        for (std::size_t e = 0; e < count_; ++e) scores[e] = lam * scores[e] + (1.0 - lam) * errs[e];
        for (std::size_t e = 0; e < count_; ++e) { double &l = memory_.at(slow_)[e]; const double m = first ? 0.0 : event ? ev2_ : lam2_; l = m * l + (1 - m) * errs[e]; }
        memory_[scored_] = 1.0;
        memory_[quarantined_] = event ? 1.0 : 0.0;
        if (windows_.count(5) >= start_) {
        std::copy_backward(memory_.at(recent_), memory_.at(recent_) + 14, memory_.at(recent_) + 15);
        memory_.at(recent_)[0] = mine; if (have < 15) memory_[median_] += 1; }
        return event && quar_;
    }
    void predict(const double *x) {
        const std::size_t n = options_.n;
        const double *a = history(0), *b = history(1), *c = history(2);
        std::copy(x, x + n, prediction(hold));
        coast(x, prediction(coasting));
        for (std::size_t i = 0; i < n; ++i) {
            prediction(linear)[i] = known() > 1 ? 2 * a[i] - b[i] : prediction(coasting)[i];
            prediction(quadratic)[i] = known() > 2 ? 3 * a[i] - 3 * b[i] + c[i] : prediction(linear)[i];
        }
        const double *z = samples_.regressors(history(0));
        for (std::size_t m = 0; m < models_.size(); ++m) {
            double *to = prediction(simple + m);
            if (known() > options_.delays && models_[m].predict(z, samples_.next.data()))
                samples_.unscale(samples_.next.data(), to);
            else
                coast(x, to);
        }
        for (std::size_t a = 0; a < 2; ++a) { double *to = prediction(simple+models_.size()+a);
          if (memory_[near_count_] > 0) neighbours(z, 10+a, to); else coast(x, to); }
    }
    void neighbours(const double *z, std::size_t base, double *to) {
        const std::size_t n = options_.n, q = samples_.rows.q, C = samples_.rows.columns();
        const auto M = (std::size_t)memory_[near_count_];
        const double *rows = memory_.at(near_);
        double best[64]; std::size_t who[64]; std::size_t k = 0;
        for (std::size_t i = 0; i < M; ++i) {
            double d = 0; for (std::size_t j = 0; j < q; ++j) { const double t = rows[i*C+1+j]-z[j]; d += t*t; }
            if (k == K_ && d >= best[k-1]) continue;
            std::size_t at = k < K_ ? k++ : k - 1;
            while (at > 0 && best[at-1] > d) { best[at]=best[at-1]; who[at]=who[at-1]; --at; }
            best[at]=d; who[at]=i;
        }
        std::vector<double> R((q+1)*(q+1+n),0.0), row(q+1+n), sums(q+1+n), guess(n);
        const double dk = (k ? best[k-1] : 0)+1e-24;
        for (std::size_t j = 0; j < q; ++j) R[j*(q+1+n)+j] = ridge_*std::sqrt(dk);
        R[q*(q+1+n)+q] = 1e-6;
        for (std::size_t a = 0; a < k; ++a) {
            const double *p = rows+who[a]*C; const double w = std::sqrt(std::max(1-.9*best[a]/dk,.05));
            models_[base].predict(p+1, guess.data());
            for (std::size_t j = 0; j < q; ++j) row[j]=w*(p[1+j]-z[j]);
            row[q]=w; for (std::size_t i = 0; i < n; ++i) row[q+1+i]=w*(p[1+q+i]-guess[i]);
            absorb(R.data(), q+1, q+1+n, row.data(), 1, false, sums.data());
        }
        models_[base].predict(z, guess.data());
        for (std::size_t i = 0; i < n; ++i) guess[i] += R[q*(q+1+n)+q+1+i]/R[q*(q+1+n)+q];
        samples_.unscale(guess.data(), to);
    }
    double leverage(const double *z) {
        const std::size_t q = samples_.rows.q, C = samples_.rows.columns(), w = lw_;
        if (windows_.count(w) < 2) return 1e300;
        const double *F = windows_.factor(w);
        std::vector<double> a(q);
        double sum = 1.0 / windows_.count(w);
        for (std::size_t j = 0; j < q; ++j) {
            double v = z[j] - F[1 + j] / F[0];
            for (std::size_t i = 0; i < j; ++i) v -= a[i] * F[(1 + i) * C + 1 + j];
            const double r = F[(1 + j) * C + 1 + j];
            if (std::abs(r) < 1e-12) { if (std::abs(v) > 1e-11) return 1e300; a[j] = 0; continue; }
            a[j] = v / r;
            sum += a[j] * a[j];
        }
        return sum;
    }
    void choose(const double *x, double *next) {
        const std::size_t n = options_.n;
        double *scores = memory_.at(scores_), *reach = memory_.at(reach_);
        const double *coast = prediction(coasting);
        std::vector<double> eff(scores, scores + count_); if (kappa_>0) for (std::size_t e=0;e<count_;++e) eff[e]+=kappa_*memory_.at(slow_)[e]; if (levw_>0) for (std::size_t e=0;e<count_;++e) eff[e]*=1+levw_*memory_.at(levers_)[e]; if (gamma_>0) for (std::size_t m=0;m<models_.size();++m){ const double c=m<12?windows_.count(m/2):since_.count(0), k=samples_.rows.q+m%2; eff[simple+m]*=std::pow((c+k)/std::max(c-k,.5),gamma_);} scores=eff.data();
        std::size_t best = memory_[scored_] == 0.0 ? first_ : expert();
        if (windows_.count(5) < start_) best = first_;
        else if (memory_[scored_] != 0.0) {
            double b = stay_ * scores[best] * (best < simple ? bias_ : 1.0);
            for (std::size_t e = 0; e < count_; ++e)
                if ((use_ >> e & 1) && scores[e] * (e < simple ? bias_ : 1.0) < b) b = scores[e] * (e < simple ? bias_ : 1.0), best = e;
        }
        in_charge(best);
        std::copy(prediction(best), prediction(best) + n, next);
        if (beta_ > 0 && windows_.count(5) >= start_) {
            std::fill(next, next + n, 0.0);
            double total = 0;
            for (std::size_t e = 0; e < count_; ++e) if (use_ >> e & 1) {
                const double w = std::pow(std::max(scores[best], 1e-300) / std::max(scores[e] * (e < simple ? bias_ : 1.0), 1e-300), beta_);
                if (w < 1e-3) continue;
                total += w;
                for (std::size_t i = 0; i < n; ++i) next[i] += w * prediction(e)[i];
            }
            for (std::size_t i = 0; i < n; ++i) next[i] /= total;
        }
        (void)x;
        for (std::size_t i = 0; i < n; ++i) {
            const double most = guard_ * std::max(reach[i], std::abs(history(0)[i]-history(1)[i]));
            next[i] = coast[i] + std::clamp(next[i] - coast[i], -most, most);
        }
    }

    Samples samples_;
    Windows windows_, since_;
    std::deque<Local> models_;
    std::size_t count_, predictions_, scores_, reach_, median_, quarantined_, scored_, given_;
    static constexpr std::size_t reach_of=300; std::size_t near_, near_count_, near_next_, K_, first_; double ridge_;
    std::size_t lever_, lw_; double most_lever_; std::size_t recent_; std::size_t slow_; double lam2_, ev2_, kappa_, gamma_, levw_; std::size_t levers_; double bias_, rest_, ev_; bool quar_; std::size_t start_; double lambda_, beta_, guard_, jump_, power_, stay_;
    std::size_t use_;
};

}  // namespace

std::unique_ptr<Predictor> make_bank(const Options &options) { return std::make_unique<Bank>(options); }

}  // namespace cosimo::dmd

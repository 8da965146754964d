// Macro steps that are not all of one length: a stepper chooses them, over the same program. execution/adaptive says what
// each does and does the same in plain Python, rounding for rounding.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "program.hpp"

namespace cosimo {

// The PI controller: the next step is safety · ε^(−now) · before^(past) times the present one, within [shrink, grow].
struct Control {
    double safety, now, past, shrink, grow, least_error, exponent;
    long long settling, stuck;  // see SETTLING and STUCK in execution/adaptive
};

// First, shortest and longest step, in quanta.
struct Lengths {
    long long first, shortest, longest;
    long long fit(double wanted) const;
};

struct Tolerances {
    double relative, absolute;
    double of(double size) const { return largest(relative * size + absolute, std::numeric_limits<double>::min()); }
    // As NumPy's maximum: what is not a number stays so.
    static double largest(double a, double b) { return a > b || a != a ? a : b; }
};

// What is exchanged: links, then external inputs. `used` is the input at the end of the step, `counts` whether it is
// continuous.
struct Exchanged {
    std::uint32_t source;
    double gain, offset;
    std::uint32_t first, stride;
    std::vector<double> weights;
    bool counts;
};

// Python's side, called where a system has external inputs: the first jump after a place, at most so far ahead (−1: none);
// samples for the macro step from a place on; samples at a place.
struct Outside {
    std::function<long long(long long, long long)> jump;
    std::function<void(long long, long long, double *)> given;
    std::function<void(long long, double *)> sampled;
};

// The largest error of a step as a multiple of what is tolerated, and where: a place among what is exchanged, or, from
// their number on, among the outputs.
struct Judged {
    double error = 0.0;
    long long worst = -1;
    void join(double other, std::size_t where) {
        if (other != other) other = std::numeric_limits<double>::infinity();
        if (other > error || worst < 0) *this = {other, static_cast<long long>(where)};
    }
};

class Stepper {
public:
    virtual ~Stepper() = default;
    // Make one accepted macro step, or two, and write their rows; `rows_made` says how many.
    virtual int advance(Program &, double *rows) = 0;
    // After a failure that a shorter step may avoid: go back, so that the next call tries one. Whether there is one.
    virtual bool retry(Program &, int &) { return false; }
    virtual void begin(Program &);
    // What it goes by from one accepted macro step to the next, and what came of it so far.
    virtual void remember(StateBytes &);

    Control control;
    Lengths lengths;
    Tolerances tolerances;
    std::vector<Exchanged> exchanged;
    std::size_t links = 0;  // of what is exchanged; the rest is external
    std::vector<double> given, external;  // samples within the macro step, and at its end; constant without `outside`
    Outside outside;
    long long pair = 1;  // macro steps that are chosen together
    long long rows_made = 0;
    bool tells_length = true;  // whether rows end with the length of the macro step
    bool over(const Machine &m) const { return m.total >= 0.0 && static_cast<double>(place) >= m.total; }

    // What came of it.
    long long place = 0, accepted = 0, made = 0, rejected = 0, least = 0, most = 0, forced = 0, forced_at = 0;
    Judged first_forced, judged;

protected:
    long long wanted_ = 0, since_ = 0;
    double before_ = 1.0;
    std::vector<double> used_, now_, old_, sizes_, seen_sizes_;

    struct Way {
        long long length;
        bool jumped;
    };
    Way way(const Machine &) const;
    int make(Program &, long long from, long long length);
    static int ends_inside(Program &);
    void write(Program &, double *row);
    void accept(long long length);
    void choose(long long length, double error, bool jumped);
    void force();
    void take_samples(const Machine &, long long at, std::vector<double> &to);
    void look(const Machine &, long long at);
    void take_over();
    bool counted(std::size_t signal, bool jumped) const { return exchanged[signal].counts && !(jumped && signal >= links); }
};

// Every step is accepted; what it left of residual energy and defects decides on the next.
class EnergyStepper final : public Stepper {
public:
    struct Bond {
        std::uint32_t forward, back;
        double gain, residual = 0.0, exchanged = 0.0;
    };
    std::vector<Bond> bonds;
    double nominal = 1.0;
    int advance(Program &, double *rows) override;
    void remember(StateBytes &) override;

private:
    std::vector<double> alone_, errors_;
    void judge(const Machine &, long long at, bool jumped);
};

// Saves all units and signals, and goes back to them.
class RestoringStepper : public Stepper {
public:
    Sequence saving, restoring;
    bool retry(Program &, int &) override;

protected:
    bool saved_ = false, trying_ = false;
    int save(Program &);
    int restore(Program &);
    virtual bool can_shorten() const = 0;
    // Go back, and make the next steps shorter.
    virtual int reject(Program &, double error) = 0;

private:
    std::vector<double> kept_y_, kept_w_;
    std::vector<long long> kept_stamps_, kept_read_at_;
};

// Macro steps of one length, 2^halvings quanta, that are made in 2^level parts once a unit has discarded one.
class CarefulStepper final : public RestoringStepper {
public:
    CarefulStepper() { tells_length = false; }
    int halvings = 0, level = 0;
    // What couplings remember, w[first …], as if samples had always been so close: by a matrix for each number of halvings,
    // times w and the present sample (execution/engines.py: resamplings).
    struct Resampled {
        std::uint32_t source;  // y[source]
        double gain, offset;
        std::uint32_t first, history;
        std::vector<double> matrices;
    };
    std::vector<Resampled> resampled;
    int advance(Program &, double *rows) override;
    void remember(StateBytes &) override;

private:
    int saved_level_ = 0;
    bool can_shorten() const override { return level < halvings; }
    int reject(Program &, double) override;
};

// Pairs of macro steps, each compared with one of twice the length, from the same saved state.
class DoublingStepper final : public RestoringStepper {
public:
    DoublingStepper() { pair = 2; }
    double shrinks = 1.0;        // 2^p − 1
    double steeper = 1.0;        // (p + 1) / p
    Tolerances changes{};        // of the inputs
    std::vector<char> counts;    // per output: whether it is continuous
    // Units whose outputs are asked for at the end of both ways: those that feed inputs through (`inputs`: where each
    // input's value is found, and whether the unit keeps its own) and those that are read early.
    struct Asked {
        Unit *unit;
        int number;
        std::uint32_t output;
        bool through, early;
        std::vector<Exchanged> inputs;
        std::vector<double> given, own;  // as long as the unit's input polynomial
    };
    std::vector<Asked> asked;
    int advance(Program &, double *rows) override;
    void begin(Program &) override;
    void remember(StateBytes &) override;

private:
    bool shortest_ = false;
    long long length_ = 0, half_ = 0, refused_ = 0, stuck_ = 0;
    std::vector<double> long_, short_, largest_, seen_largest_;
    bool can_shorten() const override { return !shortest_; }
    int reject(Program &, double error) override;
    int attempt(Program &, bool jumped, double *rows);
    int ask(Program &, std::vector<double> &to, bool again);
    void judge(const Machine &, long long at, bool jumped);
};

}  // namespace cosimo

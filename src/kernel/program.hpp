// A schedule lowered to instructions over flat arrays, and the loop that runs it.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "acceleration.hpp"
#include "fmi.hpp"
#include "monitor.hpp"
#include "pool.hpp"
#include "unit.hpp"

namespace cosimo {

namespace dmd {
class Predictor;
}
class Stepper;

// What a unit has just written is read value by value (volatile): a processor waits where a wider load spans two stores. And a
// call takes longer than copying few values.
template <class Value>
inline void copy_values(Value *to, const Value *from, std::size_t n) {
    if (n > 16) {
        std::memcpy(to, from, n * sizeof(Value));
        return;
    }
    for (std::size_t i = 0; i < n; ++i) to[i] = const_cast<const volatile Value *>(from)[i];
}

// All numbers the instructions work on. y: outputs of all units; c: their input polynomials; w: coupling memories;
// e: what is given from outside in the present macro step.
struct Machine {
    std::vector<double> y, c, w;
    const double *e = nullptr;
    // The macro step k lasts `parts` quanta of time; where all are alike, a quantum is a macro step. After `total` quanta it
    // is exactly `stop`.
    double start = 0.0, h = 1.0, quantum = 1.0, parts = 1.0, total = -1.0, stop = 0.0;
    long long k = 0;
    // Where macro steps vary: the places at which units were read, and those of the samples that couplings remember.
    std::vector<long long> read_at, stamps;
    // The unit that is called and what for, in one word, and how many stages of steps there were, for who asks while the loop
    // runs.
    std::atomic<std::uint64_t> calling{call_of(-1, setting)};
    std::atomic<unsigned long long> stages{0};
    static constexpr std::uint64_t call_of(int number, Phase phase) {
        return static_cast<std::uint64_t>(phase) << 32 | static_cast<std::uint32_t>(number);
    }
    // −1: several at once
    int busy() const { return static_cast<int>(static_cast<std::uint32_t>(calling.load(std::memory_order_relaxed))); }
    Phase doing() const { return static_cast<Phase>(calling.load(std::memory_order_relaxed) >> 32); }
    std::vector<std::string> names;  // of the units
    std::vector<bool> away;          // which units are in other processes; shorter where the rest are not
    bool is_away(int number) const { return static_cast<std::size_t>(number) < away.size() && away[static_cast<std::size_t>(number)]; }
    void calls_unit(std::uint64_t call) { calling.store(call, std::memory_order_relaxed); }
    void calls_unit(int number, Phase phase) { calls_unit(call_of(number, phase)); }
    // Units are stepped, each once: tells a call from the same one of the next macro step.
    void begins_stage() { stages.store(stages.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
    // Where it went wrong.
    int unit = -1, status = 0, output = -1;
    Phase phase = setting;
    double at = 0.0, duration = 0.0, value = 0.0;
    int ending = -1;  // the unit that wants the run to end with this macro step
    // Whether a model does not fit, so that plain holds take the place of mixers; and since which macro steps it was so, with
    // the number of the model, or not so any more, with −1.
    struct Switch {
        long long k, number;
    };
    bool held = false;
    std::vector<Switch> switches;
    // Values that are not finite end the run, or are noted once per output (place in y) where they are tolerated.
    struct NotFinite {
        std::uint64_t place;
        double at, value;
    };
    bool tolerant = false;
    std::vector<NotFinite> not_finite;
    std::vector<char> noted;

    double time(double fraction) const {
        const double place = static_cast<double>(k) + fraction * parts;
        return place == total ? stop : start + place * quantum;
    }
    int fail(int which, Phase doing, int code, double when, double step = 0.0) {
        unit = which;
        phase = doing;
        status = code;
        at = when;
        duration = step;
        value = NAN;
        return bad_status;
    }
    // The same of a unit that may know better where it failed.
    int fail(const Unit &of, int which, Phase doing, int code, double when, double step = 0.0) {
        fail(which, doing, code, when, std::isnan(of.failed_at) ? step : of.failed_for);
        value = of.failed_at;
        return bad_status;
    }
    // A unit that wants the run to end is given no more inputs.
    bool over(const Unit &of) const { return ending >= 0 && of.wants_end; }
    // A unit that got to the end of the macro step, but for rounding, lets it be finished.
    int ends(int which, const Unit &asking, double when, double step) {
        const double end = time(1.0);
        if (asking.got_to >= end - time_rounding(time(0.0), end, h)) {
            ending = ending < 0 ? which : std::min(ending, which);  // of several the first in the system
            return ok;
        }
        fail(which, stepping, ended_inside, when, step);
        value = asking.got_to;
        return bad_status;
    }
};

struct Instruction {
    virtual ~Instruction() = default;
    virtual int run(Machine &) = 0;
    virtual void remember(StateBytes &) {}
};
using Sequence = std::vector<std::unique_ptr<Instruction>>;

int run_all(Sequence &instructions, Machine &machine);

constexpr std::uint32_t max_history = 16;

// One call of a function of an FMU (F: Fmi2 or Fmi3) with all it needs in one cache line: long chains are bound by memory,
// not by arithmetic.
template <class F>
struct DirectCall {
    void *component;
    union {
        typename F::Set set;
        typename F::Get get;
        typename F::Step step;
    } function;
    const std::uint32_t *references;
    std::uint32_t count, size;  // of references and, as arrays of FMI 3 have one for all elements, of values
    std::uint32_t first;        // of the numbers in c or y
    int final_step;
    double tau, duration;
    std::uint64_t call;  // of which unit, and what it is: Machine::call_of

    int set(const double *c) const {
        if constexpr (std::is_same_v<F, Fmi2>) return bad(function.set(component, references, count, c + first));
        else return bad(function.set(component, references, count, c + first, size));
    }
    int get(double *y) const {
        if constexpr (std::is_same_v<F, Fmi2>) return bad(function.get(component, references, count, y));
        else return bad(function.get(component, references, count, y, size));
    }
};

// The calls of a stage, where all its units are FMUs of one version with plain inputs.
struct DirectCalls {
    std::vector<DirectCall<Fmi2>> fmi2;
    std::vector<DirectCall<Fmi3>> fmi3;
    template <class F>
    auto &of() {
        if constexpr (std::is_same_v<F, Fmi2>) return fmi2;
        else return fmi3;
    }
};

// One connection into an input, as the couplings describe it.
struct Link {
    std::uint32_t source, first, stride;  // y[source] → c[first + j stride]
    double gain, offset;
    std::uint32_t memory, history, powers;  // w[memory …]
    std::vector<double> ww, ws, uw;
};

// The same where macro steps vary: the polynomial through the samples at the times they belong to (variable.py). In
// machine.stamps from `stamps` on: how many are known, and their places, the newest first.
struct TimedLink {
    Link link;
    std::uint32_t unit, stamps;  // `unit` is the source
    double tau;
    double parts = 0.0;  // for which, and for which distances, the matrices hold
    std::vector<long long> away, kept;
    void run(Machine &);

private:
    void interpolate(double lasting);
};

// An external input: samples e[first …] → c[target + j stride] through the matrix `fit`.
struct External {
    std::uint32_t first, target, stride, powers;
    std::vector<double> fit;
};

struct Copy {
    std::uint32_t target, source;
};

struct Scaled {
    std::uint32_t target, source;
    double gain, offset;
};

// All connected inputs of a unit at once: w' = [F^ww F^wy] [w; y], c[targets] = F^uw w' + offsets. After `startup` uses
// (−1: never) only this is left of it: w[to] = w[from] for the shifts, in their order; w[slot] = y[output] for the
// samples; and per input the sum of gain · w[slot] over its taps.
struct Mix {
    struct Tap {
        std::uint32_t slot;
        double gain;
    };
    std::vector<std::uint32_t> targets;
    std::uint32_t memory, size;
    std::vector<double> update, input, offsets, fresh;
    long long startup = -1;
    std::vector<Copy> shifts, samples;
    std::vector<Tap> taps;
    std::vector<std::uint32_t> ends;  // of the taps of each input
    std::vector<Scaled> holds;        // where models are checked: what is given while one does not fit
    void run(Machine &);

private:
    void whole(Machine &);
    void settled(Machine &);
};

// Models of units against the units, at the beginning of each macro step but the first (core/coupling.py: ModelCheck). In w
// from `memory` on: how many samples there were; the last y and c; N changes of y, then of c, newest first; sums of r², q² and
// Δy², and the largest |y|, for each output. In w at `state`: whether inputs are held, and for how long all models fit.
struct Checks final : Instruction {
    struct Check {
        std::vector<std::uint32_t> outputs;  // in y
        std::uint32_t first, width, samples, memory;
        std::vector<double> own, driven, share, noise, change, drive, foreseen, brought;
        bool fits(const Checks &, Machine &);
    };
    std::vector<Check> checks;
    std::uint32_t state = 0;
    double fading = 0.0, tolerated = 0.0, again = 0.0;
    int run(Machine &) override;
};

// Inputs predicted together (core/master.py). In w from `memory` on: the nodes X_-1, X_0 and X_1 (n each), then which
// expert is in charge, and the last prediction error. The input is the line from node `node` to the next one.
struct Predict {
    dmd::Predictor *predictor;
    std::vector<Scaled> samples;                  // x[target] = gain * y[source] + offset
    std::vector<std::uint32_t> actions, targets;  // of u in y; of c_0 in c, with c_1 `stride` further
    std::uint32_t stride, memory;
    int node;
    double phase, period;
    bool fresh;
    std::vector<double> x, u, next;
    void run(Machine &);
};

struct Couple final : Instruction {
    std::vector<Copy> copies;
    std::vector<Scaled> scaled;
    bool held = false;  // whether copies and scaled values are all there is
    std::vector<Mix> mixes;
    std::vector<Predict> predictions;
    std::vector<Link> links;
    std::vector<TimedLink> timed;
    std::vector<External> externals;
    struct Target {
        Unit *unit;
        int number;
        std::uint32_t first;
        double tau;
        std::uint64_t call;
        int set(const double *c) const { return unit->set(c + first); }
    };
    std::vector<Target> targets;
    DirectCalls calls;
    int run(Machine &) override;
    void remember(StateBytes &bytes) override {
        for (Mix &mix : mixes) bytes.value(mix.startup);
    }

private:
    template <class F>
    friend struct Round;
    void form_inputs(Machine &);
    void form_others(Machine &);
    template <class Call>
    int set_each(Machine &, const std::vector<Call> &);
};

// Give a unit what it can take of the polynomial, moved to the start of its step.
struct Shift final : Instruction {
    Unit *unit;
    int number;
    std::uint32_t first, inputs, powers, kept;
    double tau;
    std::vector<double> cut, buffer;
    int run(Machine &) override;
};

struct Stepped {
    Unit *unit;
    int number, map;
    double tau, duration;
    std::uint64_t call;
    double fraction = 1.0;   // of the macro step
    int base = 0, maps = 0;  // which of the unit's maps of one length it is, and how many these are
    void last(double h, int length) {
        duration = fraction * h;
        map = base + length * maps;
    }
};

// Units that step without looking at each other; in parallel where that pays.
struct Step final : Instruction {
    std::vector<Stepped> units;
    std::vector<Stepped> posted;  // those whose steps are sent to other processes before any is waited for
    Pool **pool = nullptr;
    int parallel = -1;  // -1: measure first; 0: no; 1: yes
    std::vector<double> cost;
    std::vector<int> statuses;  // of a shared stage that are not 0
    static constexpr int warm_up = 3, samples = 16, proofs = 64;  // stages
    int measured = 0, proved = 0;
    long long waiting = 0, patience = 1000;  // stages before sharing is tried again, and that next time
    double serial_cost = 0.0, shared_cost = 0.0;
    DirectCalls calls;
    int run(Machine &) override;
    // Macro steps last h from now on; their maps are those of the length of this number.
    void last(double h, int length);

private:
    template <class F>
    friend struct Round;
    static int outcome(Machine &m, const Stepped &s, int status) {
        if (status) [[unlikely]]
            return m.fail(*s.unit, s.number, stepping, status, m.time(s.tau), s.duration);
        return s.unit->wants_end ? m.ends(s.number, *s.unit, m.time(s.tau), s.duration) : ok;
    }
    static int call(Machine &, const Stepped &, const Stepped &, double time);
    static int call(Machine &, const Stepped &, const DirectCall<Fmi2> &, double time);
    static int call(Machine &, const Stepped &, const DirectCall<Fmi3> &, double time);
    template <class Call>
    int step_each(Machine &, const std::vector<Call> &);
    int serial(Machine &);
    int shared(Machine &);
    int share(Machine &);
    template <class Work>
    int timed(double &least, Work work);
    int prove(Machine &);
    int measure(Machine &);
};

struct Read final : Instruction {
    struct Source {
        Unit *unit;
        int number;
        std::uint32_t first;
        double tau;
        std::uint64_t call;
        int get(double *y) const { return unit->get(y); }
    };
    // Outputs that lie side by side in y. They are looked at after all units were read: a branch in between costs a small
    // unit a fifth of its time.
    struct Span {
        std::uint32_t first, count;
    };
    std::vector<Source> sources;
    std::vector<Span> spans;
    void add(const Source &);
    DirectCalls calls;
    int run(Machine &) override;

private:
    template <class F>
    friend struct Round;
    template <class Call>
    int get_each(Machine &, const std::vector<Call> &);
    void note_places(Machine &) const;
    static int not_finite(Machine &, const Source &);
    int not_finite(Machine &, const Source *end);
    int failed(Machine &, const Source *, int status);
};

// Couple, step and read where all units are FMUs of one version (F: Fmi2 or Fmi3) that are called directly, in one function:
// of a macro step of small units, a tenth is spent on the way from one instruction to the next.
template <class F>
struct Round final : Instruction {
    Round(std::unique_ptr<Instruction> couple, std::unique_ptr<Instruction> step, std::unique_ptr<Instruction> read);
    int run(Machine &) override;
    void remember(StateBytes &bytes) override { couple_->remember(bytes); }

private:
    std::unique_ptr<Couple> couple_;
    std::unique_ptr<Step> step_;
    std::unique_ptr<Read> read_;
};

// Units that are saved, or put back, one after the other; with each its input polynomial.
struct Keep final : Instruction {
    struct Member {
        Unit *unit;
        int number;
        std::uint32_t first;
        std::vector<double> *saved;
    };
    bool put_back;
    std::vector<Member> members;
    bool all_fmi2 = false;
    int run(Machine &) override;

private:
    template <class U>
    int all(Machine &);
};

struct Repeat final : Instruction {
    std::vector<Sequence> sweeps;
    long long times = 0;  // 0: until convergence
    double tolerance = 0.0;
    long long limit = 0;
    Acceleration acceleration;
    std::vector<long long> *counts;
    std::vector<double> *residuals;
    int run(Machine &) override;
    void remember(StateBytes &bytes) override {
        for (Sequence &sweep : sweeps)
            for (auto &instruction : sweep) instruction->remember(bytes);
        acceleration.remember(bytes);
    }

private:
    int until(Machine &);
    std::vector<double> before_;
};

// One column of a row: an output, or the value of an input polynomial at the end of the macro step.
struct Column {
    std::uint32_t first, stride, powers;  // powers = 0: y[first] or w[first]; else Σ_j at^j c[first + j stride]
    std::vector<double> weights;
    bool memory = false;
};

class Ticker;

class Program {
public:
    Program();
    ~Program();
    Machine machine;
    std::vector<std::unique_ptr<Unit>> units;
    Sequence instructions;
    std::vector<std::vector<double>> saved;
    std::vector<Column> columns;
    std::vector<long long> sweep_counts;
    std::vector<double> sweep_residuals;
    Pool *pool = nullptr;
    std::unique_ptr<Pool> own_pool;
    bool with_python = false;
    std::unique_ptr<Monitor> monitor;  // none: nothing is watched
    std::unique_ptr<Stepper> stepper;  // none: all macro steps are alike
    std::vector<Step *> stages;
    std::vector<Unit *> stretched;  // units that go by the length of the macro step
    // Where units have constants for every length: adds those of a new one, and gives its number.
    std::function<int(long long)> prepare;
    std::unordered_map<long long, int> lengths;

    // The next macro steps last so many quanta.
    void last(long long parts);

    // Make `count` macro steps from number `first` on and write a row (time, then columns) for each. Returns the outcome;
    // `made` says how far it got. A stepper goes on from where it is, and adds the length of the macro step to each row.
    int run(long long first, long long count, const double *given, std::size_t given_width, double *rows);
    long long made = 0;
    std::unique_ptr<Ticker> ticker, sampler;
    // How often each unit was found at work, every so many seconds, first of all several at once.
    void time_units(double seconds);
    std::vector<std::atomic<std::uint64_t>> samples;
    std::atomic<bool> inside{false};  // whether `run` is at work
    void write(double *row) const;
    void remember(StateBytes &);

private:
    bool plain_ = false;
    bool prepared_ = false;
    void prepare_rows();
    void write_row(double *row) const;
    void write_columns(double *row) const;
};

// What the loop looks at once per macro step: counted up by the signal handler that `run` installs, and by the tickers.
// Nobody resets it, so that runs in several threads do not take each other's signals away.
extern std::atomic<unsigned> attention;
extern std::atomic<unsigned> interrupts;  // of these, what the user's signals added

// SIGINT and SIGTERM are counted there while somebody wants it; whoever handled them before still does. Who installs another
// handler meanwhile lets the signals be counted again.
void count_signals();
void count_signals_no_more();
void count_signals_again();

// Does something from time to time, however slow the units are: lets the loop return to its caller, so that rows get
// written, or notes which unit is at work.
class Ticker {
public:
    Ticker(double seconds, std::function<void()> each);
    ~Ticker();

private:
    std::mutex mutex_;
    std::condition_variable wake_;
    std::atomic<bool> ending_ = false;
    std::thread thread_;
};

}  // namespace cosimo

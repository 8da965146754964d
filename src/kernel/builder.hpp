// How a program is built: units first, then instructions in order. Knows nothing of Python.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "program.hpp"

namespace cosimo {

using Numbers = std::vector<double>;
using Indices = std::vector<std::uint32_t>;
using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
using Sources = std::vector<std::tuple<std::uint32_t, double, double>>;
using Inputs = std::vector<std::tuple<std::uint32_t, std::uint32_t, Numbers>>;
using Bonds = std::vector<std::tuple<std::uint32_t, std::uint32_t, double>>;
using Taps = std::vector<std::vector<std::pair<std::uint32_t, double>>>;
using Signal = std::tuple<std::uint32_t, double, double, std::uint32_t, std::uint32_t, Numbers, bool>;  // Exchanged
using Where = std::pair<double, long long>;  // an error, and the place of the signal
using Tally = std::tuple<long long, long long, std::pair<long long, long long>, long long, long long, long long, long long, Where,
                         std::vector<std::pair<double, double>>>;

struct Exchanged exchanged(const Signal &);

class Builder {
public:
    Builder(double start, double h, Numbers y, Numbers c, Numbers w) {
        program.machine.start = start;
        program.machine.h = program.machine.quantum = h;
        program.machine.y = std::move(y);
        program.machine.c = std::move(c);
        program.machine.w = std::move(w);
        open.push_back(&program.instructions);
    }

    Program program;
    std::vector<Sequence *> open;

    int add(std::unique_ptr<Unit> unit);
    int linear(Numbers x, Numbers c, std::size_t inputs, Numbers output, std::size_t outputs, bool through);
    int linear_map(int unit, Numbers step, Numbers along);
    int compiled(std::uintptr_t step, std::uintptr_t output, Numbers x, Numbers u, Numbers y);
    int fmi2(std::uintptr_t component, const std::vector<std::uintptr_t> &f, Indices in, Indices out);
    // `scale` holds j! / h^j for every derivative, in the order of `orders`.
    void input_derivatives(int number, std::uintptr_t derive, Indices references, std::vector<int> orders, Numbers scale, Numbers c);
    int input_map(int number, Numbers along);
    int fmi3(std::uintptr_t component, const std::vector<std::uintptr_t> &f, Indices in, Indices out, std::size_t inputs,
             std::size_t outputs);
    // Steps of the last unit, of FMI 3.0, may be several calls. `f`: of event mode, empty where there is none.
    void events(int number, const std::vector<std::uintptr_t> &f, bool variable_step, double next_event);
    // The last unit lives in another process, to which steps can be sent ahead.
    void post(int number, int version, std::uintptr_t post_step);
    // Turn the last unit, an FMU without variables of its own, into one with variables of several types.
    void typed(int number, int version, std::uintptr_t component, std::size_t inputs, std::size_t outputs);
    void typed_group(int number, bool input, int type, Indices references, Indices positions, std::uintptr_t function);
    // The discrete inputs of the last unit are given in event mode; all were `given` these values last.
    void discrete_inputs(int number, const std::vector<bool> &discrete, Numbers given);

    // Consecutive operations of one kind are put into one instruction as long as `couple` and its like are called again.
    void copy(std::uint32_t target, std::uint32_t source) { couple_stage().copies.push_back({target, source}); }
    void scale(std::uint32_t target, std::uint32_t source, double gain, double offset);
    void link(std::uint32_t source, std::uint32_t first, std::uint32_t stride, double gain, double offset,
              std::uint32_t memory, Numbers ww, Numbers ws, Numbers uw);
    // Macro steps vary: they last whole quanta, the first `parts` of them, and end after `total` at `stop`.
    // `read_at` and `stamps`: see Machine; empty where no coupling remembers samples.
    void vary(double quantum, long long parts, std::pair<long long, double> total_and_stop, std::vector<long long> read_at,
              std::vector<long long> stamps);
    // A hold of so many samples, taken from `unit`.
    void timed_link(const std::tuple<std::uint32_t, double, double> &source, std::uint32_t first, std::uint32_t stride,
                    std::uint32_t memory, std::uint32_t history, std::pair<std::uint32_t, std::uint32_t> unit_and_stamps, double tau);
    void mix(Indices targets, std::uint32_t memory, std::uint32_t size, Numbers update, Numbers input, Numbers offsets);
    // What becomes of the last mix after its start-up.
    void settle(long long startup, const Pairs &shifts, const Pairs &samples, const Taps &taps);
    // What the last mix gives while a model does not fit: source, gain and offset of each of its first targets.
    void hold(const Sources &sources);
    // Check models at the beginning of each macro step: the constants of ModelCheck, and where the decision is kept.
    void check_models(double fading, double tolerated, double again, std::uint32_t state);
    void check_model(Indices outputs, std::uint32_t first, std::uint32_t width, std::pair<std::uint32_t, std::uint32_t> samples_and_memory,
                     Numbers own, Numbers driven, Numbers share, Numbers noise);
    // One joint coupling at one operation; the predictor must outlive the program (Python keeps it).
    void predict(dmd::Predictor &predictor, const Sources &samples, Indices actions, Indices targets, std::uint32_t stride,
                 std::uint32_t memory, std::pair<int, bool> node_and_fresh, double phase, double period);
    void external(std::uint32_t first, std::uint32_t target, std::uint32_t stride, std::uint32_t powers, Numbers fit);
    void couple(int unit, std::uint32_t first, double tau) { couple_stage().targets.push_back({at(unit), unit, first, tau, Machine::call_of(unit, setting)}); }
    void shift(int unit, std::uint32_t first, std::uint32_t inputs, std::uint32_t powers, double tau, Numbers cut);
    void step(int unit, int map, double tau, double duration);
    // What part of a macro step the last one is, where these vary.
    void fraction(double part) { steps.back()->units.back().fraction = part; }
    void read(int unit, std::uint32_t first, double tau) { last<Read>().add({at(unit), unit, first, tau, Machine::call_of(unit, reading)}); }
    void keep(int unit, bool put_back, std::uint32_t first, std::size_t width);
    void begin_repeat(long long times, double tolerance, long long limit, std::size_t sweeps);
    void accelerate(std::size_t depth, bool lasts, long long first, Numbers correction);
    void begin_sweep(std::size_t number) { open.push_back(&repeats.back()->sweeps[number]); }
    void end_sweep() { open.pop_back(); }
    void end_repeat() { repeats.pop_back(); }
    // Later operations of the same kind start an instruction of their own.
    void barrier() { fence = open.back()->empty() ? nullptr : open.back()->back().get(); }
    void column(std::uint32_t first, std::uint32_t stride, Numbers weights);
    void memory_column(std::uint32_t first) { program.columns.push_back({first, 0, 0, {}, true}); }
    // What is watched: per link its source, gain and offset; the inputs of the links, then external ones; bonds between
    // links; per output its unit, and per unit the outputs near it.
    void watch(const Sources &links, Inputs inputs, const Bonds &bonds, Indices owners, std::vector<Indices> groups, bool stop);
    // threads: how many may run units at once; mode −1: where it pays, 0: never, 1: always. The loop returns to its
    // caller at least every `interval` seconds, or after the macro step that takes longer; 0: never before the end.
    void finish(unsigned threads, int mode, double interval);
    // Somebody else may save the units after any step and put them back: none is told that this cannot happen.
    void can_go_back();
    // Let go of units, threads and saved states; must come before the instances themselves are freed.
    void release();
    bool shared() const;
    // FMUs whose steps gave a last successful time before their beginning: number, that beginning, the time given.
    std::vector<std::tuple<std::size_t, double, double>> went_back() const;

    // Of macro steps that vary, or are made in parts. What is saved to go back to: a unit, and where its `width` numbers of c begin.
    void go_back_to(int unit, std::uint32_t first, std::size_t width);
    // A unit whose outputs, from `output` on, are asked for at the end of both ways; `inputs`: its inputs where it feeds
    // them through, else none.
    void ask(int unit, std::uint32_t output, bool early, std::size_t width, const std::vector<Signal> &inputs);
    // Whether a shorter step can be tried after a failure, and the outcome of going back.
    std::pair<bool, int> retry();
    // The constants of all lengths are given up.
    void forget_lengths();
    // As Tally in execution/adaptive.
    Tally tally() const;
    Where judged() const;

    // The outcome of a call, after what it means for the unit that failed; what the unit threw is thrown again.
    int told(int outcome);

    Unit *at(int number) { return program.units.at(static_cast<std::size_t>(number)).get(); }

private:
    std::vector<Repeat *> repeats;
    std::vector<Step *> steps;
    std::vector<int> keepers;  // units that are saved or put back anywhere
    Instruction *fence = nullptr;

    // Stages whose units are all FMUs of one version with plain inputs call the FMUs' functions from one array.
    void specialise(Sequence &sequence);
    template <class F>
    void specialise(Instruction &);
    template <class F>
    void join(Sequence &);
    bool kept(int number) const { return std::find(keepers.begin(), keepers.end(), number) != keepers.end(); }
    template <class Stage>
    Stage &last() {
        Sequence &sequence = *open.back();
        if (!sequence.empty() && sequence.back().get() != fence)
            if (auto *stage = dynamic_cast<Stage *>(sequence.back().get())) return *stage;
        sequence.push_back(std::make_unique<Stage>());
        return static_cast<Stage &>(*sequence.back());
    }
    Couple &couple_stage() { return last<Couple>(); }
};

}  // namespace cosimo

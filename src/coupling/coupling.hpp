// A coupling without Python: the units, the recorded program, how both begin (execution/live.py), and the macro steps.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../kernel/builder.hpp"
#include "instance.h"
#include "recording.hpp"
#include "unit_library.hpp"

namespace cosimo {

// What an external input is over time: a number, a variable of the coupling that the importer sets, or a table.
struct ExternalSource {
    double value = 0.0;
    int variable = -1;
    Numbers times, values;
    bool hold = false;
    double at(double time, const std::vector<double> &variables) const;
};

class Coupling : public instance {
public:
    Coupling(std::string resources, const std::string &token, const host &by);
    ~Coupling() { release(); }
    Coupling(const Coupling &) = delete;

    // All throw std::runtime_error where they refuse.
    void build();
    void enter();
    void leave();
    void terminate();
    double get(std::size_t reference);
    void set(std::size_t reference, double value);
    void step(double from, double duration);
    void talk(bool on);

    struct State {
        std::vector<unsigned char> bytes;
        std::vector<void *> units;
    };
    void save(State &state);
    void restore(const State &state);
    void free_units(State &state);
    std::vector<unsigned char> serialise(const State &state);
    void deserialise(const unsigned char *bytes, std::size_t size, State &state);

    // ---- what is recorded beside the program (formats/export.py) ----------------------------------------------------
    void begin(double start, double h, Numbers y, Numbers c, Numbers w);
    void name_units(std::vector<std::string> names);
    void name_outputs(std::vector<std::string> names) { output_names_ = std::move(names); }
    void fmu(const std::string &name, const std::string &folder, Libraries libraries, int version, const std::string &token,
             const std::string &adapter, const std::string &settings, bool talks, std::vector<std::string> categories, Numbers tolerance,
             Numbers stop);
    void give_numbers(int stage, const std::string &code, int type, Indices references, Numbers numbers);
    void give_texts(int stage, const std::string &code, Indices references, std::vector<std::string> texts);
    void output(std::uint32_t place) { variables_.push_back({Variable::output, place, -1}); }
    void input(const std::string &name, double start);
    void parameter(const std::string &name, int unit, const std::string &code, int type, std::uint32_t reference, double start, bool within);
    void layout(std::uint32_t y, std::uint32_t c, std::uint32_t size) { layouts_.push_back({y, c, size, {}}); }
    void linked(int unit, std::uint32_t place, std::uint32_t source, double gain, double offset) { inlet(unit, {place, 0, source, gain, offset}); }
    void fed(int unit, std::uint32_t place, std::uint32_t source) { inlet(unit, {place, 1, source, 0.0, 0.0}); }
    void held(int unit, std::uint32_t place, double value) { inlet(unit, {place, 2, 0, 0.0, value}); }
    void order(std::vector<int> units, Indices loop) { order_ = std::move(units), loop_ = std::move(loop); }
    void guess(Numbers y) { guess_ = std::move(y); }
    void constant(double value) { sources_.push_back({value, -1, {}, {}, false}); }
    void variable(int number) { sources_.push_back({0.0, number, {}, {}, false}); }
    void table(Numbers times, Numbers values, bool hold) { sources_.push_back({0.0, -1, std::move(times), std::move(values), hold}); }
    void sample(std::uint32_t source, double tau) { samples_.push_back({source, tau}); }
    void remembers(std::uint32_t first, std::uint32_t count, std::uint32_t input) { memories_.push_back({first, count, input}); }
    void can_restore();

private:
    struct Variable {
        enum Kind { output, input, parameter } kind;
        std::uint32_t place;  // of an output in y; of the others among `values_`
        int parameter_number;
    };
    struct Parameter {
        std::size_t unit;
        Values value;
        bool within, given;
    };
    struct Inlet {
        std::uint32_t place;
        int kind;
        std::uint32_t source;
        double gain, offset;
    };
    struct Layout {
        std::uint32_t y, c, size;
        std::vector<Inlet> inlets;
    };
    struct Memory {
        std::uint32_t first, count, input;
    };

    const std::string resources_;
    std::string token_;
    host host_;
    std::vector<unsigned char> file_;
    std::unique_ptr<Builder> builder_;  // must go before the units
    std::vector<std::unique_ptr<UnitLibrary>> fmus_;
    std::vector<int> fmu_of_;  // by unit; −1: it is none
    std::vector<Variable> variables_;
    std::vector<double> values_;
    std::vector<std::string> value_names_, output_names_;
    std::vector<Parameter> parameters_;
    std::vector<Layout> layouts_;
    std::vector<int> order_;
    Indices loop_;
    std::vector<ExternalSource> sources_;
    std::vector<std::pair<std::uint32_t, double>> samples_;
    std::vector<Memory> memories_;
    std::vector<double> e_, buffer_, guess_;
    bool unsettled_ = true, restores_ = false, failed_ = false;

    void release();
    void remember(StateBytes &bytes);
    void inlet(int unit, Inlet one) { layouts_.at(static_cast<std::size_t>(unit)).inlets.push_back(one); }
    Machine &machine() { return builder_->program.machine; }
    UnitLibrary &current() { return *fmus_.back(); }
    void give(Parameter &parameter, double value);
    [[noreturn]] void failed(int outcome);

    double inlet_value(const Inlet &one, const Numbers &y) const;
    void evaluate(std::size_t unit, const Numbers &from, Numbers &to);
    void require_finite(const Numbers &y) const;
    void settle(const Numbers &guess, bool kept);
    Numbers settled(Numbers guess, bool kept);
    Numbers newton(const Numbers &begin);
    void sweep(Numbers &y);
};

}  // namespace cosimo

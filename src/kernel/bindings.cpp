// How Python builds a program: units first, then instructions in order.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

#include "dmd.hpp"
#include "dmd_bindings.hpp"
#include "fmi.hpp"
#include "guard_bindings.hpp"
#include "linear.hpp"
#include "program.hpp"
#include "python_unit.hpp"
#include "typed.hpp"

namespace nb = nanobind;
using namespace cosimo;
using Numbers = std::vector<double>;
using Indices = std::vector<std::uint32_t>;
using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
using Sources = std::vector<std::tuple<std::uint32_t, double, double>>;
using Inputs = std::vector<std::tuple<std::uint32_t, std::uint32_t, Numbers>>;
using Bonds = std::vector<std::tuple<std::uint32_t, std::uint32_t, double>>;
using Taps = std::vector<std::vector<std::pair<std::uint32_t, double>>>;
using Rows = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Given = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

namespace {

template <class F>
F function(std::uintptr_t address) {
    return reinterpret_cast<F>(address);
}

class Builder {
public:
    Builder(double start, double h, Numbers y, Numbers c, Numbers w) {
        program.machine.start = start;
        program.machine.h = h;
        program.machine.y = std::move(y);
        program.machine.c = std::move(c);
        program.machine.w = std::move(w);
        open.push_back(&program.instructions);
    }

    Program program;
    std::vector<Sequence *> open;

    int linear(Numbers x, Numbers c, std::size_t inputs, Numbers output, std::size_t outputs, bool through) {
        return add(std::make_unique<Linear>(std::move(x), std::move(c), inputs, std::move(output), outputs, through));
    }
    int linear_map(int unit, Numbers step, Numbers along) {
        auto &maps = static_cast<Linear &>(*program.units[static_cast<std::size_t>(unit)]).maps;
        maps.push_back({std::move(step), std::move(along)});
        return static_cast<int>(maps.size()) - 1;
    }
    int compiled(std::uintptr_t step, std::uintptr_t output, Numbers x, Numbers u, Numbers y) {
        return add(std::make_unique<Compiled>(function<Compiled::Step>(step), function<Compiled::Output>(output),
                                              std::move(x), std::move(u), std::move(y), program.machine.start));
    }
    int fmi2(std::uintptr_t component, const std::vector<std::uintptr_t> &f, Indices in, Indices out) {
        auto unit = std::make_unique<Fmi2>();
        unit->component = reinterpret_cast<void *>(component);
        unit->set_real = function<Fmi2::Set>(f[0]);
        unit->get_real = function<Fmi2::Get>(f[1]);
        unit->do_step = function<Fmi2::Step>(f[2]);
        unit->get_state = function<Fmi2::State>(f[3]);
        unit->set_state = function<Fmi2::PutState>(f[4]);
        unit->free_state = function<Fmi2::State>(f[5]);
        unit->real_status = function<Fmi2::RealStatus>(f[6]);
        unit->boolean_status = function<Fmi2::BooleanStatus>(f[7]);
        unit->inputs = in.size();
        unit->outputs = out.size();
        unit->in = std::move(in);
        unit->out = std::move(out);
        return add(std::move(unit));
    }
    // `scale` holds j! / h^j for every derivative, in the order of `orders`.
    void fmi2_derivatives(int number, std::uintptr_t derive, std::size_t powers, std::vector<int> orders, Numbers scale,
                          Numbers c) {
        auto &unit = static_cast<Fmi2 &>(*program.units[static_cast<std::size_t>(number)]);
        unit.derive = function<Fmi2::Derive>(derive);
        unit.powers = powers;
        for (std::size_t j = 1; j < powers; ++j) unit.derived.insert(unit.derived.end(), unit.in.begin(), unit.in.end());
        unit.orders = std::move(orders);
        unit.scale = std::move(scale);
        unit.derivatives.resize(unit.scale.size());
        unit.c = std::move(c);
        unit.moved.resize(unit.c.size());
    }
    int fmi2_map(int number, Numbers along) {
        auto &unit = static_cast<Fmi2 &>(*program.units[static_cast<std::size_t>(number)]);
        unit.along.insert(unit.along.end(), along.begin(), along.end());
        return static_cast<int>(unit.along.size() / (unit.powers * unit.powers)) - 1;
    }
    int fmi3(std::uintptr_t component, const std::vector<std::uintptr_t> &f, Indices in, Indices out, std::size_t inputs,
             std::size_t outputs) {
        auto unit = std::make_unique<Fmi3>();
        unit->component = reinterpret_cast<void *>(component);
        unit->set_float64 = function<Fmi3::Set>(f[0]);
        unit->get_float64 = function<Fmi3::Get>(f[1]);
        unit->do_step = function<Fmi3::Step>(f[2]);
        unit->get_state = function<Fmi3::State>(f[3]);
        unit->set_state = function<Fmi3::PutState>(f[4]);
        unit->free_state = function<Fmi3::State>(f[5]);
        unit->inputs = inputs;
        unit->outputs = outputs;
        unit->in = std::move(in);
        unit->out = std::move(out);
        return add(std::move(unit));
    }
    // The last unit lives in another process, to which steps can be sent ahead.
    void post(int number, int version, std::uintptr_t post_step) {
        Unit *unit = program.units.at(static_cast<std::size_t>(number)).get();
        (version == 2 ? static_cast<Fmi2 *>(unit)->post_step : static_cast<Fmi3 *>(unit)->post_step) = function<PostStep>(post_step);
        auto &away = program.machine.away;
        away.resize(std::max(away.size(), static_cast<std::size_t>(number) + 1));
        away[static_cast<std::size_t>(number)] = true;
    }
    // Turn the last unit, an FMU without variables of its own, into one with variables of several types.
    void typed(int number, int version, std::uintptr_t component, std::size_t inputs, std::size_t outputs) {
        auto unit = std::make_unique<Typed>();
        auto &place = program.units.at(static_cast<std::size_t>(number));
        unit->base = std::move(place);
        unit->component = reinterpret_cast<void *>(component);
        unit->version = version;
        unit->inputs = inputs;
        unit->outputs = outputs;
        place = std::move(unit);
    }
    void typed_group(int number, bool input, int type, Indices references, Indices positions, std::uintptr_t function) {
        auto &unit = static_cast<Typed &>(*program.units.at(static_cast<std::size_t>(number)));
        std::vector<unsigned char> buffer(positions.size() * sizeof(double));
        (input ? unit.in : unit.out)
            .push_back({static_cast<Type>(type), std::move(references), std::move(positions), function, std::move(buffer)});
    }
    int python_object(nb::object instance, nb::object object, std::vector<std::string> in, std::vector<std::string> out) {
        auto unit = std::make_unique<PythonObject>();
        unit->step_method = object.attr("step");
        unit->instance = std::move(instance);
        unit->object = std::move(object);
        unit->inputs = in.size();
        unit->outputs = out.size();
        for (const auto &name : in) unit->input_names.push_back(checked(PyUnicode_InternFromString(name.c_str())));
        for (const auto &name : out) unit->output_names.push_back(checked(PyUnicode_InternFromString(name.c_str())));
        return add(std::move(unit));
    }
    int python_instance(nb::object instance, std::size_t inputs, std::size_t outputs, std::size_t powers) {
        auto unit = std::make_unique<PythonInstance>();
        unit->instance = std::move(instance);
        unit->inputs = inputs;
        unit->outputs = outputs;
        unit->powers = powers;
        unit->h = program.machine.h;
        return add(std::move(unit));
    }

    // Consecutive operations of one kind are put into one instruction as long as `couple` and its like are called again.
    void copy(std::uint32_t target, std::uint32_t source) { couple_stage().copies.push_back({target, source}); }
    void scale(std::uint32_t target, std::uint32_t source, double gain, double offset) {
        couple_stage().scaled.push_back({target, source, gain, offset});
    }
    void link(std::uint32_t source, std::uint32_t first, std::uint32_t stride, double gain, double offset,
              std::uint32_t memory, Numbers ww, Numbers ws, Numbers uw) {
        const auto history = static_cast<std::uint32_t>(ws.size());
        if (history > max_history) throw nb::value_error("a coupling remembers more numbers than the kernel holds");
        const auto powers = static_cast<std::uint32_t>(uw.size() / history);
        couple_stage().links.push_back(
            {source, first, stride, gain, offset, memory, history, powers, std::move(ww), std::move(ws), std::move(uw)});
    }
    void mix(Indices targets, std::uint32_t memory, std::uint32_t size, Numbers update, Numbers input, Numbers offsets) {
        Mix mix{};
        mix.targets = std::move(targets);
        mix.memory = memory;
        mix.size = size;
        mix.update = std::move(update);
        mix.input = std::move(input);
        mix.offsets = std::move(offsets);
        mix.fresh.resize(size);
        couple_stage().mixes.push_back(std::move(mix));
    }
    // What becomes of the last mix after its start-up.
    void settle(long long startup, const Pairs &shifts, const Pairs &samples, const Taps &taps) {
        Mix &mix = couple_stage().mixes.back();
        mix.startup = startup;
        for (auto [to, from] : shifts) mix.shifts.push_back({to, from});
        for (auto [slot, output] : samples) mix.samples.push_back({slot, output});
        for (const auto &row : taps) {
            for (auto [slot, gain] : row) mix.taps.push_back({slot, gain});
            mix.ends.push_back(static_cast<std::uint32_t>(mix.taps.size()));
        }
    }
    // One joint coupling at one operation; the predictor must outlive the program (Python keeps it).
    void predict(dmd::Predictor &predictor, const Sources &samples, Indices actions, Indices targets, std::uint32_t stride,
                 std::uint32_t memory, std::pair<int, bool> node_and_fresh, double phase, double period) {
        Predict made{};
        made.predictor = &predictor;
        for (auto [source, gain, offset] : samples)
            made.samples.push_back({static_cast<std::uint32_t>(made.samples.size()), source, gain, offset});
        made.u.resize(actions.size());
        made.x.resize(targets.size());
        made.next.resize(targets.size());
        made.actions = std::move(actions);
        made.targets = std::move(targets);
        made.stride = stride;
        made.memory = memory;
        std::tie(made.node, made.fresh) = node_and_fresh;
        made.phase = phase;
        made.period = period;
        couple_stage().predictions.push_back(std::move(made));
    }
    void external(std::uint32_t first, std::uint32_t target, std::uint32_t stride, std::uint32_t powers, Numbers fit) {
        couple_stage().externals.push_back({first, target, stride, powers, std::move(fit)});
    }
    void couple(int unit, std::uint32_t first, double tau) { couple_stage().targets.push_back({at(unit), unit, first, tau}); }
    void shift(int unit, std::uint32_t first, std::uint32_t inputs, std::uint32_t powers, double tau, Numbers cut) {
        auto made = std::make_unique<Shift>();
        made->unit = at(unit);
        made->number = unit;
        made->first = first;
        made->inputs = inputs;
        made->powers = powers;
        made->kept = static_cast<std::uint32_t>(cut.size() / powers);
        made->tau = tau;
        made->buffer.resize(made->kept * inputs);
        made->cut = std::move(cut);
        open.back()->push_back(std::move(made));
    }
    void step(int unit, int map, double tau, double duration) {
        auto &stage = last<Step>();
        stage.units.push_back({at(unit), unit, map, tau, duration});
        stage.cost.push_back(0.0);
        // One unit alone, or units that need the interpreter lock, are never shared between threads.
        stage.pool = &program.pool;
        steps.push_back(&stage);
    }
    void read(int unit, std::uint32_t first, double tau) { last<Read>().sources.push_back({at(unit), unit, first, tau}); }
    void keep(int unit, bool put_back, std::uint32_t first, std::size_t width) {
        auto &saved = program.saved[static_cast<std::size_t>(unit)];
        saved.resize(width);
        Sequence &sequence = *open.back();
        auto *stage = sequence.empty() ? nullptr : dynamic_cast<Keep *>(sequence.back().get());
        if (!stage || sequence.back().get() == fence || stage->put_back != put_back) {
            sequence.push_back(std::make_unique<Keep>());
            stage = static_cast<Keep *>(sequence.back().get());
            stage->put_back = put_back;
        }
        stage->members.push_back({at(unit), unit, first, &saved});
        keepers.push_back(unit);
    }
    void begin_repeat(long long times, double tolerance, long long limit, std::size_t depth, std::size_t sweeps) {
        auto made = std::make_unique<Repeat>();
        made->times = times;
        made->tolerance = tolerance;
        made->limit = limit;
        made->depth = depth;
        made->sweeps.resize(sweeps);
        made->counts = &program.sweep_counts;
        made->residuals = &program.sweep_residuals;
        repeats.push_back(made.get());
        open.back()->push_back(std::move(made));
    }
    void begin_sweep(std::size_t number) { open.push_back(&repeats.back()->sweeps[number]); }
    void end_sweep() { open.pop_back(); }
    void end_repeat() { repeats.pop_back(); }
    // Later operations of the same kind start an instruction of their own.
    void barrier() { fence = open.back()->empty() ? nullptr : open.back()->back().get(); }
    void column(std::uint32_t first, std::uint32_t stride, Numbers weights) {
        const auto powers = static_cast<std::uint32_t>(weights.size());
        program.columns.push_back({first, stride, powers, std::move(weights), false});
    }
    void memory_column(std::uint32_t first) { program.columns.push_back({first, 0, 0, {}, true}); }
    // What is watched: per link its source, gain and offset; the inputs of the links, then external ones; bonds between
    // links; per output its unit, and per unit the outputs near it.
    void watch(const Sources &links, Inputs inputs, const Bonds &bonds, Indices owners, std::vector<Indices> groups, bool stop) {
        auto made = std::make_unique<Monitor>();
        const Machine &machine = program.machine;
        for (double y : machine.y) made->outputs.push_back({y, 0.0, 0.0, Interval{y, -y}});
        for (auto [source, gain, offset] : links) made->links.push_back({source, gain, offset});
        for (auto &[first, stride, weights] : inputs) made->inputs.push_back({first, stride, std::move(weights)});
        for (auto [forward, back, ratio] : bonds) made->bonds.push_back({forward, back, ratio});
        Numbers start = machine.y;
        for (std::size_t i = links.size(); i < made->inputs.size(); ++i) start.push_back(machine.c[made->inputs[i].first]);
        made->growth.begin(start, std::move(owners), std::move(groups));
        made->stop = stop;
        made->prepare();
        program.monitor = std::move(made);
    }
    // `final`: with the macro steps since the last whole block, once, at the end of the run.
    nb::tuple findings(bool final) {
        Monitor &monitor = *program.monitor;
        if (final) monitor.finish();
        auto all = [](const auto &parts, auto member) {
            nb::list found;
            for (const auto &part : parts) found.append(part.*member);
            return found;
        };
        nb::list grown;
        for (const Grown &one : monitor.growth.found)
            grown.append(nb::make_tuple(one.output, one.step, one.first, one.last, one.over));
        nb::list high, low;
        for (const auto &output : monitor.outputs) {
            high.append(output.seen[0]);
            low.append(-output.seen[1]);
        }
        const auto &links = monitor.links;
        const auto &outputs = monitor.outputs;
        return nb::make_tuple(monitor.steps, all(links, &Monitor::Link::largest), all(links, &Monitor::Link::when),
                              all(links, &Monitor::Link::squares), high, low, all(outputs, &Monitor::Output::sum),
                              all(outputs, &Monitor::Output::squares), all(monitor.bonds, &Monitor::Bond::residual),
                              all(monitor.bonds, &Monitor::Bond::exchanged), grown);
    }
    // threads: how many may run units at once; mode −1: where it pays, 0: never, 1: always. The loop returns to its
    // caller at least every `interval` seconds, or after the macro step that takes longer; 0: never before the end.
    void finish(unsigned threads, int mode, double interval) {
        if (interval > 0) program.ticker = std::make_unique<Ticker>(interval);
        bool any = false;
        for (Step *stage : steps) {
            // With units in Python this thread keeps the interpreter lock, for which a unit on another thread (a logger
            // written in Python, say) would wait forever.
            bool possible = stage->units.size() > 1 && threads > 1 && !program.with_python;
            stage->parallel = possible ? mode : 0;
            stage->posted.clear();
            for (const Stepped &member : stage->units)
                if (stage->units.size() > 1 && member.unit->posts()) stage->posted.push_back(member);
            // What other processes do needs no thread here.
            if (stage->posted.size() + 1 >= stage->units.size() && mode < 1) stage->parallel = 0;
            any = any || stage->parallel != 0;
        }
        specialise(program.instructions);
        if (any) {
            program.own_pool = std::make_unique<Pool>(threads - 1);
            program.pool = program.own_pool.get();
        }
    }
    // Let go of units, threads and saved states; must come before the instances themselves are freed.
    void release() {
        steps.clear();
        program.instructions.clear();
        program.units.clear();
        program.pool = nullptr;
        program.own_pool.reset();
        program.ticker.reset();
    }
    // All that is remembered between two macro steps, except what lives in units and predictors outside the kernel.
    nb::bytes memory() {
        StateBytes found;
        program.remember(found);
        return nb::bytes(reinterpret_cast<const char *>(found.bytes.data()), found.bytes.size());
    }
    void set_memory(nb::bytes given) {
        const auto *from = reinterpret_cast<const unsigned char *>(given.c_str());
        StateBytes found({from, from + given.size()});
        program.remember(found);
    }
    bool shared() const {
        for (const Step *stage : steps)
            if (stage->parallel == 1) return true;
        return false;
    }
    int run(long long first, long long count, Given given, Rows rows) {
        if (static_cast<long long>(rows.shape(0)) < count || rows.shape(1) != program.columns.size() + 1)
            throw nb::value_error("the rows do not fit the program");
        int outcome;
        if (program.with_python) {
            outcome = program.run(first, count, given.data(), given.shape(1), rows.data());
        } else {
            nb::gil_scoped_release release;
            outcome = program.run(first, count, given.data(), given.shape(1), rows.data());
        }
        if (outcome == bad_status && program.machine.status == fmi_fatal) at(program.machine.unit)->abandon();
        if (outcome == bad_status && program.machine.status == raised)
            std::rethrow_exception(std::exchange(at(program.machine.unit)->error, nullptr));
        return outcome;
    }

private:
    std::vector<Repeat *> repeats;
    std::vector<Step *> steps;
    std::vector<int> keepers;  // units that are saved or put back anywhere
    Instruction *fence = nullptr;

    int add(std::unique_ptr<Unit> unit) {
        program.with_python = program.with_python || unit->needs_python();
        program.units.push_back(std::move(unit));
        program.saved.resize(program.units.size());
        program.saved.reserve(1 << 16);  // addresses of saved inputs are kept in instructions
        return static_cast<int>(program.units.size()) - 1;
    }
    // Stages of FMI 2 units with plain inputs call the FMUs' functions from one array, without a detour.
    void specialise(Sequence &sequence) {
        for (auto &instruction : sequence) {
            if (auto *couple = dynamic_cast<Couple *>(instruction.get()); couple && plain_fmi2(couple->targets))
                for (const auto &target : couple->targets) {
                    auto &unit = static_cast<Fmi2 &>(*target.unit);
                    auto call = made(unit, unit.in, target.first);
                    call.set = unit.set_real;
                    couple->calls.push_back(call);
                }
            if (auto *step = dynamic_cast<Step *>(instruction.get()); step && plain_fmi2(step->units))
                for (const auto &member : step->units) {
                    auto &unit = static_cast<Fmi2 &>(*member.unit);
                    auto call = made(unit, unit.in, 0);
                    call.step = unit.do_step;
                    call.tau = member.tau;
                    call.duration = member.duration;
                    // No state from before this step is put back where none is ever saved.
                    call.final_step = !kept(member.number);
                    step->calls.push_back(call);
                }
            if (auto *read = dynamic_cast<Read *>(instruction.get()); read && plain_fmi2(read->sources))
                for (const auto &source : read->sources) {
                    auto &unit = static_cast<Fmi2 &>(*source.unit);
                    auto call = made(unit, unit.out, source.first);
                    call.get = unit.get_real;
                    read->calls.push_back(call);
                }
            if (auto *keep = dynamic_cast<Keep *>(instruction.get())) keep->all_fmi2 = plain_fmi2(keep->members);
            if (auto *repeat = dynamic_cast<Repeat *>(instruction.get()))
                for (Sequence &sweep : repeat->sweeps) specialise(sweep);
        }
    }
    template <class Members>
    static bool plain_fmi2(const Members &members) {
        for (const auto &member : members) {
            auto *unit = dynamic_cast<Fmi2 *>(member.unit);
            if (!unit || unit->powers > 1 || unit->in.empty() || unit->out.empty()) return false;
        }
        return !members.empty();
    }
    static Fmi2Call made(Fmi2 &unit, const Indices &references, std::uint32_t first) {
        Fmi2Call call{};
        call.component = unit.component;
        call.references = references.data();
        call.count = references.size();
        call.first = first;
        return call;
    }
    bool kept(int number) const { return std::find(keepers.begin(), keepers.end(), number) != keepers.end(); }
    Unit *at(int number) { return program.units.at(static_cast<std::size_t>(number)).get(); }
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

}  // namespace

NB_MODULE(_kernel, m) {
    bind_predictors(m);
    bind_guard(m);
    // Counted up by Ctrl-C; units in other processes are then no longer waited for.
    m.def("count_signals", &count_signals);
    m.def("count_signals_no_more", &count_signals_no_more);
    m.def("count_signals_again", &count_signals_again);
    m.def("interrupts", [] { return reinterpret_cast<std::uintptr_t>(&interrupts); });
    m.doc() = "Runs a lowered schedule: see cosimo.execution.running.";
    nb::class_<Builder>(m, "Program")
        .def(nb::init<double, double, Numbers, Numbers, Numbers>())
        .def("linear", &Builder::linear)
        .def("linear_map", &Builder::linear_map)
        .def("compiled", &Builder::compiled)
        .def("fmi2", &Builder::fmi2)
        .def("fmi2_derivatives", &Builder::fmi2_derivatives)
        .def("fmi2_map", &Builder::fmi2_map)
        .def("fmi3", &Builder::fmi3)
        .def("post", &Builder::post)
        .def("name_units", [](Builder &b, std::vector<std::string> names) { b.program.machine.names = std::move(names); })
        .def("typed", &Builder::typed)
        .def("typed_group", &Builder::typed_group)
        .def("python_object", &Builder::python_object)
        .def("python_instance", &Builder::python_instance)
        .def("copy", &Builder::copy)
        .def("scale", &Builder::scale)
        .def("link", &Builder::link)
        .def("mix", &Builder::mix)
        .def("settle", &Builder::settle)
        .def("predict", &Builder::predict)
        .def("external", &Builder::external)
        .def("couple", &Builder::couple)
        .def("shift", &Builder::shift)
        .def("step", &Builder::step)
        .def("read", &Builder::read)
        .def("keep", &Builder::keep)
        .def("begin_repeat", &Builder::begin_repeat)
        .def("begin_sweep", &Builder::begin_sweep)
        .def("end_sweep", &Builder::end_sweep)
        .def("end_repeat", &Builder::end_repeat)
        .def("barrier", &Builder::barrier)
        .def("column", &Builder::column)
        .def("memory_column", &Builder::memory_column)
        .def("watch", &Builder::watch)
        .def("findings", &Builder::findings, nb::arg("final") = true)
        .def("finish", &Builder::finish)
        // Rows are filled in place: a converted copy of them would be lost.
        .def("run", &Builder::run, nb::arg("first"), nb::arg("count"), nb::arg("given"), nb::arg("rows").noconvert())
        .def("release", &Builder::release)
        .def_prop_ro("shared", &Builder::shared)
        .def_prop_ro("made", [](const Builder &b) { return b.program.made; })
        .def_prop_ro("busy", [](const Builder &b) { return b.program.machine.busy.load(std::memory_order_relaxed); })
        .def_prop_ro("failure", [](const Builder &b) {
            const Machine &machine = b.program.machine;
            return nb::make_tuple(machine.unit, static_cast<int>(machine.phase), machine.status, machine.output, machine.at,
                                 machine.duration, machine.value);
        })
        .def_prop_ro("ending", [](const Builder &b) { return b.program.machine.ending; })
        .def_prop_ro("polynomials", [](const Builder &b) { return b.program.machine.c; })
        .def("memory", &Builder::memory)
        .def("set_memory", &Builder::set_memory)
        .def_prop_ro("signals", [](const Builder &b) {
            const Machine &machine = b.program.machine;
            return nb::make_tuple(machine.y, machine.c, machine.w);
        })
        .def("tolerate", [](Builder &b) { b.program.machine.tolerant = true; })
        .def("not_finite", [](const Builder &b) {
            nb::list found;
            for (const auto &one : b.program.machine.not_finite) found.append(nb::make_tuple(one.place, one.at, one.value));
            return found;
        })
        // Handed over, not copied and kept: a long iterated run must not grow.
        .def("take_sweeps", [](Builder &b) {
            return nb::make_tuple(std::exchange(b.program.sweep_counts, {}), std::exchange(b.program.sweep_residuals, {}));
        });
}

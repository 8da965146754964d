#include "builder.hpp"

#include <stdexcept>

#include "dmd.hpp"
#include "fmi.hpp"
#include "linear.hpp"
#include "stepper.hpp"
#include "typed.hpp"

namespace cosimo {

namespace {

template <class F>
F function(std::uintptr_t address) {
    return reinterpret_cast<F>(address);
}

}  // namespace

namespace {

template <class F, class Members>
bool plain(const Members &members, bool (F::*condition)() const = &F::plain) {
    for (const auto &member : members) {
        auto *unit = dynamic_cast<F *>(member.unit);
        if (!unit || !(unit->*condition)()) return false;
    }
    return !members.empty();
}

template <class F>
DirectCall<F> direct(F &unit, const Indices &references, std::size_t size, std::uint32_t first, std::uint64_t named) {
    DirectCall<F> call{};
    call.component = unit.component;
    call.references = references.data();
    call.count = static_cast<std::uint32_t>(references.size());
    call.size = static_cast<std::uint32_t>(size);
    call.first = first;
    call.call = named;
    return call;
}

}  // namespace

template <class F>
void Builder::specialise(Instruction &instruction) {
    auto kept = [&](int number) { return std::find(keepers.begin(), keepers.end(), number) != keepers.end(); };
    if (auto *couple = dynamic_cast<Couple *>(&instruction); couple && plain<F>(couple->targets))
        for (const auto &target : couple->targets) {
            auto &unit = static_cast<F &>(*target.unit);
            auto call = direct(unit, unit.in, unit.inputs, target.first, target.call);
            call.function.set = unit.set_values;
            couple->calls.of<F>().push_back(call);
        }
    if (auto *step = dynamic_cast<Step *>(&instruction); step && plain<F>(step->units, &F::plain_step))
        for (const auto &member : step->units) {
            auto &unit = static_cast<F &>(*member.unit);
            auto call = direct(unit, unit.in, 0, 0, member.call);
            call.function.step = unit.do_step;
            call.tau = member.tau;
            call.duration = member.duration;
            // No state from before this step is put back where none is ever saved.
            call.final_step = !kept(member.number);
            step->calls.of<F>().push_back(call);
        }
    if (auto *read = dynamic_cast<Read *>(&instruction); read && plain<F>(read->sources))
        for (const auto &source : read->sources) {
            auto &unit = static_cast<F &>(*source.unit);
            auto call = direct(unit, unit.out, unit.outputs, source.first, source.call);
            call.function.get = unit.get_values;
            read->calls.of<F>().push_back(call);
        }
}

void Builder::specialise(Sequence &sequence) {
    for (auto &instruction : sequence) {
        specialise<Fmi2>(*instruction);
        specialise<Fmi3>(*instruction);
        if (auto *couple = dynamic_cast<Couple *>(instruction.get()))
            couple->held = couple->mixes.empty() && couple->predictions.empty() && couple->links.empty() && couple->timed.empty() && couple->externals.empty();
        if (auto *keep = dynamic_cast<Keep *>(instruction.get())) keep->all_fmi2 = plain<Fmi2>(keep->members);
        if (auto *repeat = dynamic_cast<Repeat *>(instruction.get()))
            for (Sequence &sweep : repeat->sweeps) specialise(sweep);
    }
    join<Fmi2>(sequence);
    join<Fmi3>(sequence);
}

// Couple, Step and Read that follow each other and call FMUs directly become one instruction.
template <class F>
void Builder::join(Sequence &sequence) {
    auto called = [](Instruction *instruction, auto *kind) {
        auto *found = dynamic_cast<decltype(kind)>(instruction);
        return found && !found->calls.template of<F>().empty();
    };
    Sequence joined;
    for (auto &next : sequence) {
        joined.push_back(std::move(next));
        const std::size_t n = joined.size();
        Instruction *read = joined.back().get(), *step = n < 3 ? nullptr : joined[n - 2].get(), *couple = n < 3 ? nullptr : joined[n - 3].get();
        if (!called(couple, static_cast<Couple *>(nullptr)) || !called(step, static_cast<Step *>(nullptr)) || !called(read, static_cast<Read *>(nullptr))) continue;
        auto round = std::make_unique<Round<F>>(std::move(joined[n - 3]), std::move(joined[n - 2]), std::move(joined[n - 1]));
        joined.resize(n - 3);
        joined.push_back(std::move(round));
    }
    sequence = std::move(joined);
}

int Builder::linear(Numbers x, Numbers c, std::size_t inputs, Numbers output, std::size_t outputs, bool through) {
    return add(std::make_unique<Linear>(std::move(x), std::move(c), inputs, std::move(output), outputs, through));
}

int Builder::linear_map(int unit, Numbers step, Numbers along) {
    auto &maps = static_cast<Linear &>(*program.units[static_cast<std::size_t>(unit)]).known;
    maps.push_back({std::move(step), std::move(along)});
    return static_cast<int>(maps.size()) - 1;
}

int Builder::compiled(std::uintptr_t step, std::uintptr_t output, Numbers x, Numbers u, Numbers y) {
    return add(std::make_unique<Compiled>(function<Compiled::Step>(step), function<Compiled::Output>(output),
                                          std::move(x), std::move(u), std::move(y), program.machine.start));
}

int Builder::fmi2(std::uintptr_t component, const std::vector<std::uintptr_t> &f, Indices in, Indices out) {
    auto unit = std::make_unique<Fmi2>();
    unit->component = reinterpret_cast<void *>(component);
    unit->set_values = function<Fmi2::Set>(f[0]);
    unit->get_values = function<Fmi2::Get>(f[1]);
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

void Builder::input_derivatives(int number, std::uintptr_t derive, Indices references, std::vector<int> orders, Numbers scale,
                                Numbers c) {
    auto &unit = static_cast<Following &>(*program.units[static_cast<std::size_t>(number)]);
    unit.derive = function<Following::Derive>(derive);
    unit.powers = static_cast<std::size_t>(orders.back()) + 1;
    unit.derived = std::move(references);
    unit.orders = std::move(orders);
    unit.scale = std::move(scale);
    unit.derivatives.resize(unit.scale.size());
    unit.c = std::move(c);
    unit.moved.resize(unit.c.size());
}

int Builder::input_map(int number, Numbers along) {
    auto &unit = static_cast<Following &>(*program.units[static_cast<std::size_t>(number)]);
    unit.along.insert(unit.along.end(), along.begin(), along.end());
    return static_cast<int>(unit.along.size() / (unit.powers * unit.powers)) - 1;
}

int Builder::fmi3(std::uintptr_t component, const std::vector<std::uintptr_t> &f, Indices in, Indices out, std::size_t inputs,
             std::size_t outputs) {
    auto unit = std::make_unique<Fmi3>();
    unit->component = reinterpret_cast<void *>(component);
    unit->set_values = function<Fmi3::Set>(f[0]);
    unit->get_values = function<Fmi3::Get>(f[1]);
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

void Builder::events(int number, const std::vector<std::uintptr_t> &f, bool variable_step, double next_event) {
    auto &unit = static_cast<Fmi3 &>(*at(number));
    unit.several = true;
    unit.variable_step = variable_step;
    unit.next_event = next_event;
    unit.reached = program.machine.start;
    if (f.empty()) return;
    unit.enter_event = function<Fmi3::Mode>(f[0]);
    unit.enter_step = function<Fmi3::Mode>(f[1]);
    unit.update = function<Fmi3::Update>(f[2]);
}

void Builder::post(int number, int version, std::uintptr_t post_step) {
    Unit *unit = program.units.at(static_cast<std::size_t>(number)).get();
    (version == 2 ? static_cast<Fmi2 *>(unit)->post_step : static_cast<Fmi3 *>(unit)->post_step) = function<PostStep>(post_step);
    auto &away = program.machine.away;
    away.resize(std::max(away.size(), static_cast<std::size_t>(number) + 1));
    away[static_cast<std::size_t>(number)] = true;
}

void Builder::typed(int number, int version, std::uintptr_t component, std::size_t inputs, std::size_t outputs) {
    auto unit = std::make_unique<Typed>();
    auto &place = program.units.at(static_cast<std::size_t>(number));
    unit->base = std::move(place);
    unit->component = reinterpret_cast<void *>(component);
    unit->version = version;
    unit->inputs = inputs;
    unit->outputs = outputs;
    place = std::move(unit);
}

void Builder::typed_group(int number, bool input, int type, Indices references, Indices positions, std::uintptr_t function) {
    auto &unit = static_cast<Typed &>(*program.units.at(static_cast<std::size_t>(number)));
    std::vector<unsigned char> buffer(positions.size() * sizeof(double));
    (input ? unit.in : unit.out)
        .push_back({static_cast<Type>(type), std::move(references), std::move(positions), function, std::move(buffer), true});
}

void Builder::discrete_inputs(int number, const std::vector<bool> &discrete, Numbers given) {
    auto &unit = static_cast<Typed &>(*at(number));
    unit.eventful = static_cast<Fmi3 *>(unit.base.get());
    unit.given = std::move(given);
    for (std::size_t i = 0; i < discrete.size(); ++i) unit.in.at(i).continuous = !discrete[i];
}

void Builder::scale(std::uint32_t target, std::uint32_t source, double gain, double offset) {
    couple_stage().scaled.push_back({target, source, gain, offset});
}

void Builder::link(std::uint32_t source, std::uint32_t first, std::uint32_t stride, double gain, double offset,
              std::uint32_t memory, Numbers ww, Numbers ws, Numbers uw) {
    const auto history = static_cast<std::uint32_t>(ws.size());
    if (history > max_history) throw std::invalid_argument("a coupling remembers more numbers than the kernel holds");
    const auto powers = static_cast<std::uint32_t>(uw.size() / history);
    couple_stage().links.push_back(
        {source, first, stride, gain, offset, memory, history, powers, std::move(ww), std::move(ws), std::move(uw)});
}

void Builder::vary(double quantum, long long parts, std::pair<long long, double> total_and_stop, std::vector<long long> read_at,
                   std::vector<long long> stamps) {
    Machine &m = program.machine;
    m.quantum = quantum;
    m.parts = static_cast<double>(parts);
    m.total = static_cast<double>(total_and_stop.first);
    m.stop = total_and_stop.second;
    m.read_at = std::move(read_at);
    m.stamps = std::move(stamps);
    program.lengths.emplace(parts, 0);
    for (Step *stage : steps)
        if (program.stages.empty() || program.stages.back() != stage) program.stages.push_back(stage);
    for (Step *stage : program.stages)
        for (Stepped &s : stage->units) {
            s.base = s.map;
            s.maps = static_cast<int>(s.unit->maps());
        }
    for (auto &unit : program.units)
        if (unit->stretch(m.h)) program.stretched.push_back(unit.get());
}

void Builder::timed_link(const std::tuple<std::uint32_t, double, double> &source, std::uint32_t first, std::uint32_t stride,
                         std::uint32_t memory, std::uint32_t history, std::pair<std::uint32_t, std::uint32_t> unit_and_stamps, double tau) {
    if (history > 3) throw std::invalid_argument("a hold remembers more samples than the kernel interpolates");
    const auto [output, gain, offset] = source;
    TimedLink made{};
    made.link = {output, first, stride, gain, offset, memory, history, history, Numbers(history * history), Numbers(history), Numbers(history * history)};
    made.link.ws[0] = 1.0;
    std::tie(made.unit, made.stamps) = unit_and_stamps;
    made.tau = tau;
    couple_stage().timed.push_back(std::move(made));
}

void Builder::mix(Indices targets, std::uint32_t memory, std::uint32_t size, Numbers update, Numbers input, Numbers offsets) {
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

void Builder::settle(long long startup, const Pairs &shifts, const Pairs &samples, const Taps &taps) {
    Mix &mix = couple_stage().mixes.back();
    mix.startup = startup;
    for (auto [to, from] : shifts) mix.shifts.push_back({to, from});
    for (auto [slot, output] : samples) mix.samples.push_back({slot, output});
    for (const auto &row : taps) {
        for (auto [slot, gain] : row) mix.taps.push_back({slot, gain});
        mix.ends.push_back(static_cast<std::uint32_t>(mix.taps.size()));
    }
}

void Builder::hold(const Sources &sources) {
    Mix &mix = couple_stage().mixes.back();
    for (auto [source, gain, offset] : sources) mix.holds.push_back({mix.targets[mix.holds.size()], source, gain, offset});
}

void Builder::check_models(double fading, double tolerated, double again, std::uint32_t state) {
    Checks &made = last<Checks>();
    made.fading = fading;
    made.tolerated = tolerated;
    made.again = again;
    made.state = state;
}

void Builder::check_model(Indices outputs, std::uint32_t first, std::uint32_t width,
                          std::pair<std::uint32_t, std::uint32_t> samples_and_memory, Numbers own, Numbers driven, Numbers share,
                          Numbers noise) {
    Checks::Check check{};
    const std::size_t p = outputs.size();
    check.outputs = std::move(outputs);
    check.first = first;
    check.width = width;
    std::tie(check.samples, check.memory) = samples_and_memory;
    check.own = std::move(own);
    check.driven = std::move(driven);
    check.share = std::move(share);
    check.noise = std::move(noise);
    check.change.resize(p);
    check.foreseen.resize(p);
    check.brought.resize(p);
    check.drive.resize((check.samples + std::size_t{1}) * width);
    last<Checks>().checks.push_back(std::move(check));
}

void Builder::predict(dmd::Predictor &predictor, const Sources &samples, Indices actions, Indices targets, std::uint32_t stride,
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

void Builder::external(std::uint32_t first, std::uint32_t target, std::uint32_t stride, std::uint32_t powers, Numbers fit) {
    couple_stage().externals.push_back({first, target, stride, powers, std::move(fit)});
}

void Builder::shift(int unit, std::uint32_t first, std::uint32_t inputs, std::uint32_t powers, double tau, Numbers cut) {
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

void Builder::step(int unit, int map, double tau, double duration) {
    auto &stage = last<Step>();
    stage.units.push_back({at(unit), unit, map, tau, duration, Machine::call_of(unit, stepping)});
    stage.cost.push_back(0.0);
    // One unit alone, or units that need the interpreter lock, are never shared between threads.
    stage.pool = &program.pool;
    steps.push_back(&stage);
}

void Builder::keep(int unit, bool put_back, std::uint32_t first, std::size_t width) {
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

void Builder::begin_repeat(long long times, double tolerance, long long limit, std::size_t sweeps) {
    auto made = std::make_unique<Repeat>();
    made->times = times;
    made->tolerance = tolerance;
    made->limit = limit;
    made->sweeps.resize(sweeps);
    made->counts = &program.sweep_counts;
    made->residuals = &program.sweep_residuals;
    repeats.push_back(made.get());
    open.back()->push_back(std::move(made));
}

void Builder::accelerate(std::size_t depth, bool lasts, long long first, Numbers correction) {
    repeats.back()->acceleration = Acceleration(depth, lasts, first, program.machine.y.size(), std::move(correction));
}

void Builder::column(std::uint32_t first, std::uint32_t stride, Numbers weights) {
    const auto powers = static_cast<std::uint32_t>(weights.size());
    program.columns.push_back({first, stride, powers, std::move(weights), false});
}

void Builder::watch(const Sources &links, Inputs inputs, const Bonds &bonds, Indices owners, std::vector<Indices> groups, bool stop) {
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

void Builder::finish(unsigned threads, int mode, double interval) {
    if (interval > 0) program.ticker = std::make_unique<Ticker>(interval, [] { attention.fetch_add(1, std::memory_order_relaxed); });
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
    if (auto *stepper = dynamic_cast<RestoringStepper *>(program.stepper.get()))
        for (Sequence *sequence : {&stepper->saving, &stepper->restoring}) specialise(*sequence);
    if (any) {
        program.own_pool = std::make_unique<Pool>(threads - 1);
        program.pool = program.own_pool.get();
    }
}

void Builder::can_go_back() {
    for (std::size_t i = 0; i < program.units.size(); ++i) {
        keepers.push_back(static_cast<int>(i));
        Unit *unit = program.units[i].get();
        if (auto *typed = dynamic_cast<Typed *>(unit)) unit = typed->base.get();
        if (auto *fmu = dynamic_cast<Fmi2 *>(unit)) fmu->final_step = 0;
        if (auto *fmu = dynamic_cast<Fmi3 *>(unit)) fmu->final_step = false;
    }
}

void Builder::release() {
    steps.clear();
    if (program.stepper) program.stepper->outside = {};
    program.prepare = nullptr;
    program.instructions.clear();
    program.units.clear();
    program.pool = nullptr;
    program.own_pool.reset();
    program.ticker.reset();
    program.sampler.reset();
}

int Builder::told(int outcome) {
    const Machine &m = program.machine;
    if (outcome == bad_status && m.status % fmi3_enter_event == fmi_fatal) at(m.unit)->abandon();
    if (outcome == bad_status && m.status == raised) std::rethrow_exception(std::exchange(at(m.unit)->error, nullptr));
    return outcome;
}

bool Builder::shared() const {
    for (const Step *stage : steps)
        if (stage->parallel == 1) return true;
    return false;
}

std::vector<std::tuple<std::size_t, double, double>> Builder::went_back() const {
    std::vector<std::tuple<std::size_t, double, double>> found;
    for (std::size_t i = 0; i < program.units.size(); ++i) {
        const Unit *unit = program.units[i].get();
        if (const auto *typed = dynamic_cast<const Typed *>(unit)) unit = typed->base.get();
        if (const auto *fmu = dynamic_cast<const Fmi3 *>(unit); fmu && fmu->went_back)
            found.emplace_back(i, fmu->back_from, fmu->back_to);
    }
    return found;
}

int Builder::add(std::unique_ptr<Unit> unit) {
    program.with_python = program.with_python || unit->needs_python();
    program.units.push_back(std::move(unit));
    program.saved.resize(program.units.size());
    program.saved.reserve(1 << 16);  // addresses of saved inputs are kept in instructions
    return static_cast<int>(program.units.size()) - 1;
}

Exchanged exchanged(const Signal &one) {
    const auto &[source, gain, offset, first, stride, weights, counts] = one;
    return {source, gain, offset, first, stride, weights, counts};
}

void Builder::go_back_to(int unit, std::uint32_t first, std::size_t width) {
    auto &stepper = dynamic_cast<RestoringStepper &>(*program.stepper);
    for (bool put_back : {false, true}) {
        open.push_back(put_back ? &stepper.restoring : &stepper.saving);
        keep(unit, put_back, first, width);
        open.pop_back();
    }
}

void Builder::ask(int unit, std::uint32_t output, bool early, std::size_t width, const std::vector<Signal> &inputs) {
    auto &stepper = dynamic_cast<DoublingStepper &>(*program.stepper);
    DoublingStepper::Asked made{at(unit), unit, output, !inputs.empty(), early, {}, Numbers(width), Numbers(width)};
    for (const Signal &one : inputs) made.inputs.push_back(exchanged(one));
    stepper.asked.push_back(std::move(made));
}

std::pair<bool, int> Builder::retry() {
    int outcome = ok;
    const bool goes_on = program.stepper->retry(program, outcome);
    return {goes_on, told(outcome)};
}

void Builder::forget_lengths() {
    program.lengths.clear();
    for (auto &unit : program.units) unit->forget_maps();
}

Tally Builder::tally() const {
    const Stepper &s = *program.stepper;
    std::vector<std::pair<double, double>> energies;
    if (const auto *energy = dynamic_cast<const EnergyStepper *>(&s))
        for (const auto &bond : energy->bonds) energies.push_back({bond.residual, bond.exchanged});
    return {s.place,     s.accepted, {s.least, s.most}, s.made, s.rejected, s.forced,
            s.forced_at, {s.first_forced.error, s.first_forced.worst}, energies};
}

Where Builder::judged() const { return {program.stepper->judged.error, program.stepper->judged.worst}; }

}  // namespace cosimo

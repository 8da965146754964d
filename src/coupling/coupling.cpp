#include "coupling.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace cosimo {

std::string unit_failed(const std::string &unit, int status, int version, const std::string &where, const std::string &said);

namespace {

constexpr char magic[] = "cosimo-coupling-1\n";
constexpr std::size_t token_size = 64;

std::string number(double value, int digits = 6) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    return text;
}

double largest(const Numbers &y) {
    double found = 0.0;
    for (double value : y) found = std::max(found, std::fabs(value));
    return found;
}

double difference(const Numbers &a, const Numbers &b) {
    double found = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) found = std::max(found, std::fabs(a[i] - b[i]));
    return found;
}

bool finite(const Numbers &y) {
    return std::all_of(y.begin(), y.end(), [](double value) { return std::isfinite(value); });
}

// A x = b by Gaussian elimination with partial pivoting; false where A is singular.
bool solve(std::vector<Numbers> A, Numbers &b) {
    const std::size_t n = b.size();
    for (std::size_t k = 0; k < n; ++k) {
        std::size_t pivot = k;
        for (std::size_t i = k + 1; i < n; ++i)
            if (std::fabs(A[i][k]) > std::fabs(A[pivot][k])) pivot = i;
        if (!(std::fabs(A[pivot][k]) > 1e-10)) return false;
        std::swap(A[k], A[pivot]);
        std::swap(b[k], b[pivot]);
        for (std::size_t i = k + 1; i < n; ++i) {
            const double factor = A[i][k] / A[k][k];
            for (std::size_t j = k; j < n; ++j) A[i][j] -= factor * A[k][j];
            b[i] -= factor * b[k];
        }
    }
    for (std::size_t k = n; k-- > 0;) {
        for (std::size_t j = k + 1; j < n; ++j) b[k] -= A[k][j] * b[j];
        b[k] /= A[k][k];
    }
    return true;
}

using Verb = std::function<void(Recording &, Coupling &, Builder *)>;

template <class F>
Verb own(F function) {
    return [function](Recording &r, Coupling &c, Builder *) { r.call(c, function); };
}
template <class F>
Verb kernel(F function) {
    return [function](Recording &r, Coupling &, Builder *b) {
        if (!b) Recording::damaged();
        r.call(*b, function);
    };
}

const std::unordered_map<std::string, Verb> verbs{
    {"begin", own(&Coupling::begin)},
    {"name_units", own(&Coupling::name_units)},
    {"name_outputs", own(&Coupling::name_outputs)},
    {"fmu", own(&Coupling::fmu)},
    {"give_numbers", own(&Coupling::give_numbers)},
    {"give_texts", own(&Coupling::give_texts)},
    {"output", own(&Coupling::output)},
    {"input", own(&Coupling::input)},
    {"parameter", own(&Coupling::parameter)},
    {"layout", own(&Coupling::layout)},
    {"linked", own(&Coupling::linked)},
    {"fed", own(&Coupling::fed)},
    {"held", own(&Coupling::held)},
    {"order", own(&Coupling::order)},
    {"guess", own(&Coupling::guess)},
    {"constant", own(&Coupling::constant)},
    {"variable", own(&Coupling::variable)},
    {"table", own(&Coupling::table)},
    {"sample", own(&Coupling::sample)},
    {"remembers", own(&Coupling::remembers)},
    {"can_restore", own(&Coupling::can_restore)},
    {"linear", kernel(&Builder::linear)},
    {"linear_map", kernel(&Builder::linear_map)},
    {"fmi2", kernel(&Builder::fmi2)},
    {"fmi3", kernel(&Builder::fmi3)},
    {"input_derivatives", kernel(&Builder::input_derivatives)},
    {"input_map", kernel(&Builder::input_map)},
    {"typed", kernel(&Builder::typed)},
    {"typed_group", kernel(&Builder::typed_group)},
    {"copy", kernel(&Builder::copy)},
    {"scale", kernel(&Builder::scale)},
    {"link", kernel(&Builder::link)},
    {"mix", kernel(&Builder::mix)},
    {"settle", kernel(&Builder::settle)},
    {"hold", kernel(&Builder::hold)},
    {"check_models", kernel(&Builder::check_models)},
    {"check_model", kernel(&Builder::check_model)},
    {"external", kernel(&Builder::external)},
    {"couple", kernel(&Builder::couple)},
    {"shift", kernel(&Builder::shift)},
    {"step", kernel(&Builder::step)},
    {"read", kernel(&Builder::read)},
    {"keep", kernel(&Builder::keep)},
    {"begin_repeat", kernel(&Builder::begin_repeat)},
    {"accelerate", kernel(&Builder::accelerate)},
    {"begin_sweep", kernel(&Builder::begin_sweep)},
    {"end_sweep", kernel(&Builder::end_sweep)},
    {"end_repeat", kernel(&Builder::end_repeat)},
    {"barrier", kernel(&Builder::barrier)},
};

}  // namespace

// As `Table` in core/system.py, whose linear interpolation is NumPy's: slope (t − t_j) + v_j, the last of two rows of one time.
double ExternalSource::at(double time, const std::vector<double> &variables) const {
    if (variable >= 0) return variables[static_cast<std::size_t>(variable)];
    if (times.empty()) return value;
    const auto after = static_cast<std::size_t>(std::upper_bound(times.begin(), times.end(), time) - times.begin());
    if (after == 0) return values.front();
    const std::size_t j = after - 1;
    if (hold || after == times.size() || times[j] == time) return values[j];
    const double slope = (values[j + 1] - values[j]) / (times[j + 1] - times[j]);
    return slope * (time - times[j]) + values[j];
}

Coupling::Coupling(std::string resources, const std::string &token, const host &by) : instance{}, resources_(std::move(resources)), host_(by) {
    importer = by.importer;
    const std::string path = resources_ + "/coupling.bin";
    const std::unique_ptr<FILE, int (*)(FILE *)> stream(open_file(path.c_str()), std::fclose);
    if (!stream) throw std::runtime_error("cannot open '" + path + "', which holds the coupling; export it again.");
    unsigned char part[1 << 14];
    while (const std::size_t count = std::fread(part, 1, sizeof part, stream.get())) file_.insert(file_.end(), part, part + count);
    const std::size_t head = sizeof magic - 1 + token_size;
    if (file_.size() < head || std::string(file_.begin(), file_.begin() + sizeof magic - 1) != magic)
        throw std::runtime_error("'" + path + "' is damaged or of another version; export the coupling again.");
    token_.assign(reinterpret_cast<const char *>(file_.data()) + sizeof magic - 1, token_size);
    token_.resize(std::min(token_.find('\0'), token_size));
    if (token != token_)
        throw std::runtime_error("the token '" + token + "' is not '" + token_ + "', that of the coupling in the resources folder.");
    file_.erase(file_.begin(), file_.begin() + static_cast<std::ptrdiff_t>(head));
    build();
}

void Coupling::release() {
    if (builder_) builder_->release();
    builder_.reset();
    fmus_.clear();
    for (auto *list : {&value_names_, &output_names_}) list->clear();
    fmu_of_.clear(), variables_.clear(), values_.clear(), parameters_.clear(), layouts_.clear(), order_.clear(), loop_.clear();
    sources_.clear(), samples_.clear(), memories_.clear();
    unsettled_ = true, restores_ = failed_ = false;
}

void Coupling::build() {
    release();
    Recording recording(file_.data(), file_.size());
    recording.resolve = [this](const std::string &name) {
        if (fmus_.empty()) Recording::damaged();
        return name == "component" ? reinterpret_cast<std::uintptr_t>(current().component) : current().address(name);
    };
    try {
        while (!recording.over()) {
            const auto verb = verbs.find(recording.read<std::string>());
            if (verb == verbs.end()) Recording::damaged();
            const std::size_t units = builder_ ? builder_->program.units.size() : 0;
            verb->second(recording, *this, builder_.get());
            // A unit that was added is the FMU before it, or a linear one.
            if (builder_ && builder_->program.units.size() > units)
                fmu_of_.push_back(verb->first == "linear" ? -1 : static_cast<int>(fmus_.size()) - 1);
        }
        if (!builder_ || layouts_.size() != builder_->program.units.size()) Recording::damaged();
    } catch (const std::out_of_range &) {
        throw std::runtime_error("'" + resources_ + "/coupling.bin' is damaged; export the coupling again.");
    }
    if (restores_) builder_->can_go_back();
    builder_->finish(1, 0, 0.0);
    for (auto &unit : fmus_) unit->recorded = unit->values.size();
    e_.resize(samples_.size());
    mode = INSTANTIATED;
    time = 0.0;
    ended = 0;
}

// ---- what is recorded ------------------------------------------------------------------------------------------------

void Coupling::begin(double start, double h, Numbers y, Numbers c, Numbers w) {
    builder_ = std::make_unique<Builder>(start, h, std::move(y), std::move(c), std::move(w));
}

void Coupling::name_units(std::vector<std::string> names) { machine().names = std::move(names); }

void Coupling::fmu(const std::string &name, const std::string &folder, Libraries libraries, int version, const std::string &token,
                   const std::string &adapter, const std::string &settings, bool talks, std::vector<std::string> categories, Numbers tolerance,
                   Numbers stop) {
    FmuFile file{name, folder, std::move(libraries), token, adapter, settings, version, talks, std::move(categories), std::move(tolerance), std::move(stop)};
    fmus_.push_back(std::make_unique<UnitLibrary>(file, resources_, [this](const std::string &unit, int status, const std::string &text) {
        static const char *const categories[] = {"logAll", "logStatusWarning", "logStatusDiscard", "logStatusError", "logStatusFatal"};
        host_.log(host_.importer, status, status >= 0 && status < 5 ? categories[status] : "logAll", ("unit '" + unit + "': " + text).c_str());
    }));
    current().talks = talks || host_.talks;
    current().instantiate();
}

void Coupling::give_numbers(int stage, const std::string &code, int type, Indices references, Numbers numbers) {
    current().values.push_back({static_cast<Stage>(stage), code, type, std::move(references), std::move(numbers), {}});
}

void Coupling::give_texts(int stage, const std::string &code, Indices references, std::vector<std::string> texts) {
    current().values.push_back({static_cast<Stage>(stage), code, -1, std::move(references), {}, std::move(texts)});
}

void Coupling::input(const std::string &name, double start) {
    variables_.push_back({Variable::input, static_cast<std::uint32_t>(values_.size()), -1});
    values_.push_back(start);
    value_names_.push_back(name);
}

void Coupling::parameter(const std::string &name, int unit, const std::string &code, int type, std::uint32_t reference, double start, bool within) {
    variables_.push_back({Variable::parameter, static_cast<std::uint32_t>(values_.size()), static_cast<int>(parameters_.size())});
    values_.push_back(start);
    value_names_.push_back(name);
    const auto fmu = static_cast<std::size_t>(fmu_of_.at(static_cast<std::size_t>(unit)));
    parameters_.push_back({fmu, {Stage::before, code, type, {reference}, {start}, {}}, within, false});
}

void Coupling::can_restore() { restores_ = true; }

// ---- variables -------------------------------------------------------------------------------------------------------

double Coupling::get(std::size_t reference) {
    if (reference == variables_.size()) return time;  // a variable in FMI 3.0
    if (reference > variables_.size()) throw std::runtime_error("value reference " + std::to_string(reference) + " is not a variable of this coupling.");
    const Variable &one = variables_[reference];
    if (one.kind != Variable::output) return values_[one.place];
    if (mode == INITIALISING && unsettled_) settle(guess_, true);
    return machine().y[one.place];
}

void Coupling::set(std::size_t reference, double value) {
    if (reference >= variables_.size() || variables_[reference].kind == Variable::output)
        throw std::runtime_error("value reference " + std::to_string(reference) + " cannot be set; set inputs, and parameters before the first step.");
    const Variable &one = variables_[reference];
    if (!std::isfinite(value)) throw std::runtime_error(value_names_[one.place] + " was given " + number(value) + "; give finite values.");
    if (one.kind == Variable::parameter) give(parameters_[static_cast<std::size_t>(one.parameter_number)], value);
    unsettled_ = unsettled_ || one.kind == Variable::parameter || values_[one.place] != value;
    values_[one.place] = value;
}

void Coupling::give(Parameter &parameter, double value) {
    UnitLibrary &unit = *fmus_[parameter.unit];
    const bool now = mode == INITIALISING && parameter.within;
    if (mode != INSTANTIATED && !now)
        throw std::runtime_error("a parameter of unit '" + unit.file.name + "' can be set only before the end of initialisation.");
    parameter.value.numbers[0] = value;
    parameter.given = true;
    if (now) unit.give(parameter.value);
}

void Coupling::talk(bool on) {
    host_.talks = on;
    for (auto &unit : fmus_) unit->talks = on || unit->file.talks;
}

// ---- the beginning, as execution/live.py -----------------------------------------------------------------------------

namespace {

constexpr int sweeps = 50, newton_steps = 20, halvings = 10;
constexpr double diverged_by = 10.0, tolerance = 1e-13, same = 1e-12;

}  // namespace

void Coupling::enter() {
    if (mode != INSTANTIATED) throw std::runtime_error("initialisation begins once; reset the coupling first.");
    machine().start = time;
    for (auto &unit : fmus_) unit->forget_given();
    for (const Parameter &one : parameters_)
        if (one.given) {
            auto &values = fmus_[one.unit]->values;
            values.push_back(one.value);
            if (!one.within) continue;
            values.push_back(one.value);
            values.back().stage = Stage::within;
        }
    for (auto &unit : fmus_) unit->enter(time);
    mode = INITIALISING;
    unsettled_ = true;
}

double Coupling::inlet_value(const Inlet &one, const Numbers &y) const {
    if (one.kind == 0) return one.gain * y[one.source] + one.offset;
    return one.kind == 1 ? sources_[one.source].at(time, values_) : one.offset;
}

// Give a unit its inputs, formed from outputs, and read its outputs.
void Coupling::evaluate(std::size_t number, const Numbers &from, Numbers &to) {
    const Layout &layout = layouts_[number];
    Unit &unit = *builder_->program.units[number];
    buffer_.assign(layout.size, 0.0);
    for (const Inlet &one : layout.inlets) buffer_[one.place] = inlet_value(one, from);
    Machine &m = machine();
    int status = unit.set(buffer_.data());
    if (status) m.fail(static_cast<int>(number), setting, status, time);
    else if ((status = unit.get(to.data() + layout.y))) m.fail(static_cast<int>(number), reading, status, time);
    if (status) failed(bad_status);
}

void Coupling::sweep(Numbers &y) {
    for (int unit : order_) evaluate(static_cast<std::size_t>(unit), y, y);
}

void Coupling::require_finite(const Numbers &y) const {
    for (std::size_t i = 0; i < y.size(); ++i)
        if (!std::isfinite(y[i])) throw std::runtime_error(output_names_.at(i) + " became " + number(y[i]) + " at t = " + number(time) + ".");
}

// Outputs that agree with the inputs formed from them: by substitution in the order of dependence, else by Newton's method.
// A guess that agrees is kept where `kept`: it is what the export settled at, to the bit.
Numbers Coupling::settled(Numbers y, bool kept) {
    Numbers nearest = y;
    double smallest = INFINITY;
    for (int i = 0, most = loop_.empty() ? static_cast<int>(order_.size()) + 1 : sweeps; i < most; ++i) {
        const Numbers before = y;
        sweep(y);
        if (!finite(y)) return y;
        const double change = difference(y, before);
        if (change <= tolerance * std::max(1.0, largest(y))) return kept && i == 0 ? before : y;
        if (!loop_.empty() && change > diverged_by * smallest) break;  // before the numbers grow beyond what units can bear
        if (change < smallest) nearest = before, smallest = change;
    }
    return newton(nearest);
}

// Newton on r(y) = sweep(y) − y in the outputs on loops, with the Jacobian by differences; a step that does not make the
// residual smaller is halved.
Numbers Coupling::newton(const Numbers &begin) {
    Indices places = loop_;
    if (places.empty())
        for (std::uint32_t i = 0; i < begin.size(); ++i) places.push_back(i);
    const std::size_t n = places.size();
    Numbers whole;
    auto residual = [&](const Numbers &at) {
        whole = begin;
        for (std::size_t i = 0; i < n; ++i) whole[places[i]] = at[i];
        sweep(whole);
        Numbers r(n);
        for (std::size_t i = 0; i < n; ++i) r[i] = whole[places[i]] - at[i];
        return r;
    };
    Numbers y(n);
    for (std::size_t i = 0; i < n; ++i) y[i] = begin[places[i]];
    Numbers r = residual(y);
    for (int step = 0; step < newton_steps; ++step) {
        if (!finite(r) || largest(r) <= tolerance * std::max(1.0, largest(y))) return whole;
        std::vector<Numbers> J(n, Numbers(n));  // of −r
        for (std::size_t j = 0; j < n; ++j) {
            const double by = 1e-4 * std::max(1.0, std::fabs(y[j]));
            Numbers moved = y;
            moved[j] += by;
            const Numbers other = residual(moved);
            for (std::size_t i = 0; i < n; ++i) J[i][j] = -(other[i] - r[i]) / by;
        }
        Numbers update = r;
        if (!solve(J, update)) break;
        const double size = largest(r);
        for (int halving = 0; halving <= halvings; ++halving) {
            Numbers tried = y;
            for (std::size_t i = 0; i < n; ++i) tried[i] += update[i] / std::ldexp(1.0, halving);
            Numbers there = residual(tried);
            if (largest(there) < size || halving == halvings || largest(update) <= tolerance * std::max(1.0, largest(tried))) {
                y = tried, r = there;
                break;
            }
        }
        if (largest(update) <= tolerance * std::max(1.0, largest(y))) return whole;
    }
    if (finite(r) && largest(r) <= tolerance * std::max(1.0, largest(y))) return whole;
    throw std::runtime_error("the outputs on the algebraic loop through " + output_names_.at(places[0]) +
                             " could not be solved for at the start; give start values nearer to the solution.");
}

void Coupling::settle(const Numbers &guess, bool kept) {
    const Numbers from = settled(guess, kept);
    Numbers y = from;
    for (std::size_t i = 0; i < layouts_.size(); ++i) evaluate(i, from, y);
    require_finite(y);
    machine().y = y;
    unsettled_ = false;
}

void Coupling::leave() {
    if (mode != INITIALISING) throw std::runtime_error("the coupling is not in initialisation mode.");
    if (unsettled_) settle(guess_, true);
    for (auto &unit : fmus_) unit->leave();
    // Outputs of some FMUs are valid only after initialisation mode has ended: take them, and pass them on.
    Machine &m = machine();
    Numbers now = m.y;
    for (std::size_t i = 0; i < layouts_.size(); ++i)
        if (int status = builder_->program.units[i]->get(now.data() + layouts_[i].y)) {
            m.fail(static_cast<int>(i), reading, status, time);
            failed(bad_status);
        }
    bool changed = false;
    for (std::size_t i = 0; i < now.size(); ++i)
        changed = changed || !(std::fabs(now[i] - m.y[i]) <= same * std::max(std::fabs(now[i]), std::fabs(m.y[i])));
    if (changed) settle(now, false);
    std::fill(m.c.begin(), m.c.end(), 0.0);
    for (const Layout &layout : layouts_)
        for (const Inlet &one : layout.inlets) m.c[layout.c + one.place] = inlet_value(one, m.y);
    for (const Memory &one : memories_) std::fill_n(m.w.begin() + one.first, one.count, m.c[one.input]);
    m.k = 0;
    mode = STEPPING;
}

void Coupling::terminate() {
    for (auto &unit : fmus_) unit->terminate();
    mode = TERMINATED;
}

// ---- macro steps -----------------------------------------------------------------------------------------------------

void Coupling::step(double from, double duration) {
    if (mode != STEPPING || failed_) throw std::runtime_error(failed_ ? "the coupling failed in an earlier step; reset it." : "a step needs an initialised coupling that was not terminated.");
    if (ended) throw std::runtime_error("a unit ended the simulation at t = " + number(time) + "; set an earlier stop time.");
    Machine &m = machine();
    // Importers add steps up, so that where they are is rounded more than how far they go.
    const long long count = std::llround(duration / m.h);
    if (!(duration > 0) || count < 1 || std::fabs(duration - static_cast<double>(count) * m.h) > 1e-6 * m.h)
        throw std::runtime_error("a step of " + number(duration) + " s is no multiple of the macro step " + number(m.h) + " s of this coupling; choose such a communication step.");
    // The sum of k steps, each rounded, is off by up to k · 2⁻⁵³ of it (Higham, Accuracy and Stability of Numerical Algorithms,
    // Sec. 4.2), and by as much again where it is the step that is rounded.
    const double here = m.time(0.0), rounding = static_cast<double>(m.k) * 0x1p-52 * std::max(std::fabs(here), std::fabs(m.start));
    if (!(std::fabs(from - here) <= 1e-3 * m.h + rounding))
        throw std::runtime_error("the coupling is at t = " + number(here, 15) + ", and the step begins at t = " + number(from, 15) + "; go on from where the last step ended.");
    Program &program = builder_->program;
    for (long long i = 0; i < count; ++i) {
        for (std::size_t j = 0; j < samples_.size(); ++j) e_[j] = sources_[samples_[j].first].at(m.time(samples_[j].second), values_);
        double row;
        const int outcome = program.run(m.k, 1, e_.data(), 0, &row);
        program.sweep_counts.clear(), program.sweep_residuals.clear(), m.switches.clear();
        if (outcome == cosimo::ended || (outcome == bad_status && m.status == ended_inside)) {
            ended = 1;
            time = outcome == cosimo::ended ? m.time(0.0) : m.value;
            host_.log(host_.importer, fmi_warning, "logStatusWarning", ("unit '" + m.names.at(static_cast<std::size_t>(outcome == cosimo::ended ? m.ending : m.unit)) + "' ended the simulation at t = " + number(time)).c_str());
            return;
        }
        if (outcome != ok) failed(outcome);
    }
    time = m.time(0.0);
}

void Coupling::failed(int outcome) {
    static const char *const doing[] = {"given its inputs", "stepped", "read", "saved", "restored"};
    static const char *const verbs[] = {"Set…", "DoStep", "Get…", "GetFMUstate", "SetFMUstate"};
    failed_ = true;
    const Machine &m = machine();
    const auto number_of = static_cast<std::size_t>(std::max(m.unit, 0));
    const std::string &name = m.names.at(number_of), when = " at t = " + number(m.at);
    if (outcome == non_finite)
        throw std::runtime_error(output_names_.at(layouts_[number_of].y + static_cast<std::size_t>(m.output)) + " became " + number(m.value) + when + "; the coupling may be unstable at this step size.");
    if (m.status == not_exact)
        throw std::runtime_error("unit '" + name + "' " + (m.phase == setting ? "was given" : "gave") + " a value that the type of its variable cannot hold" + when + "; check what its whole numbers are connected to, or set to.");
    const int place = fmu_of_.at(number_of);
    if (place < 0) throw std::runtime_error("unit '" + name + "' failed" + when + " while being " + doing[m.phase] + ".");
    UnitLibrary &unit = *fmus_[static_cast<std::size_t>(place)];
    if (m.status == fmi_fatal) {
        unit.dead = true;
        builder_->at(m.unit)->abandon();
    }
    if (m.status == fmi_discard && m.phase == stepping)
        throw std::runtime_error("unit '" + name + "' discarded its step of " + number(m.duration) + " s" + when + unit.said() + "; use a shorter macro step.");
    const std::string function = "fmi" + std::to_string(unit.file.version) + verbs[m.phase];
    throw std::runtime_error(unit_failed(name, m.status, unit.file.version, function + when, unit.said()));
}

// ---- states ----------------------------------------------------------------------------------------------------------

void Coupling::remember(StateBytes &bytes) {
    bytes.value(mode), bytes.value(time), bytes.value(ended), bytes.value(machine().k), bytes.value(machine().start), bytes.value(unsettled_);
    bytes.array(values_);
    for (Parameter &one : parameters_) bytes.value(one.given), bytes.array(one.value.numbers);
    builder_->program.remember(bytes);
}

void Coupling::save(State &state) {
    if (!restores_) throw std::runtime_error("the state cannot be saved: a unit inside cannot do so (canGetAndSetFMUstate).");
    if (failed_) throw std::runtime_error("the state cannot be saved after a failed step; restore one from before it.");
    StateBytes bytes;
    remember(bytes);
    state.bytes = std::move(bytes.bytes);
    state.units.resize(fmus_.size());
    for (std::size_t i = 0; i < fmus_.size(); ++i) fmus_[i]->save(state.units[i]);
}

void Coupling::restore(const State &state) {
    if (state.units.size() != fmus_.size()) throw std::runtime_error("the saved state does not belong to this coupling.");
    for (const auto &unit : fmus_)
        if (unit->dead) throw std::runtime_error("unit '" + unit->file.name + "' failed for good and cannot be restored; instantiate the coupling anew.");
    for (std::size_t i = 0; i < fmus_.size(); ++i) fmus_[i]->restore(state.units[i]);
    StateBytes bytes(state.bytes);
    remember(bytes);
    machine().ending = -1;
    for (auto &unit : builder_->program.units) unit->wants_end = false;
    for (auto &unit : fmus_) unit->running = mode == STEPPING;
    failed_ = false;
}

void Coupling::free_units(State &state) {
    for (std::size_t i = 0; i < state.units.size() && i < fmus_.size(); ++i) fmus_[i]->free_state(state.units[i]);
}

std::vector<unsigned char> Coupling::serialise(const State &state) {
    StateBytes bytes;
    auto part = [&bytes](std::vector<unsigned char> one) { bytes.list(one, one.size()); };
    part({token_.begin(), token_.end()});
    part(state.bytes);
    for (std::size_t i = 0; i < fmus_.size(); ++i) part(fmus_[i]->serialise(state.units[i]));
    return std::move(bytes.bytes);
}

void Coupling::deserialise(const unsigned char *given, std::size_t size, State &state) {
    StateBytes bytes({given, given + size});
    auto part = [&bytes, size] {
        std::vector<unsigned char> one;
        bytes.list(one, size);
        return one;
    };
    std::vector<std::vector<unsigned char>> units(fmus_.size());
    try {
        const auto token = part();
        if (std::string(token.begin(), token.end()) != token_) throw std::invalid_argument("token");
        state.bytes = part();
        for (auto &one : units) one = part();
        bytes.end();
    } catch (const std::invalid_argument &) {
        throw std::runtime_error("the bytes are not those of a saved state of this coupling; they are damaged, or of another FMU.");
    }
    free_units(state);
    state.units.assign(fmus_.size(), nullptr);
    for (std::size_t i = 0; i < fmus_.size(); ++i) state.units[i] = fmus_[i]->deserialise(units[i].data(), units[i].size());
}

}  // namespace cosimo

// ---- what the functions of the standard call -------------------------------------------------------------------------

using cosimo::Coupling;

namespace {

Coupling &of(instance *unit) { return *static_cast<Coupling *>(unit); }

void say(char message[MESSAGE_SIZE], const char *text) { std::snprintf(message, MESSAGE_SIZE, "%s", text); }

template <class Work>
int guarded(instance *unit, Work work) {
    try {
        work(of(unit));
        return 1;
    } catch (const std::exception &problem) {
        say(unit->message, problem.what());
    }
    return 0;
}

}  // namespace

extern "C" {

instance *instance_create(const char *location, const char *token, const host *by, char message[MESSAGE_SIZE]) {
    try {
        std::unique_ptr<char, void (*)(void *)> folder(folder_from_location(location), std::free);
        if (!folder) throw std::runtime_error("the resource location '" + std::string(location ? location : "") + "' is neither a path nor a file URI of this machine.");
        std::string path = folder.get();
        while (path.size() > 1 && path.back() == '/') path.pop_back();
        return new Coupling(path, token ? token : "", *by);
    } catch (const std::exception &problem) {
        say(message, problem.what());
    }
    return nullptr;
}

void instance_free(instance *unit) {
    if (!unit) return;
    std::free(unit->importer);
    delete &of(unit);
}

int instance_reset(instance *unit) {
    return guarded(unit, [](Coupling &c) { c.build(); });
}
void instance_talk(instance *unit, int on) { of(unit).talk(on != 0); }
int instance_enter(instance *unit) {
    return guarded(unit, [](Coupling &c) { c.enter(); });
}
int instance_leave(instance *unit) {
    return guarded(unit, [](Coupling &c) { c.leave(); });
}
int instance_terminate(instance *unit) {
    return guarded(unit, [](Coupling &c) { c.terminate(); });
}
int instance_get(instance *unit, size_t reference, double *value) {
    return guarded(unit, [&](Coupling &c) { *value = c.get(reference); });
}
int instance_set(instance *unit, size_t reference, double value) {
    return guarded(unit, [&](Coupling &c) { c.set(reference, value); });
}
int instance_set_derivative(instance *unit, size_t, int, double) {
    say(unit->message, "inputs are held over a step (canInterpolateInputs is false).");
    return 0;
}
int instance_step(instance *unit, double time, double duration) {
    return guarded(unit, [&](Coupling &c) { c.step(time, duration); });
}
int instance_directional(instance *unit, const jacobian *, const double *, double *) {
    say(unit->message, "a coupling has no directional derivatives.");
    return 0;
}
int instance_adjoint(instance *unit, const jacobian *what, const double *seed, double *result) { return instance_directional(unit, what, seed, result); }

int instance_save(instance *unit, void **state) {
    return guarded(unit, [&](Coupling &c) {
        auto made = std::unique_ptr<Coupling::State>(*state ? nullptr : new Coupling::State);
        c.save(made ? *made : *static_cast<Coupling::State *>(*state));
        if (made) *state = made.release();
    });
}
int instance_restore(instance *unit, const void *state) {
    return guarded(unit, [&](Coupling &c) { c.restore(*static_cast<const Coupling::State *>(state)); });
}
void instance_free_state(instance *unit, void **state) {
    if (!state || !*state) return;
    auto *held = static_cast<Coupling::State *>(*state);
    guarded(unit, [&](Coupling &c) { c.free_units(*held); });
    delete held;
    *state = nullptr;
}
int instance_state_size(instance *unit, const void *state, size_t *size) {
    return guarded(unit, [&](Coupling &c) { *size = c.serialise(*static_cast<const Coupling::State *>(state)).size(); });
}
int instance_serialise(instance *unit, const void *state, void *bytes, size_t size) {
    return guarded(unit, [&](Coupling &c) {
        const auto found = c.serialise(*static_cast<const Coupling::State *>(state));
        if (size < found.size()) throw std::runtime_error(std::to_string(size) + " bytes are too few for the state.");
        std::copy(found.begin(), found.end(), static_cast<unsigned char *>(bytes));
    });
}
int instance_deserialise(instance *unit, const void *bytes, size_t size, void **state) {
    return guarded(unit, [&](Coupling &c) {
        auto made = std::unique_ptr<Coupling::State>(*state ? nullptr : new Coupling::State);
        c.deserialise(static_cast<const unsigned char *>(bytes), size, made ? *made : *static_cast<Coupling::State *>(*state));
        if (made) *state = made.release();
    });
}
}

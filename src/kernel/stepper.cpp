#include "stepper.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace cosimo {

long long Lengths::fit(double wanted) const {
    const double within = std::min(std::max(wanted, static_cast<double>(shortest)), static_cast<double>(longest));
    const auto parts = static_cast<long long>(within);
    const int low = std::max(static_cast<int>(std::bit_width(static_cast<unsigned long long>(parts))) - 4, 0);
    return std::max((parts >> low) << low, shortest);
}

namespace {

template <class Value>
void take(std::vector<Value> &to, const std::vector<Value> &from) {
    to.resize(from.size());
    copy_values(to.data(), from.data(), from.size());
}

double value_of(const Exchanged &input, const double *c) {
    double value = input.weights[0] * c[input.first];
    for (std::size_t j = 1; j < input.weights.size(); ++j) value += input.weights[j] * c[input.first + j * input.stride];
    return value;
}

}  // namespace

void Stepper::begin(Program &program) {
    wanted_ = lengths.first;
    least = static_cast<long long>(program.machine.total);
    for (auto *part : {&used_, &now_, &old_, &sizes_, &seen_sizes_}) part->resize(exchanged.size());
    take_samples(program.machine, 0, old_);
    for (std::size_t i = 0; i < old_.size(); ++i) sizes_[i] = std::fabs(old_[i]);
}

void Stepper::remember(StateBytes &bytes) {
    for (long long *count : {&place, &accepted, &made, &rejected, &least, &most, &forced, &forced_at, &wanted_, &since_}) bytes.value(*count);
    bytes.value(first_forced);
    bytes.value(before_);
    bytes.array(old_);
    bytes.array(sizes_);
    if (place < 0 || wanted_ < lengths.shortest || wanted_ > lengths.longest) StateBytes::refuse();
}

void EnergyStepper::remember(StateBytes &bytes) {
    Stepper::remember(bytes);
    for (Bond &bond : bonds) {
        bytes.value(bond.residual);
        bytes.value(bond.exchanged);
    }
}

void CarefulStepper::remember(StateBytes &bytes) {
    for (long long *count : {&place, &made, &rejected}) bytes.value(*count);
    bytes.value(level);
    if (place < 0 || level < 0 || level > halvings) StateBytes::refuse();
}

// Also after a failure that a shorter step may avoid: units and signals are then those before the step.
void DoublingStepper::remember(StateBytes &bytes) {
    Stepper::remember(bytes);
    bytes.value(refused_);
    bytes.value(stuck_);
    bytes.array(largest_);
}

// How far to go from `place`, and whether an external input jumps there; no short rest is left before it.
Stepper::Way Stepper::way(const Machine &m) const {
    const long long wanted = pair * wanted_, shortest = pair * lengths.shortest;
    const long long jump = outside.jump ? outside.jump(place, 2 * wanted) : -1;
    const long long room = (jump < 0 ? static_cast<long long>(m.total) : jump) - place;
    if (room <= wanted || room < 2 * shortest) return {room, jump >= 0};
    return {room >= 2 * wanted ? wanted : (room + 1) / 2, false};
}

int Stepper::make(Program &program, long long from, long long length) {
    Machine &m = program.machine;
    m.k = from;
    program.last(length);
    if (outside.given) outside.given(from, length, given.data());
    m.e = given.data();
    ++made;
    if (int outcome = run_all(program.instructions, m)) return outcome;
    m.k = from + length;
    return ok;
}

// A unit that wanted the run to end cannot make the next step.
int Stepper::ends_inside(Program &program) {
    Machine &m = program.machine;
    m.fail(m.ending, stepping, ended_inside, m.time(0.0), m.h);
    m.value = program.units[static_cast<std::size_t>(m.ending)]->got_to;
    return bad_status;
}

// The row of the state as it is; the last column is the length of the macro step that led there.
void Stepper::write(Program &program, double *row) {
    program.write(row);
    row[program.columns.size() + 1] = program.machine.h;
}

void Stepper::accept(long long length) {
    place += length;
    ++accepted;
    least = std::min(least, length);
    most = std::max(most, length);
}

void Stepper::choose(long long length, double error, bool jumped) {
    ++since_;
    if (jumped) {
        wanted_ = lengths.first;
        before_ = 1.0;
        since_ = 0;
        return;
    }
    error = std::min(std::max(error, control.least_error), std::numeric_limits<double>::max());
    double factor = control.safety * std::pow(error, -control.now);
    factor *= std::pow(before_, control.past);
    wanted_ = lengths.fit(static_cast<double>(length) * std::min(std::max(factor, control.shrink), control.grow));
    before_ = error;
}

// Note a step of the shortest length whose error is too large.
void Stepper::force() {
    if (since_ < control.settling) return;
    if (forced++ == 0) {
        first_forced = judged;
        forced_at = place;
    }
}

void Stepper::take_samples(const Machine &m, long long at, std::vector<double> &to) {
    for (std::size_t i = 0; i < links; ++i) to[i] = exchanged[i].gain * m.y[exchanged[i].source] + exchanged[i].offset;
    if (outside.sampled) outside.sampled(at, external.data());
    std::copy(external.begin(), external.end(), to.begin() + static_cast<std::ptrdiff_t>(links));
}

void Stepper::look(const Machine &m, long long at) {
    take_samples(m, at, now_);
    for (std::size_t i = 0; i < exchanged.size(); ++i) {
        used_[i] = value_of(exchanged[i], m.c.data());
        seen_sizes_[i] = Tolerances::largest(sizes_[i], Tolerances::largest(std::fabs(now_[i]), std::fabs(used_[i])));
    }
}

// The macro step counts: the next one begins here.
void Stepper::take_over() {
    old_.swap(now_);
    sizes_.swap(seen_sizes_);
}

int EnergyStepper::advance(Program &program, double *rows) {
    const auto [length, jumped] = way(program.machine);
    if (int outcome = make(program, place, length)) return outcome;
    judge(program.machine, place + length, jumped);
    if (judged.error > 1 && length <= lengths.shortest) force();
    choose(length, judged.error, jumped);
    write(program, rows);
    accept(length);
    rows_made = 1;
    return ok;
}

void EnergyStepper::judge(const Machine &m, long long at, bool jumped) {
    look(m, at);
    alone_.resize(exchanged.size());
    const double scale = m.h / nominal;
    for (std::size_t i = 0; i < exchanged.size(); ++i) {
        const double wrong = Tolerances::largest(std::fabs(used_[i] - now_[i]), std::fabs(m.c[exchanged[i].first] - old_[i]));
        alone_[i] = counted(i, jumped) ? wrong / tolerances.of(seen_sizes_[i]) * scale : 0.0;
    }
    errors_ = alone_;
    for (const Bond &bond : bonds) errors_[bond.forward] = errors_[bond.back] = 0.0;
    for (Bond &bond : bonds) {
        const std::uint32_t a = bond.forward, b = bond.back;
        const double both = (alone_[a] + alone_[b]) / 2.0;
        errors_[a] = Tolerances::largest(errors_[a], both);
        errors_[b] = Tolerances::largest(errors_[b], both);
        const double received = used_[a] * now_[b] / bond.gain, sent = used_[b] * now_[a] / bond.gain;
        bond.residual += m.h * (received - sent);
        bond.exchanged += m.h * (std::fabs(received) + std::fabs(sent)) / 2.0;
    }
    take_over();
    Judged found;
    for (std::size_t i = 0; i < errors_.size(); ++i) found.join(errors_[i], i);
    judged = found;
}

int RestoringStepper::save(Program &program) {
    Machine &m = program.machine;
    m.k = place;
    if (int outcome = run_all(saving, m)) return outcome;
    take(kept_y_, m.y);
    take(kept_w_, m.w);
    take(kept_stamps_, m.stamps);
    take(kept_read_at_, m.read_at);
    return ok;
}

int RestoringStepper::restore(Program &program) {
    Machine &m = program.machine;
    m.k = place;
    m.unit = -1;
    if (int outcome = run_all(restoring, m)) return outcome;
    m.ending = -1;
    take(m.y, kept_y_);
    take(m.w, kept_w_);
    take(m.stamps, kept_stamps_);
    take(m.read_at, kept_read_at_);
    return ok;
}

bool RestoringStepper::retry(Program &program, int &outcome) {
    if (!trying_ || !can_shorten()) return false;
    trying_ = false;
    outcome = reject(program, std::numeric_limits<double>::infinity());
    return true;
}

int CarefulStepper::advance(Program &program, double *rows) {
    Machine &m = program.machine;
    if (!saved_) {
        if (int outcome = save(program)) return outcome;
        saved_level_ = level;
    }
    saved_ = trying_ = true;
    const long long parts = 1LL << (halvings - level), end = place + (1LL << halvings);
    for (long long at = place; at < end; at += parts) {
        if (m.ending >= 0) return ends_inside(program);
        if (int outcome = make(program, at, parts)) return outcome;
    }
    saved_ = trying_ = false;
    place = end;
    program.write(rows);
    rows_made = 1;
    return ok;
}

int CarefulStepper::reject(Program &program, double) {
    ++rejected;
    ++level;
    if (int outcome = restore(program)) return outcome;
    Machine &m = program.machine;
    for (const Resampled &one : resampled) {
        const std::uint32_t n = one.history;
        const double *row = one.matrices.data() + static_cast<std::size_t>(level - saved_level_ - 1) * n * (n + 1);
        const double sample = one.gain * m.y[one.source] + one.offset;
        double *w = m.w.data() + one.first, fresh[max_history];
        for (std::uint32_t i = 0; i < n; ++i, row += n + 1) {
            double sum = row[0] * w[0];
            for (std::uint32_t j = 1; j < n; ++j) sum += row[j] * w[j];
            fresh[i] = sum + row[n] * sample;
        }
        std::copy_n(fresh, n, w);
    }
    return ok;
}

void DoublingStepper::begin(Program &program) {
    Stepper::begin(program);
    const std::size_t outputs = program.machine.y.size();
    for (auto *part : {&long_, &short_, &largest_, &seen_largest_}) part->resize(outputs);
    for (std::size_t i = 0; i < outputs; ++i) largest_[i] = std::fabs(program.machine.y[i]);
}

int DoublingStepper::reject(Program &program, double error) {
    refused_ = length_;
    ++rejected;
    if (int outcome = restore(program)) return outcome;
    const double factor = std::max(control.safety * std::pow(error, -control.exponent), control.shrink);
    wanted_ = lengths.fit(static_cast<double>(half_) * factor);
    return ok;
}

int DoublingStepper::advance(Program &program, double *rows) {
    Machine &m = program.machine;
    if (!saved_) {
        if (int outcome = save(program)) return outcome;
        saved_ = true;
    }
    for (;;) {
        const auto [length, jumped] = way(m);
        length_ = length;
        half_ = length / 2;
        if (half_ == 0) {  // jumps a quantum apart: nothing to compare
            if (int outcome = make(program, place, length)) return outcome;
            choose(length, 1.0, jumped);
            write(program, rows);
            accept(length);
            rows_made = 1;
            saved_ = false;
            refused_ = 0;
            return ok;
        }
        // Before a jump, or the end, it may be that no shorter way leaves a rest that is long enough.
        shortest_ = half_ <= lengths.shortest || length == refused_;
        trying_ = true;
        if (int outcome = attempt(program, jumped, rows)) return outcome;
        trying_ = false;
        if (!(judged.error <= 1) && !shortest_) {
            if (int outcome = reject(program, judged.error)) return outcome;
            continue;
        }
        largest_.swap(seen_largest_);
        take_over();
        if (judged.error <= 1) {
            stuck_ = std::max(stuck_ - 1, 0LL);
        } else {
            force();
            if (++stuck_ > control.stuck) return too_short;
        }
        // What was just refused is not tried again at once.
        const double error = judged.error;
        choose(half_, refused_ ? std::max(error, std::pow(control.safety, 1.0 / control.exponent)) : error, jumped);
        accept(half_);
        accept(length - half_);
        rows_made = 2;
        saved_ = false;
        refused_ = 0;
        return ok;
    }
}

int DoublingStepper::attempt(Program &program, bool jumped, double *rows) {
    Machine &m = program.machine;
    const long long end = place + length_;
    if (int outcome = make(program, place, length_)) return outcome;
    if (int outcome = ask(program, long_, false)) return outcome;
    if (int outcome = restore(program)) return outcome;
    if (int outcome = make(program, place, half_)) return outcome;
    write(program, rows);
    for (std::size_t i = 0; i < m.y.size(); ++i) seen_largest_[i] = Tolerances::largest(largest_[i], std::fabs(m.y[i]));
    if (m.ending >= 0) return ends_inside(program);
    if (int outcome = make(program, place + half_, length_ - half_)) return outcome;
    write(program, rows + program.columns.size() + 2);
    for (std::size_t i = 0; i < m.y.size(); ++i) seen_largest_[i] = Tolerances::largest(seen_largest_[i], std::fabs(m.y[i]));
    if (int outcome = ask(program, short_, true)) return outcome;
    judge(m, end, jumped);
    return ok;
}

void DoublingStepper::judge(const Machine &m, long long at, bool jumped) {
    Judged outputs, inputs;  // of its own: what stands behind `this` would be written for each
    for (std::size_t i = 0; i < m.y.size(); ++i) {
        double error = std::fabs(short_[i] - long_[i]);
        if (shrinks != 1.0) error /= shrinks;
        outputs.join(counts[i] ? error / tolerances.of(seen_largest_[i]) : 0.0, exchanged.size() + i);
    }
    look(m, at);
    for (std::size_t i = 0; i < exchanged.size(); ++i)
        inputs.join(counted(i, jumped) ? std::fabs(used_[i] - now_[i]) / changes.of(seen_sizes_[i]) : 0.0, i);
    // A power that is at least 1 makes what is below 1 smaller: nearly always there is none to take.
    if (!(inputs.error <= 1.0 && inputs.error <= outputs.error && steeper >= 1.0)) inputs.error = std::pow(inputs.error, steeper);
    judged = inputs.error > outputs.error ? inputs : outputs;
}

// All outputs at the end: as they were read, or, where that was early or under another input, asked for. `again`: under the
// input that the unit had at the end of the long step, which is then taken back.
int DoublingStepper::ask(Program &program, std::vector<double> &to, bool again) {
    Machine &m = program.machine;
    take(to, m.y);
    for (Asked &one : asked) {
        const double when = m.time(0.0);
        double *outputs = to.data() + one.output;
        auto give = [&](const std::vector<double> &values) { return caught(*one.unit, [&] { return one.unit->set(values.data()); }); };
        if (again && one.through) {
            for (std::size_t i = 0; i < one.inputs.size(); ++i) {
                one.own[i] = value_of(one.inputs[i], m.c.data());
                if (one.inputs[i].counts == false) one.given[i] = one.own[i];
            }
            m.calls_unit(one.number, setting);
            if (int status = give(one.given)) return m.fail(one.number, reading, status, when);
        }
        if (again || one.early) {
            m.calls_unit(one.number, reading);
            if (int status = caught(*one.unit, [&] { return one.unit->get(outputs); })) return m.fail(one.number, reading, status, when);
        }
        if (again && one.through)
            if (int status = give(one.own)) return m.fail(one.number, reading, status, when);
        if (!again && one.through)
            for (std::size_t i = 0; i < one.inputs.size(); ++i) one.given[i] = value_of(one.inputs[i], m.c.data());
    }
    return ok;
}

}  // namespace cosimo

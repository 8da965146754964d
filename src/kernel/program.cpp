#include "program.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "dmd.hpp"
#include "fmi.hpp"
#include "guard.hpp"
#include "linear.hpp"
#include "stepper.hpp"

namespace cosimo {

std::atomic<unsigned> attention{0};

Ticker::Ticker(double seconds, std::function<void()> each)
    : thread_([this, seconds, each = std::move(each)] {
          std::unique_lock lock(mutex_);
          while (!wake_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return ending_.load(); })) each();
      }) {}

Ticker::~Ticker() {
    ending_ = true;  // first: with a pause of nearly nothing the other thread may leave the lock to nobody (Windows)
    { std::lock_guard lock(mutex_); }
    wake_.notify_all();
    thread_.join();
}

Program::Program() = default;
Program::~Program() = default;

int run_all(Sequence &instructions, Machine &machine) {
    for (auto &instruction : instructions)
        if (int outcome = instruction->run(machine)) return outcome;
    return ok;
}

namespace {

// x − x is 0 for finite numbers only.
inline bool is_finite(double x) { return x - x == 0.0; }

bool all_finite(const double *y, std::size_t n) { return std::all_of(y, y + n, is_finite); }

// Is not finite where one of them is not, and else only where it overflows. Read as by `copy_values`.
inline double sum_of(const double *y, std::size_t n) {
    double sum = 0.0;
    if (n > 16) {
        double sums[4] = {};  // which do not wait for each other
        for (; n >= 4; n -= 4, y += 4)
            for (std::size_t i = 0; i < 4; ++i) sums[i] += y[i];
        sum = sums[0] + sums[1] + sums[2] + sums[3];
    }
    for (std::size_t i = 0; i < n; ++i) sum += const_cast<const volatile double *>(y)[i];
    return sum;
}

// Calls `work` with what a stage calls its units by: the FMUs' own functions side by side, or the members themselves.
template <class Members, class Work>
int with_calls(const DirectCalls &calls, const Members &members, Work work) {
    if (!calls.fmi2.empty()) return work(calls.fmi2);
    if (!calls.fmi3.empty()) return work(calls.fmi3);
    return work(members);
}

}  // namespace

bool Checks::Check::fits(const Checks &all, Machine &m) {
    const std::size_t p = outputs.size(), n = samples;
    double *count = m.w.data() + memory, *last_y = count + 1, *last_c = last_y + p, *dy = last_c + width, *dc = dy + n * p;
    double *r2 = dc + n * width, *q2 = r2 + p, *d2 = q2 + p, *peak = d2 + p;
    const double *c = m.c.data() + first;
    for (std::size_t i = 0; i < p; ++i) {
        const double y = m.y[outputs[i]], size = std::fabs(y);
        change[i] = y - last_y[i];
        // As NumPy's maximum: what is not a number stays so.
        if (!(peak[i] >= size) && peak[i] == peak[i]) peak[i] = size;
        last_y[i] = y;
    }
    for (std::size_t i = 0; i < width; ++i) {
        drive[i] = c[i] - last_c[i];
        last_c[i] = c[i];
    }
    std::copy_n(dc, n * width, drive.begin() + width);
    bool good = true;
    if (*count > static_cast<double>(n)) {
        multiply(own.data(), p, dy, n * p, nullptr, 0, foreseen.data());
        multiply(driven.data(), p, drive.data(), drive.size(), nullptr, 0, brought.data());
        for (std::size_t i = 0; i < p; ++i) {
            const double r = change[i] - foreseen[i] - brought[i], floor = noise[i] * peak[i];
            r2[i] = all.fading * r2[i] + r * r;
            q2[i] = all.fading * q2[i] + brought[i] * brought[i];
            d2[i] = all.fading * d2[i] + change[i] * change[i];
            const double room = all.tolerated * all.tolerated * q2[i] + share[i] * share[i] * d2[i];
            if (!(r2[i] <= room + floor * floor)) good = false;
        }
    }
    std::copy_backward(dy, dy + (n - 1) * p, dy + n * p);
    std::copy_n(change.begin(), p, dy);
    std::copy_n(drive.begin(), n * width, dc);
    *count += 1.0;
    return good;
}

int Checks::run(Machine &m) {
    double *now = m.w.data() + state;
    if (m.k > 0) {
        long long wrong = -1;
        for (std::size_t i = 0; i < checks.size(); ++i)
            if (!checks[i].fits(*this, m) && wrong < 0) wrong = static_cast<long long>(i);
        now[1] = wrong < 0 ? now[1] + 1.0 : 0.0;
        if (wrong >= 0 && now[0] == 0.0) {
            now[0] = 1.0;
            m.switches.push_back({m.k, wrong});
        } else if (now[0] != 0.0 && now[1] >= again) {
            now[0] = 0.0;
            m.switches.push_back({m.k, -1});
        }
    }
    m.held = now[0] != 0.0;
    return ok;
}

void Mix::run(Machine &m) {
    if (startup != 0) [[unlikely]]
        whole(m);
    else
        settled(m);
    if (m.held && !holds.empty()) [[unlikely]] {
        for (std::uint32_t target : targets) m.c[target] = 0.0;
        for (const Scaled &hold : holds) m.c[hold.target] = hold.gain * m.y[hold.source] + hold.offset;
    }
}

void Mix::settled(Machine &m) {
    double *w = m.w.data() + memory, *c = m.c.data();
    const double *y = m.y.data();
    for (const Copy &shift : shifts) w[shift.target] = w[shift.source];
    for (const Copy &sample : samples) w[sample.target] = y[sample.source];
    const Tap *tap = taps.data();
    for (std::size_t i = 0; i < targets.size(); ++i) {
        const Tap *end = taps.data() + ends[i];
        double sum = 0.0;
        for (; tap != end; ++tap) sum += tap->gain * w[tap->slot];
        c[targets[i]] = sum + offsets[i];
    }
}

void Mix::whole(Machine &m) {
    double *w = m.w.data() + memory, *c = m.c.data();
    multiply(update.data(), size, w, size, m.y.data(), m.y.size(), fresh.data());
    std::memcpy(w, fresh.data(), size * sizeof(double));
    for (std::size_t i = 0; i < targets.size(); ++i) {
        double sum = input[i * size] * w[0];
        for (std::uint32_t j = 1; j < size; ++j) sum += input[i * size + j] * w[j];
        c[targets[i]] = sum + offsets[i];
    }
    // Beside an overflow, products with zeros count.
    if (startup > 0 && --startup == 0 && !all_finite(w, size)) startup = -1;
}

namespace {

// w' = F^ww w + F^ws s, c = F^uw w'
inline void form(const Link &link, const double *y, double *memories, double *c) {
    const double sample = link.gain * y[link.source] + link.offset;
    double *w = memories + link.memory;
    double fresh[max_history];
    for (std::uint32_t i = 0; i < link.history; ++i) {
        double sum = link.ww[i * link.history] * w[0];
        for (std::uint32_t j = 1; j < link.history; ++j) sum += link.ww[i * link.history + j] * w[j];
        fresh[i] = sum + link.ws[i] * sample;
    }
    std::memcpy(w, fresh, link.history * sizeof(double));
    for (std::uint32_t i = 0; i < link.powers; ++i) {
        double sum = link.uw[i * link.history] * w[0];
        for (std::uint32_t j = 1; j < link.history; ++j) sum += link.uw[i * link.history + j] * w[j];
        c[link.first + i * link.stride] = sum;
    }
}

// a / b rounded once, however large they are below 2^103: as Python turns a fraction into a number.
double ratio(__int128 a, __int128 b) {
    if (a == 0) return 0.0;
    const bool negative = (a < 0) != (b < 0);
    auto top = static_cast<unsigned __int128>(a < 0 ? -a : a), bottom = static_cast<unsigned __int128>(b < 0 ? -b : b);
    constexpr unsigned __int128 exact = std::uint64_t{1} << 53;
    double value;
    if (top <= exact && bottom <= exact) {
        value = static_cast<double>(static_cast<std::uint64_t>(top)) / static_cast<double>(static_cast<std::uint64_t>(bottom));
    } else {
        auto width = [](unsigned __int128 x) {
            const auto high = static_cast<std::uint64_t>(x >> 64);
            return high ? 64 + static_cast<int>(std::bit_width(high)) : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(x)));
        };
        const int exponent = width(top) - width(bottom);
        (exponent < 0 ? top : bottom) <<= std::abs(exponent);
        // The quotient is between 1/2 and 2: 56 binary digits of it, the last one also set where more would follow.
        std::uint64_t digits = 0;
        for (int i = 0; i < 56; ++i, top <<= 1) {
            const bool one = top >= bottom;
            digits = digits << 1 | one;
            if (one) top -= bottom;
        }
        if (top != 0) digits |= 1;
        value = std::ldexp(static_cast<double>(digits), exponent - 55);
    }
    return negative ? -value : value;
}

}  // namespace

void TimedLink::run(Machine &m) {
    long long *known = m.stamps.data() + stamps;
    const long long newest = m.read_at[unit], now = m.k + static_cast<long long>(tau * m.parts);
    // As in core/timing.py: what is not older than the new sample is replaced by it.
    long long places[max_history] = {newest}, slots[max_history] = {0};
    std::uint32_t count = 1;
    const long long there = std::min<long long>(known[0], link.history);
    for (long long slot = 0; slot < there && count < link.history; ++slot)
        if (known[slot + 1] < newest) {
            slots[count] = slot;
            places[count++] = known[slot + 1];
        }
    known[0] = count;
    bool same = parts == m.parts && away.size() == count;
    for (std::uint32_t i = 0; i < count; ++i) {
        known[i + 1] = places[i];
        same = same && away[i] == places[i] - now && kept[i] == slots[i];
    }
    if (!same) {
        away.resize(count);
        kept.assign(slots, slots + count);
        for (std::uint32_t i = 0; i < count; ++i) away[i] = places[i] - now;
        interpolate(m.parts);
    }
    form(link, m.y.data(), m.w.data(), m.c.data());
}

// The matrices of a hold for samples at σ_i = away_i / parts: the Lagrange polynomials through them.
void TimedLink::interpolate(double lasting) {
    parts = lasting;
    const std::uint32_t n = link.history, count = static_cast<std::uint32_t>(away.size());
    std::fill(link.ww.begin(), link.ww.end(), 0.0);
    std::fill(link.uw.begin(), link.uw.end(), 0.0);
    for (std::uint32_t i = 1; i < count; ++i) link.ww[i * n + static_cast<std::uint32_t>(kept[i])] = 1.0;
    const auto h = static_cast<__int128>(lasting);
    for (std::uint32_t i = 0; i < count; ++i) {
        __int128 sum = 0, product = 1, scale = 1;
        for (std::uint32_t other = 0; other < count; ++other)
            if (other != i) {
                sum += away[other];
                product *= away[other];
                scale *= away[i] - away[other];
            }
        link.uw[i] = ratio(count == 2 ? -product : product, scale);
        if (count == 2) link.uw[n + i] = ratio(h, scale);
        if (count == 3) {
            link.uw[n + i] = ratio(-sum * h, scale);
            link.uw[2 * n + i] = ratio(h * h, scale);
        }
    }
}

int Couple::run(Machine &m) {
    form_inputs(m);
    return with_calls(calls, targets, [&](const auto &each) { return set_each(m, each); });
}

inline void Couple::form_inputs(Machine &m) {
    double *c = m.c.data();
    const double *y = m.y.data();
    for (const Copy &copy : copies) c[copy.target] = y[copy.source];
    for (const Scaled &one : scaled) c[one.target] = one.gain * y[one.source] + one.offset;
    if (!held) form_others(m);
}

void Couple::form_others(Machine &m) {
    double *c = m.c.data();
    const double *y = m.y.data();
    for (const Link &link : links) form(link, y, m.w.data(), c);
    for (TimedLink &link : timed) link.run(m);
    for (Mix &mix : mixes) mix.run(m);
    for (Predict &prediction : predictions) prediction.run(m);
    for (const External &external : externals)
        for (std::uint32_t i = 0; i < external.powers; ++i) {
            double sum = external.fit[i * external.powers] * m.e[external.first];
            for (std::uint32_t j = 1; j < external.powers; ++j)
                sum += external.fit[i * external.powers + j] * m.e[external.first + j];
            c[external.target + i * external.stride] = sum;
        }
}

void Predict::run(Machine &m) {
    const std::size_t n = targets.size();
    double *before = m.w.data() + memory, *now = before + n, *ahead = now + n;
    if (fresh) {
        for (const Scaled &sample : samples) x[sample.target] = sample.gain * m.y[sample.source] + sample.offset;
        for (std::size_t i = 0; i < u.size(); ++i) u[i] = m.y[actions[i]];
        predictor->advance(x.data(), u.data(), next.data());
        std::memcpy(before, now, n * sizeof(double));
        std::memcpy(now, x.data(), n * sizeof(double));
        std::memcpy(ahead, next.data(), n * sizeof(double));
        ahead[n] = static_cast<double>(predictor->expert());
        ahead[n + 1] = predictor->error();
    }
    for (std::size_t i = 0; i < n; ++i) {
        const double begin = node < 0 ? before[i] : node == 0 ? now[i] : ahead[i];
        const double end = node < 0 ? now[i] : node == 0 ? ahead[i] : 2.0 * ahead[i] - now[i];
        m.c[targets[i]] = begin + phase * (end - begin);
        m.c[targets[i] + stride] = (end - begin) / period;
    }
}

template <class Call>
[[gnu::always_inline]] inline int Couple::set_each(Machine &m, const std::vector<Call> &each) {
    // Pointers of its own: what stands behind `this` would be read again after every call.
    const double *c = m.c.data();
    const Call *call = each.data(), *end = call + each.size();
    const Target *target = targets.data();
    const bool ending = m.ending >= 0;
    try {
        for (; call != end; ++call, ++target) {
            if (ending && target->unit->wants_end) [[unlikely]]
                continue;
            m.calls_unit(call->call);
            if (int status = call->set(c)) [[unlikely]]
                return m.fail(*target->unit, target->number, setting, status, m.time(target->tau));
        }
    } catch (...) {
        return m.fail(target->number, setting, target->unit->keep_error(), m.time(target->tau));
    }
    return ok;
}

int Shift::run(Machine &m) {
    if (m.over(*unit)) [[unlikely]]
        return ok;
    const double *c = m.c.data() + first;
    for (std::uint32_t i = 0; i < kept; ++i)
        for (std::uint32_t input = 0; input < inputs; ++input) {
            double sum = cut[i * powers] * c[input];
            for (std::uint32_t j = 1; j < powers; ++j) sum += cut[i * powers + j] * c[j * inputs + input];
            buffer[i * inputs + input] = sum;
        }
    int status = caught(*unit, [&] { return unit->set(buffer.data()); });
    return status ? m.fail(*unit, number, setting, status, m.time(tau)) : ok;
}

int Step::run(Machine &m) {
    for (const Stepped &s : posted) s.unit->post(m.time(s.tau), s.duration);
    if (parallel == 0) return serial(m);
    return parallel < 0 ? measure(m) : shared(m);
}

inline int Step::serial(Machine &m) {
    return with_calls(calls, units, [&](const auto &each) { return step_each(m, each); });
}

void Step::last(double h, int length) {
    for (auto *members : {&units, &posted})
        for (Stepped &s : *members) s.last(h, length);
    for (std::size_t i = 0; i < calls.fmi2.size(); ++i) calls.fmi2[i].duration = units[i].duration;
    for (std::size_t i = 0; i < calls.fmi3.size(); ++i) calls.fmi3[i].duration = units[i].duration;
}

inline int Step::call(Machine &m, const Stepped &, const Stepped &s, double time) {
    return outcome(m, s, s.unit->step(time, s.duration, s.map));
}

inline int Step::call(Machine &m, const Stepped &s, const DirectCall<Fmi2> &call, double time) {
    const int status = stepped(call.function.step(call.component, time, call.duration, call.final_step));
    if (!status) [[likely]]
        return ok;
    return outcome(m, s, static_cast<Fmi2 *>(s.unit)->told(status, time, s.duration));
}

inline int Step::call(Machine &m, const Stepped &s, const DirectCall<Fmi3> &call, double time) {
    Fmi3::Said said;
    const int status = stepped(call.function.step(call.component, time, call.duration, call.final_step != 0, &said.event,
                                                  &said.terminate, &said.early, &said.reached));
    if (!status && !said.event && !said.terminate && !said.early && !(said.reached < time)) [[likely]]
        return ok;
    return outcome(m, s, static_cast<Fmi3 *>(s.unit)->told(status, said, time, s.duration));
}

template <class Call>
[[gnu::always_inline]] inline int Step::step_each(Machine &m, const std::vector<Call> &each) {
    const Call *next = each.data(), *end = next + each.size();
    const Stepped *s = units.data();
    double tau = next->tau, time = m.time(tau);  // nearly always that of all units of the stage
    m.begins_stage();
    try {
        for (; next != end; ++next, ++s) {
            if (next->tau != tau) [[unlikely]]
                time = m.time(tau = next->tau);
            m.calls_unit(next->call);
            if (int found = call(m, *s, *next, time)) [[unlikely]]
                return found;
        }
    } catch (...) {
        return m.fail(s->number, stepping, s->unit->keep_error(), m.time(s->tau), s->duration);
    }
    return ok;
}

int Step::shared(Machine &m) { return proved < proofs && serial_cost > 0.0 ? prove(m) : share(m); }

int Step::share(Machine &m) {
    statuses.resize(units.size());
    m.begins_stage();
    m.calls_unit(-1, stepping);
    const double time = m.time(units[0].tau);
    (*pool)->run(static_cast<std::uint32_t>(units.size()), [this, &m, time](std::uint32_t i) {
        const Stepped &s = units[i];
        Running running(m, s.number);
        const int status = caught(*s.unit, [&] { return s.unit->step(s.tau == units[0].tau ? time : m.time(s.tau), s.duration, s.map); });
        if (status) [[unlikely]]  // else nothing is written that other threads read
            statuses[i] = status;
    });
    for (std::size_t i = 0; i < units.size(); ++i)
        if (int found = outcome(m, units[i], statuses[i])) {
            statuses.clear();
            return found;
        }
    return ok;
}

// The first steps are timed, unit by unit. Sharing is tried when what the other threads take off this one clearly exceeds
// the price of handing work over (about half a microsecond between threads that spin). Then whole stages are timed, in this
// thread and shared: the clock itself takes as long as a small unit.
int Step::measure(Machine &m) {
    using Clock = std::chrono::steady_clock;
    constexpr double price = 3e-6;
    if (waiting > 0) {
        --waiting;
        return serial(m);
    }
    if (measured >= warm_up + samples) {
        if (++measured > warm_up + 2 * samples) parallel = 1;
        return timed(serial_cost, [&] { return serial(m); });
    }
    m.begins_stage();
    for (std::size_t i = 0; i < units.size(); ++i) {
        const Stepped &s = units[i];
        m.calls_unit(s.call);
        auto begin = Clock::now();
        int status = caught(*s.unit, [&] { return s.unit->step(m.time(s.tau), s.duration, s.map); });
        double took = std::chrono::duration<double>(Clock::now() - begin).count();
        if (int found = outcome(m, s, status)) return found;
        if (measured >= warm_up) cost[i] = measured == warm_up ? took : std::min(cost[i], took);
    }
    if (++measured < warm_up + samples) return ok;
    double total = std::accumulate(cost.begin(), cost.end(), 0.0);
    double longest = *std::max_element(cost.begin(), cost.end());
    double best = std::max(longest, total / static_cast<double>((*pool)->size() + 1));
    if (total - best <= price) parallel = 0;
    return ok;
}

// Whether sharing really pays depends on what else the machine does. Where it does not, it is tried again later.
int Step::prove(Machine &m) {
    const int outcome = timed(shared_cost, [&] { return share(m); });
    if (++proved == proofs && shared_cost > 0.9 * serial_cost) {
        parallel = -1;
        waiting = patience;
        patience = std::min(2 * patience, 1LL << 20);
        measured = warm_up + samples;
        proved = 0;
        serial_cost = shared_cost = 0.0;
    }
    return outcome;
}

// Keeps the shortest time; 0: none yet.
template <class Work>
int Step::timed(double &least, Work work) {
    const auto begin = std::chrono::steady_clock::now();
    const int outcome = work();
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    least = least > 0.0 ? std::min(least, took) : took;
    return outcome;
}

int Read::run(Machine &m) {
    const int outcome = with_calls(calls, sources, [&](const auto &each) { return get_each(m, each); });
    if (!m.read_at.empty()) [[unlikely]]
        note_places(m);
    return outcome;
}

void Read::note_places(Machine &m) const {
    for (const Source &source : sources)
        m.read_at[static_cast<std::size_t>(source.number)] = m.k + static_cast<long long>(source.tau * m.parts);
}

template <class Call>
[[gnu::always_inline]] inline int Read::get_each(Machine &m, const std::vector<Call> &each) {
    const Call *call = each.data(), *end = call + each.size();
    const Source *source = sources.data();
    double *const outputs = m.y.data();
    try {
        for (; call != end; ++call, ++source) {
            m.calls_unit(call->call);
            if (int status = call->get(outputs + call->first)) [[unlikely]]
                return failed(m, source, status);
        }
    } catch (...) {
        return failed(m, source, source->unit->keep_error());
    }
    double sum = 0.0;
    for (const Span &span : spans) sum += sum_of(outputs + span.first, span.count);
    return is_finite(sum) ? ok : not_finite(m, source);
}

void Read::add(const Source &source) {
    const auto count = static_cast<std::uint32_t>(source.unit->outputs);
    if (!spans.empty() && spans.back().first + spans.back().count == source.first)
        spans.back().count += count;
    else
        spans.push_back({source.first, count});
    sources.push_back(source);
}

// A unit that could not be read, and those before it: what the first of them did ends the run.
int Read::failed(Machine &m, const Source *source, int status) {
    if (int outcome = not_finite(m, source)) return outcome;
    return m.fail(source->number, reading, status, m.time(source->tau));
}

// The outputs of the units before `end`, unit by unit.
int Read::not_finite(Machine &m, const Source *end) {
    for (const Source *source = sources.data(); source != end; ++source)
        if (!all_finite(m.y.data() + source->first, source->unit->outputs))
            if (int outcome = not_finite(m, *source)) return outcome;
    return ok;
}

int Read::not_finite(Machine &m, const Source &source) {
    const double *y = m.y.data() + source.first;
    if (m.tolerant) {
        m.noted.resize(m.y.size());
        for (std::size_t i = 0; i < source.unit->outputs; ++i)
            if (!std::isfinite(y[i]) && !std::exchange(m.noted[source.first + i], 1))
                m.not_finite.push_back({source.first + i, m.time(source.tau), y[i]});
        return ok;
    }
    m.output = 0;
    while (std::isfinite(y[m.output])) ++m.output;
    m.fail(source.number, reading, 0, m.time(source.tau));
    m.value = y[m.output];
    return non_finite;
}

template <class F>
Round<F>::Round(std::unique_ptr<Instruction> couple, std::unique_ptr<Instruction> step, std::unique_ptr<Instruction> read)
    : couple_(static_cast<Couple *>(couple.release())),
      step_(static_cast<Step *>(step.release())),
      read_(static_cast<Read *>(read.release())) {}

template <class F>
int Round<F>::run(Machine &m) {
    couple_->form_inputs(m);
    if (int outcome = couple_->set_each(m, couple_->calls.of<F>())) [[unlikely]]
        return outcome;
    const bool plain = step_->parallel == 0 && step_->posted.empty();
    if (int outcome = plain ? step_->step_each(m, step_->calls.of<F>()) : step_->run(m)) [[unlikely]]
        return outcome;
    const int outcome = read_->get_each(m, read_->calls.of<F>());
    if (!m.read_at.empty()) [[unlikely]]
        read_->note_places(m);
    return outcome;
}

template struct Round<Fmi2>;
template struct Round<Fmi3>;

int Keep::run(Machine &m) { return all_fmi2 ? all<Fmi2>(m) : all<Unit>(m); }

template <class U>
int Keep::all(Machine &m) {
    const Member *member = members.data(), *end = member + members.size();
    const Phase doing = put_back ? restoring : saving;
    try {
        for (; member != end; ++member) {
            U *unit = static_cast<U *>(member->unit);
            m.calls_unit(member->number, doing);
            if (int status = put_back ? unit->restore() : unit->save()) [[unlikely]]
                return m.fail(member->number, doing, status, m.time(0.0));
            if (put_back) {
                unit->wants_end = false;
                if (m.ending == member->number) m.ending = -1;
            }
            double *c = m.c.data() + member->first, *kept = member->saved->data();
            for (std::size_t i = 0; i < member->saved->size(); ++i) put_back ? c[i] = kept[i] : kept[i] = c[i];
        }
    } catch (...) {
        return m.fail(member->number, doing, member->unit->keep_error(), m.time(0.0));
    }
    return ok;
}

int Repeat::run(Machine &m) {
    if (times == 0) return until(m);
    for (long long i = 0; i < times; ++i) {
        std::size_t which = std::min<std::size_t>(static_cast<std::size_t>(i), sweeps.size() - 1);
        if (int outcome = run_all(sweeps[which], m)) return outcome;
    }
    return ok;
}

int Repeat::until(Machine &m) {
    acceleration.begin();
    before_ = m.y;  // reused from macro step to macro step: no allocation in the loop
    double residual = INFINITY;
    long long made = 0;
    while (made < limit) {
        std::size_t which = std::min<std::size_t>(static_cast<std::size_t>(made), sweeps.size() - 1);
        if (int outcome = run_all(sweeps[which], m)) return outcome;
        ++made;
        double change = 0.0, size = 1.0;
        for (std::size_t i = 0; i < m.y.size(); ++i) {
            const double moved = std::fabs(m.y[i] - before_[i]);
            if (moved > change || moved != moved) change = moved;  // what is not a number stays so, and has not converged
            size = std::max(size, std::fabs(m.y[i]));
        }
        residual = change / size;
        acceleration.observe(made - 1, before_, m.y);
        if (residual <= tolerance) break;
        if (made == limit) break;
        acceleration.propose(before_, m.y);
        before_ = m.y;
    }
    counts->push_back(made);
    residuals->push_back(residual);
    return ok;
}

void Program::remember(StateBytes &bytes) {
    bytes.array(machine.y);
    bytes.array(machine.c);
    bytes.array(machine.w);
    machine.noted.resize(machine.y.size());
    bytes.array(machine.noted);
    bytes.list(machine.not_finite, machine.y.size());
    bytes.list(machine.switches, std::size_t{1} << 40);
    for (auto &instruction : instructions) instruction->remember(bytes);
    for (auto &unit : units) unit->remember(bytes);
    if (monitor) monitor->remember(bytes);
    bytes.array(machine.read_at);
    bytes.array(machine.stamps);
    if (stepper) stepper->remember(bytes);
    bytes.end();
}

void Program::last(long long parts) {
    if (static_cast<double>(parts) == machine.parts) return;
    int number = 0;
    if (prepare) {
        if (auto found = lengths.find(parts); found != lengths.end()) number = found->second;
        else lengths.emplace(parts, number = prepare(parts));
    }
    machine.parts = static_cast<double>(parts);
    machine.h = machine.parts * machine.quantum;
    for (Step *stage : stages) stage->last(machine.h, number);
    for (Unit *unit : stretched) unit->stretch(machine.h);
}

void Program::time_units(double seconds) {
    samples = std::vector<std::atomic<std::uint64_t>>(units.size() + 1);
    sampler = std::make_unique<Ticker>(seconds, [this] {
        if (!inside.load(std::memory_order_relaxed)) return;
        const auto place = static_cast<std::size_t>(machine.busy() + 1);
        if (place < samples.size()) samples[place].fetch_add(1, std::memory_order_relaxed);
    });
}

inline void Program::write_row(double *row) const {
    row[0] = machine.time(0.0);
    if (plain_) [[likely]]
        copy_values(row + 1, machine.y.data(), machine.y.size());
    else
        write_columns(row);
}

void Program::write(double *row) const { write_row(row); }

void Program::write_columns(double *row) const {
    const double *y = machine.y.data(), *c = machine.c.data();
    for (const Column &column : columns) {
        double value;
        if (column.powers == 0) {
            value = column.memory ? machine.w[column.first] : y[column.first];
        } else {
            value = column.weights[0] * c[column.first];
            for (std::uint32_t j = 1; j < column.powers; ++j) value += column.weights[j] * c[column.first + j * column.stride];
        }
        *++row = value;
    }
}

std::atomic<unsigned> interrupts{0};

namespace {

// While the loop runs, it sees signals. Runs in several threads share one handler: the last takes it away.
struct Watch {
    const unsigned interrupts_before = interrupts.load(), calm = attention.load();
    Watch() { count_signals(); }
    ~Watch() { count_signals_no_more(); }
};

// While units are called, samples of which one is at work count.
struct Inside {
    std::atomic<bool> &flag;
    explicit Inside(std::atomic<bool> &which) : flag(which) { flag.store(true, std::memory_order_relaxed); }
    ~Inside() { flag.store(false, std::memory_order_relaxed); }
};

}  // namespace

// Whether rows are the outputs as they lie there.
void Program::prepare_rows() {
    if (std::exchange(prepared_, true)) return;
    plain_ = columns.size() == machine.y.size();
    for (std::size_t i = 0; plain_ && i < columns.size(); ++i) plain_ = columns[i].powers == 0 && columns[i].first == i && !columns[i].memory;
}

int Program::run(long long first, long long count, const double *given, std::size_t given_width, double *rows) {
    prepare_rows();
    Watch watch;
    Inside within(inside);
    Running running(machine);
    made = 0;
    const std::size_t width = columns.size() + (stepper && stepper->tells_length ? 2 : 1);
    const long long room = stepper ? count - stepper->pair + 1 : count;
    // Values of its own: what stands behind `this` would be read again after every call.
    const auto *begin = instructions.data(), *end = begin + instructions.size();
    Monitor *const watching = monitor.get();
    const bool varies = stepper != nullptr;
    while (made < room) {
        if (varies) [[unlikely]] {
            if (stepper->over(machine)) return ok;
            if (int outcome = stepper->advance(*this, rows)) return outcome;
            made += stepper->rows_made;
            rows += static_cast<std::size_t>(stepper->rows_made) * width;
        } else {
            machine.k = first;
            machine.e = given;
            for (const auto *instruction = begin; instruction != end; ++instruction)
                if (int outcome = (*instruction)->run(machine)) [[unlikely]]
                    return outcome;
            machine.k = ++first;
            ++made;
            given += given_width;
            write_row(rows);
            rows += width;
        }
        if (watching && watching->observe(machine.y.data(), machine.c.data())) [[unlikely]]
            return diverged;
        if (machine.ending >= 0) [[unlikely]]
            return ended;
        if (attention.load(std::memory_order_relaxed) != watch.calm) [[unlikely]] {
            end_if_copy();
            return interrupts.load(std::memory_order_acquire) != watch.interrupts_before ? stopped : ok;
        }
    }
    return ok;
}

}  // namespace cosimo

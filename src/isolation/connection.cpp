#include "connection.hpp"

#include <algorithm>
#include <mutex>

#include "placement.hpp"

namespace cosimo::isolation {
namespace {

constexpr long slice = 20000000L;     // nanoseconds between two looks at whether the worker lives
constexpr double start_limit = 20.0;  // seconds for a worker to come up and to load its unit
constexpr double coming_up = 0.5;     // of them for the process itself, where the unit has a limit of its own
constexpr double leave_limit = 5.0;   // and to go
constexpr unsigned unused_limit = 8;  // steps after which values nobody asks for are no longer read ahead
constexpr std::size_t most_ahead = 16;
constexpr std::uint32_t many_spins = 2000, few_spins = 24, master_spins = 100;

// All live workers: with more of them than processors, looking on only keeps from running whoever is waited for.
std::mutex counting;
std::vector<Header *> headers;

void recount(Header *header, bool spinning, bool joins) {
    std::lock_guard lock(counting);
    if (joins)
        headers.push_back(header);
    else
        std::erase(headers, header);
    const bool crowded = static_cast<int>(headers.size()) + 1 > usable_processors();
    header->spins.store(spinning);
    for (Header *each : headers) {
        each->crowded.store(crowded);
        if (each->spins.load()) each->spins.store(crowded ? few_spins : many_spins);
    }
}

std::atomic<const std::atomic<unsigned> *> interrupts{nullptr};  // counted up when the user wants an end

unsigned interrupted_so_far() {
    const auto *counter = interrupts.load(std::memory_order_relaxed);
    return counter ? counter->load(std::memory_order_relaxed) : 0;
}

}  // namespace

struct Connection::Wait {
    double limit;         // 0: none
    unsigned interrupts;  // so far, of which the user is known to want no end of this wait
    double begin = now();
};

EXPORTED void cosimoIsolationInterrupts(const void *counter) { interrupts.store(static_cast<const std::atomic<unsigned> *>(counter)); }

Connection::Connection(const char *const *arguments, const char *const *environment, const Options &options)
    : sandboxed_(options.sandboxed != 0), spinning_(options.spinning != 0), timeout_(options.timeout), interrupts_(interrupted_so_far()) {
    limited_ = options.memory_limit != 0;
    header_ = process_.share(problem);
    if (!header_) {
        end = End::not_started;
        return;
    }
    header_->version = static_cast<std::uint32_t>(options.version);
    header_->sandboxed = sandboxed_;
    header_->memory_limit = options.memory_limit;
    recount(header_, spinning_, true);
    out = Writer(request_area(header_), area);
    problem = process_.start(arguments, environment, sandboxed_);
    if (problem.empty())
        await_start();
    else
        end = End::not_started;
}

Connection::~Connection() {
    close();
    if (header_) recount(header_, false, false);
}

void Connection::await_start() {
    const Wait wait{timeout_ > 0 ? timeout_ + coming_up : start_limit, interrupts_};
    while (!header_->ready.load(std::memory_order_acquire)) {
        reap(false);
        if (end != End::alive || !has_time(wait)) break;
        doze(header_->reply, 0xFFFFFFFFu, 1000000L);
    }
    records.take(header_->ring);
    if (end == End::alive && header_->problem[0]) {
        problem.assign(header_->problem, strnlen(header_->problem, sizeof header_->problem));
        close();
        end = End::not_started;
    } else if ((end == End::exited || end == End::crashed) && sandboxed_ && !header_->loading.load()) {
        // The sandbox itself did not come up; what it printed says why.
        if (!records.newest.empty()) problem = records.newest.back().text;
        end = End::not_started;
    }
}

// ---- calls ---------------------------------------------------------------------------------------------------------

void Connection::begin(Function function) {
    if (posted_) collect_step();
    if (kept_ == 0) out.reset();
    asked_ = static_cast<std::uint32_t>(function);
    ending_ = described(function).kind == Kind::free || function == Function::fmi2Terminate || function == Function::fmi3Terminate;
    begin_more(function);
}

void Connection::begin_more(Function function) {
    call_begins_ = out.used();
    out.put(Call{static_cast<std::uint32_t>(function), 0, 0, 0});
}

void Connection::finish_call(bool ahead) {
    if (out.failed()) return;
    auto *call = reinterpret_cast<Call *>(out.begin() + call_begins_);
    call->bytes = static_cast<std::uint32_t>(out.used() - call_begins_ - sizeof(Call));
    call->ahead = ahead;
    ++kept_;
}

int Connection::keep() {
    fresh_ = false;
    if (end != End::alive) return status_fatal;
    if (!stepping_ || out.used() > area / 2) return send();
    finish_call();
    return out.failed() ? send() : status_ok;
}

int Connection::send() {
    if (end != End::alive) return status_fatal;
    fresh_ = false;
    if (out.failed()) {
        out.back_to(call_begins_);
        records.append(status_error, "the call is too large for a unit in a process of its own", 56);
        return status_error;
    }
    finish_call();
    const std::size_t calls = kept_;
    publish_request();
    if (!await_reply()) return status_fatal;
    Reader reply(reply_area(header_), std::min<std::size_t>(static_cast<std::uint32_t>(header_->reply.value.load()), area));
    return first_status(calls, reply);
}

// The status of the last of `calls`, or of the first that failed; the results are those of the last.
int Connection::first_status(std::size_t calls, Reader &reply) {
    int status = status_ok;
    Reader request(request_area(header_), out.used());
    if (header_->mark != magic) {
        kill(End::broken);
        during = asked_;
        return status_fatal;
    }
    for (std::size_t i = 0; i < calls; ++i) {
        const Call asked = request.get<Call>(), got = reply.get<Call>();
        request.take(asked.bytes);
        const auto *data = static_cast<const unsigned char *>(reply.take(got.bytes));
        if (!data) {
            kill(End::broken);
            return status_fatal;
        }
        status = static_cast<int>(got.function);
        results = Reader(data, got.bytes);
        refused = asked.function;
        if (status >= status_error && refused_memory()) {
            kill(End::memory);
            during = asked.function;
            return status_fatal;
        }
        if (status > status_warning) return status;
    }
    return status;
}

// Ends a worker that has used up its time, or that keeps a user waiting who wants an end.
bool Connection::has_time(const Wait &wait) {
    waited = now() - wait.begin;
    const bool late = wait.limit > 0 && waited > wait.limit;
    if (!late && !(waited > 0.5 && interrupted_so_far() != wait.interrupts)) return true;
    kill(late ? End::timeout : End::interrupted);
    return false;
}

void Connection::publish_request() {
    for (Ahead &one : ahead_) one.values = nullptr, one.status = status_ok;
    kept_ = 0;
    if (sent_ % 64 == 0) header_->master_cpu.store(present_processor(), std::memory_order_relaxed);
    publish(header_->request, ++sent_, static_cast<std::uint32_t>(out.used()));
}

bool Connection::await_reply() {
    Word &reply = header_->reply;
    const bool crowded = header_->crowded.load(std::memory_order_relaxed);
    const std::uint32_t spins = !spinning_ ? 0 : crowded ? master_spins : many_spins;
    if (!patience_.look(reply, sent_, spins, crowded)) {
        // One that came before this call was made, and that nobody could answer since, counts as well; but a unit that is
        // let go because of it has its time.
        const Wait wait{timeout_, ending_ ? interrupted_so_far() : interrupts_};
        while (!doze(reply, sent_, slice)) {
            reap(false);
            if (arrived(reply, sent_)) break;
            if (end != End::alive || !has_time(wait)) return false;
        }
    }
    interrupts_ = interrupted_so_far();
    Ring &ring = header_->ring;
    if (ring.written.load(std::memory_order_relaxed) != ring.read.load(std::memory_order_relaxed)) records.take(ring);
    return true;
}

// ---- values --------------------------------------------------------------------------------------------------------

int Connection::get(Function function, const std::uint32_t *references, std::size_t count, void *values, std::size_t wanted) {
    if (posted_) collect_step();
    if (end != End::alive) return status_fatal;
    const std::size_t bytes = wanted * described(function).size;
    const bool learn = fresh_ && kept_ == 0;
    if (learn)
        for (Ahead &one : ahead_)
            if ((one.values || one.status > status_warning) && one.function == function && one.bytes == bytes &&
                one.references.size() == count && std::memcmp(one.references.data(), references, count * 4) == 0) {
                one.unused = 0;
                refused = static_cast<std::uint32_t>(function);
                if (one.status <= status_warning) std::memcpy(values, one.values, bytes);
                return one.status;  // also a bad one: after a fatal status nothing may be asked again
            }
    const bool was_fresh = learn;
    begin(function);
    out.put<std::uint64_t>(count);
    out.put<std::uint64_t>(wanted);
    out.bytes(references, count * 4);
    const int status = send();
    if (status > status_warning) return status;
    const void *found = results.take(bytes);
    if (!found) {
        kill(End::broken);
        return status_fatal;
    }
    std::memcpy(values, found, bytes);
    fresh_ = was_fresh;  // reading changes nothing
    if (was_fresh && ahead_.size() < most_ahead)
        ahead_.push_back({function, std::vector<std::uint32_t>(references, references + count), bytes, nullptr, 0, 0});
    return status;
}

void Connection::post_step(Function function, double time, double duration, int final, double reached) {
    if (posted_ || end != End::alive) return;
    begin(function);
    out.put(time);
    out.put(duration);
    out.put<std::uint64_t>(final != 0);
    if (function == Function::fmi3DoStep) out.put(reached);
    finish_call();
    step_at_ = kept_;
    std::erase_if(ahead_, [](const Ahead &one) { return one.unused > unused_limit; });
    for (Ahead &one : ahead_) {
        begin_more(one.function);
        out.put<std::uint64_t>(one.references.size());
        out.put<std::uint64_t>(one.bytes / described(one.function).size);
        out.bytes(one.references.data(), one.references.size() * 4);
        finish_call(true);
    }
    publish_request();
    posted_ = true;
}

int Connection::collect_step() {
    posted_ = false;
    fresh_ = false;
    if (end != End::alive || !await_reply()) return step_status_ = status_fatal;
    Reader reply(reply_area(header_), std::min<std::size_t>(static_cast<std::uint32_t>(header_->reply.value.load()), area));
    const int status = first_status(step_at_, reply);
    if (status <= status_warning) {
        stepping_ = fresh_ = true;
        for (Ahead &one : ahead_) {
            ++one.unused;
            one.status = status_ok;
            if (reply.left() < sizeof(Call)) continue;  // one before it failed
            const Call got = reply.get<Call>();
            const void *data = reply.take(got.bytes);
            if (!data || got.bytes < one.bytes) continue;
            one.values = data;
            one.status = static_cast<int>(got.function);
        }
    }
    return step_status_ = status;
}

// ---- its end -------------------------------------------------------------------------------------------------------

bool Connection::refused_memory() const { return limited_ && header_->memory_refused.load(); }

void Connection::reap(bool block) {
    Ending how;
    if (end != End::alive || !process_.ended(block, how)) return;
    during = header_->running.load();
    const auto noted = static_cast<int>(header_->signal.load());
    const bool killed = how.killed;
    number = how.number;
    overflow = header_->overflow.load() != 0;
    end = header_->leaving.load() && !noted ? End::exited : killed || noted ? End::crashed : End::exited;
    if (noted) number = noted;
    // The starter of a sandbox reports the signal that ended it in this way.
    if (!killed && !noted && sandboxed_ && number > 128 && number <= 128 + 64) {
        end = End::crashed;
        number -= 128;
    }
    if (refused_memory()) end = End::memory;
    if (header_->mark != magic) end = End::broken;  // nothing else that it says can be believed
    records.take(header_->ring);
    // What was printed last before the end and nobody in the worker could pass on any more.
    char text[4096];
    for (int i = 0; i < 64; ++i) {
        const std::size_t got = process_.read_printed(text, sizeof text);
        if (got == 0) break;
        records.append_lines(text, got);
    }
}

void Connection::kill(End reason) {
    if (end != End::alive) return;
    during = header_->running.load();
    process_.kill();
    const std::uint32_t was = during;
    reap(true);
    during = was;
    end = reason;
}

void Connection::finish() { kill(End::left); }

void Connection::close() {
    if (!header_ || end != End::alive) {
        posted_ = false;
        return;
    }
    if (posted_) collect_step();
    if (end != End::alive) return;
    out.reset();
    kept_ = 0;
    publish(header_->request, ++sent_, 0);
    const Wait wait{timeout_ > 0 ? timeout_ : leave_limit, interrupted_so_far()};
    while (end == End::alive) {
        process_.wait(20);
        reap(false);
        if (end == End::alive) has_time(wait);
    }
    if (end == End::exited && header_->leaving.load()) end = End::left;
}

}  // namespace cosimo::isolation

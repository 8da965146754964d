#include "pool.hpp"

#include <algorithm>

#include "guard.hpp"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace cosimo {
namespace {

constexpr int spins = 20000;  // some hundred microseconds: longer than the gap between two stages of a running loop
constexpr int number_at = 16;  // bits of a job that say how many portions it has
constexpr std::size_t each = 8;  // portions for each thread: the last one is an eighth of a thread's share
constexpr int patience = 20;    // some hundred nanoseconds

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#endif
}

inline std::size_t portions_of(std::uint64_t job) { return job & ((1u << number_at) - 1); }
inline std::uint32_t word_of(std::uint64_t job) { return static_cast<std::uint32_t>(job >> number_at); }

}  // namespace

Pool::Pool(unsigned helpers) : width_(helpers + std::size_t{1}), most_(std::min<std::size_t>(each * width_, (1u << number_at) - 1)) {
    portions_ = std::make_unique<Portion[]>(most_);
    threads_.reserve(helpers);
    for (unsigned i = 0; i < helpers; ++i) threads_.emplace_back([this, i] { help(i + std::size_t{1}); });
}

Pool::~Pool() {
    announce(0);
    for (auto &thread : threads_) thread.join();
}

void Pool::announce(std::uint64_t portions) {
    const std::uint64_t job = (((job_.number.load(std::memory_order_relaxed) >> number_at) + 1) << number_at) | portions;
    job_.number.store(job, std::memory_order_release);
    wake_.store(word_of(job), std::memory_order_release);
    wake_.notify_all();
}

void Pool::share(std::uint32_t count) {
    if (count == 0) return;
    job_.count = count;
    const std::size_t portions = std::min<std::size_t>(count, most_);
    announce(portions);
    const std::uint64_t job = job_.number.load(std::memory_order_relaxed);
    work(job, 0, patience);
    // Spin for a stage's usual length; on a busy machine the thread that has the last item may need this processor.
    int spun = 0;
    for (std::size_t i = 0; i < portions; ++i)
        while (portions_[i].done.job.load(std::memory_order_acquire) != job) {
            if (spun++ < spins)
                relax();
            else
                std::this_thread::yield();
        }
}

// All portions that nobody has claimed, beginning with `first`. Before it takes those of others, a thread that is patient waits
// so often for their end: looking whether they are claimed would take the line away from who claims it in the next job.
void Pool::work(std::uint64_t job, std::size_t first, int waits) {
    const std::size_t portions = portions_of(job), own = (portions + width_ - 1) / width_;
    for (std::size_t i = 0, at = first; i < portions; ++i, ++at) {
        if (at == portions) at = 0;
        Portion &portion = portions_[at];
        bool done = false;
        for (; i >= own && waits > 0 && !done; --waits) {
            relax();
            done = portion.done.job.load(std::memory_order_relaxed) == job;
        }
        if (done) continue;
        std::uint64_t before = portion.claimed.job.load(std::memory_order_relaxed);
        // A helper that comes late finds the number of its job, or a later one, in all of them.
        if (before >= job || !portion.claimed.job.compare_exchange_strong(before, job, std::memory_order_acq_rel)) continue;
        const std::uint64_t count = job_.count, end = count * (at + 1) / portions;
        for (std::uint64_t item = count * at / portions; item < end; ++item) {
            job_.call(job_.item, static_cast<std::uint32_t>(item));
            end_if_copy();  // it would wait for threads that it does not have
        }
        portion.done.job.store(job, std::memory_order_release);
    }
}

void Pool::help(std::size_t number) {
    OtherStack stack;
    std::uint64_t seen = 0;
    for (;;) {
        std::uint64_t now = job_.number.load(std::memory_order_acquire);
        for (int i = 0; now == seen && i < spins; ++i) {
            relax();
            now = job_.number.load(std::memory_order_acquire);
        }
        if (now == seen) {
            wake_.wait(word_of(seen), std::memory_order_acquire);
            continue;
        }
        const std::size_t portions = portions_of(now);
        if (portions == 0) return;
        seen = now;
        // Each begins elsewhere, and in every stage with the same units.
        work(now, portions < width_ ? number % portions : number * portions / width_, 0);
    }
}

}  // namespace cosimo

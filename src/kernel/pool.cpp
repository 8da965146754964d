#include "pool.hpp"

#include "guard.hpp"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace cosimo {
namespace {

constexpr int spins = 20000;  // some hundred microseconds: longer than the gap between two stages of a running loop

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#endif
}

}  // namespace

Pool::Pool(unsigned helpers) {
    threads_.reserve(helpers);
    for (unsigned i = 0; i < helpers; ++i) threads_.emplace_back([this] { help(); });
}

Pool::~Pool() {
    ending_.store(true);
    round_.fetch_add(1);
    round_.notify_all();
    for (auto &thread : threads_) thread.join();
}

void Pool::run(std::uint32_t count, const std::function<void(std::uint32_t)> &item) {
    item_ = &item;
    done_.store(0, std::memory_order_relaxed);
    std::uint32_t round = round_.load(std::memory_order_relaxed) + 1;
    ticket_.store((static_cast<std::uint64_t>(round) << 32) | count, std::memory_order_release);
    round_.store(round, std::memory_order_release);
    round_.notify_all();
    while (claim(round)) {
    }
    // Spin for a stage's usual length; on a busy machine the thread that has the last item may need this processor.
    for (int i = 0; done_.load(std::memory_order_acquire) < count; ++i) {
        if (i < spins)
            relax();
        else
            std::this_thread::yield();
    }
}

bool Pool::claim(std::uint32_t round) {
    std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
    do {
        if ((ticket >> 32) != round || (ticket & 0xffffffffu) == 0) return false;
    } while (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel));
    (*item_)(static_cast<std::uint32_t>(ticket & 0xffffffffu) - 1);
    end_if_copy();  // it would wait for threads that it does not have
    done_.fetch_add(1, std::memory_order_release);
    return true;
}

void Pool::help() {
    OtherStack stack;
    std::uint32_t seen = 0;
    for (;;) {
        std::uint32_t now = round_.load(std::memory_order_acquire);
        for (int i = 0; now == seen && i < spins; ++i) {
            relax();
            now = round_.load(std::memory_order_acquire);
        }
        if (now == seen) {
            round_.wait(seen, std::memory_order_acquire);
            continue;
        }
        if (ending_.load(std::memory_order_acquire)) return;
        seen = now;
        while (claim(now)) {
        }
    }
}

}  // namespace cosimo

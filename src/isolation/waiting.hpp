// Waiting for a word in shared memory: look a while, let others run a while, then sleep.
#pragma once
#ifdef _WIN32
#include "../kernel/platform.hpp"
#else
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif

#include <chrono>
#include <climits>

#include "protocol.hpp"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace cosimo::isolation {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

#ifdef _WIN32
inline void wake(Word &word) { SetEvent(word.event); }
inline void sleep_until_woken(Word &word, std::uint32_t, long nanoseconds) {
    WaitForSingleObject(word.event, static_cast<DWORD>((nanoseconds + 999999) / 1000000));
}
inline void let_others_run() { SwitchToThread(); }
inline std::int64_t coarse_seconds() { return static_cast<std::int64_t>(GetTickCount64() / 1000); }
#else
inline void wake(Word &word) { syscall(SYS_futex, word.number(), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }
inline void sleep_until_woken(Word &word, std::uint32_t expected, long nanoseconds) {
    timespec slice{nanoseconds / 1000000000L, nanoseconds % 1000000000L};
    syscall(SYS_futex, word.number(), FUTEX_WAIT, expected, &slice, nullptr, 0);
}
inline void let_others_run() { sched_yield(); }
inline std::int64_t coarse_seconds() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return time.tv_sec;
}
#endif

inline void publish(Word &word, std::uint32_t number, std::uint32_t bytes) {
    // Sequentially consistent on both sides: either the sleeper sees the word, or we see the sleeper.
    word.value.store(Word::made(number, bytes), std::memory_order_seq_cst);
    if (word.sleeping.load(std::memory_order_seq_cst)) wake(word);
}

inline bool arrived(const Word &word, std::uint32_t number) {
    return static_cast<std::uint32_t>(word.value.load(std::memory_order_acquire) >> 32) == number;
}

// Sleeps until the word comes or the slice is over.
inline bool doze(Word &word, std::uint32_t number, long nanoseconds) {
    const std::uint32_t before = static_cast<std::uint32_t>(word.value.load(std::memory_order_acquire) >> 32);
    if (before == number) return true;
    word.sleeping.store(1, std::memory_order_seq_cst);
    if (static_cast<std::uint32_t>(word.value.load(std::memory_order_seq_cst) >> 32) == before)
        sleep_until_woken(word, before, nanoseconds);
    word.sleeping.store(0, std::memory_order_relaxed);
    return arrived(word, number);
}

inline double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace cosimo::isolation

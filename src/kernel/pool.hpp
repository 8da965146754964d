// Threads for stages of units that are slow enough: they spin briefly for the next stage, then sleep.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <thread>
#include <type_traits>
#include <vector>

namespace cosimo {

// Handing over a job costs what it takes to bring cache lines from one processor to another, some 0.1 µs for each. So all
// that tells of a job stands in one line, and every other line is written, as a rule, by one thread alone.
class Pool {
public:
    explicit Pool(unsigned helpers);
    ~Pool();
    // Call `item(i)` for every i < count, on this thread and on whichever helpers are awake. Returns when all items are
    // done: items are waited for, never helpers, so that one the system does not schedule costs nothing.
    template <class Item>
    void run(std::uint32_t count, const Item &item) {
        static_assert(sizeof(Item) <= sizeof job_.item && std::is_trivially_copyable_v<Item>);
        new (job_.item) Item(item);
        job_.call = [](const void *own, std::uint32_t i) { (*static_cast<const Item *>(own))(i); };
        share(count);
    }
    std::size_t size() const { return threads_.size(); }

private:
    struct alignas(64) Line {
        std::atomic<std::uint64_t> job{0};
    };
    // Items are claimed in portions. What a thread claimed in the last job it nearly always finds free in the next one. Both
    // hold the last job.
    struct Portion {
        Line claimed, done;
    };
    struct alignas(64) Job {
        // The number of the job that is under way, which grows, and in the last 16 bits how many portions it has; none: the
        // end. Helpers look at nothing else while they spin.
        std::atomic<std::uint64_t> number{0};
        // Who has claimed a portion may read these: the job cannot end meanwhile.
        void (*call)(const void *, std::uint32_t) = nullptr;
        std::uint32_t count = 0;
        alignas(8) unsigned char item[32] = {};
    };
    void share(std::uint32_t count);
    void help(std::size_t number);
    void work(std::uint64_t job, std::size_t first, int waits);
    void announce(std::uint64_t portions);
    Job job_;
    alignas(64) std::atomic<std::uint32_t> wake_{0};  // follows the number: helpers that sleep wait for it
    std::size_t width_, most_;  // threads that work, and portions of a job
    std::unique_ptr<Portion[]> portions_;
    std::vector<std::thread> threads_;
};

}  // namespace cosimo

// Threads for stages of units that are slow enough: they spin briefly for the next stage, then sleep.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace cosimo {

class Pool {
public:
    explicit Pool(unsigned helpers);
    ~Pool();
    // Call `item(i)` for every i < count, on this thread and on whichever helpers are awake. Returns when all items are
    // done: items are waited for, never helpers, so that one the system does not schedule costs nothing.
    void run(std::uint32_t count, const std::function<void(std::uint32_t)> &item);
    std::size_t size() const { return threads_.size(); }

private:
    void help();
    bool claim(std::uint32_t round);
    const std::function<void(std::uint32_t)> *item_ = nullptr;
    // The number of the job in the upper half, the items nobody has claimed yet in the lower one. An item is claimed by
    // taking one off; that succeeds only for the job that is under way, so a helper that comes late does no harm.
    std::atomic<std::uint64_t> ticket_{0};
    std::atomic<std::uint32_t> round_{0};
    std::atomic<std::uint32_t> done_{0};
    std::atomic<bool> ending_{false};
    std::vector<std::thread> threads_;
};

}  // namespace cosimo

#include "worker_log.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

namespace cosimo::isolation {
namespace {

Header *shared = nullptr;
std::mutex turn;  // several threads of a unit may log at once
std::atomic<std::uint32_t> plain{0}, bad{0};

void copy_in(Ring &ring, std::uint64_t at, const void *data, std::size_t count) {
    const std::size_t begin = at % ring_bytes, first = std::min(count, ring_bytes - begin);
    std::memcpy(ring.data + begin, data, first);
    std::memcpy(ring.data, static_cast<const unsigned char *>(data) + first, count - first);
}

}  // namespace

void log_to(Header *header) { shared = header; }

void log_begins() {
    plain.store(0, std::memory_order_relaxed);
    bad.store(0, std::memory_order_relaxed);
}

// Cheap, so that a unit that logs 20,000 lines a step is hardly slower for it.
bool log_has_room(int kind) {
    auto &counted = kind >= status_discard && kind < record_printed ? bad : plain;
    if (counted.fetch_add(1, std::memory_order_relaxed) < records_per_call) return true;
    shared->ring.suppressed.fetch_add(1, std::memory_order_relaxed);
    return false;
}

void log_record(int kind, const char *text, std::size_t length) {
    Ring &ring = shared->ring;
    const std::uint32_t size = static_cast<std::uint32_t>(std::min(length, text_bytes));
    const std::uint32_t head[2] = {size, static_cast<std::uint32_t>(kind)};
    std::lock_guard lock(turn);
    const std::uint64_t at = ring.written.load(std::memory_order_relaxed);
    if (at + sizeof head + size - ring.read.load(std::memory_order_acquire) > ring_bytes) {
        ring.suppressed.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    copy_in(ring, at, head, sizeof head);
    copy_in(ring, at + sizeof head, text, size);
    ring.written.store(at + sizeof head + size, std::memory_order_release);
}

}  // namespace cosimo::isolation

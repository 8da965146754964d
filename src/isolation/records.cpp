#include "records.hpp"

#include <algorithm>

namespace cosimo::isolation {

void Records::append(int kind, const char *text, std::size_t length) {
    if (newest.size() >= kept) {
        newest.erase(newest.begin());
        ++suppressed;
    }
    newest.push_back({kind, std::string(text, length)});
}

void Records::take(Ring &ring) {
    std::uint64_t at = ring.read.load(std::memory_order_relaxed);
    const std::uint64_t end_of_it = ring.written.load(std::memory_order_acquire);
    auto copy_out = [&](std::uint64_t from, void *to, std::size_t count) {
        const std::size_t begin = from % ring_bytes, first = std::min(count, ring_bytes - begin);
        std::memcpy(to, ring.data + begin, first);
        std::memcpy(static_cast<unsigned char *>(to) + first, ring.data, count - first);
    };
    while (at + 8 <= end_of_it && end_of_it - at <= ring_bytes) {
        std::uint32_t head[2];
        copy_out(at, head, sizeof head);
        if (head[0] > 4096 || at + 8 + head[0] > end_of_it) break;  // written over by a unit gone wild
        char text[4096];
        copy_out(at + 8, text, head[0]);
        append(static_cast<int>(head[1]), text, head[0]);
        at += 8 + head[0];
    }
    ring.read.store(end_of_it, std::memory_order_release);
    suppressed += ring.suppressed.exchange(0);
}

void Records::append_lines(const char *text, std::size_t length) {
    const char *begin = text, *stop = text + length;
    while (begin < stop) {
        const char *line = static_cast<const char *>(std::memchr(begin, '\n', static_cast<std::size_t>(stop - begin)));
        if (!line) line = stop;
        if (line > begin) append(record_printed, begin, static_cast<std::size_t>(line - begin));
        begin = line + 1;
    }
}

}  // namespace cosimo::isolation

// What a unit says and prints: log records out of the shared ring, lines out of a pipe; the newest are kept.
#pragma once
#include <string>
#include <vector>

#include "protocol.hpp"

namespace cosimo::isolation {

struct Record {
    int kind;  // a status of FMI, or one of the kinds in protocol.hpp
    std::string text;
};

class Records {
public:
    std::vector<Record> newest;
    std::uint64_t suppressed = 0;  // those that are no longer there, and those that never were

    void append(int kind, const char *text, std::size_t length);
    void take(Ring &ring);
    void append_lines(const char *text, std::size_t length);  // that it printed

private:
    static constexpr std::size_t kept = 100;
};

}  // namespace cosimo::isolation

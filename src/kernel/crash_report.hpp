// One line, and one JSON document, on the unit that takes the process down; and the end of the process.
#pragma once
#include <charconv>

#include "marks.hpp"

namespace cosimo {

constexpr int crashed = 4, too_slow = 5;  // exit codes

struct GuardOptions {
    bool exits = false;
    int document = -1;     // the file that the line is also written to as JSON; −1: none
    char kept[1024] = {};  // where the rows are, if any are written
    double limit = 0.0;    // seconds of one call; 0: none
    char fixed[4096] = {};  // units that cannot be isolated (not FMUs), each between two line ends
};
// Of the newest guard; none: nullptr. Where a signal is handled only this is looked at.
extern std::atomic<const GuardOptions *> present;
void put(int file, const char *text, std::size_t length);  // all of it, unless the file takes no more
// Called where nothing may be allocated, and only while a guard holds.
void report(const Mark &, const char *cause, int code);

// A number with a point, whatever locale a unit has set.
struct Decimal {
    char text[40];
    Decimal(double value, int digits) {
        *std::to_chars(text, text + sizeof text - 1, value, std::chars_format::general, digits).ptr = '\0';
    }
};

// A folder that nobody else removes when the process ends in a unit, until it is gone.
void remember_folder(const char *path);
void forget_folder(const char *path);

// The thread that ends the process. A fault on its way does not begin it anew; other threads that crash meanwhile wait.
void leave_to_who_ends(int code);
[[noreturn]] void end_process(int code);

}  // namespace cosimo

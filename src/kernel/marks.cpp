#include "marks.hpp"

#include "program.hpp"

namespace cosimo {

std::mutex listing;
std::vector<Mark *> marks;

namespace {

struct Listed : Mark {
    Listed() {
        std::lock_guard lock(listing);
        marks.push_back(this);
    }
    ~Listed() {
        std::lock_guard lock(listing);
        std::erase(marks, this);
    }
};
// Only a pointer is looked at where a signal is handled: making the mark of a thread there could wait forever.
thread_local Mark *own = nullptr;

Mark &made() {
    thread_local OtherStack stack;
    thread_local Listed here;
    own = &here;
    return here;
}

const char *phase_name(Phase phase) {
    switch (phase) {
        case setting: return "set";
        case stepping: return "doStep";
        case reading: return "get";
        case saving: return "save";
        case restoring: return "restore";
    }
    return "";
}

}  // namespace

Mark &mark() { return own ? *own : made(); }

const Mark *own_unit() { return own && own->active() ? own : nullptr; }

const Mark *any_unit() {
    if (own && own->active()) return own;
    for (const Mark *mark : marks)
        if (mark->active()) return mark;
    return nullptr;
}

Place place(const Mark &mark) {
    if (!mark.machine) return {mark.unit, mark.phase, mark.time};
    const Machine &machine = *mark.machine;
    const int number = mark.number >= 0 ? mark.number : machine.busy();
    const bool known = number >= 0 && static_cast<std::size_t>(number) < machine.names.size();
    return {known ? machine.names[static_cast<std::size_t>(number)].c_str() : "", phase_name(machine.doing()),
            machine.time(0.0)};
}

Running::Running(const Machine &machine, int number) : before_(mark().machine), number_before_(mark().number) {
    mark().number = number;
    mark().machine = &machine;
}
Running::~Running() {
    mark().machine = before_;
    mark().number = number_before_;
}

}  // namespace cosimo

// What Python calls beside the FMI functions: start a worker, ask what became of it, let it go.
#include "proxy.hpp"

using namespace cosimo::isolation;

namespace {
thread_local Connection *next = nullptr;
}

namespace cosimo::isolation {
Connection *take_next() { return std::exchange(next, nullptr); }
}  // namespace cosimo::isolation

struct State {
    int end, number, overflow, pid;
    std::uint32_t forks, sockets;
    double waited;
    std::uint64_t suppressed, records;
    const char *problem, *during, *refused;
};

EXPORTED void *cosimoIsolationOpen(const char *const *arguments, const char *const *environment, const Options *options) {
    return new Connection(arguments, environment, *options);
}
// The instance that this thread creates next lives in this worker.
EXPORTED void cosimoIsolationUse(void *connection) { next = static_cast<Connection *>(connection); }
EXPORTED void cosimoIsolationClose(void *connection) { static_cast<Connection *>(connection)->close(); }
EXPORTED void cosimoIsolationEnd(void *connection) { static_cast<Connection *>(connection)->finish(); }
EXPORTED void cosimoIsolationFree(void *connection) { delete static_cast<Connection *>(connection); }
EXPORTED void cosimoIsolationState(void *connection, State *state) {
    auto *c = static_cast<Connection *>(connection);
    const char *during = c->during == starting ? "load" : name_of(c->during);
    *state = {static_cast<int>(c->end), c->number, c->overflow, c->pid(), c->forks(), c->sockets(), c->waited, c->records.suppressed,
              c->records.newest.size(), c->problem.c_str(), during, name_of(c->refused)};
}
// How many copies of the worker came back from a call of the unit.
EXPORTED std::uint32_t cosimoIsolationCopies(void *connection) { return static_cast<Connection *>(connection)->copies(); }
EXPORTED const char *cosimoIsolationRecord(void *connection, std::size_t number, int *kind) {
    const auto &records = static_cast<Connection *>(connection)->records.newest;
    if (number >= records.size()) return nullptr;
    *kind = records[number].kind;
    return records[number].text.c_str();
}
EXPORTED int cosimoIsolationHas(void *connection, const char *name) {
    auto *c = static_cast<Connection *>(connection);
    c->begin(Function::cosimoHas);
    c->out.text(name);
    return c->send() <= status_warning && c->results.get<std::uint64_t>() != 0;
}

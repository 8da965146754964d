// The master's end of one isolated unit: starts the worker, sends calls, notices its end.
#pragma once
#include <string>
#include <vector>

#include "patience.hpp"
#include "process.hpp"
#include "protocol.hpp"
#include "records.hpp"

namespace cosimo::isolation {

// How a worker came to its end, or was brought to it.
enum class End : int { alive = 0, crashed = 1, exited = 2, timeout = 3, memory = 4, not_started = 5, broken = 6, interrupted = 7, left = 8 };

struct Options {
    double timeout = 0.0;            // seconds per call; 0: none
    std::uint64_t memory_limit = 0;  // bytes; 0: none
    int version = 2;
    int sandboxed = 0;
    int spinning = 1;
};

class Connection {
public:
    Connection(const char *const *arguments, const char *const *environment, const Options &options);
    ~Connection();
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    // ---- calls: `begin`, then the arguments into `out`, then `send` or (for what needs no answer yet) `keep`
    Writer out;
    void begin(Function function);
    int send();       // the status of the call; its results are in `results`
    int keep();       // sent with the next call that is
    Reader results{nullptr, 0};

    int get(Function function, const std::uint32_t *references, std::size_t count, void *values, std::size_t wanted);
    // A step in two halves, so that several workers can step at the same time.
    void post_step(Function function, double time, double duration, int final, double reached);
    int collect_step();
    bool posted() const { return posted_; }
    int pid() const { return process_.pid(); }
    int step_status() const { return step_status_; }
    void starts_stepping() { stepping_ = true; }
    bool stepping() const { return stepping_; }

    void close();   // let the worker go, in its own time if it is alive
    void finish();  // end it at once: after a fatal status no further call may be made

    // ---- what became of it
    End end = End::alive;
    int number = 0;                     // of the signal, or the code it exited with
    bool overflow = false;
    std::uint32_t during = idle;        // the function that was running
    std::uint32_t refused = idle;       // the function whose status the last call returned
    double waited = 0.0;                // seconds in the last call that ran out of time
    std::string problem;                // text that belongs to the end
    std::uint32_t forks() const { return header_ ? header_->forks.load() : 0; }
    std::uint32_t copies() const { return header_ ? header_->copies.load() : 0; }
    std::uint32_t sockets() const { return header_ ? header_->sockets.load() : 0; }

    Records records;
    std::vector<std::string> texts;  // strings got last; the caller may look at them until the next call

private:
    struct Ahead {
        Function function;
        std::vector<std::uint32_t> references;
        std::size_t bytes;
        const void *values;  // in the reply, or null
        int status;
        unsigned unused;
    };
    Header *header_ = nullptr;
    Process process_;
    bool sandboxed_ = false, spinning_ = true, stepping_ = false, posted_ = false, fresh_ = false;
    bool ending_ = false;           // the call ends the unit
    double timeout_ = 0.0;
    bool limited_ = false;          // in its memory; what the unit writes of that into the memory we share is not asked
    bool refused_memory() const;
    unsigned interrupts_ = 0;       // as of the last reply
    std::uint32_t sent_ = 0;        // number of the last request
    std::size_t call_begins_ = 0;   // in `out`
    std::uint32_t asked_ = 0;       // the last function that was called
    std::uint32_t kept_ = 0;        // calls that wait to be sent
    std::uint32_t step_at_ = 0;     // how many calls there are up to the posted step
    int step_status_ = 0;
    Patience patience_;
    std::vector<Ahead> ahead_;

    void await_start();
    void finish_call(bool ahead = false);
    void publish_request();
    bool await_reply();
    struct Wait;
    bool has_time(const Wait &wait);
    int first_status(std::size_t calls, Reader &reply);
    void begin_more(Function function);
    void kill(End reason);
    void reap(bool block);
};

}  // namespace cosimo::isolation

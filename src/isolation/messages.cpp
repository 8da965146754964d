// Messages of units in the master's own process, kept without the interpreter: a unit may log from threads of its own, or
// twenty thousand lines a step.
#include <cstdarg>
#include <cstdio>
#include <deque>
#include <mutex>
#include <unordered_set>

#include "proxy.hpp"

using namespace cosimo::isolation;

namespace {

constexpr std::size_t kept = 100, text_bytes = 2000;
constexpr unsigned per_second = 1000;  // and as many again for errors; more are only counted

class Messages {
public:
    // Without a lock, as nearly all of a flood ends here: threads that see a second begin at once may keep a few more.
    bool has_room(int status) {
        const std::int64_t second = coarse_seconds();
        if (second_.load(std::memory_order_relaxed) != second) {
            second_.store(second, std::memory_order_relaxed);
            plain_.store(0, std::memory_order_relaxed);
            bad_.store(0, std::memory_order_relaxed);
        }
        auto &count = status >= status_discard && status <= status_fatal ? bad_ : plain_;
        if (count.load(std::memory_order_relaxed) < per_second && count.fetch_add(1, std::memory_order_relaxed) < per_second) return true;
        suppressed.fetch_add(1, std::memory_order_relaxed);
        return false;
    }
    void add(int status, const char *text, std::size_t length) {
        std::lock_guard lock(mutex_);
        if (records_.size() == kept) records_.pop_front();
        records_.push_back({status, std::string(text, length)});
    }
    // Copied, as another thread may log while it is read.
    const char *at(std::size_t number, int *status) {
        std::lock_guard lock(mutex_);
        if (number >= records_.size()) return nullptr;
        *status = records_[number].kind;
        shown_ = records_[number].text;
        return shown_.c_str();
    }
    void clear() {
        std::lock_guard lock(mutex_);
        records_.clear();
    }
    std::atomic<std::uint64_t> suppressed{0};

private:
    std::mutex mutex_;
    std::deque<Record> records_;
    std::string shown_;
    std::atomic<std::int64_t> second_{0};
    std::atomic<unsigned> plain_{0}, bad_{0};
};

// Units hand over anything as the environment, their own component for instance: only what was given out is used. What
// an unknown one logs goes to the single log there is; of several, nobody knows whose it is, and it is left out.
std::mutex known_mutex;
std::unordered_set<void *> known;
std::atomic<unsigned> changes{1};  // of what is known

Messages *log_of(void *environment) {
    static thread_local struct {
        void *environment;
        Messages *messages;
        unsigned changes;
    } last{};
    if (last.changes == changes.load(std::memory_order_acquire) && last.environment == environment) return last.messages;
    std::lock_guard lock(known_mutex);
    Messages *found = known.contains(environment) ? static_cast<Messages *>(environment)
                      : known.size() == 1         ? static_cast<Messages *>(*known.begin())
                                                  : nullptr;
    last = {environment, found, changes.load(std::memory_order_relaxed)};
    return found;
}

}  // namespace

EXPORTED void *cosimoMessagesNew() {
    std::lock_guard lock(known_mutex);
    ++changes;
    return *known.insert(new Messages).first;
}
EXPORTED void cosimoMessagesFree(void *messages) {
    {
        std::lock_guard lock(known_mutex);
        ++changes;
        known.erase(messages);
    }
    delete static_cast<Messages *>(messages);
}
EXPORTED void cosimoMessagesClear(void *messages) { static_cast<Messages *>(messages)->clear(); }
EXPORTED const char *cosimoMessagesAt(void *messages, std::size_t number, int *status) {
    return static_cast<Messages *>(messages)->at(number, status);
}
EXPORTED std::uint64_t cosimoMessagesSuppressed(void *messages) { return static_cast<Messages *>(messages)->suppressed.load(); }

// The logger of FMI 2.0; the environment should be what cosimoMessagesNew gave.
EXPORTED void cosimoMessagesLog2(void *environment, const char *, int status, const char *, const char *format, ...) {
    Messages *messages = log_of(environment);
    if (!messages || !messages->has_room(status)) return;
    char text[text_bytes];
    va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(text, sizeof text, format ? format : "", arguments);
    va_end(arguments);
    if (length >= 0) messages->add(status, text, std::min<std::size_t>(static_cast<std::size_t>(length), sizeof text - 1));
}
// The logger of FMI 3.0, which gets finished texts.
EXPORTED void cosimoMessagesLog3(void *environment, int status, const char *, const char *message) {
    Messages *messages = log_of(environment);
    if (messages && message && messages->has_room(status))
        messages->add(status, message, strnlen(message, static_cast<std::size_t>(text_bytes) - 1));
}

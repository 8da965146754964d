// What the proxy (in the master) and the worker (which holds the unit) share: one mapped file, and how calls are written
// into it.
//
//     header | request: calls, one after the other | reply: their statuses and results
//
// The master writes calls while the worker waits, publishes their number and size in one word, and waits for the reply's
// word. Neither trusts the other's lengths: a unit may write anywhere in its own process, and this memory is part of it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef _WIN32
#define EXPORTED extern "C" __declspec(dllexport)
#else
#define EXPORTED extern "C" __attribute__((visibility("default")))
#endif

namespace cosimo::isolation {

constexpr std::uint32_t magic = 0xC051C051u;
#ifdef _WIN32
constexpr std::size_t area = std::size_t{16} << 20;  // each way; Windows sets all of it aside
#else
constexpr std::size_t area = std::size_t{64} << 20;  // of virtual memory, each way; only what is used becomes real
#endif
constexpr std::size_t ring_bytes = std::size_t{1} << 16;

// File descriptors that a worker finds open; on Windows it is told its handles.
constexpr int memory_fd = 3, master_fd = 4, printed_fd = 5, information_fd = 6;

constexpr int status_ok = 0, status_warning = 1, status_discard = 2, status_error = 3, status_fatal = 4;
constexpr int status_illegal = 102;  // a negative one, which no version of FMI knows

// Kinds of log records beside the statuses of FMI.
constexpr int record_printed = 100, record_refused = 101;

// How a function is called: decides the layout of its arguments.
enum class Kind : std::uint32_t {
    plain, set, get, set_texts, get_texts, set_binaries, get_binaries, interval, setup, instantiate2, instantiate3, debug, step2, step3, state_get, state_set,
    state_free, state_size, serialise, deserialise, directional, set_derivatives, get_derivatives, status, status_text,
    update, free, has
};

struct Described {
    const char *name;
    Kind kind;
    std::uint32_t size;  // of one value
};

#define COSIMO_FMI3_TYPE(name, size) \
    X(fmi3Set##name, Kind::set, size) X(fmi3Get##name, Kind::get, size)

#define COSIMO_FUNCTIONS                                                                                              \
    X(cosimoHas, Kind::has, 0)                                                                                        \
    X(fmi2Instantiate, Kind::instantiate2, 0) X(fmi2FreeInstance, Kind::free, 0)                                      \
    X(fmi2SetDebugLogging, Kind::debug, 0) X(fmi2SetupExperiment, Kind::setup, 0)                                     \
    X(fmi2EnterInitializationMode, Kind::plain, 0) X(fmi2ExitInitializationMode, Kind::plain, 0)                      \
    X(fmi2Terminate, Kind::plain, 0) X(fmi2Reset, Kind::plain, 0) X(fmi2CancelStep, Kind::plain, 0)                   \
    X(fmi2SetReal, Kind::set, 8) X(fmi2GetReal, Kind::get, 8) X(fmi2SetInteger, Kind::set, 4)                         \
    X(fmi2GetInteger, Kind::get, 4) X(fmi2SetBoolean, Kind::set, 4) X(fmi2GetBoolean, Kind::get, 4)                   \
    X(fmi2SetString, Kind::set_texts, 0) X(fmi2GetString, Kind::get_texts, 0)                                         \
    X(fmi2GetFMUstate, Kind::state_get, 0) X(fmi2SetFMUstate, Kind::state_set, 0)                                     \
    X(fmi2FreeFMUstate, Kind::state_free, 0) X(fmi2SerializedFMUstateSize, Kind::state_size, 0)                       \
    X(fmi2SerializeFMUstate, Kind::serialise, 0) X(fmi2DeSerializeFMUstate, Kind::deserialise, 0)                     \
    X(fmi2GetDirectionalDerivative, Kind::directional, 0)                                                             \
    X(fmi2SetRealInputDerivatives, Kind::set_derivatives, 0)                                                          \
    X(fmi2GetRealOutputDerivatives, Kind::get_derivatives, 0) X(fmi2DoStep, Kind::step2, 0)                           \
    X(fmi2GetStatus, Kind::status, 4) X(fmi2GetRealStatus, Kind::status, 8) X(fmi2GetIntegerStatus, Kind::status, 4)  \
    X(fmi2GetBooleanStatus, Kind::status, 4) X(fmi2GetStringStatus, Kind::status_text, 0)                             \
    X(fmi3InstantiateCoSimulation, Kind::instantiate3, 0) X(fmi3FreeInstance, Kind::free, 0)                          \
    X(fmi3SetDebugLogging, Kind::debug, 0) X(fmi3EnterInitializationMode, Kind::setup, 0)                             \
    X(fmi3ExitInitializationMode, Kind::plain, 0) X(fmi3EnterEventMode, Kind::plain, 0)                               \
    X(fmi3EnterStepMode, Kind::plain, 0) X(fmi3EnterConfigurationMode, Kind::plain, 0)                                \
    X(fmi3ExitConfigurationMode, Kind::plain, 0) X(fmi3EvaluateDiscreteStates, Kind::plain, 0)                        \
    X(fmi3Terminate, Kind::plain, 0) X(fmi3Reset, Kind::plain, 0)                                                     \
    COSIMO_FMI3_TYPE(Float32, 4) COSIMO_FMI3_TYPE(Float64, 8) COSIMO_FMI3_TYPE(Int8, 1) COSIMO_FMI3_TYPE(UInt8, 1)    \
    COSIMO_FMI3_TYPE(Int16, 2) COSIMO_FMI3_TYPE(UInt16, 2) COSIMO_FMI3_TYPE(Int32, 4) COSIMO_FMI3_TYPE(UInt32, 4)     \
    COSIMO_FMI3_TYPE(Int64, 8) COSIMO_FMI3_TYPE(UInt64, 8) COSIMO_FMI3_TYPE(Boolean, 1)                               \
    X(fmi3SetString, Kind::set_texts, 0) X(fmi3GetString, Kind::get_texts, 0)                                         \
    X(fmi3SetBinary, Kind::set_binaries, 0) X(fmi3GetBinary, Kind::get_binaries, 0) X(fmi3SetClock, Kind::set, 1)     \
    X(fmi3GetClock, Kind::get, 1) X(fmi3GetShiftDecimal, Kind::get, 8) X(fmi3GetIntervalDecimal, Kind::interval, 8)    \
    X(fmi3GetFMUState, Kind::state_get, 0) X(fmi3SetFMUState, Kind::state_set, 0)                                     \
    X(fmi3FreeFMUState, Kind::state_free, 0) X(fmi3SerializedFMUStateSize, Kind::state_size, 0)                       \
    X(fmi3SerializeFMUState, Kind::serialise, 0) X(fmi3DeserializeFMUState, Kind::deserialise, 0)                     \
    X(fmi3GetDirectionalDerivative, Kind::directional, 0) X(fmi3GetOutputDerivatives, Kind::get_derivatives, 0)       \
    X(fmi3UpdateDiscreteStates, Kind::update, 0) X(fmi3DoStep, Kind::step3, 0)

enum class Function : std::uint32_t {
#define X(name, kind, size) name,
    COSIMO_FUNCTIONS
#undef X
        count
};

constexpr Described functions[] = {
#define X(name, kind, size) {#name, kind, size},
    COSIMO_FUNCTIONS
#undef X
};

constexpr std::uint32_t idle = 0xFFFFFFFFu;     // `running` while the worker waits
constexpr std::uint32_t starting = 0xFFFFFFFEu;  // `running` while the library is loaded

inline const char *name_of(std::uint32_t function) {
    return function < static_cast<std::uint32_t>(Function::count) ? functions[function].name : "";
}
inline const Described &described(Function function) { return functions[static_cast<std::uint32_t>(function)]; }

// A word that is published by one side and waited for by the other: the number of the message in the upper half, which is
// what a futex waits on, its size in the lower one.
struct alignas(64) Word {
    std::atomic<std::uint64_t> value{0};
    std::atomic<std::uint32_t> sleeping{0};  // the waiting side wants to be woken
#ifdef _WIN32
    void *event = nullptr;  // to wake it by: a handle, the same number in both processes
#endif

    static constexpr std::uint64_t made(std::uint32_t number, std::uint32_t bytes) {
        return static_cast<std::uint64_t>(number) << 32 | bytes;
    }
    std::uint32_t *number() { return reinterpret_cast<std::uint32_t *>(&value) + (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__); }
};

// Log records from the worker's threads (which take turns) to the master: length, kind, text.
struct alignas(64) Ring {
    std::atomic<std::uint64_t> written{0}, read{0};
    std::atomic<std::uint64_t> suppressed{0};
    unsigned char data[ring_bytes];
};

struct Header {
    std::uint32_t mark = magic;
    // Set by the master before the worker starts.
    std::uint32_t version = 2, sandboxed = 0;
    std::uint64_t memory_limit = 0;                 // bytes beyond what the bare worker takes; 0: none
    std::atomic<std::uint32_t> spins{0};            // how often a side looks before it sleeps
    std::atomic<std::uint32_t> crowded{0};          // more processes than processors
    std::atomic<int> master_cpu{-1};                // where the master ran last
    // How the worker is doing.
    alignas(64) std::atomic<std::uint32_t> loading{0}, ready{0}, leaving{0};
    std::atomic<std::uint32_t> signal{0}, overflow{0}, memory_refused{0};
    std::atomic<std::uint32_t> forks{0}, sockets{0};  // that the sandbox refused
    std::atomic<std::uint32_t> copies{0};             // of the worker that came back from a call of the unit
    char problem[1024] = {};                          // why the library could not be loaded
    alignas(64) std::atomic<std::uint32_t> running{starting};
    Word request, reply;
    Ring ring;
};

constexpr std::size_t header_bytes = (sizeof(Header) + 4095) / 4096 * 4096;
constexpr std::size_t total_bytes = header_bytes + 2 * area;

inline unsigned char *request_area(Header *header) { return reinterpret_cast<unsigned char *>(header) + header_bytes; }
inline unsigned char *reply_area(Header *header) { return request_area(header) + area; }

// One call in a request, or its result in a reply; `bytes` follow, rounded up to 8.
struct Call {
    std::uint32_t function;  // in a reply: the status
    std::uint32_t bytes;
    std::uint32_t ahead;  // read because the caller is known to ask for it
    std::uint32_t unused;
};

constexpr std::size_t rounded(std::size_t bytes) { return (bytes + 7) & ~std::size_t{7}; }

class Writer {
public:
    Writer() = default;
    Writer(unsigned char *begin, std::size_t capacity) : begin_(begin), capacity_(capacity) {}
    bool fits(std::size_t bytes) const { return rounded(bytes) <= capacity_ - used_; }
    void *take(std::size_t bytes) {
        if (!fits(bytes)) {
            failed_ = true;
            return nullptr;
        }
        void *place = begin_ + used_;
        used_ += rounded(bytes);
        return place;
    }
    void bytes(const void *data, std::size_t count) {
        if (void *place = take(count); place && count) std::memcpy(place, data, count);
    }
    template <class T>
    void put(const T &value) {
        bytes(&value, sizeof value);
    }
    void text(const char *value) { text(value, value ? std::strlen(value) : 0); }
    void text(const char *value, std::uint64_t length) {
        put(length);
        bytes(value, length);
    }
    std::size_t used() const { return used_; }
    void back_to(std::size_t used) { used_ = used; failed_ = false; }
    void reset() { back_to(0); }
    bool failed() const { return failed_; }
    unsigned char *begin() const { return begin_; }

private:
    unsigned char *begin_ = nullptr;
    std::size_t capacity_ = 0, used_ = 0;
    bool failed_ = false;
};

class Reader {
public:
    Reader(const unsigned char *begin, std::size_t count) : at_(begin), end_(begin + count) {}
    const void *take(std::size_t bytes) {
        const auto left = static_cast<std::size_t>(end_ - at_);
        if (bytes > left || rounded(bytes) > left) {
            failed_ = true;
            return nullptr;
        }
        const void *place = at_;
        at_ += rounded(bytes);
        return place;
    }
    template <class T>
    T get() {
        T value{};
        if (const void *place = take(sizeof value)) std::memcpy(&value, place, sizeof value);
        return value;
    }
    bool failed() const { return failed_; }
    std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

private:
    const unsigned char *at_, *end_;
    bool failed_ = false;
};

}  // namespace cosimo::isolation

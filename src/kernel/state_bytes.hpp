// All that a run remembers between macro steps, as bytes: one list of what there is serves writing and reading back.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace cosimo {

// Whoever remembers something names it in a function `remember`; the same calls write it, or read it from `bytes`.
class StateBytes {
public:
    StateBytes() = default;
    explicit StateBytes(std::vector<unsigned char> from) : bytes(std::move(from)), reading_(true) {}
    std::vector<unsigned char> bytes;

    template <class T>
    void value(T &x) {
        static_assert(std::is_trivially_copyable_v<T>);
        raw(&x, sizeof x);
    }
    // As long now as it was then.
    template <class T>
    void array(std::vector<T> &x) {
        const std::size_t length = x.size();
        if (count(length) != length) refuse();
        raw(x.data(), length * sizeof(T));
    }
    // May have grown, up to `most`.
    template <class T>
    void list(std::vector<T> &x, std::size_t most) {
        static_assert(std::is_trivially_copyable_v<T>);
        resize(x, most);
        raw(x.data(), x.size() * sizeof(T));
    }
    // The same, of parts that remember in their own way: brought to their number first.
    template <class T>
    void resize(std::vector<T> &x, std::size_t most, const T &fresh = T{}) {
        const std::size_t length = count(x.size());
        if (length > most) refuse();
        if (reading_) x.resize(length, fresh);
    }
    // Of the number there was then, as it is now when writing.
    std::size_t count(std::size_t now) {
        auto number = static_cast<std::uint64_t>(now);
        value(number);
        return static_cast<std::size_t>(number);
    }
    void end() const {
        if (reading_ && place_ != bytes.size()) refuse();
    }
    [[noreturn]] static void refuse() {
        throw std::invalid_argument("these bytes were written by another program than this one");
    }

private:
    bool reading_ = false;
    std::size_t place_ = 0;

    void raw(void *x, std::size_t size) {
        if (size == 0) return;
        if (!reading_) {
            const auto *from = static_cast<const unsigned char *>(x);
            bytes.insert(bytes.end(), from, from + size);
            return;
        }
        if (size > bytes.size() - place_) refuse();
        std::memcpy(x, bytes.data() + place_, size);
        place_ += size;
    }
};

}  // namespace cosimo

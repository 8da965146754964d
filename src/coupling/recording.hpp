// A recorded list of calls (execution/lowering.py: Recorder), read back and made again: each name with its arguments, whose
// types the called function says. Little-endian, every value with a tag in front:
//
//     i  int64      d  double      s  uint32 length, bytes      n  uint32 count, doubles      [  uint32 count, values
//
// A text where a number is wanted is a name, which `resolve` turns into an address.
#pragma once
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cosimo {

class Recording {
public:
    Recording(const unsigned char *begin, std::size_t size) : at_(begin), end_(begin + size) {}
    std::function<std::uintptr_t(const std::string &)> resolve;

    bool over() const { return at_ == end_; }

    template <class T>
    T read() {
        if constexpr (std::is_same_v<T, std::string>) {
            expect('s');
            return text();
        } else if constexpr (std::is_same_v<T, double>) {
            expect('d');
            return raw<double>();
        } else if constexpr (std::is_integral_v<T>) {
            const char tag = raw<char>();
            if (tag == 's') return static_cast<T>(resolve(text()));
            if (tag != 'i') damaged();
            return static_cast<T>(raw<std::int64_t>());
        } else {
            return many(static_cast<T *>(nullptr));
        }
    }

    // Reads as many arguments as the function has, and calls it.
    template <class Owner, class Result, class... Arguments>
    void call(Owner &owner, Result (Owner::*function)(Arguments...)) {
        count('[', sizeof...(Arguments));
        std::tuple<std::decay_t<Arguments>...> given{read<std::decay_t<Arguments>>()...};  // from left to right
        std::apply([&](auto &...each) { (owner.*function)(std::move(each)...); }, given);
    }

    [[noreturn]] static void damaged() { throw std::runtime_error("is damaged or of another version; export the coupling again"); }

private:
    const unsigned char *at_, *end_;

    template <class T>
    T raw() {
        if (static_cast<std::size_t>(end_ - at_) < sizeof(T)) damaged();
        T value;
        std::memcpy(&value, at_, sizeof value);
        at_ += sizeof value;
        return value;
    }
    void expect(char tag) {
        if (raw<char>() != tag) damaged();
    }
    // A length that cannot be, as there are fewer bytes left, is that of a damaged file.
    std::uint32_t length(std::size_t least) {
        const auto found = raw<std::uint32_t>();
        if (found > static_cast<std::size_t>(end_ - at_) / least) damaged();
        return found;
    }
    void count(char tag, std::size_t wanted) {
        expect(tag);
        if (length(1) != wanted) damaged();
    }
    std::string text() {
        const std::uint32_t size = length(1);
        std::string found(reinterpret_cast<const char *>(at_), size);
        at_ += size;
        return found;
    }
    template <class T>
    std::vector<T> many(std::vector<T> *) {
        const char tag = raw<char>();
        if (tag == 'n') {
            std::vector<T> found;
            const std::uint32_t size = length(sizeof(double));
            if constexpr (std::is_same_v<T, double>) {
                found.resize(size);
                if (size) std::memcpy(found.data(), at_, size * sizeof(double));
                at_ += size * sizeof(double);
            } else if (size) {  // only an empty list is of all types
                damaged();
            }
            return found;
        }
        if (tag != '[') damaged();
        const std::uint32_t size = length(1);
        std::vector<T> found;
        found.reserve(size);
        for (std::uint32_t i = 0; i < size; ++i) found.push_back(read<T>());
        return found;
    }
    template <class... T>
    std::tuple<T...> many(std::tuple<T...> *) {
        count('[', sizeof...(T));
        return std::tuple<T...>{read<T>()...};
    }
    template <class A, class B>
    std::pair<A, B> many(std::pair<A, B> *) {
        count('[', 2);
        A first = read<A>();
        return {std::move(first), read<B>()};
    }
};

}  // namespace cosimo

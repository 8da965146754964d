// FMUs whose variables are not all doubles: values pass through the buffers of their types, lossless or not at all.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "fmi.hpp"

namespace cosimo {

constexpr int not_exact = 101;  // not a status of FMI: a value that its type, or a double, cannot hold exactly
constexpr double exact_limit = 9007199254740992.0;  // 2^53

enum class Type : int { f64, f32, i8, u8, i16, u16, i32, u32, i64, u64, boolean, boolean_as_int };

struct Group {
    Type type;
    std::vector<std::uint32_t> references, positions;
    std::uintptr_t function;
    std::vector<unsigned char> buffer;
    bool continuous = true;
};

template <class T>
bool pack(const double *values, const Group &group, unsigned char *buffer) {
    for (std::size_t i = 0; i < group.positions.size(); ++i) {
        const double value = values[group.positions[i]];
        if constexpr (std::numeric_limits<T>::is_integer) {
            const double low = std::max(static_cast<double>(std::numeric_limits<T>::min()), -exact_limit);
            const double high = std::min(static_cast<double>(std::numeric_limits<T>::max()), exact_limit);
            if (!(value == std::nearbyint(value) && value >= low && value <= high)) return false;
        }
        if constexpr (sizeof(T) == 4 && !std::numeric_limits<T>::is_integer)
            if (std::isfinite(value) && std::fabs(value) > std::numeric_limits<T>::max()) return false;
        const T packed = static_cast<T>(value);
        std::memcpy(buffer + i * sizeof(T), &packed, sizeof(T));
    }
    return true;
}

template <class T>
bool unpack(const unsigned char *buffer, const Group &group, double *values) {
    for (std::size_t i = 0; i < group.positions.size(); ++i) {
        T packed;
        std::memcpy(&packed, buffer + i * sizeof(T), sizeof(T));
        if constexpr (sizeof(T) == 8 && std::numeric_limits<T>::is_integer) {
            constexpr T limit = T{1} << 53;
            if (packed > limit || (std::numeric_limits<T>::is_signed && packed < T{0} - limit)) return false;
        }
        values[group.positions[i]] = static_cast<double>(packed);
    }
    return true;
}

// Calls `work` with a value of the group's C type.
template <class Work>
bool with_type(Type type, Work work) {
    switch (type) {
        case Type::f64: return work(double{});
        case Type::f32: return work(float{});
        case Type::i8: return work(std::int8_t{});
        case Type::u8: return work(std::uint8_t{});
        case Type::i16: return work(std::int16_t{});
        case Type::u16: return work(std::uint16_t{});
        case Type::i32: return work(std::int32_t{});
        case Type::u32: return work(std::uint32_t{});
        case Type::i64: return work(std::int64_t{});
        case Type::u64: return work(std::uint64_t{});
        case Type::boolean: return work(std::uint8_t{});  // one byte, 0 or 1
        case Type::boolean_as_int: return work(std::int32_t{});
    }
    return false;
}

// `base` steps, saves and restores; it has no variables of its own.
struct Typed final : Unit {
    std::unique_ptr<Unit> base;
    void *component;
    int version;
    std::vector<Group> in, out;
    // Where discrete inputs are given in event mode, and only when they change: the unit, and what it was given last.
    Fmi3 *eventful = nullptr;
    std::vector<double> given, saved_given;

    void abandon() override { base->abandon(); }
    bool posts() const override { return base->posts(); }
    void post(double time, double duration) override { base->post(time, duration); }
    void remember(StateBytes &bytes) override {
        base->remember(bytes);
        bytes.array(given);
    }
    int step(double time, double duration, int map) override {
        const int status = base->step(time, duration, map);
        failed_at = base->failed_at;
        failed_for = base->failed_for;
        return base->wants_end ? ends_at(base->got_to) : status;
    }
    int save() override {
        saved_given = given;
        return base->save();
    }
    int restore() override {
        base->wants_end = false;
        given = saved_given;
        failed_at = NAN;
        return base->restore();
    }
    int set(const double *c) override {
        if (!eventful) return set_groups(c, true);
        bool same = true;
        for (const Group &group : in)
            if (!group.continuous)
                for (auto place : group.positions) same = same && given[place] == c[place];
        std::copy_n(c, inputs, given.begin());
        if (same) return set_groups(c, false);
        // Python, which then tells what does not fit, finds the unit where it was.
        for (Group &group : in)
            if (!fits(group, c)) return not_exact;
        const int status = eventful->handle_event(eventful->reached, [&] { return set_groups(c, true); });
        failed_at = eventful->wants_end ? eventful->reached : eventful->failed_at;
        return status || !eventful->wants_end ? status : fmi3_ended;
    }
    int set_groups(const double *c, bool discrete) {
        for (Group &group : in) {
            if (!discrete && !group.continuous) continue;
            if (!fits(group, c)) return not_exact;
            if (int status = bad(call(group))) return status;
        }
        return 0;
    }
    // Whether values fit their type; they stand in the buffer then.
    static bool fits(Group &group, const double *c) {
        if (group.type == Type::boolean_as_int || group.type == Type::boolean)
            for (auto place : group.positions)
                if (c[place] != 0.0 && c[place] != 1.0) return false;
        return with_type(group.type, [&](auto kind) { return pack<decltype(kind)>(c, group, group.buffer.data()); });
    }
    int get(double *y) override {
        for (Group &group : out) {
            if (int status = bad(call(group))) return status;
            if (!with_type(group.type, [&](auto kind) { return unpack<decltype(kind)>(group.buffer.data(), group, y); }))
                return not_exact;
        }
        return 0;
    }

private:
    int call(Group &group) {
        const auto *references = group.references.data();
        const std::size_t count = group.references.size();
        void *values = group.buffer.data();
        if (version == 2)
            return reinterpret_cast<int (*)(void *, const std::uint32_t *, std::size_t, void *)>(group.function)(
                component, references, count, values);
        return reinterpret_cast<int (*)(void *, const std::uint32_t *, std::size_t, void *, std::size_t)>(group.function)(
            component, references, count, values, group.positions.size());
    }
};

}  // namespace cosimo

// One FMU inside a coupling, from loading its library to freeing its instance. What it does between two exchanges is called
// by the kernel (src/kernel/fmi.hpp).
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "../kernel/typed.hpp"

namespace cosimo {

using Libraries = std::vector<std::pair<std::string, std::string>>;  // by platform, as FMI 3.0 names it

// As recorded by formats/export.py; paths are relative to the folder of resources, those of libraries to that of the FMU.
struct FmuFile {
    std::string name, folder;
    Libraries libraries;
    std::string token, adapter, settings;
    int version;
    bool talks;
    std::vector<std::string> categories;
    std::vector<double> tolerance, stop;  // one number, or none where the unit is told nothing
};

// Values of one type that are set in one call. Configured before all others, given before initialisation mode, or once more
// in it (`FmuInstance._initialise` in units/fmi/instance.py).
enum class Stage : int { configuring = 0, before = 1, within = 2 };
struct Values {
    Stage stage;
    std::string code;  // of the function fmi2Set<code>
    int type;          // as in typed.hpp; −1: texts
    std::vector<std::uint32_t> references;
    std::vector<double> numbers;
    std::vector<std::string> texts;
};

class UnitLibrary {
public:
    using Log = std::function<void(const std::string &unit, int status, const std::string &text)>;
    UnitLibrary(const FmuFile &file, const std::string &resources, Log log);
    ~UnitLibrary();
    UnitLibrary(const UnitLibrary &) = delete;

    const FmuFile file;
    std::vector<Values> values;
    void *component = nullptr;

    // Throws std::runtime_error, with the unit's own words, where the unit refuses.
    void instantiate();
    // Before initialisation: only the values that were recorded count, and those that come next.
    void forget_given();
    void enter(double start);
    void leave();
    void terminate();
    void give(const Values &values);
    std::uintptr_t address(const std::string &function) const;

    void save(void *&state);
    void restore(void *state);
    void free_state(void *&state);
    std::vector<unsigned char> serialise(void *state);
    void *deserialise(const unsigned char *bytes, std::size_t size);

    // What it said last of its trouble, for messages.
    std::string said() const;
    void heard(int status, const char *text);
    bool dead = false, running = false, talks = false;
    std::size_t recorded = 0;  // of the values

private:
    std::string folder_, label_;
    Log log_;
    void *library_ = nullptr, *functions_ = nullptr;
    std::string worst_;
    int worst_status_ = -1;
    std::vector<char> callbacks_;

    template <class... Arguments>
    void call(const std::string &verb, Arguments... arguments);
    void give(Stage stage);

    const std::string &library() const;
    void *loaded(const std::string &path);
    std::string state_function(const char *before, const char *after) const;
};

}  // namespace cosimo

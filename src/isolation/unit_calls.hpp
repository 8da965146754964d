// The unit's own functions, called with arguments read from a request; results are written into the reply.
#pragma once
#include <string>
#include <vector>

#include "protocol.hpp"

namespace cosimo::isolation {

class UnitCalls {
public:
    // An empty text, or why the library could not be loaded. With an adapter: the library that calls it, and how.
    std::string load(const char *path, const char *adapter, const char *settings);
    int call(Function function, Reader &arguments, Writer &results);
    void unload();

private:
    void *library_ = nullptr, *component_ = nullptr;
    void *own_ = nullptr;      // the unit's library, for what an adapter lacks
    [[maybe_unused]] long threads_before_ = 0;  // it was loaded
    void *symbols_[static_cast<std::size_t>(Function::count)] = {};
    bool looked_up_[static_cast<std::size_t>(Function::count)] = {};
    std::vector<std::string> texts_;

    void *find(const char *name) const;
    void *symbol(Function function);
    int instantiate2(void *address, Reader &arguments);
    int instantiate3(void *address, Reader &arguments);
    int variables(Function function, void *address, Reader &arguments, Writer &results);
    int strings(Function function, void *address, Reader &arguments, Writer &results);
    int binaries(Function function, void *address, Reader &arguments, Writer &results);
    int states(Function function, void *address, Reader &arguments, Writer &results);
    int derivatives(Function function, void *address, Reader &arguments, Writer &results);
    int other(Function function, void *address, Reader &arguments, Writer &results);
    const std::vector<const char *> &read_texts(Reader &arguments, std::size_t count);
    std::vector<const char *> pointers_;
};

}  // namespace cosimo::isolation

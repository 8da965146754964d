// cosimo-worker LIBRARY [ADAPTER SETTINGS]: one unit in a process of its own, driven through shared memory (protocol.hpp).
#include <stdlib.h>
#ifndef _WIN32
#include <unistd.h>
#endif

#include <cstdio>
#include <filesystem>
#include <string>

#include "patience.hpp"
#include "placement.hpp"
#include "unit_calls.hpp"
#include "waiting.hpp"
#include "worker_faults.hpp"
#include "worker_log.hpp"

namespace cosimo::isolation {
namespace {

// Calls until one fails.
std::uint32_t answer(Header *header, UnitCalls &unit, std::size_t bytes) {
    Reader request(request_area(header), std::min(bytes, area));
    Writer reply(reply_area(header), area);
    while (request.left() >= sizeof(Call)) {
        const Call call = request.get<Call>();
        const auto *data = static_cast<const unsigned char *>(request.take(call.bytes));
        auto *result = static_cast<Call *>(reply.take(sizeof(Call)));
        if (!data || !result || call.function >= static_cast<std::uint32_t>(Function::count)) break;
        Reader arguments(data, call.bytes);
        const std::size_t before = reply.used();
        header->running.store(call.function, std::memory_order_relaxed);
        const int status = unit.call(static_cast<Function>(call.function), arguments, reply);
        end_if_copy();
        if (status >= status_error) note_refused_memory();
        *result = {static_cast<std::uint32_t>(status), static_cast<std::uint32_t>(reply.used() - before), call.ahead, 0};
        if (status > status_warning) break;
    }
    header->running.store(idle, std::memory_order_relaxed);
    return static_cast<std::uint32_t>(reply.used());
}

[[noreturn]] void leave(Header *header, UnitCalls &unit) {
    header->running.store(static_cast<std::uint32_t>(Function::fmi2FreeInstance));
    unit.unload();
    std::fflush(nullptr);
    end_children();
    header->leaving.store(1);
    _exit(0);
}

[[noreturn]] void serve(Header *header, UnitCalls &unit) {
    Patience patience(true);
    Placement placement(header);
    for (std::uint32_t number = 1;; ++number) {
        const std::uint32_t spins = header->spins.load(std::memory_order_relaxed);
        if (!patience.look(header->request, number, spins, header->crowded.load(std::memory_order_relaxed)))
            while (!doze(header->request, number, 1000000000L)) {
            }
        const auto bytes = static_cast<std::uint32_t>(header->request.value.load(std::memory_order_acquire));
        if (bytes == 0) leave(header, unit);
        log_begins();
        const bool timed = placement.begins();
        publish(header->reply, number, answer(header, unit, bytes));
        placement.ends(timed);
    }
}

void load(Header *header, UnitCalls &unit, const char *path, const char *adapter, const char *settings) {
    // Some units look for libraries beside their own.
    std::error_code none;
    const std::filesystem::path here = std::filesystem::current_path(none);
    std::filesystem::current_path(std::filesystem::path(reinterpret_cast<const char8_t *>(path)).parent_path(), none);
    const std::string problem = unit.load(path, adapter, settings);
    std::filesystem::current_path(here, none);
    std::snprintf(header->problem, sizeof header->problem, "%s", problem.c_str());
}

}  // namespace
}  // namespace cosimo::isolation

int main(int count, char **arguments) {
    using namespace cosimo::isolation;
    Header *header = attach(count, arguments);
    if (count != 2 && count != 4) {
        std::fputs("cosimo-worker is started by cosimo (see the option --isolate).\n", stderr);
        return 2;
    }
    if (!header || header->mark != magic) {
        std::fputs("cosimo-worker was started without its memory.\n", stderr);
        return 2;
    }
    log_to(header);
    notice_crashes(header);
    own_children(header);
    const char *refused = watch_master(header) ? nullptr : "no thread can be started to watch its master";
    if (!refused) refused = limit_memory(header);
    UnitCalls unit;
    if (!refused && header->sandboxed) refused = refuse_calls(header);
    header->loading.store(1);
    if (refused)
        std::snprintf(header->problem, sizeof header->problem, "%s", refused);
    else
        load(header, unit, arguments[1], count == 4 ? arguments[2] : nullptr, count == 4 ? arguments[3] : nullptr);
    header->running.store(idle);
    header->ready.store(1);
    publish(header->reply, 0xFFFFFFFFu, 0);  // wakes the master, which waits for this number once
    serve(header, unit);
}

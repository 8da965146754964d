#include "crash_report.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "platform.hpp"

namespace cosimo {

std::atomic<const GuardOptions *> present{nullptr};

void put(int file, const char *text, std::size_t length) {
    while (length > 0) {
        const auto written = write(file, text, static_cast<unsigned>(length));
        if (written <= 0) return;
        text += written;
        length -= static_cast<std::size_t>(written);
    }
}

namespace {

void escape(const char *from, char *to, std::size_t size) {
    std::size_t used = 0;
    for (; *from && used + 8 < size; ++from) {
        const auto sign = static_cast<unsigned char>(*from);
        if (sign == '"' || sign == '\\') to[used++] = '\\';
        if (sign < 0x20)
            used += static_cast<std::size_t>(std::snprintf(to + used, 8, "\\u%04x", sign));
        else
            to[used++] = *from;
    }
    to[used] = '\0';
}

bool fixed(const GuardOptions &options, const char *unit) {
    static char name[520];
    std::snprintf(name, sizeof name, "\n%s\n", unit);
    return std::strstr(options.fixed, name) != nullptr;
}

}  // namespace

void report(const Mark &mark, const char *cause, int code) {
    const Place at = place(mark);
    const GuardOptions &options = *present.load();
    static char line[4096], unit[512], why[3072], document[8192];
    const char *shown = at.unit[0] ? at.unit : "–";
    if (!can_isolate || (at.unit[0] && fixed(options, at.unit)))
        std::snprintf(line, sizeof line, "%s%s%s", cause, options.kept[0] ? "; " : "", options.kept);
    else if (!at.unit[0])
        std::snprintf(line, sizeof line, "%s%s%s; --isolate keeps each unit apart", cause, options.kept[0] ? "; " : "", options.kept);
    else if (options.kept[0])
        std::snprintf(line, sizeof line, "%s; %s; with --isolate %s every completed row would be kept", cause, options.kept, at.unit);
    else
        std::snprintf(line, sizeof line, "%s; with --isolate %s it would have ended alone", cause, at.unit);
    escape(line, why, sizeof why);
    escape(at.unit, unit, sizeof unit);
    int length = std::snprintf(document, sizeof document,
                               "{\"error\": \"%s%s%s%s\", \"exit_code\": %d, \"unit\": %s%s%s, \"phase\": \"%s\", \"time\": %s, "
                               "\"variable\": null, \"cause\": \"%s\", \"log\": null}\n",
                               unit[0] ? "unit '" : "", unit, unit[0] ? "': " : "", why, code, unit[0] ? "\"" : "null", unit,
                               unit[0] ? "\"" : "", at.phase[0] ? at.phase : "–", Decimal(at.time, 17).text, why);
    if (options.document >= 0) put(options.document, document, std::min(static_cast<std::size_t>(length), sizeof document - 1));
    length = std::snprintf(document, sizeof document, "cosimo: %s · %s · t = %s s · – · %s · –\n", shown, at.phase[0] ? at.phase : "–",
                           Decimal(at.time, 12).text, line);
    put_line(document, std::min(static_cast<std::size_t>(length), sizeof document - 1));
}

// ---- the end of the process ------------------------------------------------------------------------------------------

namespace {

// The temporary folders. Entries are never freed, so that they can be walked through at any time; one whose folder is gone
// is used for the next.
struct Folder {
    std::atomic<char *> path{nullptr};
    Folder *next = nullptr;
};
std::atomic<Folder *> folders{nullptr};
std::mutex filing;
pid_t owner = 0;

// By another program: nothing of this process can be relied on any more. A forked child leaves them to its parent.
void remove_folders() {
    if (owner != getpid()) return;
    constexpr std::size_t first = 3, most = 64;
    const Folder *folder = folders.load();
    while (folder) {
        const char *arguments[first + most + 1] = {"rm", "-rf", "--"};
        std::size_t count = first;
        for (; folder && count < first + most; folder = folder->next)
            if (const char *path = folder->path.load()) arguments[count++] = path;
        if (count == first) return;
        run_program("/bin/rm", arguments);
    }
}

// A thread is known by the place of a variable that each has for itself.
thread_local char this_thread;
std::atomic<const char *> ends_process{nullptr};

}  // namespace

void remember_folder(const char *path) {
    if (!std::filesystem::path(path).is_absolute()) return;  // from where it would be looked for nobody knows
    std::lock_guard lock(filing);
    if (owner != getpid())  // those of a parent are not ours; it may hold their names, which are left alone
        for (Folder *folder = folders.load(); folder; folder = folder->next) folder->path.store(nullptr);
    owner = getpid();
    Folder *place = nullptr;
    for (Folder *folder = folders.load(); folder; folder = folder->next) {
        const char *known = folder->path.load();
        if (known && std::strcmp(known, path) == 0) return;
        if (!known) place = folder;
    }
    char *copy = strdup(path);
    if (place) {
        place->path.store(copy);
        return;
    }
    place = new Folder;
    place->path.store(copy);
    place->next = folders.load();
    folders.store(place);
}

void forget_folder(const char *path) {
    std::lock_guard lock(filing);
    for (Folder *folder = folders.load(); folder; folder = folder->next) {
        char *known = folder->path.load();
        if (!known || std::strcmp(known, path) != 0) continue;
        folder->path.store(nullptr);
        std::free(known);
    }
}

void leave_to_who_ends(int code) {
    const char *who = ends_process.load();
    if (who == &this_thread) end_now(code);
    while (who) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void end_process(int code) {
    const char *nobody = nullptr;
    if (!ends_process.compare_exchange_strong(nobody, &this_thread)) leave_to_who_ends(code);
    remove_folders();
    end_now(code);
}

}  // namespace cosimo

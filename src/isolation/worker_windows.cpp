// What `worker_faults.cpp` and `worker_refusals.cpp` are on Linux. The job that the master has put the worker in ends it
// with the master, and what the unit has started with it; a process has no copies, and there is no sandbox.
#include "waiting.hpp"  // before what builds on <windows.h>

#include <psapi.h>
#include <shellapi.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "worker_faults.hpp"
#include "worker_log.hpp"

namespace cosimo::isolation {
namespace {

Header *shared = nullptr;
HANDLE printed = nullptr;     // the end of the pipe from which it is read
HANDLE printing = nullptr;    // the other end, whatever the unit does with that of the process
HANDLE refusals = nullptr;    // told when the limit of memory has refused something
constexpr char last_mark[] = "\n\x04 all that was printed \x04";  // a line of its own, for which a buffer of 4096 has room
constexpr std::size_t last_length = sizeof last_mark - 2;        // without the end of the line before
std::atomic<bool> ending{false}, all_passed_on{false};

// Lets what the unit has printed reach the master: when a mark that is printed last has been read, all of it has.
void pass_on_printed() {
    constexpr DWORD room = 32768;  // in the pipe, so that writing the mark waits for nobody
    DWORD left = 0, written = 0;
    bool marked = ending.exchange(true);
    for (int i = 0; i < 2000 && !all_passed_on.load(); ++i) {
        if (!marked && PeekNamedPipe(printed, nullptr, 0, nullptr, &left, nullptr) && left < room)
            marked = WriteFile(printing, last_mark, sizeof last_mark - 1, &written, nullptr);
        Sleep(1);
    }
}

[[noreturn]] void end_as(DWORD number) {
    pass_on_printed();
    note_refused_memory();
    shared->signal.store(number);
    wake(shared->reply);
    TerminateProcess(GetCurrentProcess(), number);
    for (;;) Sleep(INFINITE);
}

// Called last, after whatever the unit has of its own for this.
LONG WINAPI on_unhandled(EXCEPTION_POINTERS *found) {
    const DWORD code = found->ExceptionRecord->ExceptionCode;
    if (code == EXCEPTION_STACK_OVERFLOW) shared->overflow.store(1);
    end_as(code);
}

void on_abort(int) { end_as(SIGABRT); }

DWORD WINAPI read_printed(void *) {
    char text[4096];
    std::size_t held = 0;
    for (DWORD got = 0; ReadFile(printed, text + held, static_cast<DWORD>(sizeof text - held), &got, nullptr) && got > 0;) {
        held += got;
        std::size_t begin = 0;
        for (std::size_t i = 0; i < held; ++i)
            if (text[i] == '\n' || (begin == 0 && i + 1 == sizeof text)) {
                const std::size_t length = i - begin - (i > begin && text[i - 1] == '\r');
                const bool before_mark = length == 0 && ending.load();
                if (!before_mark && log_has_room(record_printed)) log_record(record_printed, text + begin, length);
                begin = i + 1;
            }
        held -= begin;
        std::memmove(text, text + begin, held);
        if (ending.load() && held == last_length && std::memcmp(text, last_mark + 1, held) == 0) all_passed_on.store(true);
    }
    return 0;
}

}  // namespace

Header *attach(int &count, char **&arguments) {
    static std::vector<std::string> words;
    static std::vector<char *> pointers;
    int given = 0;
    wchar_t **found = CommandLineToArgvW(GetCommandLineW(), &given);
    std::vector<std::uintptr_t> handles;
    for (int i = 0; found && i < given; ++i) {
        if (i == 1 || i == 2) {  // before the words of all systems: the memory, and the pipe
            handles.push_back(std::wcstoull(found[i], nullptr, 10));
            continue;
        }
        std::string word(4 * std::wcslen(found[i]) + 1, '\0');
        word.resize(static_cast<std::size_t>(WideCharToMultiByte(CP_UTF8, 0, found[i], -1, word.data(), static_cast<int>(word.size()), nullptr, nullptr)) - 1);
        words.push_back(std::move(word));
    }
    for (std::string &word : words) pointers.push_back(word.data());
    count = static_cast<int>(pointers.size());
    arguments = pointers.data();
    if (handles.size() != 2) return nullptr;
    printed = reinterpret_cast<HANDLE>(handles[1]);
    return static_cast<Header *>(MapViewOfFile(reinterpret_cast<HANDLE>(handles[0]), FILE_MAP_ALL_ACCESS, 0, 0, total_bytes));
}

void notice_crashes(Header *header) {
    shared = header;
    SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX | SEM_NOOPENFILEERRORBOX);  // no window waits for a user
    ULONG enough = 65536;
    SetThreadStackGuarantee(&enough);
    SetUnhandledExceptionFilter(on_unhandled);
    std::signal(SIGABRT, on_abort);
    std::setvbuf(stdout, nullptr, _IONBF, 0);  // Windows knows no lines
}

void own_children(Header *) {}
void end_if_copy() {}
void end_children() {}

bool watch_master(Header *) {
    const HANDLE here = GetCurrentProcess();
    if (!DuplicateHandle(here, GetStdHandle(STD_OUTPUT_HANDLE), here, &printing, 0, FALSE, DUPLICATE_SAME_ACCESS)) return false;
    HANDLE thread = CreateThread(nullptr, 128 * 1024, read_printed, nullptr, 0, nullptr);
    if (thread) CloseHandle(thread);
    if (thread) std::atexit(pass_on_printed);  // a unit may end the process
    return thread != nullptr;
}

const char *limit_memory(Header *header) {
    if (!header->memory_limit) return nullptr;
    PROCESS_MEMORY_COUNTERS used{};
    K32GetProcessMemoryInfo(GetCurrentProcess(), &used, sizeof used);
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits{};
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_PROCESS_MEMORY;
    limits.ProcessMemoryLimit = used.PagefileUsage + header->memory_limit;
    HANDLE job = CreateJobObjectW(nullptr, nullptr);  // inside of that of the master
    refusals = CreateIoCompletionPort(INVALID_HANDLE_VALUE, nullptr, 0, 1);
    JOBOBJECT_ASSOCIATE_COMPLETION_PORT told{job, refusals};
    const bool limited = job && refusals && SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits) &&
                         SetInformationJobObject(job, JobObjectAssociateCompletionPortInformation, &told, sizeof told) &&
                         AssignProcessToJobObject(job, GetCurrentProcess());
    if (job) CloseHandle(job);  // it holds as long as this process
    std::atexit(note_refused_memory);
    return limited ? nullptr : "its memory cannot be limited here";
}

void note_refused_memory() {
    DWORD message = 0;
    ULONG_PTR key = 0;
    OVERLAPPED *process = nullptr;
    while (refusals && GetQueuedCompletionStatus(refusals, &message, &key, &process, 0))
        if (message == JOB_OBJECT_MSG_PROCESS_MEMORY_LIMIT) shared->memory_refused.store(1);
}

const char *refuse_calls(Header *) { return "a sandbox is available on Linux only"; }

}  // namespace cosimo::isolation

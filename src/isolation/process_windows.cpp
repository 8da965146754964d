// Windows: a worker is in a job that ends with the master, and inherits nothing but what it needs.
#include "process.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

#include "../kernel/platform.hpp"

namespace cosimo::isolation {
namespace {

void shut(void *&handle) {
    if (handle) CloseHandle(handle);
    handle = nullptr;
}

std::string failed(const char *what) { return std::string(what) + ": error " + std::to_string(GetLastError()) + " of Windows"; }

std::wstring wide(const std::string &text) {
    std::wstring found(text.size() + 1, L'\0');
    const int length = MultiByteToWideChar(CP_UTF8, 0, text.c_str(), -1, found.data(), static_cast<int>(found.size()));
    found.resize(length > 0 ? static_cast<std::size_t>(length - 1) : 0);
    return found;
}

// One argument of a command line, as programs take it apart: backslashes count double before a quotation mark only.
std::wstring quoted(const std::wstring &word) {
    std::wstring found = L"\"";
    std::size_t backslashes = 0;
    for (wchar_t c : word) {
        if (c == L'"') found.append(backslashes + 1, L'\\');
        backslashes = c == L'\\' ? backslashes + 1 : 0;
        found += c;
    }
    return found.append(backslashes, L'\\') + L'"';
}

// What the worker is started with: its standard streams, and handles of which no other process started meanwhile gets one.
class Inheritance {
public:
    explicit Inheritance(std::vector<HANDLE> handles) : handles_(std::move(handles)) {
        SIZE_T bytes = 0;
        InitializeProcThreadAttributeList(nullptr, 1, 0, &bytes);
        list_.resize(bytes);
        made_ = InitializeProcThreadAttributeList(list(), 1, 0, &bytes) &&
                UpdateProcThreadAttribute(list(), 0, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, handles_.data(), handles_.size() * sizeof(HANDLE), nullptr, nullptr);
        for (HANDLE handle : handles_) SetHandleInformation(handle, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
    }
    ~Inheritance() {
        for (HANDLE handle : handles_) SetHandleInformation(handle, HANDLE_FLAG_INHERIT, 0);
        if (made_) DeleteProcThreadAttributeList(list());
    }
    LPPROC_THREAD_ATTRIBUTE_LIST list() { return reinterpret_cast<LPPROC_THREAD_ATTRIBUTE_LIST>(list_.data()); }
    bool made() const { return made_; }

private:
    std::vector<HANDLE> handles_;
    std::vector<unsigned char> list_;
    bool made_ = false;
};

}  // namespace

Process::~Process() {
    if (header_) UnmapViewOfFile(header_);
    for (void **handle : {&process_, &printed_, &memory_, &events_[0], &events_[1], &job_}) shut(*handle);
}

Header *Process::share(std::string &problem) {
    void *mapped = nullptr;
    memory_ = CreateFileMappingW(INVALID_HANDLE_VALUE, nullptr, PAGE_READWRITE, 0, static_cast<DWORD>(total_bytes), nullptr);
    for (void *&event : events_) event = CreateEventW(nullptr, FALSE, FALSE, nullptr);
    if (memory_ && events_[0] && events_[1]) mapped = MapViewOfFile(memory_, FILE_MAP_ALL_ACCESS, 0, 0, total_bytes);
    if (!mapped) {
        problem = failed("no memory to share with it");
        return nullptr;
    }
    header_ = new (mapped) Header;
    header_->request.event = events_[0];
    header_->reply.event = events_[1];
    return header_;
}

std::string Process::start(const char *const *arguments, const char *const *, bool) {
    HANDLE printing = nullptr, nothing = CreateFileW(L"NUL", GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE, nullptr, OPEN_EXISTING, 0, nullptr);
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits{};
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
    job_ = CreateJobObjectW(nullptr, nullptr);
    std::string problem;
    if (!CreatePipe(&printed_, &printing, nullptr, 1 << 16) || !job_ ||
        !SetInformationJobObject(job_, JobObjectExtendedLimitInformation, &limits, sizeof limits))
        problem = failed("no pipe or job for its process");
    Inheritance given({nothing, printing, printed_, memory_, events_[0], events_[1]});
    if (problem.empty() && !given.made()) problem = failed("no list of what its process inherits");
    STARTUPINFOEXW how{};
    how.StartupInfo.cb = sizeof how;
    how.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
    how.StartupInfo.hStdInput = nothing;
    how.StartupInfo.hStdOutput = how.StartupInfo.hStdError = printing;
    how.lpAttributeList = given.list();
    const std::wstring program = wide(arguments[0]);
    std::wstring line = quoted(program);
    for (HANDLE handle : {memory_, printed_}) line += L' ' + std::to_wstring(reinterpret_cast<std::uintptr_t>(handle));
    for (const char *const *word = arguments + 1; *word; ++word) line += L' ' + quoted(wide(*word));
    // Ctrl-C is for the master: a worker has a console of its own, without a window.
    constexpr DWORD flags = CREATE_SUSPENDED | CREATE_NO_WINDOW | EXTENDED_STARTUPINFO_PRESENT;
    PROCESS_INFORMATION made{};
    if (problem.empty() && !CreateProcessW(program.c_str(), line.data(), nullptr, nullptr, TRUE, flags, nullptr, nullptr, &how.StartupInfo, &made))
        problem = failed(arguments[0]);
    shut(printing);
    shut(nothing);
    if (!problem.empty()) return problem;
    process_ = made.hProcess;
    // What it starts is in the job too; it runs only once it is in there itself.
    if (!AssignProcessToJobObject(job_, process_) || ResumeThread(made.hThread) == static_cast<DWORD>(-1)) {
        problem = failed("no job for its process");
        TerminateProcess(process_, 1);
    } else {
        pid_ = static_cast<int>(made.dwProcessId);
    }
    shut(made.hThread);
    return problem;
}

bool Process::ended(bool block, Ending &how) {
    if (pid_ == 0 || WaitForSingleObject(process_, block ? INFINITE : 0) != WAIT_OBJECT_0) return false;
    DWORD code = 0;
    GetExitCodeProcess(process_, &code);
    TerminateJobObject(job_, 1);  // what the unit has started
    pid_ = 0;
    how = {code >= 0x80000000u, static_cast<int>(code)};  // the number of an exception that nobody handled
    return true;
}

void Process::wait(int milliseconds) const { WaitForSingleObject(process_, static_cast<DWORD>(milliseconds)); }

void Process::kill() {
    if (pid_ != 0) TerminateJobObject(job_, 1);
}

std::size_t Process::read_printed(char *text, std::size_t size) {
    DWORD there = 0, got = 0;
    if (!printed_ || !PeekNamedPipe(printed_, nullptr, 0, nullptr, &there, nullptr) || there == 0) return 0;
    return ReadFile(printed_, text, static_cast<DWORD>(std::min<std::size_t>(size, there)), &got, nullptr) ? got : 0;
}

}  // namespace cosimo::isolation

// The few calls that differ between systems: `platform_posix.cpp` and `platform_windows.cpp` define them. Beside them the
// former has `copies.cpp` and `imports.cpp`, which Windows does without.
#pragma once
#include <string>
#ifdef _WIN32
#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#undef near
#undef far
#else
#include <dlfcn.h>
#endif

namespace cosimo {

// Whether a unit can be kept apart in a process of its own (src/isolation).
#if defined(__linux__) || defined(_WIN32)
constexpr bool can_isolate = true;
#else
constexpr bool can_isolate = false;
#endif

// The platform, as FMI 3.0 names it.
#if defined(__aarch64__)
#define COSIMO_PROCESSOR "aarch64"
#else
#define COSIMO_PROCESSOR "x86_64"
#endif
#if defined(_WIN32)
constexpr const char *platform_name = COSIMO_PROCESSOR "-windows";
#elif defined(__APPLE__)
constexpr const char *platform_name = COSIMO_PROCESSOR "-darwin";
#else
constexpr const char *platform_name = COSIMO_PROCESSOR "-linux";
#endif

// Call `fault` with its name before a segmentation fault, an abort or the like ends the process, and `ended` with the exit
// code when somebody calls exit. Where `fault` returns, whoever handled it before does.
void watch_faults(void (*fault)(const char *name), void (*ended)(int code));
void watch_faults_no_more();

// Write a line to standard error, in the characters that whoever reads there expects.
void put_line(const char *text, std::size_t length);

// End the process with nothing else done, by handlers of libraries neither.
[[noreturn]] void end_now(int code);

// Run a program and wait for it, in a process that nothing can be relied on any more.
void run_program(const char *path, const char *const *arguments);

// Load a library and look for a function in it; nullptr, with the reason in `problem`, or where there is none.
#ifdef _WIN32
inline void *open_library(const std::string &path, std::string &problem) {
    std::wstring wide(path.size() + 1, L'\0');
    const int length = MultiByteToWideChar(CP_UTF8, 0, path.c_str(), -1, wide.data(), static_cast<int>(wide.size()));
    for (wchar_t &c : wide)
        if (c == L'/') c = L'\\';  // or those beside it are not found
    if (length > 260 && wide[1] == L':') wide.insert(0, L"\\\\?\\");  // as long as it is
    void *found = LoadLibraryExW(wide.c_str(), nullptr, LOAD_WITH_ALTERED_SEARCH_PATH);  // those beside it are found too
    if (!found) problem = "'" + path + "' cannot be loaded, error " + std::to_string(GetLastError()) + " of Windows";
    return found;
}
inline void *find_function(void *library, const char *name) {
    return reinterpret_cast<void *>(GetProcAddress(static_cast<HMODULE>(library), name));
}
#else
inline void *open_library(const std::string &path, std::string &problem) {
    void *found = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!found) problem = dlerror();
    return found;
}
inline void *find_function(void *library, const char *name) { return dlsym(library, name); }
#endif

}  // namespace cosimo

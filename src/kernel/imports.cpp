// What the libraries of units import. A function that would end, replace or deafen the whole process is bound to one of
// ours while the library is in this process; nothing is looked at when units are called.
#include <signal.h>
#include <unistd.h>

#include <cstdarg>
#include <cstring>
#include <iterator>
#include <string>

#include "guard.hpp"

#if defined(__linux__) && defined(__GLIBC__) && defined(__LP64__)
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#endif

namespace cosimo {

// What a unit wanted done on a signal that we handle.
struct sigaction wanted[NSIG];

namespace {

bool ours(int number) {
    switch (number) {
        case SIGINT: case SIGTERM: case SIGHUP: case SIGSEGV: case SIGBUS: case SIGFPE: case SIGILL: case SIGABRT: return true;
        default: return false;
    }
}

int unit_sigaction(int number, const struct sigaction *action, struct sigaction *before) {
    if (!ours(number) || !guarding()) return sigaction(number, action, before);
    const struct sigaction old = wanted[number];
    if (action) wanted[number] = *action;
    if (before) *before = old;
    return 0;
}

using Handler = void (*)(int);
Handler unit_signal(int number, Handler handler) {
    if (!ours(number) || !guarding()) return signal(number, handler);
    struct sigaction action {}, before {};
    action.sa_handler = handler;
    unit_sigaction(number, &action, &before);
    return before.sa_handler;
}

[[noreturn]] void unit_exit(int code) {
    report_end(code);
    _exit(code);
}

// Another program may take the place of a process that a unit has started, not of this one.
int unit_execve(const char *path, char *const *arguments, char *const *environment) {
    report_replaced(path);
    return execve(path, arguments, environment);
}
int unit_execv(const char *path, char *const *arguments) {
    report_replaced(path);
    return execv(path, arguments);
}
int unit_execvp(const char *path, char *const *arguments) {
    report_replaced(path);
    return execvp(path, arguments);
}
// The arguments of a call as an array, up to the null that ends them.
struct Arguments {
    char *list[1024] = {};
    Arguments(const char *first, va_list rest) {
        list[0] = const_cast<char *>(first);
        for (std::size_t i = 1; i + 1 < std::size(list) && list[i - 1]; ++i) list[i] = va_arg(rest, char *);
    }
};
int unit_execl(const char *path, const char *first, ...) {
    va_list rest;
    va_start(rest, first);
    const Arguments found(first, rest);
    va_end(rest);
    return unit_execv(path, found.list);
}
int unit_execlp(const char *path, const char *first, ...) {
    va_list rest;
    va_start(rest, first);
    const Arguments found(first, rest);
    va_end(rest);
    return unit_execvp(path, found.list);
}

}  // namespace

#if defined(__linux__) && defined(__GLIBC__) && defined(__LP64__)
namespace {

struct Import {
    const char *name;
    void *function;
};
template <class F>
void *address(F *function) {
    return reinterpret_cast<void *>(function);
}
const Import imports[] = {
    {"sigaction", address(unit_sigaction)}, {"signal", address(unit_signal)},   {"bsd_signal", address(unit_signal)},
    {"ssignal", address(unit_signal)},      {"_exit", address(unit_exit)},      {"_Exit", address(unit_exit)},
    {"quick_exit", address(unit_exit)},     {"execve", address(unit_execve)},   {"execv", address(unit_execv)},
    {"execvp", address(unit_execvp)},       {"execl", address(unit_execl)},     {"execlp", address(unit_execlp)},
};

#if defined(__x86_64__)
constexpr unsigned slots[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_64};
#elif defined(__aarch64__)
constexpr unsigned slots[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT, R_AARCH64_ABS64};
#else
constexpr unsigned slots[] = {~0u};
#endif

struct Object {
    ElfW(Addr) base = 0, closed = 0, closed_end = 0;  // the part that is read-only once the library is loaded
    const ElfW(Sym) *symbols = nullptr;
    const char *names = nullptr;

    void bind(const ElfW(Rela) *first, std::size_t bytes) const {
        for (const ElfW(Rela) *one = first; one < first + bytes / sizeof *first; ++one) {
            const auto type = static_cast<unsigned>(ELF64_R_TYPE(one->r_info));
            bool slot = false;
            for (unsigned known : slots) slot = slot || type == known;
            const ElfW(Sym) &symbol = symbols[ELF64_R_SYM(one->r_info)];
            if (!slot || symbol.st_shndx != SHN_UNDEF) continue;
            for (const Import &import : imports)
                if (std::strcmp(names + symbol.st_name, import.name) == 0) put(base + one->r_offset, import.function);
        }
    }
    void put(ElfW(Addr) place, void *function) const {
        const auto page = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE)), begin = place & ~(page - 1);
        const bool sealed = place >= closed && place < closed_end;
        if (sealed && mprotect(reinterpret_cast<void *>(begin), page, PROT_READ | PROT_WRITE) != 0) return;
        *reinterpret_cast<void **>(place) = function;
        if (sealed) mprotect(reinterpret_cast<void *>(begin), page, PROT_READ);
    }
};

int look(dl_phdr_info *info, std::size_t, void *given) {
    const auto &folder = *static_cast<const std::string *>(given);
    if (!info->dlpi_name || std::strncmp(info->dlpi_name, folder.c_str(), folder.size()) != 0) return 0;
    Object object;
    object.base = info->dlpi_addr;
    const ElfW(Dyn) *entry = nullptr;
    const auto page = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE));
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) &header = info->dlpi_phdr[i];
        if (header.p_type == PT_DYNAMIC) entry = reinterpret_cast<const ElfW(Dyn) *>(object.base + header.p_vaddr);
        if (header.p_type != PT_GNU_RELRO) continue;
        object.closed = (object.base + header.p_vaddr) & ~(page - 1);
        object.closed_end = (object.base + header.p_vaddr + header.p_memsz) & ~(page - 1);
    }
    const ElfW(Rela) *calls = nullptr, *others = nullptr;
    std::size_t call_bytes = 0, other_bytes = 0;
    bool with_addends = true;
    for (; entry && entry->d_tag != DT_NULL; ++entry) {
        const auto place = entry->d_un.d_ptr;
        switch (entry->d_tag) {
            case DT_SYMTAB: object.symbols = reinterpret_cast<const ElfW(Sym) *>(place); break;
            case DT_STRTAB: object.names = reinterpret_cast<const char *>(place); break;
            case DT_JMPREL: calls = reinterpret_cast<const ElfW(Rela) *>(place); break;
            case DT_PLTRELSZ: call_bytes = entry->d_un.d_val; break;
            case DT_RELA: others = reinterpret_cast<const ElfW(Rela) *>(place); break;
            case DT_RELASZ: other_bytes = entry->d_un.d_val; break;
            case DT_PLTREL: with_addends = entry->d_un.d_val == DT_RELA; break;
            default: break;
        }
    }
    if (!object.symbols || !object.names || !with_addends) return 0;
    object.bind(calls, calls ? call_bytes : 0);
    object.bind(others, others ? other_bytes : 0);
    return 0;
}

}  // namespace

void bind_imports(const char *folder) {
    std::string inside = std::string(folder) + "/";
    dl_iterate_phdr(look, &inside);
}
#else
void bind_imports(const char *) {}
#endif

}  // namespace cosimo

/* FMI 2.0 with one fault, chosen by name: x' = u - x by forward Euler, y = x.

   The fault is the text parameter `fault`, or, for those that come before parameters are known, the first word in the
   file resources/fault.txt. It happens in the phase that the table below says, from the time `fault_time` on; `amount`
   is its size where it has one. The output `allowed` counts what a sandbox should have refused. When a fault happens, and
   which calls come after a fatal one, is written to the file that the environment variable FAULT_STAMP names. */
#define _GNU_SOURCE
#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef _WIN32 /* which has the faults that C has */
__declspec(dllimport) void __stdcall Sleep(unsigned long milliseconds);
static void rest(double seconds) { Sleep((unsigned long)(seconds * 1e3)); }
#else
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
static void rest(double seconds) {
    struct timespec span = {(time_t)seconds, (long)(fmod(seconds, 1.0) * 1e9)};
    nanosleep(&span, NULL);
}
#endif

#include "../fmus/fmi2.h"

enum { Y, U, FAULT_TIME, AMOUNT, REALS };
enum { FAULT_NAME = 10, ALLOWED = 20, CALLS_AFTER_FATAL = 21 };

typedef struct {
    double real[REALS];
    int allowed, fatal, calls_after_fatal;
} Values;

typedef struct {
    Values now;
    char fault[64], text[64];
    double time, duration;
    Callbacks call;
    char name[64];
} Unit;

typedef enum { INSTANTIATE, INITIALISE, STEP, TERMINATE, FREE, RESTORE, SET, GET } Phase;

/* ---- what can go wrong: each returns the status of the call ------------------------------------------------------ */

static volatile int sink;

static int segfault(Unit *unit) {
    *(volatile int *)(uintptr_t)8 = 1;
    return OK;
}
static int aborts(Unit *unit) {
    fprintf(stderr, "faulty: assertion failed\n");
    abort();
}
static int deeper(volatile char *above) {
    volatile char frame[4096];
    frame[0] = *above;
    return deeper(frame) + frame[1];
}
static int overflow(Unit *unit) {
    char first = 1;
    sink = deeper(&first);
    return OK;
}
static int divides(Unit *unit) {
    static volatile int nothing = 0;
    sink = 100 / nothing;
    raise(SIGFPE);
    return OK;
}
static int exits(Unit *unit) { exit(0); }
static int exits_at_once(Unit *unit) { _exit(0); }
static int exits_with_minus_one(Unit *unit) { exit(-1); }
static int hangs(Unit *unit) {
    for (;;) rest(1.0);
    return OK;
}
static int spins(Unit *unit) {
    for (;;) sink++;
    return OK;
}
static int sleeps(Unit *unit) {
    rest(unit->now.real[AMOUNT]);
    return OK;
}
static int leaks(Unit *unit) {
    volatile char *memory = malloc(1 << 20);
    for (size_t i = 0; i < 1 << 20; i += 512) memory[i] = 1;
    return OK;
}
static int wants_much(Unit *unit) { return malloc((size_t)1 << 40) ? OK : ERROR; }
static int not_a_number(Unit *unit) {
    unit->now.real[Y] = NAN;
    return OK;
}
static int infinite(Unit *unit) {
    unit->now.real[Y] = INFINITY;
    return OK;
}
static int says(Unit *unit, int status, const char *text) {
    unit->call.log(unit->call.environment, unit->name, status, "logStatusError", "%s at t = %g", text, unit->time);
    return status;
}
static int error(Unit *unit) { return says(unit, ERROR, "no fuel"); }
static int fatal(Unit *unit) {
    unit->now.fatal = 1;
    return says(unit, FATAL, "engine lost");
}
static int illegal(Unit *unit) { return 42; }
static int negative(Unit *unit) { return -1; }
static int discards(Unit *unit) { return DISCARD; }
static int discards_long_steps(Unit *unit) { return unit->duration > unit->now.real[AMOUNT] ? DISCARD : OK; }
static int floods(Unit *unit) {
    for (int line = 0; line < (int)unit->now.real[AMOUNT]; line++)
        unit->call.log(unit->call.environment, unit->name, OK, "logAll", "line %d of many", line);
    return OK;
}
static int prints(Unit *unit) {
    printf("{\"not\": \"yours\"\n");
    fflush(stdout);
    return OK;
}
static int changes_locale(Unit *unit) {
    for (const char **name = (const char *[]){"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8", "C.UTF-8", NULL}; *name; name++)
        if (setlocale(LC_ALL, *name)) return OK;
    return OK;
}
static int changes_folder(Unit *unit) { return chdir("/") ? ERROR : OK; }
static int changes_rounding(Unit *unit) {
    fesetround(FE_UPWARD);
    return OK;
}
static int keeps_state(Unit *unit) { return OK; } /* see fmi2SetFMUstate */
static int writes_home(Unit *unit) {
    FILE *file = fopen(unit->text, "w");
    if (file) {
        unit->now.allowed++;
        fclose(file);
    }
    return OK;
}
static int reads_key(Unit *unit) {
    FILE *file = fopen(unit->text, "r");
    if (file) {
        unit->now.allowed++;
        fclose(file);
    }
    return OK;
}
#ifndef _WIN32
static int killed(Unit *unit) {
    raise(SIGKILL);
    return OK;
}
static void *log_elsewhere(void *given) {
    Unit *unit = given;
    for (int line = 0; line < 10; line++)
        unit->call.log(unit->call.environment, unit->name, WARNING, "logAll", "from a thread: %d", line);
    return NULL;
}
static int logs_in_a_thread(Unit *unit) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, log_elsewhere, unit)) return ERROR;
    pthread_join(thread, NULL); /* whoever holds a lock that the logger wants would now wait forever */
    return OK;
}
static int connects(Unit *unit) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0x7f000001)};
    if (s >= 0) {
        unit->now.allowed++;
        connect(s, (struct sockaddr *)&address, sizeof address);
        close(s);
    }
    return OK;
}
static int forks(Unit *unit) {
    for (int i = 0; i < 8; i++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        if (child > 0) {
            unit->now.allowed++;
            waitpid(child, NULL, 0);
        }
    }
    return OK;
}

/* Ways out of a process or a sandbox; `allowed` counts those that are open. */
enum { FIRST_DESCRIPTOR = 3, DESCRIPTORS = 64 };
static int cuts_memory(Unit *unit) {
    for (int fd = FIRST_DESCRIPTOR; fd < DESCRIPTORS; fd++) unit->now.allowed += ftruncate(fd, 0) == 0;
    return OK;
}
static int opens_from_descriptors(Unit *unit) {
    for (int fd = FIRST_DESCRIPTOR; fd < DESCRIPTORS; fd++) {
        const int file = openat(fd, unit->text, O_RDONLY);
        unit->now.allowed += file >= 0;
        if (file >= 0) close(file);
    }
    return OK;
}
static int searches_environment(Unit *unit) {
    static char found[1 << 16];
    for (const char **path = (const char *[]){"/proc/self/environ", "/proc/1/environ", NULL}; *path; path++) {
        FILE *file = fopen(*path, "r");
        const size_t count = file ? fread(found, 1, sizeof found, file) : 0;
        unit->now.allowed += memmem(found, count, unit->text, strlen(unit->text)) != NULL;
        if (file) fclose(file);
    }
    return OK;
}
static int writes_another_process(Unit *unit) {
    const int file = open("/proc/1/mem", O_RDWR);
    unit->now.allowed += file >= 0;
    if (file >= 0) close(file);
    return OK;
}
static int replaces_descriptors(Unit *unit) {
    const int nothing = open("/dev/null", O_RDONLY);
    for (int fd = FIRST_DESCRIPTOR; fd < DESCRIPTORS; fd++) dup2(nothing, fd);
    return hangs(unit);
}
/* The part of what it shares with the master that has the numbers of messages, with the byte `amount`. */
static int overwrites_memory(Unit *unit) {
    char line[512];
    unsigned long begin, end, found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && !found && fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:") && strstr(line, "rw-s") && sscanf(line, "%lx-%lx", &begin, &end) == 2) found = begin;
    if (maps) fclose(maps);
    if (!found) return ERROR;
    memset((void *)found, (int)unit->now.real[AMOUNT], 1 << 17);
    return OK;
}
static int leaves_a_helper(Unit *unit) {
    if (fork() == 0) {
        execlp("sleep", "sleep", unit->text, (char *)NULL);
        _exit(1);
    }
    return segfault(unit);
}
static int leaves_a_daemon(Unit *unit) {
    char path[4096];
    if (unit->now.allowed++) return OK;
    if (!getenv("FAULT_STAMP")) return ERROR;
    snprintf(path, sizeof path, "%s.daemon", getenv("FAULT_STAMP"));
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            FILE *file = fopen(path, "w");
            fprintf(file, "%d\n", (int)getpid());
            fclose(file);
            execlp("sleep", "sleep", "600", (char *)NULL);
        }
        _exit(0);
    }
    while (access(path, F_OK)) usleep(1000);
    return unit->now.real[AMOUNT] > 0 ? segfault(unit) : OK;
}
static int leaks_aligned(Unit *unit) {
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, 1 << 20)) return segfault(unit);
    memset(memory, 1, 1 << 20);
    return OK;
}
/* What a unit in the master's own process does to that process. */
static int goes_deaf(Unit *unit) {
    struct sigaction nothing = {.sa_handler = SIG_IGN};
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    sigaction(SIGHUP, &nothing, NULL);
    return sleeps(unit);
}
static int forks_and_returns(Unit *unit) {
    if (unit->now.allowed) return sleeps(unit);
    unit->now.allowed++;
    const pid_t copy = fork();
    if (copy == 0) usleep(100000); /* comes back after the run has ended */
    return copy < 0 ? ERROR : OK;  /* both go on */
}
static int exits_quickly(Unit *unit) { quick_exit(0); }
static int becomes_another(Unit *unit) {
    execlp("true", "true", (char *)NULL);
    return ERROR;
}
static void *works_on(void *given) {
    for (;;) sink++;
    return given;
}
static int redirects_descriptors(Unit *unit) {
    const int nothing = open("/dev/null", O_RDWR);
    if (unit->now.allowed++) return OK;
    for (int fd = FIRST_DESCRIPTOR; fd < DESCRIPTORS; fd++)
        if (fcntl(fd, F_GETFD) >= 0) dup2(nothing, fd);
    return OK;
}
static int starts_a_thread(Unit *unit) {
    pthread_t thread;
    if (unit->now.allowed++) return OK;
    return pthread_create(&thread, NULL, works_on, unit) || pthread_detach(thread) ? ERROR : OK;
}
#endif
static void ends_in_handler(int number) {
    signal(number, SIG_DFL);
    raise(number);
}
static int handles_crashes(Unit *unit) {
    signal(SIGSEGV, ends_in_handler);
    return segfault(unit);
}
static int fails_to_end(Unit *unit) { return says(unit, ERROR, "valve stuck"); }
static int fatal_at_the_end(Unit *unit) { return says(unit, FATAL, "valve lost"); }
/* While the library is loaded there is neither a parameter nor a resource; variables of this kind also reach a sandbox. */
static void stamp(const char *word);
__attribute__((constructor)) static void load(void) {
    const char *fault = getenv("LC_FAULT_WHILE_LOADING");
    if (fault) stamp(fault);
    if (fault && strcmp(fault, "exit") == 0) exit(0);
    if (fault && strcmp(fault, "hang") == 0) hangs(NULL);
}

typedef struct {
    const char *name;
    Phase phase;
    int (*act)(Unit *);
} Fault;

static const Fault faults[] = {
    {"segfault", STEP, segfault},
    {"abort", STEP, aborts},
    {"stack_overflow", STEP, overflow},
    {"floating_point", STEP, divides},
    {"crash_instantiate", INSTANTIATE, segfault},
    {"crash_initialise", INITIALISE, segfault},
    {"crash_terminate", TERMINATE, segfault},
    {"crash_free", FREE, segfault},
    {"crash_set", SET, segfault},
    {"crash_get", GET, segfault},
    {"exit", STEP, exits},
    {"exit_at_once", STEP, exits_at_once},
    {"exit_minus_one", STEP, exits_with_minus_one},
    {"exit_instantiate", INSTANTIATE, exits},
    {"hang", STEP, hangs},
    {"hang_instantiate", INSTANTIATE, hangs},
    {"spin", STEP, spins},
    {"slow", STEP, sleeps},
    {"leak", STEP, leaks},
    {"allocate", STEP, wants_much},
    {"nan", STEP, not_a_number},
    {"infinity", STEP, infinite},
    {"error", STEP, error},
    {"fatal", STEP, fatal},
    {"illegal", STEP, illegal},
    {"negative", STEP, negative},
    {"discard", STEP, discards},
    {"discard_long", STEP, discards_long_steps},
    {"log_flood", STEP, floods},
    {"print", STEP, prints},
    {"locale", STEP, changes_locale},
    {"folder", STEP, changes_folder},
    {"folder_instantiate", INSTANTIATE, changes_folder},
    {"rounding", STEP, changes_rounding},
    {"wrong_restore", RESTORE, keeps_state},
    {"write_home", STEP, writes_home},
    {"read_key", STEP, reads_key},
    {"crash_handler", STEP, handles_crashes},
    {"error_terminate", TERMINATE, fails_to_end},
    {"fatal_terminate", TERMINATE, fatal_at_the_end},
#ifndef _WIN32
    {"kill", STEP, killed},
    {"log_thread", STEP, logs_in_a_thread},
    {"network", STEP, connects},
    {"fork_bomb", STEP, forks},
    {"cut_memory", STEP, cuts_memory},
    {"descriptors", STEP, opens_from_descriptors},
    {"environment", STEP, searches_environment},
    {"other_process", STEP, writes_another_process},
    {"replace_descriptors", STEP, replaces_descriptors},
    {"helper", STEP, leaves_a_helper},
    {"daemon", STEP, leaves_a_daemon},
    {"overwrite", STEP, overwrites_memory},
    {"leak_aligned", STEP, leaks_aligned},
    {"deaf", STEP, goes_deaf},
    {"fork_return", STEP, forks_and_returns},
    {"quick_exit", STEP, exits_quickly},
    {"exec", STEP, becomes_another},
    {"redirect", STEP, redirects_descriptors},
    {"thread", STEP, starts_a_thread},
#endif
};

/* A line with the word and the seconds of the clock that Python calls monotonic. */
static void stamp(const char *word) {
    const char *path = getenv("FAULT_STAMP");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    fprintf(file, "%s %lld.%09ld\n", word, (long long)now.tv_sec, now.tv_nsec);
    fclose(file);
}

static int happen(Unit *unit, Phase phase) {
    if (unit->now.fatal) {
        unit->now.calls_after_fatal++;
        stamp("after-fatal");
    }
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (faults[i].phase == phase && strcmp(faults[i].name, unit->fault) == 0 &&
            ((phase != STEP && phase != SET && phase != GET) || unit->time >= unit->now.real[FAULT_TIME] - 1e-12)) {
            stamp(unit->fault);
            return faults[i].act(unit);
        }
    return OK;
}

/* ---- FMI --------------------------------------------------------------------------------------------------------- */

static void read_resource(Unit *unit, const char *uri) {
    char path[4096];
#ifdef _WIN32
    const int scheme = 8; /* file:///C:/… */
#else
    const int scheme = 7;
#endif
    if (strncmp(uri, "file://", 7) != 0 || snprintf(path, sizeof path, "%s/fault.txt", uri + scheme) >= (int)sizeof path) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    if (fscanf(file, "%63s", unit->fault) != 1) unit->fault[0] = '\0';
    fclose(file);
}

EXPORT void *fmi2Instantiate(const char *name, int type, const char *token, const char *resources, const Callbacks *call,
                             int visible, int logging) {
    Unit *unit = calloc(1, sizeof *unit);
    unit->call = *call;
    strncpy(unit->name, name, sizeof unit->name - 1);
    unit->now.real[U] = 1.0;
    read_resource(unit, resources);
    happen(unit, INSTANTIATE);
    return unit;
}
EXPORT void fmi2FreeInstance(void *c) {
    happen(c, FREE);
    free(c);
}
EXPORT int fmi2SetDebugLogging(void *c, int on, size_t count, const char *const *names) { return OK; }
EXPORT int fmi2SetupExperiment(void *c, int d, double tolerance, double start, int s, double stop) {
    ((Unit *)c)->time = start;
    return OK;
}
EXPORT int fmi2EnterInitializationMode(void *c) { return OK; }
EXPORT int fmi2ExitInitializationMode(void *c) { return happen(c, INITIALISE); }
EXPORT int fmi2Terminate(void *c) { return happen(c, TERMINATE); }
EXPORT int fmi2Reset(void *c) {
    Unit *unit = c;
    memset(&unit->now, 0, sizeof unit->now);
    unit->now.real[U] = 1.0;
    return OK;
}
EXPORT int fmi2SetReal(void *c, const Reference *r, size_t n, const double *v) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++) unit->now.real[r[i]] = v[i];
    return unit->time > 0.0 ? happen(unit, SET) : OK;
}
EXPORT int fmi2GetReal(void *c, const Reference *r, size_t n, double *v) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++) v[i] = unit->now.real[r[i]];
    return unit->time > 0.0 ? happen(unit, GET) : OK;
}
EXPORT int fmi2GetInteger(void *c, const Reference *r, size_t n, int *v) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++) v[i] = r[i] == ALLOWED ? unit->now.allowed : unit->now.calls_after_fatal;
    return OK;
}
EXPORT int fmi2SetString(void *c, const Reference *r, size_t n, const char *const *v) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++) snprintf(r[i] == FAULT_NAME ? unit->fault : unit->text, 64, "%s", v[i]);
    return OK;
}
EXPORT int fmi2GetString(void *c, const Reference *r, size_t n, const char **v) {
    Unit *unit = c;
    for (size_t i = 0; i < n; i++) v[i] = r[i] == FAULT_NAME ? unit->fault : unit->text;
    return OK;
}
EXPORT int fmi2DoStep(void *c, double time, double h, int final) {
    Unit *unit = c;
    unit->time = time;
    unit->duration = h;
    unit->now.real[Y] += h * (unit->now.real[U] - unit->now.real[Y]);
    const int status = happen(unit, STEP);
    unit->time = time + h;
    return status;
}
EXPORT int fmi2GetFMUstate(void *c, void **state) {
    if (!*state) *state = malloc(sizeof(Values));
    memcpy(*state, &((Unit *)c)->now, sizeof(Values));
    return OK;
}
EXPORT int fmi2SetFMUstate(void *c, void *state) {
    Unit *unit = c;
    if (strcmp(unit->fault, "wrong_restore") != 0) memcpy(&unit->now, state, sizeof(Values));
    return OK;
}
EXPORT int fmi2FreeFMUstate(void *c, void **state) {
    free(*state);
    *state = NULL;
    return OK;
}
EXPORT int fmi2SerializedFMUstateSize(void *c, void *state, size_t *size) {
    *size = sizeof(Values);
    return OK;
}
EXPORT int fmi2SerializeFMUstate(void *c, void *state, char *bytes, size_t size) {
    memcpy(bytes, state, size);
    return OK;
}
EXPORT int fmi2DeSerializeFMUstate(void *c, const char *bytes, size_t size, void **state) {
    *state = malloc(sizeof(Values));
    memcpy(*state, bytes, sizeof(Values));
    return OK;
}

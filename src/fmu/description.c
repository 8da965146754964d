#include "description.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <windows.h>

/* The C library of Windows takes no UTF-8, and more than 259 characters only of a full path with this in front. */
FILE *open_file(const char *path)
{
    static const wchar_t LONG[] = L"\\\\?\\";
    enum { MOST = 32768, HEAD = 4 };
    wchar_t *wide = malloc((HEAD + MOST) * sizeof *wide), *begin = wide + HEAD;
    FILE *file = NULL;
    int size = wide ? MultiByteToWideChar(CP_UTF8, 0, path, -1, begin, MOST) : 0;
    for (int i = 0; i < size; ++i)
        if (begin[i] == L'/') begin[i] = L'\\';
    if (size > 260 && begin[1] == L':') {
        memcpy(wide, LONG, HEAD * sizeof *wide);
        begin = wide;
    }
    if (size > 0) file = _wfopen(begin, L"rb");
    free(wide);
    return file;
}

/* "/C:/folder" of a URI is "C:/folder". */
static void tidy(char *folder)
{
    if (folder[0] == '/' && folder[1] && folder[2] == ':') memmove(folder, folder + 1, strlen(folder));
    for (; *folder; ++folder)
        if (*folder == '\\') *folder = '/';
}
#else
FILE *open_file(const char *path) { return fopen(path, "rb"); }
static void tidy(char *folder) { (void)folder; }
#endif

static const char MAGIC[8] = {'c', 'o', 's', 'i', 'm', 'o', '-', '1'};

/* Larger sizes can only come from a damaged file; the bound keeps the products below far from overflow. */
enum { LARGEST = 1 << 15 };

static int hexadecimal(char digit)
{
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}

char *folder_from_location(const char *location)
{
    int encoded = 0;
    if (!location || !*location) return NULL;
    if (strncmp(location, "file:", 5) == 0) {
        encoded = 1;
        location += 5;
        if (strncmp(location, "//", 2) == 0) {
            location += 2;
            if (strncmp(location, "localhost/", 10) == 0) location += 9;
            if (*location != '/') return NULL; /* a folder of another host */
        }
    } else if (strstr(location, "://")) {
        return NULL;
    }
    char *folder = malloc(strlen(location) + 1), *end = folder;
    if (!folder) return NULL;
    while (*location) {
        int high = encoded && location[0] == '%' ? hexadecimal(location[1]) : -1;
        int low = high >= 0 ? hexadecimal(location[2]) : -1;
        *end++ = low >= 0 ? (char)(16 * high + low) : *location;
        location += low >= 0 ? 3 : 1;
    }
    *end = '\0';
    tidy(folder);
    return folder;
}

static int read_header(description *unit, FILE *file)
{
    char magic[sizeof MAGIC];
    uint32_t sizes[6];
    if (fread(magic, sizeof magic, 1, file) != 1 || memcmp(magic, MAGIC, sizeof MAGIC) != 0) return 0;
    if (fread(unit->token, TOKEN_SIZE, 1, file) != 1 || fread(sizes, sizeof sizes, 1, file) != 1) return 0;
    unit->token[TOKEN_SIZE] = '\0';
    unit->integrator = sizes[0];
    unit->micro_steps = sizes[1];
    unit->states = sizes[2];
    unit->inputs = sizes[3];
    unit->outputs = sizes[4];
    if (sizes[2] > LARGEST || sizes[3] > LARGEST || sizes[4] > LARGEST) return 0;
    return unit->integrator < INTEGRATORS && unit->micro_steps > 0 && sizes[5] == 0 &&
           !(unit->integrator == SYMPLECTIC_EULER && unit->states % 2);
}

static int read_numbers(description *unit, FILE *file)
{
    size_t n = unit->states, m = unit->inputs, p = unit->outputs;
    size_t count = (n + p) * (n + m) + n + m;
    char surplus;
    unit->numbers = malloc((count ? count : 1) * sizeof(double));
    if (!unit->numbers || fread(unit->numbers, sizeof(double), count, file) != count) return 0;
    unit->A = unit->numbers;
    unit->B = unit->A + n * n;
    unit->C = unit->B + n * m;
    unit->D = unit->C + p * n;
    unit->initial = unit->D + p * m;
    unit->start = unit->initial + n;
    return fread(&surplus, 1, 1, file) == 0;
}

int description_read(description *unit, const char *folder, char message[MESSAGE_SIZE])
{
    const char *separator = folder[0] && folder[strlen(folder) - 1] == '/' ? "" : "/";
    size_t size = strlen(folder) + sizeof "/unit.bin";
    char *path = malloc(size);
    memset(unit, 0, sizeof *unit);
    if (!path) {
        snprintf(message, MESSAGE_SIZE, "out of memory.");
        return 0;
    }
    snprintf(path, size, "%s%sunit.bin", folder, separator);
    FILE *file = open_file(path);
    int good = 0;
    if (!file) {
        snprintf(message, MESSAGE_SIZE, "cannot open '%s', which holds the matrices; export the unit again.", path);
    } else {
        good = read_header(unit, file) && read_numbers(unit, file);
        if (!good)
            snprintf(message, MESSAGE_SIZE, "'%s' is damaged or of another version; export the unit again.", path);
        fclose(file);
    }
    free(path);
    if (!good) description_release(unit);
    return good;
}

void description_release(description *unit)
{
    free(unit->numbers);
    unit->numbers = NULL;
}

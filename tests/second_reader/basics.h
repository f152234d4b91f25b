/* What the reader's files share: the end of the program with a line, memory, names, numbers. */
#ifndef BASICS
#define BASICS
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

_Noreturn static void stop(int status, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(status);
}

#define check(holds, ...) ((holds) ? (void)0 : stop(1, __VA_ARGS__))

/* What is made lives as long as the program. */
static void *make(size_t bytes) {
    void *memory = calloc(bytes + 1, 1);
    check(memory, "no memory for %zu bytes", bytes);
    return memory;
}

static char *text(const char *format, ...) {
    va_list values, again;
    va_start(values, format);
    va_copy(again, values);
    size_t length = (size_t)vsnprintf(NULL, 0, format, values);
    char *made = make(length);
    vsnprintf(made, length + 1, format, again);
    va_end(values);
    va_end(again);
    return made;
}

/* Return the unsigned number in `bytes` bytes, the lowest first. */
static uint64_t number(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}
#endif

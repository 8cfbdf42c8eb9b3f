// SPDX-License-Identifier: Apache-2.0
// Errors: a code, and one sentence for people. The codes are gRPC's canonical ones, so that what a function detects is
// what the caller on the other host sees; and two of files on this machine, which are never sent.
//
// Who detects an error fills the struct ps_error; callers prefix it with where they were; the top logs it once.
#ifndef PS_COMMON_ERROR_H
#define PS_COMMON_ERROR_H

#include <stdarg.h>
#include <stdbool.h>

//    name                 value  exit code (sysexits.h)
#define PS_CODE_MAP(X)            \
    X(OK, 0, 0)                   \
    X(CANCELLED, 1, 79)           \
    X(UNKNOWN, 2, 70)             \
    X(INVALID_ARGUMENT, 3, 65)    \
    X(DEADLINE_EXCEEDED, 4, 75)   \
    X(NOT_FOUND, 5, 66)           \
    X(ALREADY_EXISTS, 6, 73)      \
    X(PERMISSION_DENIED, 7, 77)   \
    X(RESOURCE_EXHAUSTED, 8, 71)  \
    X(FAILED_PRECONDITION, 9, 78) \
    X(ABORTED, 10, 75)            \
    X(OUT_OF_RANGE, 11, 65)       \
    X(UNIMPLEMENTED, 12, 69)      \
    X(INTERNAL, 13, 70)           \
    X(UNAVAILABLE, 14, 69)        \
    X(DATA_LOSS, 15, 65)          \
    X(UNAUTHENTICATED, 16, 77)    \
    X(CANNOT_CREATE, 100, 73)     \
    X(CANNOT_WRITE, 101, 74)

enum ps_code {
#define X(name, value, exit_code) PS_##name = value,
    PS_CODE_MAP(X)
#undef X
};

// The exit code of what is no ps_code: the command line is wrong (EX_USAGE).
#define PS_EXIT_USAGE 64

struct ps_error {
    enum ps_code code;
    char text[512];
};

// Fills *e (which may be NULL) and returns code, so that "return ps_fail(...)" reads as one step. The text is one line
// that steers no terminal (ps_utf8_plain), whatever names stand in it.
enum ps_code ps_fail(struct ps_error *e, enum ps_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Puts "<formatted>: " before the text. Returns e->code.
enum ps_code ps_error_prefix(struct ps_error *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Of a file that cannot be opened or read, by errno. UNAVAILABLE: it may well be read when that is tried again.
enum ps_code ps_code_of_file(int error);
const char *ps_code_name(enum ps_code code);  // "INVALID_ARGUMENT"
int ps_code_exit(enum ps_code code);          // the exit code of a program that ends with it

// The entry of words[n] nearest to word (edit distance at most a third of its length, or 1), or NULL: for "did you
// mean". NULL also where two of them are as near: one might mean something else. words may hold NULLs.
const char *ps_nearest(const char *word, const char *const *words, int n);

#endif

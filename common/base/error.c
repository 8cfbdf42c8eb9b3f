// SPDX-License-Identifier: Apache-2.0
#include "common/base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"

enum ps_code ps_fail(struct ps_error *e, enum ps_code code, const char *format, ...)
{
    if (e) {
        va_list args;
        va_start(args, format);
        e->code = code;
        vsnprintf(e->text, sizeof e->text, format, args);
        va_end(args);
        ps_utf8_plain(e->text);
    }
    return code;
}

enum ps_code ps_error_prefix(struct ps_error *e, const char *format, ...)
{
    char where[256], what[sizeof e->text];
    va_list args;
    va_start(args, format);
    vsnprintf(where, sizeof where, format, args);
    va_end(args);
    memcpy(what, e->text, sizeof what);
    snprintf(e->text, sizeof e->text, "%s: %.*s", where, (int)(sizeof e->text - strlen(where) - 3), what);
    ps_utf8_plain(e->text);
    return e->code;
}

enum ps_code ps_code_of_file(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return PS_NOT_FOUND;
    case EACCES:
    case EPERM:
        return PS_PERMISSION_DENIED;
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
        return PS_INVALID_ARGUMENT;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return PS_RESOURCE_EXHAUSTED;
    default:
        return PS_UNAVAILABLE;
    }
}

const char *ps_code_name(enum ps_code code)
{
    switch (code) {
#define X(name, value, exit_code) \
    case PS_##name:               \
        return #name;
        PS_CODE_MAP(X)
#undef X
    }
    return "UNKNOWN";
}

int ps_code_exit(enum ps_code code)
{
    switch (code) {
#define X(name, value, exit_code) \
    case PS_##name:               \
        return exit_code;
        PS_CODE_MAP(X)
#undef X
    }
    return 70;
}

static int error_least(int a, int b)
{
    return a < b ? a : b;
}

// Edit distance of words shorter than 64 bytes, two neighbours in the wrong order being one edit ("optimal string
// alignment"); longer words are never near.
static int error_edit_distance(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b);
    int d[64][64];
    if (la >= 64 || lb >= 64)
        return 64;
    for (size_t i = 0; i <= la; i++)
        d[i][0] = (int)i;
    for (size_t j = 0; j <= lb; j++)
        d[0][j] = (int)j;
    for (size_t i = 1; i <= la; i++)
        for (size_t j = 1; j <= lb; j++) {
            d[i][j] = error_least(d[i - 1][j - 1] + (a[i - 1] != b[j - 1]), error_least(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = error_least(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[la][lb];
}

const char *ps_nearest(const char *word, const char *const *words, int n)
{
    const char *best = NULL;
    bool alone = true;
    int limit = strlen(word) < 6 ? 1 : (int)strlen(word) / 3;
    for (int i = 0; i < n; i++) {
        int d = words[i] ? error_edit_distance(word, words[i]) : limit + 1;
        if (d > limit)
            continue;
        alone = !best || d < limit || (alone && strcmp(best, words[i]) == 0);
        best = words[i];
        limit = d;
    }
    return alone ? best : NULL;
}

// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/operand.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/parse.h"
#include "common/file/output.h"

bool operand_is_stdout(const char *path)
{
    return strcmp(path, "-") == 0 || ps_output_is_stdout(path);
}

enum ps_code operand_number(const char *text, double *value, struct ps_error *e)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !isfinite(x))
        return ps_fail(e, PS_INVALID_ARGUMENT, "the value is '%s', expected a number", text);
    *value = x;
    return PS_OK;
}

enum ps_code operand_assignment(const char *text, char name[OPERAND_NAME_MAX], double *value, struct ps_error *e)
{
    size_t len = strcspn(text, "=");
    if (len == 0 || text[len] != '=' || len >= OPERAND_NAME_MAX)
        return ps_fail(e, PS_INVALID_ARGUMENT, "'%s' is not NAME=VALUE", text);
    if (operand_number(text + len + 1, value, e))
        return ps_error_prefix(e, "%.*s", (int)len, text);
    snprintf(name, OPERAND_NAME_MAX, "%.*s", (int)len, text);
    return PS_OK;
}

enum ps_code operand_task(const char *text, const char *kind, uint32_t *index, struct ps_error *e)
{
    size_t len = strlen(kind);
    const char *end = text;
    uint64_t n = 0;
    bool good = strncmp(text, kind, len) == 0 && text[len] == ':' && ps_parse_digits(text + len + 1, &end, &n) &&
                !*end && n < UINT32_MAX;
    if (!good)
        return ps_fail(e, PS_INVALID_ARGUMENT, "'%s' is not %s:N, N from 0", text, kind);
    *index = (uint32_t)n;
    return PS_OK;
}

enum ps_code operand_bytes(const char *text, uint64_t *bytes, struct ps_error *e)
{
    return ps_parse_bytes(text, bytes)
               ? PS_OK
               : ps_fail(e, PS_INVALID_ARGUMENT, "'%s' is not a number of bytes such as 512M or 8G", text);
}

enum ps_code operand_rows(const char *text, uint64_t rows, uint64_t *first, uint64_t *end, struct ps_error *e)
{
    const char *at = text;
    uint64_t a = 0, b = rows;
    bool good = (*at == ':' || ps_parse_digits(at, &at, &a)) && *at == ':';
    good = good && (at[1] == '\0' || (ps_parse_digits(at + 1, &at, &b) && !*at));
    if (!good)
        return ps_fail(e, PS_INVALID_ARGUMENT, "--rows is %s, expected A:B, as in 0:10, 10: or :10", text);
    if (a >= b || b > rows)
        return ps_fail(e, PS_OUT_OF_RANGE, "--rows is %s, expected A below B, and B at most %" PRIu64, text, rows);
    *first = a;
    *end = b;
    return PS_OK;
}

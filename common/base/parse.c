// SPDX-License-Identifier: Apache-2.0
#include "common/base/parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool ps_parse_digits(const char *text, const char **end, uint64_t *to)
{
    char *stop;
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    *to = strtoull(text, &stop, 10);
    *end = stop;
    return errno == 0;
}

bool ps_parse_number(const char *text, long min, long max, long *to)
{
    char *end;
    errno = 0;
    const long n = strtol(text, &end, 10);
    if (isspace((unsigned char)*text) || end == text || *end || errno || n < min || n > max)
        return false;
    *to = n;
    return true;
}

bool ps_parse_bytes(const char *text, uint64_t *to)
{
    static const char units[] = "KMGT";
    const char *end;
    uint64_t n;
    if (!ps_parse_digits(text, &end, &n) || n == 0)
        return false;
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    const int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (unit)
        end += strcmp(end + 1, "iB") == 0 ? 3 : 1;
    if (*end || n > UINT64_MAX >> shift)
        return false;
    *to = n << shift;
    return true;
}

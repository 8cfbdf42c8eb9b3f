// SPDX-License-Identifier: Apache-2.0
#ifndef PS_COMMON_TEXT_H
#define PS_COMMON_TEXT_H

#include <stdbool.h>
#include <string.h>

static inline bool ps_ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

#endif

// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/utf8.h"

static char program[64] = "paramserver";
static enum ps_log_level threshold = PS_LOG_INFO;

void ps_log_init(const char *name, enum ps_log_level level)
{
    snprintf(program, sizeof program, "%s", name);
    threshold = level;
}

// One write(2) per line, so that lines of processes that share a terminal do not mix.
void ps_log(enum ps_log_level level, const char *format, ...)
{
    char line[1024];
    if (level > threshold)
        return;
    int n = snprintf(line, sizeof line, "%s %c ", program, "EWID"[level]);
    va_list args;
    va_start(args, format);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    ps_utf8_plain(line);
    size_t len = strlen(line);
    (void)m;
    line[len++] = '\n';
    if (write(STDERR_FILENO, line, len) < 0)
        return;
}

// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.h"

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/utf8.h"

static char program[64] = "paramserver";
static enum ps_log_level threshold = PS_LOG_INFO;
static bool times;

void ps_log_init(const char *name, enum ps_log_level level)
{
    snprintf(program, sizeof program, "%s", name);
    threshold = level;
    signal(SIGXFSZ, SIG_IGN);
}

void ps_log_times(void)
{
    times = true;
}

static size_t log_time(char *to, size_t size)
{
    struct timespec t;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &t);
    size_t n = strftime(to, size, "%Y-%m-%dT%H:%M:%S", gmtime_r(&t.tv_sec, &tm));
    return n + (size_t)snprintf(to + n, size - n, ".%03ldZ ", t.tv_nsec / 1000000);
}

// One write(2) per line, so that lines of processes that share a terminal do not mix.
void ps_log(enum ps_log_level level, const char *format, ...)
{
    char line[1024];
    if (level > threshold)
        return;
    size_t n = times ? log_time(line, sizeof line) : 0;
    n += (size_t)snprintf(line + n, sizeof line - n, "%s %c ", program, "EWID"[level]);
    va_list args;
    va_start(args, format);
    int m = vsnprintf(line + n, sizeof line - n - 1, format, args);
    va_end(args);
    ps_utf8_plain(line);
    size_t len = strlen(line);
    (void)m;
    line[len++] = '\n';
    if (write(STDERR_FILENO, line, len) < 0)
        return;
}

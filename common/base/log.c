// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.h"

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/utf8.h"

static char program[64] = "paramserver";
static enum ps_log_level threshold = PS_LOG_INFO;
static bool times;
static enum { PLAIN, JOURNAL, JSON } form;

static bool log_to_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat s;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &s) == 0 &&
           s.st_dev == device && s.st_ino == inode;
}

void ps_log_init(const char *name, enum ps_log_level level)
{
    snprintf(program, sizeof program, "%s", name);
    threshold = level;
    const char *wanted = getenv("PARAMSERVER_LOG");
    form = wanted && strcmp(wanted, "json") == 0 ? JSON : log_to_journal() ? JOURNAL : PLAIN;
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
    return n + (size_t)snprintf(to + n, size - n, ".%03ldZ", t.tv_nsec / 1000000);
}

// What comes before the text.
static size_t log_begin(char *to, size_t size, enum ps_log_level level)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    static const int priorities[] = {3, 4, 6, 7};  // syslog(3)
    char time[32];
    log_time(time, sizeof time);
    if (form == JSON)
        return (size_t)snprintf(to, size, "{\"time\": \"%s\", \"level\": \"%s\", \"program\": \"%s\", \"text\": \"",
                                time, names[level], program);
    if (form == JOURNAL)
        return (size_t)snprintf(to, size, "<%d>%s ", priorities[level], program);
    return (size_t)snprintf(to, size, "%s%s%s %c ", times ? time : "", times ? " " : "", program, "EWID"[level]);
}

// Text that is plain becomes part of a string of JSON, of at most twice its length.
static size_t log_quote(char *to, const char *text)
{
    size_t n = 0;
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            to[n++] = '\\';
        to[n++] = *text;
    }
    memcpy(to + n, "\"}\n", 3);
    return n + 3;
}

static size_t log_end(char *to, size_t size, const char *text)
{
    return form == JSON ? log_quote(to, text) : (size_t)snprintf(to, size, "%s\n", text);
}

// One write(2) per line, so that lines of processes that share a terminal do not mix.
void ps_log(enum ps_log_level level, const char *format, ...)
{
    char text[1024], line[2 * sizeof text + 192];
    if (level > threshold)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ps_utf8_plain(text);
    size_t n = log_begin(line, sizeof line, level);
    n += log_end(line + n, sizeof line - n, text);
    if (write(STDERR_FILENO, line, n) < 0)
        return;
}

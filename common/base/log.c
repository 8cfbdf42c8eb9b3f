// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.h"

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/utf8.h"

static char program[64] = "paramserver";
static enum ps_log_level threshold = PS_LOG_INFO;
static bool times;
static enum { PLAIN, JOURNAL, JSON } form;

// By level.
static const char letters[] = "EWID";
static const int priorities[] = {3, 4, 6, 7};  // syslog(3)

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
    char time[32];
    log_time(time, sizeof time);
    if (form == JSON)
        return (size_t)snprintf(to, size, "{\"time\": \"%s\", \"level\": \"%s\", \"program\": \"%s\", \"text\": \"",
                                time, names[level], program);
    if (form == JOURNAL)
        return (size_t)snprintf(to, size, "<%d>%s ", priorities[level], program);
    return (size_t)snprintf(to, size, "%s%s%s %c ", times ? time : "", times ? " " : "", program, letters[level]);
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

bool ps_log_is_due(struct ps_log_seldom *s, uint64_t now, char more[PS_LOG_MORE])
{
    unsigned long long due = atomic_load(&s->due);
    if (now < due || !atomic_compare_exchange_strong(&s->due, &due, now + 10 * PS_SECOND)) {
        atomic_fetch_add(&s->left_out, 1);
        return false;
    }
    const unsigned long long n = atomic_exchange(&s->left_out, 0);
    more[0] = '\0';
    if (n)
        snprintf(more, PS_LOG_MORE, "; %llu more since the last such line", n);
    return true;
}

// ---- another process's lines --------------------------------------------------------------------------------------

// The priority of "workerd[0] W text", as this program's lines are for people; *name is how long the first word is. -1:
// the line is none of these.
static int log_priority_of(const char *line, size_t *name)
{
    const size_t own = strcspn(program, "[");
    *name = strcspn(line, " ");
    if (strncmp(line, program, own) != 0 || !line[*name] || (*name > own && line[own] != '['))
        return -1;
    const char letter = line[*name + 1], *at = letter ? strchr(letters, letter) : NULL;
    return at && line[*name + 2] == ' ' ? priorities[at - letters] : -1;
}

static void log_pass_priority(struct ps_log_relay *r)
{
    char begin[sizeof program + 8] = "";
    size_t name = 0;
    const int priority = r->inside ? -1 : log_priority_of(r->line, &name);
    const bool known = priority >= 0 && name < sizeof program;
    const int n = known ? snprintf(begin, sizeof begin, "<%d>%.*s", priority, (int)name, r->line) : 0;
    const size_t skip = known ? name + 2 : 0;
    const struct iovec parts[] = {{begin, (size_t)n}, {r->line + skip, r->len - skip}};
    if (writev(STDERR_FILENO, parts, 2) < 0)
        return;
}

static void log_pass_object(struct ps_log_relay *r)
{
    char line[2 * sizeof r->line + 192];
    static const char first[] = "{\"time\": \"";  // of what log_begin writes
    const bool is_one = strncmp(r->line, first, sizeof first - 1) == 0 && r->line[r->len - 1] == '\n';
    size_t n = r->len;
    if (!is_one) {
        for (size_t i = 0; i < r->len; i++)
            r->line[i] = (char)(r->line[i] ? r->line[i] : '?');
        r->line[strcspn(r->line, "\n")] = '\0';
        ps_utf8_plain(r->line);
        n = log_begin(line, sizeof line, PS_LOG_INFO);
        n += log_quote(line + n, r->line);
    }
    if (write(STDERR_FILENO, is_one ? r->line : line, n) < 0)
        return;
}

static void log_pass_line(struct ps_log_relay *r)
{
    const bool whole = r->line[r->len - 1] == '\n';
    r->line[r->len] = '\0';
    if (form == JSON)
        log_pass_object(r);
    else
        log_pass_priority(r);
    r->inside = !whole;
    r->len = 0;
}

void ps_log_pass(struct ps_log_relay *r, const void *bytes, size_t n)
{
    const char *from = bytes;
    if (form == PLAIN && n && write(STDERR_FILENO, bytes, n) < 0)
        return;
    for (size_t i = 0; form != PLAIN && i < n; i++) {
        r->line[r->len++] = from[i];
        if (from[i] == '\n' || r->len == sizeof r->line - 1)
            log_pass_line(r);
    }
}

void ps_log_pass_end(struct ps_log_relay *r)
{
    if (r->len) {
        r->line[r->len++] = '\n';
        log_pass_line(r);
    }
    r->inside = false;
}

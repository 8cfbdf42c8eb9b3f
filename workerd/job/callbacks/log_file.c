// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/callbacks/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"

void wk_log_file_init(struct wk_log_file *f, const char *path)
{
    *f = (struct wk_log_file){.path = path};
}

// A file that is shorter than it was has lost lines already; nothing is put in their place.
static bool log_file_cut(const struct wk_log_file *f, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return false;
    return !S_ISREG(st.st_mode) || (uint64_t)st.st_size <= f->length || ftruncate(fd, (off_t)f->length) == 0;
}

static uint64_t log_file_length(const struct wk_log_file *f)
{
    struct stat st;
    return f->stream && fstat(fileno(f->stream), &st) == 0 ? (uint64_t)st.st_size : f->length;
}

enum ps_code wk_log_file_open(struct wk_log_file *f, const struct wk_run *run, bool takes_over, struct ps_error *e)
{
    const bool begins = run->position.epoch == 0 && run->position.first == 0 && !takes_over;
    const uint64_t steps = run->env.job->steps;
    const bool is_over = steps && run->position.step >= steps;  // and the last epoch's lines, if it was cut, stay
    int fd = open(f->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (begins && !f->goes_on ? O_TRUNC : 0), 0666);
    bool good = fd >= 0 && (!f->goes_on || takes_over || is_over || log_file_cut(f, fd));
    f->stream = good ? fdopen(fd, "a") : NULL;
    f->written = log_file_length(f);
    if (f->stream)
        return PS_OK;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (!takes_over)
        return ps_fail(e, PS_CANNOT_CREATE, "%s: %s", f->path, strerror(error));
    ps_error_log("%s: %s; the training goes on without it", f->path, strerror(error));
    return PS_OK;
}

bool wk_log_file_is_empty(const struct wk_log_file *f)
{
    return log_file_length(f) == 0;
}

static void log_file_lose(struct wk_log_file *f, int error)
{
    struct stat st;
    const int fd = fileno(f->stream);
    if (!f->failed)
        ps_error_log("%s: %s; the training goes on", f->path, strerror(error));
    f->failed = true;
    __fpurge(f->stream);
    clearerr(f->stream);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        (void)!ftruncate(fd, (off_t)f->written);  // else half a line stays
}

void wk_log_file_flush(struct wk_log_file *f)
{
    if (!f->stream)
        return;
    errno = 0;
    if (fflush(f->stream) != 0 || ferror(f->stream)) {
        log_file_lose(f, errno ? errno : EIO);
        return;
    }
    f->failed = false;
    f->written = log_file_length(f);
}

void wk_log_file_close(struct wk_log_file *f)
{
    if (f->stream)
        fclose(f->stream);
    free(f->line);
    f->stream = NULL;
    f->line = NULL;
}

// ---- a line per epoch ---------------------------------------------------------------------------------------------

static bool log_line_epoch(const char *line, const char *lead, uint64_t *epoch)
{
    const size_t n = strlen(lead);
    const char *number = line + n + (strncmp(line, lead, n) == 0 && line[n] == '"');
    if (strncmp(line, lead, n) != 0 || *number < '0' || *number > '9')
        return false;
    *epoch = strtoull(number, NULL, 10);
    return true;
}

// Where the last whole line ends, and whose it is. False: the file cannot be read.
static bool log_file_read(struct wk_log_file *f, const char *lead, off_t *end)
{
    FILE *from = fopen(f->path, "re");
    char *line = NULL;
    size_t room = 0;
    if (!from)
        return false;
    *end = 0;
    for (ssize_t n; (n = getline(&line, &room, from)) > 0 && line[n - 1] == '\n'; *end += n)
        f->has_last = log_line_epoch(line, lead, &f->last);
    const bool whole = !ferror(from);
    fclose(from);
    free(line);
    return whole;
}

void wk_log_file_take_over(struct wk_log_file *f, const char *lead)
{
    struct stat st;
    off_t end;
    wk_log_file_flush(f);
    if (!f->stream || fstat(fileno(f->stream), &st) != 0 || !S_ISREG(st.st_mode) || !log_file_read(f, lead, &end))
        return;  // what was written there cannot be known
    if (end < st.st_size && ftruncate(fileno(f->stream), end) != 0)
        ps_error_log("%s: %s; half a line stays in it", f->path, strerror(errno));
    if (f->line && !(f->has_last && f->last >= f->epoch))
        fputs(f->line, f->stream);
    f->written = log_file_length(f);
    wk_log_file_flush(f);
}

void wk_log_file_put(struct wk_log_file *f, const struct wk_moment *m, char *line)
{
    free(f->line);
    f->line = line;
    f->epoch = m->epoch;
    if (!m->leads || !f->stream || (f->has_last && f->last == m->epoch))
        return;
    fputs(line, f->stream);
    wk_log_file_flush(f);
}

// ---- checkpoints --------------------------------------------------------------------------------------------------

void wk_log_file_save(const struct wk_log_file *f, json_t *to)
{
    if (f->stream || f->goes_on)
        json_object_set_new(to, "length", json_integer((json_int_t)log_file_length(f)));
}

enum ps_code wk_log_file_load(struct wk_log_file *f, const json_t *from, struct ps_error *e)
{
    f->goes_on = json_object_get(from, "length") != NULL;
    if (!f->goes_on)
        return PS_OK;
    return wk_state_count(from, "length", &f->length, e);
}

// SPDX-License-Identifier: Apache-2.0
#include "psd/queue/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/crc32c.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/utf8.h"
#include "common/file/output.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "psd/limits.h"

static enum ps_code files_fail(struct ps_error *e, enum ps_code code, const char *path)
{
    return ps_fail(e, code, "--queue: %s: %s", path, strerror(errno));
}

static void files_name(const char *folder, uint64_t number, const char *suffix, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%" PRIu64 ".%s", folder, number, suffix);
}

enum ps_code psd_queue_lock(const char *folder, int *fd, struct ps_error *e)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/lock", folder) > PATH_MAX - 32)
        return ps_fail(e, PS_INVALID_ARGUMENT, "--queue: the folder's name has more than %d bytes", PATH_MAX - 38);
    if (mkdir(folder, 0700) && errno != EEXIST)
        return files_fail(e, errno == EACCES || errno == EROFS ? PS_PERMISSION_DENIED : PS_CANNOT_CREATE, folder);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (*fd < 0)
        return files_fail(e, errno == EACCES || errno == EROFS ? PS_PERMISSION_DENIED : PS_CANNOT_CREATE, path);
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0)
        return PS_OK;
    const int error = errno;
    close(*fd);
    *fd = -1;
    errno = error;
    if (error != EWOULDBLOCK)
        return files_fail(e, PS_CANNOT_CREATE, path);
    return ps_fail(e, PS_ALREADY_EXISTS, "--queue: %s is another psd's queue: expected a folder for each", folder);
}

// ---- a job --------------------------------------------------------------------------------------------------------

void psd_queue_job_free(struct psd_queue_job *job)
{
    if (!job)
        return;
    free(job->name);
    free(job->user);
    free(job->text);
    free(job->taker);
    free(job->taker_name);
    free(job->parts);
    free(job);
}

void psd_queue_describe(const struct psd_queue_job *job, Paramserver__V1__QueuedJob *m)
{
    paramserver__v1__queued_job__init(m);
    m->number = job->number;
    m->name = job->name;
    m->user = job->user;
    m->priority = job->priority;
    m->workers = job->workers;
    m->state = (Paramserver__V1__QueueState)job->state;
    m->cancelled = job->cancelled;
    m->code = job->code;
    m->submitted_ms = job->submitted_ms;
    m->began_ms = job->began_ms;
    m->ended_ms = job->ended_ms;
}

static bool files_write_message(FILE *to, const ProtobufCMessage *m)
{
    struct ps_slices bytes = PS_SLICES_EMPTY;
    uint32_t crc = 0;
    ps_msg_pack(m, NULL, &bytes);
    for (size_t i = 0; i < bytes.n; i++)
        crc = ps_crc32c(crc, bytes.v[i].data, bytes.v[i].len);
    const bool whole = !bytes.broken;
    fprintf(to, "paramserver job %08" PRIx32 "\n", crc);
    for (size_t i = 0; i < bytes.n; i++)
        fwrite(bytes.v[i].data, 1, bytes.v[i].len, to);
    ps_slices_clear(&bytes);
    return whole;
}

enum ps_code psd_queue_write_job(const char *folder, const struct psd_queue_job *job, struct ps_error *e)
{
    Paramserver__V1__QueuedJob described;
    Paramserver__V1__StoredJob m = PARAMSERVER__V1__STORED_JOB__INIT;
    struct ps_output out;
    char path[PATH_MAX];
    files_name(folder, job->number, "job", path);
    psd_queue_describe(job, &described);
    m.job = &described;
    m.text = job->text ? job->text : (char *)"";
    m.taker = job->taker ? job->taker : (char *)"";
    m.n_ends = job->parts ? job->workers : 0;
    m.ends = ps_try_alloc_array(m.n_ends ? m.n_ends : 1, sizeof *m.ends);
    if (!m.ends)
        return ps_no_memory(e, "a job's file");
    for (size_t i = 0; i < m.n_ends; i++)
        m.ends[i] = job->parts[i].ended;
    if (ps_output_open(&out, path, e)) {
        free(m.ends);
        return e->code;
    }
    const bool whole = files_write_message(out.file, &m.base);
    free(m.ends);
    if (whole)
        return ps_output_commit(&out, e);
    ps_output_abort(&out);
    return ps_no_memory(e, "a job's file");
}

// What a file says may be anything, its checksum notwithstanding.
static const char *files_what_is_wrong(const Paramserver__V1__StoredJob *m, uint64_t number)
{
    const Paramserver__V1__QueuedJob *j = m->job;
    if (!j || j->number != number)
        return "it is of another number";
    if (j->state < PARAMSERVER__V1__QUEUE_STATE__JOB_QUEUED || j->state > PARAMSERVER__V1__QUEUE_STATE__JOB_CANCELLED)
        return "its state is none of those there are";
    if (j->workers == 0 || j->workers > PS_MAX_WORKERS)
        return "it has no possible number of workers";
    if (j->state == PARAMSERVER__V1__QUEUE_STATE__JOB_RUNNING && m->n_ends != j->workers)
        return "it runs, with another number of workers";
    if (j->state <= PARAMSERVER__V1__QUEUE_STATE__JOB_RUNNING && !m->text[0])
        return "it has not ended, and has no text";
    return NULL;
}

static struct psd_queue_job *job_of_message(const Paramserver__V1__StoredJob *m)
{
    const Paramserver__V1__QueuedJob *j = m->job;
    struct psd_queue_job *job = ps_try_alloc(sizeof *job);
    if (!job)
        return NULL;
    *job = (struct psd_queue_job){.number = j->number,
                                  .name = ps_try_strdup(j->name),
                                  .user = ps_try_strdup(j->user),
                                  .text = m->text[0] ? ps_try_strdup(m->text) : NULL,
                                  .taker = m->taker[0] ? ps_try_strdup(m->taker) : NULL,
                                  .priority = j->priority,
                                  .workers = j->workers,
                                  .state = (enum psd_queue_state)j->state,
                                  .cancelled = j->cancelled,
                                  .code = j->code,
                                  .submitted_ms = j->submitted_ms,
                                  .began_ms = j->began_ms,
                                  .ended_ms = j->ended_ms};
    const bool runs = job->state == PSD_RUNNING;
    if (runs)
        job->parts = ps_try_alloc_array(job->workers, sizeof *job->parts);
    if (!job->name || !job->user || (m->text[0] && !job->text) || (m->taker[0] && !job->taker) ||
        (runs && !job->parts)) {
        psd_queue_job_free(job);
        return NULL;
    }
    for (uint32_t i = 0; runs && i < job->workers; i++) {
        job->parts[i].ended = m->ends[i];
        job->parts[i].came = true;  // perhaps
    }
    return job;
}

enum { HEAD = 25, FILE_MAX = PSD_QUEUE_TEXT_MAX + (1 << 20) };  // bytes: "paramserver job 01234567\n"; of a file

// The bytes after the head, malloc'd.
static enum ps_code files_read_checked(const char *path, uint8_t **bytes, size_t *len, struct ps_error *e)
{
    uint32_t crc;
    *bytes = NULL;
    FILE *f = fopen(path, "re");
    if (!f)
        return files_fail(e, errno == EACCES ? PS_PERMISSION_DENIED : PS_UNAVAILABLE, path);
    uint8_t *all = ps_try_alloc(FILE_MAX + 1);
    const size_t n = all ? fread(all, 1, FILE_MAX, f) : 0;
    const bool failed = all && ferror(f);
    if (failed)
        files_fail(e, PS_UNAVAILABLE, path);
    fclose(f);
    if (!all)
        return ps_no_memory(e, "a job's file");
    if (failed) {
        free(all);
        return e->code;
    }
    all[n] = '\0';
    if (n < HEAD || n == FILE_MAX || sscanf((char *)all, "paramserver job %8" SCNx32, &crc) != 1 ||
        crc != ps_crc32c(0, all + HEAD, n - HEAD)) {
        free(all);
        return ps_fail(e, PS_DATA_LOSS, "%s is damaged: its checksum is another one", path);
    }
    memmove(all, all + HEAD, n - HEAD);
    *bytes = all;
    *len = n - HEAD;
    return PS_OK;
}

static enum ps_code files_read_job(const char *path, uint64_t number, struct psd_queue_job **job, struct ps_error *e)
{
    struct ps_slices in = PS_SLICES_EMPTY, payload = PS_SLICES_EMPTY;
    ProtobufCMessage *m = NULL;
    uint8_t *bytes;
    size_t len = 0;
    if (files_read_checked(path, &bytes, &len, e))
        return e->code;
    ps_slices_add(&in, ps_slice_copy(bytes, len));
    free(bytes);
    if (in.len == len)
        ps_msg_unpack(&paramserver__v1__stored_job__descriptor, &in, &m, &payload, e);
    else
        ps_no_memory(e, "a job's file");
    ps_slices_clear(&in);
    ps_slices_clear(&payload);
    if (!m)
        return ps_error_prefix(e, "%s", path);
    const char *wrong = files_what_is_wrong((const Paramserver__V1__StoredJob *)m, number);
    *job = wrong ? NULL : job_of_message((const Paramserver__V1__StoredJob *)m);
    ps_msg_free(m);
    if (wrong)
        return ps_fail(e, PS_DATA_LOSS, "%s is damaged: %s", path, wrong);
    return *job ? PS_OK : ps_no_memory(e, "a job of the queue");
}

static void files_set_aside(const char *path, const struct ps_error *why)
{
    char aside[PATH_MAX + 16];
    snprintf(aside, sizeof aside, "%s.damaged", path);
    const bool moved = rename(path, aside) == 0;
    ps_warn("--queue: %s; the job is gone%s%s", why->text, moved ? ", the file is kept as " : "", moved ? aside : "");
}

// So many are never given out: a file with a greater number is nobody's, and the next job's number does not follow it.
#define FILES_MOST_JOBS (UINT64_MAX / 4)

// "17.job", and *last is 17 or more; so it is where the name only begins like that.
static bool files_is_job(const char *name, uint64_t *number, uint64_t *last)
{
    char *end;
    if (*name < '1' || *name > '9')
        return false;
    errno = 0;
    *number = strtoull(name, &end, 10);
    if (errno || *end != '.' || *number > FILES_MOST_JOBS)
        return false;
    *last = *number > *last ? *number : *last;
    return strcmp(end, ".job") == 0;
}

// What a psd that was killed has left of a job that it was writing.
static bool files_is_half(const char *name)
{
    const size_t digits = strspn(name, "0123456789");
    return digits && strncmp(name + digits, ".job", 4) == 0 && ps_output_is_ending(name + digits + 4);
}

enum ps_code psd_queue_read_jobs(const char *folder, void (*found)(void *arg, struct psd_queue_job *job), void *arg,
                                 uint64_t *last, struct ps_error *e)
{
    DIR *d = opendir(folder);
    uint64_t number;
    if (!d)
        return files_fail(e, PS_PERMISSION_DENIED, folder);
    e->code = PS_OK;
    for (struct dirent *entry; e->code == PS_OK && (entry = readdir(d));) {
        struct psd_queue_job *job;
        char path[PATH_MAX];
        if (files_is_half(entry->d_name))
            unlinkat(dirfd(d), entry->d_name, 0);
        if (!files_is_job(entry->d_name, &number, last))
            continue;
        files_name(folder, number, "job", path);
        if (files_read_job(path, number, &job, e) == PS_OK) {
            found(arg, job);
        } else if (e->code == PS_DATA_LOSS || e->code == PS_INVALID_ARGUMENT) {
            files_set_aside(path, e);
            e->code = PS_OK;
        } else if (e->code == PS_PERMISSION_DENIED || e->code == PS_UNAVAILABLE) {
            ps_warn("%s; the job is passed over, until a psd is started that can read it", e->text);
            e->code = PS_OK;
        }
    }
    closedir(d);
    return e->code;
}

void psd_queue_remove_log(const char *folder, uint64_t number)
{
    char path[PATH_MAX];
    files_name(folder, number, "log", path);
    unlink(path);
}

void psd_queue_remove_job(const char *folder, uint64_t number)
{
    char path[PATH_MAX];
    psd_queue_remove_log(folder, number);
    files_name(folder, number, "job", path);
    unlink(path);
}

// ---- its output ---------------------------------------------------------------------------------------------------

enum { LOG_HEAD = 21 };  // bytes: twenty digits and a newline

// How many bytes went before those that the file has, and how many it has.
static bool log_measure(int fd, uint64_t *before, uint64_t *has)
{
    char head[LOG_HEAD + 1] = "";
    struct stat is;
    if (fstat(fd, &is) || is.st_size < LOG_HEAD || pread(fd, head, LOG_HEAD, 0) != LOG_HEAD)
        return false;
    *before = strtoull(head, NULL, 10);
    *has = (uint64_t)is.st_size - LOG_HEAD;
    return true;
}

static bool log_write_head(int fd, uint64_t before)
{
    char head[LOG_HEAD + 1];
    snprintf(head, sizeof head, "%020" PRIu64 "\n", before);
    return ftruncate(fd, 0) == 0 && pwrite(fd, head, LOG_HEAD, 0) == LOG_HEAD;
}

// Keeps the last PSD_QUEUE_LOG_BYTES.
static enum ps_code log_shorten(const char *path, int fd, uint64_t before, uint64_t has, struct ps_error *e)
{
    const uint64_t drop = has - PSD_QUEUE_LOG_BYTES;
    struct ps_output out;
    char *kept = ps_try_alloc(PSD_QUEUE_LOG_BYTES);
    if (!kept)
        return ps_no_memory(e, "a job's output");
    const ssize_t n = pread(fd, kept, PSD_QUEUE_LOG_BYTES, (off_t)(LOG_HEAD + drop));
    enum ps_code code = n < 0 ? files_fail(e, PS_CANNOT_WRITE, path) : ps_output_open(&out, path, e);
    if (code == PS_OK) {
        fprintf(out.file, "%020" PRIu64 "\n", before + drop);
        fwrite(kept, 1, (size_t)n, out.file);
        code = ps_output_commit(&out, e);
    }
    free(kept);
    return code;
}

// All of it or, with errno, nothing.
static bool log_append(int fd, uint64_t has, const char *bytes, size_t len)
{
    const off_t end = (off_t)(LOG_HEAD + has);
    size_t done = 0;
    while (done < len) {
        const ssize_t n = pwrite(fd, bytes + done, len - done, end + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    const int error = errno;
    if (done < len && ftruncate(fd, end) == 0)
        errno = error;
    return done == len;
}

static enum ps_code log_open(const char *path, int *fd, uint64_t *before, uint64_t *has, struct ps_error *e)
{
    *before = *has = 0;
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (*fd < 0)
        return files_fail(e, PS_CANNOT_CREATE, path);
    if (log_measure(*fd, before, has) || log_write_head(*fd, 0))
        return PS_OK;
    files_fail(e, PS_CANNOT_WRITE, path);
    close(*fd);
    return e->code;
}

enum ps_code psd_queue_write_log(const char *folder, uint64_t number, const void *bytes, size_t len, struct ps_error *e)
{
    char path[PATH_MAX];
    uint64_t before, has;
    int fd;
    files_name(folder, number, "log", path);
    if (log_open(path, &fd, &before, &has, e))
        return e->code;
    if (has > PSD_QUEUE_LOG_BYTES && has + len > 2 * PSD_QUEUE_LOG_BYTES) {
        const enum ps_code code = log_shorten(path, fd, before, has, e);
        close(fd);
        if (code || log_open(path, &fd, &before, &has, e))  // it is another file now
            return e->code;
    }
    const enum ps_code code = log_append(fd, has, bytes, len) ? PS_OK : files_fail(e, PS_CANNOT_WRITE, path);
    close(fd);
    return code;
}

enum ps_code psd_queue_read_log(const char *folder, uint64_t number, uint64_t *offset, void *to, size_t size,
                                size_t *len, struct ps_error *e)
{
    char path[PATH_MAX];
    uint64_t before = 0, has = 0;
    files_name(folder, number, "log", path);
    *len = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? PS_OK : files_fail(e, PS_PERMISSION_DENIED, path);
    ssize_t n = 0;
    if (log_measure(fd, &before, &has)) {
        *offset = *offset < before ? before : *offset;
        if (*offset < before + has)
            n = pread(fd, to, size, (off_t)(LOG_HEAD + *offset - before));
    }
    const int error = errno;
    close(fd);
    errno = error;
    if (n < 0)
        return files_fail(e, PS_DATA_LOSS, path);
    *len = (size_t)n;
    return PS_OK;
}

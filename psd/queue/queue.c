// SPDX-License-Identifier: Apache-2.0
#include "psd/queue/queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/utf8.h"
#include "psd/limits.h"
#include "psd/queue/files.h"

// A process without a job, of one rank.
struct idle {
    uint64_t heard;  // ns; 0: never
    uint64_t user;   // a hash
};

struct psd_queue {
    char *folder;
    int lock;
    struct psd_queue_job *jobs;     // by number
    struct psd_queue_job *running;  // NULL: none
    uint64_t last;                  // the greatest number given out
    struct idle *idle;              // [n_idle], by rank
    size_t n_idle;
    bool unwritten;                  // a job has a file that says something older
    bool said;                       // that a job cannot begin
    char held[PSD_QUEUE_WAITS_MAX];  // why none begins; "": the next one does
    uint64_t ticked;                 // ns
};

// Has it ended?
static bool queue_has_ended(const struct psd_queue_job *job)
{
    return job->state >= PSD_DONE;
}

// ---- the list -----------------------------------------------------------------------------------------------------

static void queue_insert(struct psd_queue *q, struct psd_queue_job *job)
{
    struct psd_queue_job **at = &q->jobs;
    while (*at && (*at)->number < job->number)
        at = &(*at)->next;
    job->next = *at;
    *at = job;
    q->last = job->number > q->last ? job->number : q->last;
    if (job->state == PSD_RUNNING)
        q->running = job;
}

static void queue_remove(struct psd_queue *q, struct psd_queue_job *job)
{
    struct psd_queue_job **at = &q->jobs;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    psd_queue_job_free(job);
}

static bool queue_goes_before(const struct psd_queue_job *a, const struct psd_queue_job *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->number < b->number;
}

// Whose turn is next; NULL: nobody waits.
static struct psd_queue_job *queue_head(const struct psd_queue *q)
{
    struct psd_queue_job *head = NULL;
    for (struct psd_queue_job *job = q->jobs; job; job = job->next)
        if (job->state == PSD_QUEUED && !job->cancelled && (!head || queue_goes_before(job, head)))
            head = job;
    return head;
}

// Of two that have ended: did a end before b?
static bool queue_ended_before(const struct psd_queue_job *a, const struct psd_queue_job *b)
{
    return a->ended_ms != b->ended_ms ? a->ended_ms < b->ended_ms : a->number < b->number;
}

// Running ones, waiting ones, ended ones; the latest of these first.
static int queue_compare(const void *x, const void *y)
{
    const struct psd_queue_job *a = *(struct psd_queue_job *const *)x, *b = *(struct psd_queue_job *const *)y;
    const int class_a = a->state == PSD_RUNNING ? 0 : a->state == PSD_QUEUED ? 1 : 2;
    const int class_b = b->state == PSD_RUNNING ? 0 : b->state == PSD_QUEUED ? 1 : 2;
    if (class_a != class_b)
        return class_a - class_b;
    if (class_a == 2)
        return queue_ended_before(b, a) ? -1 : 1;
    return queue_goes_before(a, b) ? -1 : 1;
}

struct psd_queue_job **psd_queue_list(const struct psd_queue *q, size_t *n)
{
    *n = 0;
    for (const struct psd_queue_job *job = q->jobs; job; job = job->next)
        ++*n;
    struct psd_queue_job **list = ps_try_alloc_array(*n + 1, sizeof *list);
    if (!list)
        return NULL;
    size_t i = 0;
    for (struct psd_queue_job *job = q->jobs; job; job = job->next)
        list[i++] = job;
    qsort(list, *n, sizeof *list, queue_compare);
    return list;
}

const struct psd_queue_job *psd_queue_running(const struct psd_queue *q)
{
    return q->running;
}

// Is it the last of its name that has trained to an end, good or bad? psctl doctor goes by the same rule.
static bool queue_is_last_trained(const struct psd_queue *q, const struct psd_queue_job *job)
{
    for (const struct psd_queue_job *other = q->jobs; other; other = other->next)
        if ((other->state == PSD_DONE || other->state == PSD_FAILED) && queue_ended_before(job, other) &&
            strcmp(other->name, job->name) == 0)
            return false;
    return true;
}

struct psd_queue_figures psd_queue_count(const struct psd_queue *q, uint64_t wall)
{
    struct psd_queue_figures f = {.running = q->running != NULL};
    for (const struct psd_queue_job *job = q->jobs; job; job = job->next) {
        if (job->state == PSD_QUEUED && !f.queued++)
            f.oldest_ms = job->submitted_ms;
        f.failed += job->state == PSD_FAILED;
        f.failed_lately += job->state == PSD_FAILED && job->ended_ms + PS_FAILED_S * UINT64_C(1000) > wall &&
                           queue_is_last_trained(q, job);
    }
    return f;
}

// ---- on disk ------------------------------------------------------------------------------------------------------

// What cannot be written now is tried again with the next tick.
static enum ps_code queue_write(struct psd_queue *q, struct psd_queue_job *job, struct ps_error *e)
{
    const enum ps_code code = psd_queue_write_job(q->folder, job, e);
    if (code && !job->unwritten)
        ps_warn("--queue: job %" PRIu64 ": %s; tries again", job->number, e->text);
    job->unwritten = code != PS_OK;
    q->unwritten |= job->unwritten;
    return code;
}

#define OUTPUT_IS_MISSING "\npsd: output is missing here\n"

// Output that cannot be kept is lost, which is said once and marked where it goes on; the job's end is not. missing:
// some has been lost before.
static void queue_keep_output(const struct psd_queue *q, struct psd_queue_job *job, bool missing, const void *output,
                              size_t len)
{
    const size_t mark = missing || job->muted ? strlen(OUTPUT_IS_MISSING) : 0;
    struct ps_error e;
    char *all = mark ? ps_try_alloc(mark + len) : NULL;
    if (all) {
        memcpy(all, OUTPUT_IS_MISSING, mark);
        memcpy(all + mark, output, len);
    }
    const enum ps_code code = mark && !all
                                  ? ps_no_memory(&e, "a job's output")
                                  : psd_queue_write_log(q->folder, job->number, all ? all : output, mark + len, &e);
    free(all);
    if (code && !job->muted)
        ps_warn("job %" PRIu64 " '%s': its output is lost: %s; tries again with what follows", job->number, job->name,
                e.text);
    if (!code && job->muted)
        ps_info("job %" PRIu64 " '%s': its output is kept again", job->number, job->name);
    job->muted = code != PS_OK;
}

// ---- beginning and end of the queue -------------------------------------------------------------------------------

struct reading {
    struct psd_queue *q;
    uint64_t now;
};

static void queue_take_read(void *arg, struct psd_queue_job *job)
{
    const struct reading *r = arg;
    job->began = r->now;
    for (uint32_t i = 0; job->parts && i < job->workers; i++)
        job->parts[i].heard = job->parts[i].ended_at = job->parts[i].before = r->now;
    if (job->state == PSD_RUNNING && r->q->running) {  // two cannot
        free(job->parts);
        job->parts = NULL;
        job->state = PSD_QUEUED;
    }
    queue_insert(r->q, job);
}

enum ps_code psd_queue_open(const char *folder, uint64_t now, struct psd_queue **queue, struct ps_error *e)
{
    struct psd_queue *q = ps_try_alloc(sizeof *q);
    if (!q || !(q->folder = ps_try_strdup(folder))) {
        free(q);
        return ps_no_memory(e, "the queue");
    }
    q->lock = -1;
    struct reading reading = {q, now};
    if (psd_queue_lock(folder, &q->lock, e) || psd_queue_read_jobs(folder, queue_take_read, &reading, &q->last, e)) {
        psd_queue_close(q);
        return e->code;
    }
    *queue = q;
    return PS_OK;
}

void psd_queue_close(struct psd_queue *q)
{
    if (!q)
        return;
    while (q->jobs)
        queue_remove(q, q->jobs);
    if (q->lock >= 0)
        close(q->lock);
    free(q->folder);
    free(q->idle);
    free(q);
}

// ---- submit -------------------------------------------------------------------------------------------------------

static enum ps_code queue_check(const struct psd_queue_submission *s, struct ps_error *e)
{
    const size_t name = strlen(s->name), text = strlen(s->text);
    if (name < 1 || name > 128 || !ps_utf8_is_plain(s->name))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "the job's name has %zu bytes: expected 1 to 128, without control characters", name);
    if (strspn(s->name, "0123456789") == name)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "the job's name '%s' is a number: expected a letter in it, for psctl cancel %s means job %s",
                       s->name, s->name, s->name);
    if (s->name[0] == '-')
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "the job's name '%s' begins as an option: expected another first character than '-'", s->name);
    if (text < 1 || text > PSD_QUEUE_TEXT_MAX)
        return ps_fail(e, PS_INVALID_ARGUMENT, "job '%s' has %zu bytes: expected 1 to %d", s->name, text,
                       PSD_QUEUE_TEXT_MAX);
    if (s->priority < -PSD_QUEUE_PRIORITY || s->priority > PSD_QUEUE_PRIORITY)
        return ps_fail(e, PS_INVALID_ARGUMENT, "job '%s' has priority %" PRId32 ": expected one from %d to %d", s->name,
                       s->priority, -PSD_QUEUE_PRIORITY, PSD_QUEUE_PRIORITY);
    if (s->workers < 1 || s->workers > PS_MAX_WORKERS)
        return ps_fail(e, PS_INVALID_ARGUMENT, "job '%s' has %" PRIu32 " workers: expected 1 to %d", s->name,
                       s->workers, PS_MAX_WORKERS);
    return PS_OK;
}

static enum ps_code queue_check_room(const struct psd_queue *q, const char *text, struct ps_error *e)
{
    size_t n = 0, bytes = strlen(text);
    for (const struct psd_queue_job *job = q->jobs; job; job = job->next) {
        n += !queue_has_ended(job);
        bytes += job->text ? strlen(job->text) : 0;
    }
    if (n >= PSD_QUEUE_WAITING)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%zu jobs are queued: expected fewer than %d", n, PSD_QUEUE_WAITING);
    if (bytes > PSD_QUEUE_BYTES)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "the queued jobs would have %zu bytes: expected at most %d", bytes,
                       PSD_QUEUE_BYTES);
    return PS_OK;
}

enum ps_code psd_queue_submit(struct psd_queue *q, const struct psd_queue_submission *s, uint64_t wall,
                              uint64_t *number, struct ps_error *e)
{
    if (queue_check(s, e) || queue_check_room(q, s->text, e))
        return e->code;
    struct psd_queue_job *job = ps_try_alloc(sizeof *job);
    if (!job)
        return ps_no_memory(e, "a job of the queue");
    *job = (struct psd_queue_job){.number = q->last + 1,
                                  .name = ps_try_strdup(s->name),
                                  .user = ps_try_strdup(s->user),
                                  .text = ps_try_strdup(s->text),
                                  .priority = s->priority,
                                  .workers = s->workers,
                                  .state = PSD_QUEUED,
                                  .submitted_ms = wall};
    enum ps_code code = PS_OK;
    if (!job->name || !job->user || !job->text)
        code = ps_no_memory(e, "a job of the queue");
    if (code || psd_queue_write_job(q->folder, job, e)) {
        psd_queue_job_free(job);
        return e->code;
    }
    *number = job->number;
    queue_insert(q, job);
    psd_queue_remove_log(q->folder, job->number);
    ps_info("job %" PRIu64 " '%s' is queued for %" PRIu32 " worker%s", job->number, job->name, job->workers,
            job->workers == 1 ? "" : "s");
    return PS_OK;
}

// ---- one of them --------------------------------------------------------------------------------------------------

// The job's number that is meant, though another has it for its name; 0: it is a name.
static uint64_t queue_number(const struct psd_queue *q, const char *what)
{
    char number[24];
    for (const struct psd_queue_job *one = q->jobs; one; one = one->next) {
        snprintf(number, sizeof number, "%" PRIu64, one->number);
        if (strcmp(number, what) == 0)
            return one->number;
    }
    return 0;
}

static bool queue_is_meant(const struct psd_queue_job *job, const char *what, uint64_t number)
{
    return number ? job->number == number : strcmp(job->name, what) == 0;
}

enum ps_code psd_queue_find(const struct psd_queue *q, const char *what, struct psd_queue_job **job, struct ps_error *e)
{
    const uint64_t number = queue_number(q, what);
    *job = NULL;
    for (struct psd_queue_job *one = q->jobs; one; one = one->next)
        if (queue_is_meant(one, what, number) && (!*job || (*job)->state != PSD_RUNNING))
            *job = one;
    return *job ? PS_OK : ps_fail(e, PS_NOT_FOUND, "the queue has no job '%.128s'; psctl queue shows it", what);
}

// The one that has not ended.
static enum ps_code queue_find_open(const struct psd_queue *q, const char *what, struct psd_queue_job **job,
                                    struct ps_error *e)
{
    const uint64_t number = queue_number(q, what);
    struct psd_queue_job *open = NULL;
    if (psd_queue_find(q, what, job, e))
        return e->code;
    for (struct psd_queue_job *one = q->jobs; one; one = one->next) {
        if (!queue_is_meant(one, what, number) || queue_has_ended(one))
            continue;
        if (open)
            return ps_fail(e, PS_FAILED_PRECONDITION,
                           "jobs %" PRIu64 " and %" PRIu64 " are both '%.128s': expected a number", open->number,
                           one->number, what);
        open = one;
    }
    if (!open)
        return ps_fail(e, PS_FAILED_PRECONDITION, "job %" PRIu64 " '%s' has ended: there is nothing to cancel",
                       (*job)->number, (*job)->name);
    *job = open;
    return PS_OK;
}

// ---- the end of a job ---------------------------------------------------------------------------------------------

static const char *queue_state_name(enum psd_queue_state state)
{
    static const char *const names[] = {"", "queued", "running", "done", "failed", "cancelled"};
    return names[state];
}

static void queue_end(struct psd_queue *q, struct psd_queue_job *job, enum psd_queue_state state, uint64_t wall)
{
    struct ps_error e;
    job->state = state;
    job->ended_ms = wall;
    free(job->text);
    free(job->parts);
    job->text = NULL;
    job->parts = NULL;
    if (q->running == job)
        q->running = NULL;
    if (job->muted)
        queue_keep_output(q, job, true, "", 0);
    queue_write(q, job, &e);
    ps_info("job %" PRIu64 " '%s' is %s", job->number, job->name, queue_state_name(state));
}

enum {             // exit codes of a worker
    STOPPED = 79,  // psctl stop has ended its job
    TAKEN = 73,    // another process has its rank, or a file that the job names
};

// Once each worker has ended.
static void queue_judge(struct psd_queue *q, struct psd_queue_job *job, uint64_t wall)
{
    uint32_t code = 0;
    for (uint32_t i = 0; i < job->workers && code == 0; i++)
        code = job->parts[i].lost ? 0 : job->parts[i].ended - 1;
    job->code = job->cancelled ? 0 : code;
    queue_end(q, job, job->cancelled || code == STOPPED ? PSD_CANCELLED : code ? PSD_FAILED : PSD_DONE, wall);
}

// Does nobody wait for this worker any more, if it is silent? Another one that has ended while this one trained on had
// been asked to leave.
static bool queue_is_over_for(const struct psd_queue_job *job, const struct psd_queue_part *part)
{
    bool over = job->cancelled;
    for (uint32_t i = 0; i < job->workers; i++) {
        const struct psd_queue_part *other = &job->parts[i];
        over |= other->ended && !other->lost && part->heard <= other->ended_at + PSD_QUEUE_LOST_MS * PS_MS;
    }
    return over;
}

static void queue_lose(const struct psd_queue_job *job, struct psd_queue_part *part, const char *why)
{
    part->ended = 1;
    part->lost = true;
    ps_warn("job %" PRIu64 " '%s' ends without worker %u, which %s", job->number, job->name,
            (unsigned)(part - job->parts), why);
}

// Ends the job where the last of its workers has ended.
static void queue_settle(struct psd_queue *q, uint64_t wall)
{
    struct psd_queue_job *job = q->running;
    uint32_t open = 0;
    for (uint32_t i = 0; job && i < job->workers; i++)
        open += !job->parts[i].ended;
    if (job && !open)
        queue_judge(q, job, wall);
}

// Counts silent workers as ended, where nobody waits for them any more.
static void queue_lose_silent(const struct psd_queue *q, uint64_t now)
{
    struct psd_queue_job *job = q->running;
    for (uint32_t i = 0; job && i < job->workers; i++) {
        struct psd_queue_part *part = &job->parts[i];
        if (!part->ended && now > part->heard + PSD_QUEUE_LOST_MS * PS_MS && queue_is_over_for(job, part))
            queue_lose(job, part, "is silent");
    }
}

enum ps_code psd_queue_cancel(struct psd_queue *q, const char *what, uint64_t wall, struct psd_queue_job **job,
                              struct ps_error *e)
{
    if (queue_find_open(q, what, job, e))
        return e->code;
    const bool before = (*job)->cancelled;
    (*job)->cancelled = true;
    if (!before && psd_queue_write_job(q->folder, *job, e)) {
        (*job)->cancelled = false;
        return e->code;
    }
    if ((*job)->state == PSD_QUEUED)
        queue_end(q, *job, PSD_CANCELLED, wall);
    else if (!before)
        ps_info("job %" PRIu64 " '%s' is cancelled: its workers are told to end", (*job)->number, (*job)->name);
    return PS_OK;
}

// ---- workers that wait --------------------------------------------------------------------------------------------

static enum ps_code queue_check_client(const struct psd_queue_client *from, struct ps_error *e)
{
    if (from->rank < PS_MAX_WORKERS)
        return PS_OK;
    return ps_fail(e, PS_INVALID_ARGUMENT, "worker %" PRIu32 ": expected a rank below %d", from->rank, PS_MAX_WORKERS);
}

static const char *queue_account(const struct psd_queue_client *from)
{
    return from->account ? from->account : from->user;
}

static enum ps_code queue_hear(struct psd_queue *q, const struct psd_queue_client *from, uint64_t now,
                               struct ps_error *e)
{
    const uint32_t rank = from->rank;
    if (rank >= q->n_idle) {
        struct idle *more = ps_try_realloc(q->idle, (rank + 1) * sizeof *more);
        if (!more)
            return ps_no_memory(e, "the workers that wait");
        memset(more + q->n_idle, 0, (rank + 1 - q->n_idle) * sizeof *more);
        q->idle = more;
        q->n_idle = rank + 1;
    }
    const char *account = queue_account(from);
    q->idle[rank] = (struct idle){now, ps_hash(PS_HASH_SEED, account, strlen(account))};
    return PS_OK;
}

// Is a worker of worker 0's user there?
static bool queue_is_idle(const struct psd_queue *q, uint32_t rank, uint64_t now)
{
    return rank < q->n_idle && q->idle[rank].heard && now <= q->idle[rank].heard + PSD_QUEUE_HEARD_MS * PS_MS &&
           q->idle[rank].user == q->idle[0].user;
}

static bool queue_is_heard(const struct psd_queue_part *part, uint64_t now)
{
    return part->taken && now <= part->heard + PSD_QUEUE_HEARD_MS * PS_MS;
}

uint32_t psd_queue_present(const struct psd_queue *q, const struct psd_queue_job *job, uint64_t now)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < job->workers; i++)
        n += job->state == PSD_RUNNING ? !job->parts[i].ended && queue_is_heard(&job->parts[i], now)
                                       : queue_is_idle(q, i, now);
    return queue_has_ended(job) ? 0 : n;
}

static bool queue_try_begin(struct psd_queue *q, struct psd_queue_job *job, const char *taker, uint64_t now,
                            uint64_t wall, struct ps_error *e)
{
    job->parts = ps_try_alloc_array(job->workers, sizeof *job->parts);
    job->taker = *taker ? ps_try_strdup(taker) : NULL;
    job->state = PSD_RUNNING;
    job->began = now;
    job->began_ms = wall;
    for (uint32_t i = 0; job->parts && i < job->workers; i++)
        job->parts[i].heard = now;
    const bool whole = job->parts && (job->taker || !*taker);
    if (whole && psd_queue_write_job(q->folder, job, e) == PS_OK)
        return true;
    if (!whole)
        ps_no_memory(e, "a job's workers");
    free(job->parts);
    free(job->taker);
    job->parts = NULL;
    job->taker = NULL;
    job->state = PSD_QUEUED;
    job->began_ms = 0;
    return false;
}

void psd_queue_hold(struct psd_queue *q, const char *why)
{
    snprintf(q->held, sizeof q->held, "%s", why);
}

// The job whose turn it is begins, if the one that asks is among its workers and all of them are there: then they are
// of this one's user. It stays queued where its file cannot be written.
static void queue_begin(struct psd_queue *q, const struct psd_queue_client *from, uint64_t now, uint64_t wall)
{
    struct psd_queue_job *job = q->running || q->unwritten || q->held[0] ? NULL : queue_head(q);
    struct ps_error e;
    if (!job || from->rank >= job->workers || psd_queue_present(q, job, now) < job->workers)
        return;
    if (!queue_try_begin(q, job, queue_account(from), now, wall, &e)) {
        if (!q->said)
            ps_warn("--queue: job %" PRIu64 " cannot begin: %s; tries again", job->number, e.text);
        q->said = true;
        return;
    }
    q->said = false;
    q->running = job;
    memset(q->idle, 0, q->n_idle * sizeof *q->idle);
    ps_info("job %" PRIu64 " '%s' begins on %" PRIu32 " worker%s", job->number, job->name, job->workers,
            job->workers == 1 ? "" : "s");
}

// While none runs, it is one that has ended. NULL: none is.
static const struct psd_queue_job *queue_first_unwritten(const struct psd_queue *q)
{
    const struct psd_queue_job *job = q->jobs;
    while (job && !job->unwritten)
        job = job->next;
    return job;
}

static void queue_say_why(const struct psd_queue *q, uint64_t now, char *why, size_t size)
{
    const struct psd_queue_job *head = queue_head(q), *unwritten = queue_first_unwritten(q);
    uint32_t missing = 0;
    if (!head) {
        snprintf(why, size, "no job is queued");
        return;
    }
    if (q->running) {
        snprintf(why, size, "job %" PRIu64 " '%.128s' runs", q->running->number, q->running->name);
        return;
    }
    if (q->held[0]) {
        snprintf(why, size, "%s", q->held);
        return;
    }
    if (unwritten) {
        snprintf(why, size,
                 "job %" PRIu64 " '%.128s' cannot begin: the end of job %" PRIu64
                 " cannot be written in --queue: psd's log says why",
                 head->number, head->name, unwritten->number);
        return;
    }
    while (missing < head->workers && queue_is_idle(q, missing, now))
        missing++;
    if (missing == head->workers) {
        snprintf(why, size, "job %" PRIu64 " '%.128s' %s", head->number, head->name,
                 q->said ? "cannot begin: psd's log says why" : "begins as soon as its workers ask again");
        return;
    }
    snprintf(why, size, "job %" PRIu64 " '%.128s' needs %" PRIu32 " worker%s: worker %" PRIu32 " is not there",
             head->number, head->name, head->workers, head->workers == 1 ? "" : "s", missing);
}

// A psd of an earlier version has kept the name.
static bool queue_is_taker(const struct psd_queue_job *job, const struct psd_queue_client *from)
{
    return strcmp(job->taker, queue_account(from)) == 0 || strcmp(job->taker, from->user) == 0;
}

// What the name service has for the account of the job's workers, where it answers.
static void queue_note_taker_name(struct psd_queue_job *job, const char *user)
{
    const bool same = job->taker_name && strcmp(job->taker_name, user) == 0;
    char *name = same || strcmp(job->taker, user) == 0 ? NULL : ps_try_strdup(user);
    if (!name)
        return;
    free(job->taker_name);
    job->taker_name = name;
}

static enum ps_code queue_check_taker(struct psd_queue *q, struct psd_queue_job *job,
                                      const struct psd_queue_client *from, struct ps_error *e)
{
    const char *account = queue_account(from);
    const bool first = !job->taker && *account;
    struct ps_error why;
    if (first && !(job->taker = ps_try_strdup(account)))
        return ps_no_memory(e, "the user of the job's workers");
    if (first)
        queue_write(q, job, &why);
    if (!job->taker)
        return PS_OK;
    if (queue_is_taker(job, from)) {
        queue_note_taker_name(job, from->user);
        return PS_OK;
    }
    // Two accounts may be called alike.
    const bool known = job->taker_name && strcmp(job->taker_name, from->user) != 0;
    return ps_fail(e, PS_PERMISSION_DENIED, "job %" PRIu64 " '%s' is trained by workers of %s, not of %s", job->number,
                   job->name, known ? job->taker_name : job->taker, *from->user ? from->user : "nobody");
}

// To a process that has not been in the job. Of several in a row that have not, the one before the first counts.
static void queue_hand_over(struct psd_queue_part *part)
{
    if (part->taken && (part->inside || !part->before))
        part->before = part->heard;
    part->received = 0;
    part->inside = false;
}

// The job that runs, where the worker has a part in it. NULL: it has none, another process of its rank has it, or its
// end is not waited for any more.
static struct psd_queue_job *queue_take_part(struct psd_queue *q, const struct psd_queue_client *from, uint64_t now,
                                             uint64_t wall)
{
    struct psd_queue_job *job = q->running;
    struct psd_queue_part *part = job && from->rank < job->workers ? &job->parts[from->rank] : NULL;
    if (!part || part->ended)
        return NULL;
    const bool again = part->taken && memcmp(part->client, from->id, sizeof part->client) == 0;
    if (!again && queue_is_heard(part, now))
        return NULL;
    if (!again && queue_is_over_for(job, part)) {
        queue_lose(job, part,
                   job->cancelled ? "asks for it too late: it was cancelled"
                                  : "asks for it too late: another worker has ended");
        queue_settle(q, wall);
        return NULL;
    }
    if (!again)
        queue_hand_over(part);
    part->heard = now;
    part->taken = true;
    memcpy(part->client, from->id, sizeof part->client);
    return job;
}

enum ps_code psd_queue_next(struct psd_queue *q, const struct psd_queue_client *from, uint64_t now, uint64_t wall,
                            struct psd_queue_job **job, char *why, size_t size, struct ps_error *e)
{
    *job = NULL;
    if (queue_check_client(from, e))
        return e->code;
    if (q->running && from->rank < q->running->workers && queue_check_taker(q, q->running, from, e))
        return e->code;
    *job = queue_take_part(q, from, now, wall);
    if (*job)
        return PS_OK;
    if (queue_hear(q, from, now, e))
        return e->code;
    queue_begin(q, from, now, wall);
    if (q->running && from->rank < q->running->workers && queue_check_taker(q, q->running, from, e))
        return e->code;
    *job = queue_take_part(q, from, now, wall);
    if (!*job)
        queue_say_why(q, now, why, size);
    return PS_OK;
}

// ---- workers that train -------------------------------------------------------------------------------------------

// Of a process that psd has not heard of, as after psd's own start, all is new.
static void queue_take_output(const struct psd_queue *q, struct psd_queue_job *job, struct psd_queue_part *part,
                              const struct psd_queue_client *from, const struct psd_queue_report *r)
{
    const bool dropped = part->taken && r->offset > part->received;  // by the worker, which could not report it
    const uint64_t received = part->taken ? part->received : 0, end = r->offset + r->len;
    const size_t skip = r->offset < received ? (size_t)(received - r->offset) : 0;
    part->taken = true;
    memcpy(part->client, from->id, sizeof part->client);
    part->received = end > received ? end : received;
    if (skip < r->len || dropped)
        queue_keep_output(q, job, dropped, (const char *)r->output + skip, r->len - skip);
}

// Of a job that was cancelled worker 0 ends first: it keeps the weights, and a job that loses another worker may end
// before it has. Where worker 0 has failed before it had opened the job, others wait for that in vain.
static bool queue_stops(const struct psd_queue_job *job, uint32_t rank, uint64_t now)
{
    const struct psd_queue_part *first = &job->parts[0];
    if (first->ended > 1 && !first->came && !job->parts[rank].came)
        return true;
    return job->cancelled && (rank == 0 || first->ended || !queue_is_heard(first, now));
}

// The place goes to the process that reports, where it is nobody's, and back to one that is in the job from one that is
// not yet. False: another process has it.
static bool queue_keep_place(struct psd_queue_part *part, const struct psd_queue_client *from,
                             const struct psd_queue_report *r)
{
    const bool other = part->taken && memcmp(part->client, from->id, sizeof part->client) != 0;
    if (other && (part->inside || r->waits || r->ended))
        return false;
    if (other)
        part->taken = false;  // what came of its output is not known
    part->inside |= !r->waits;
    part->came |= part->inside;
    part->before = part->inside ? 0 : part->before;
    return true;
}

// Did it end because another process of its rank is in the job? That one has not been silent for long, and the run has
// not failed.
static bool queue_was_second(const struct psd_queue_job *job, const struct psd_queue_part *part,
                             const struct psd_queue_report *r, uint64_t now)
{
    return r->code == TAKEN && r->waits && !r->refused && !job->cancelled && part->before &&
           now <= part->before + PSD_QUEUE_LOST_MS * PS_MS;
}

static void queue_give_back(const struct psd_queue_job *job, struct psd_queue_part *part)
{
    ps_warn("job %" PRIu64 " '%s': a second process of worker %u ended with exit code %d before it was in the job, "
            "which goes on: the first one may train still",
            job->number, job->name, (unsigned)(part - job->parts), TAKEN);
    part->taken = false;
    memset(part->client, 0, sizeof part->client);
}

enum ps_code psd_queue_report(struct psd_queue *q, const struct psd_queue_client *from,
                              const struct psd_queue_report *r, uint64_t now, uint64_t wall, bool *stop,
                              struct ps_error *e)
{
    struct psd_queue_job *job = q->running;
    *stop = true;
    if (queue_check_client(from, e))
        return e->code;
    if (r->len > PSD_QUEUE_REPORT_BYTES || r->offset > UINT64_MAX - r->len || r->code > 255)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "the report has %zu bytes of output and exit code %" PRIu32 ": expected at most %d and 255",
                       r->len, r->code, PSD_QUEUE_REPORT_BYTES);
    if (!job || job->number != r->number || from->rank >= job->workers || job->parts[from->rank].ended)
        return PS_OK;
    if (queue_check_taker(q, job, from, e))
        return e->code;
    struct psd_queue_part *part = &job->parts[from->rank];
    if (!queue_keep_place(part, from, r))
        return PS_OK;
    part->heard = now;
    queue_take_output(q, job, part, from, r);
    *stop = queue_stops(job, from->rank, now);
    if (!r->ended)
        return PS_OK;
    if (queue_was_second(job, part, r, now)) {
        queue_give_back(job, part);
        *stop = true;
        return PS_OK;
    }
    part->ended = r->code + 1;
    part->ended_at = now;
    if (queue_write(q, job, e)) {  // it says so again
        part->ended = 0;
        e->code = e->code == PS_RESOURCE_EXHAUSTED ? e->code : PS_UNAVAILABLE;
        return ps_error_prefix(e, "the end of worker %" PRIu32 " cannot be kept", from->rank);
    }
    queue_settle(q, wall);
    return PS_OK;
}

enum ps_code psd_queue_read(const struct psd_queue *q, const struct psd_queue_job *job, uint64_t *offset, void *to,
                            size_t size, size_t *len, struct ps_error *e)
{
    return psd_queue_read_log(q->folder, job->number, offset, to, size, len, e);
}

// ---- time ---------------------------------------------------------------------------------------------------------

static void queue_forget(struct psd_queue *q, struct psd_queue_job *job)
{
    psd_queue_remove_job(q->folder, job->number);
    queue_remove(q, job);
}

enum ps_code psd_queue_forget(struct psd_queue *q, const char *what, uint32_t *forgotten, struct ps_error *e)
{
    struct psd_queue_job *job;
    *forgotten = 0;
    if (psd_queue_find(q, what, &job, e))
        return e->code;
    const uint64_t number = queue_number(q, what), last = job->number;
    for (struct psd_queue_job *one = q->jobs, *next; one; one = next) {
        next = one->next;
        if (!queue_is_meant(one, what, number) || !queue_has_ended(one))
            continue;
        ps_info("job %" PRIu64 " '%s' is forgotten", one->number, one->name);
        queue_forget(q, one);
        ++*forgotten;
    }
    return *forgotten ? PS_OK
                      : ps_fail(e, PS_FAILED_PRECONDITION,
                                "job %" PRIu64 " '%.128s' has not ended: psctl cancel ends it", last, what);
}

// The one that ended first, and how many have; NULL: none has.
static struct psd_queue_job *queue_first_ended(const struct psd_queue *q, size_t *over)
{
    struct psd_queue_job *first = NULL;
    *over = 0;
    for (struct psd_queue_job *job = q->jobs; job; job = job->next) {
        if (!queue_has_ended(job))
            continue;
        ++*over;
        first = !first || queue_ended_before(job, first) ? job : first;
    }
    return first;
}

// The wall clock may be set at any time, by years where NTP corrects it after the machine's start. It is asked once how
// long ago the job has ended, and whatever it says leaves the job a day.
static uint64_t queue_kept_until(const struct psd_queue_job *job, uint64_t now, uint64_t wall)
{
    const uint64_t ago = wall > job->ended_ms ? (wall - job->ended_ms) * PS_MS : 0;
    const uint64_t keep = PSD_QUEUE_KEEP_S * PS_SECOND, least = PSD_QUEUE_LEAST_S * PS_SECOND;
    return now + (ago < keep - least ? keep - ago : least);
}

static void queue_forget_ended(struct psd_queue *q, uint64_t now, uint64_t wall)
{
    struct psd_queue_job *first;
    size_t over;
    for (struct psd_queue_job *job = q->jobs, *next; job; job = next) {
        next = job->next;
        if (queue_has_ended(job) && !job->kept_until)
            job->kept_until = queue_kept_until(job, now, wall);
        if (job->kept_until && now > job->kept_until)
            queue_forget(q, job);
    }
    while ((first = queue_first_ended(q, &over)) && over > PSD_QUEUE_KEEP)
        queue_forget(q, first);
}

// This process, or its disk, stood still: nobody was heard meanwhile.
static void queue_forgive(const struct psd_queue *q, uint64_t now)
{
    const struct psd_queue_job *job = q->running;
    for (uint32_t i = 0; job && i < job->workers; i++)
        job->parts[i].heard = job->parts[i].ended ? job->parts[i].heard : now;
}

// Cancelled, as its file says; but psd ended before it was counted as that.
static void queue_end_cancelled(struct psd_queue *q, uint64_t wall)
{
    for (struct psd_queue_job *job = q->jobs; job; job = job->next)
        if (job->state == PSD_QUEUED && job->cancelled)
            queue_end(q, job, PSD_CANCELLED, wall);
}

void psd_queue_tick(struct psd_queue *q, uint64_t now, uint64_t wall)
{
    if (q->ticked && now > q->ticked + PSD_QUEUE_HEARD_MS * PS_MS)
        queue_forgive(q, now);
    q->ticked = now;
    queue_lose_silent(q, now);
    queue_settle(q, wall);
    queue_end_cancelled(q, wall);
    const bool unwritten = q->unwritten;
    struct ps_error e;
    q->unwritten = false;
    for (struct psd_queue_job *job = q->jobs; unwritten && job; job = job->next)
        if (job->unwritten)
            queue_write(q, job, &e);
    queue_forget_ended(q, now, wall);
}

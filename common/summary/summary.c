// SPDX-License-Identifier: Apache-2.0
#include "common/summary/summary.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"
#include "common/summary/figures.h"

enum {
    SUMMARY_FULL_PERCENT = 90,  // of the memory for blocks, from which on it is a warning
    SUMMARY_WAIT_MS = 5000,     // a call that waits for longer is worth a word
};

typedef Paramserver__V1__StatusReply Status;
typedef Paramserver__V1__JobStatus Job;

// What the sentences are made of: of all jobs, the first of each kind.
struct totals {
    const Status *status;
    bool whole;
    const uint32_t *lost;  // as the overview has it
    uint32_t running, opening, done, live, dead;
    uint32_t queued;    // jobs of psctl submit that wait,
    uint32_t failed;    // and that have failed within the last day
    const Job *trains;  // the last of those that do
    const Job *failed_job, *dead_job, *absent_job, *not_finite_job, *done_job, *interrupted_job, *slow_job, *split_job,
        *lost_job,          // that trains, and has lost what a ps task had of it
        *risk_job;          // that trains, or is about to, and would lose most
    uint32_t risk_workers;  // of risk_job: that live, or are awaited; 0: it is not known
    const Paramserver__V1__Member *dead_worker;
    struct ps_figures slow;  // of slow_job, whose slowest worker is farthest behind the mean
    double slow_share;
    uint32_t absent;                               // workers of absent_job
    const Paramserver__V1__Wait *wait, *unopened;  // unopened: for a job that worker 0 has not opened
};

const char *ps_level_name(enum ps_level level)
{
    static const char *const names[] = {"ok", "warning", "bad"};
    return names[level];
}

// ---- totals -------------------------------------------------------------------------------------------------------

static void totals_take_speed(struct totals *s, const Job *job, const struct ps_figures *f)
{
    const double mean = f->examples_per_second / f->live;
    if (!f->slowest || !(mean > 0))
        return;
    const double share = f->slowest->examples_per_second / mean;
    if (s->slow_job && share >= s->slow_share)
        return;
    s->slow_job = job;
    s->slow = *f;
    s->slow_share = share;
}

static void totals_take_workers(struct totals *s, const Job *job, const struct ps_figures *f)
{
    s->live += f->live;
    s->dead += f->dead;
    if (f->any_dead && !s->dead_job) {
        s->dead_job = job;
        s->dead_worker = f->any_dead;
    }
    if (f->expected > 0 && !s->absent_job) {
        s->absent_job = job;
        s->absent = f->expected;
    }
    if (ps_figures_has_diverged(f) && !s->not_finite_job)
        s->not_finite_job = job;
    totals_take_speed(s, job, f);
}

// So long it has trained since its newest checkpoint, ms: the job that goes on from one is younger than that.
static uint64_t totals_unsaved(const Job *job)
{
    return job->age_ms && job->age_ms < job->checkpoint_age_ms ? job->age_ms : job->checkpoint_age_ms;
}

// The greater, the more of the job would be lost: it writes no checkpoints, has none yet, has an old one.
static uint64_t totals_risk(const Job *job)
{
    const Paramserver__V1__Progress *p = job->progress;
    if (!p || p->checkpoints == PARAMSERVER__V1__CHECKPOINTS__CHECKPOINTS_UNKNOWN)
        return 0;
    if (p->checkpoints == PARAMSERVER__V1__CHECKPOINTS__CHECKPOINTS_NONE)
        return UINT64_MAX;
    return p->checkpoint_step ? 1 + totals_unsaved(job) : UINT64_MAX - 1;
}

// A ps task that has lost what it had of the job, or PS_NONE_LOST.
static uint32_t totals_find_loss(const struct totals *s, const Job *job)
{
    for (size_t i = 0; s->lost && i < s->status->n_jobs; i++)
        if (s->status->jobs[i] == job)
            return s->lost[i];
    return PS_NONE_LOST;
}

static void totals_take_job(struct totals *s, const Job *job, const Paramserver__V1__WorkersReply *workers)
{
    const struct ps_figures f = ps_figures_of(workers);
    const bool failed = strcmp(job->state, "failed") == 0, done = strcmp(job->state, "done") == 0,
               interrupted = strcmp(job->state, "interrupted") == 0;
    s->done += done;
    if (strcmp(job->state, "running") == 0) {
        s->running++;
        s->trains = job;
    }
    s->opening += strcmp(job->state, "opening") == 0;
    if (failed && !s->failed_job)
        s->failed_job = job;
    if (done && !s->done_job)
        s->done_job = job;
    if (interrupted && !s->interrupted_job)
        s->interrupted_job = job;
    if (failed || done || interrupted)
        return;
    if (totals_find_loss(s, job) != PS_NONE_LOST && !s->lost_job)
        s->lost_job = job;
    if (job->nonfinite > 0 && !s->not_finite_job)
        s->not_finite_job = job;
    if (job->splits > 0 && !s->split_job)
        s->split_job = job;
    totals_take_workers(s, job, &f);
    if (!s->risk_job || totals_risk(job) > totals_risk(s->risk_job)) {
        s->risk_job = job;
        s->risk_workers = f.live + f.expected;
    }
}

// Of those that have waited for long the first that waits for a job which is in no list. NULL: there is none.
static const Paramserver__V1__Wait *totals_find_unopened(const struct ps_overview *overview)
{
    for (size_t i = 0; overview->waits && i < overview->waits->n_waits; i++) {
        const Paramserver__V1__Wait *w = overview->waits->waits[i];
        bool listed = w->method != PARAMSERVER__V1__METHOD__JOIN || w->since_ms < SUMMARY_WAIT_MS;
        for (size_t k = 0; k < overview->status->n_jobs && !listed; k++)
            listed = strcmp(overview->status->jobs[k]->name, w->job) == 0;
        if (!listed)
            return w;
    }
    return NULL;
}

static struct totals totals_of(const struct ps_overview *overview)
{
    struct totals s = {.status = overview->status, .whole = overview->whole, .lost = overview->lost};
    for (size_t i = 0; i < overview->status->n_jobs; i++)
        totals_take_job(&s, overview->status->jobs[i], overview->workers[i]);
    s.queued = overview->status->queue ? overview->status->queue->queued : 0;
    s.failed = overview->status->queue ? overview->status->queue->failed_lately : 0;
    if (overview->waits && overview->waits->n_waits > 0 && overview->waits->waits[0]->since_ms >= SUMMARY_WAIT_MS)
        s.wait = overview->waits->waits[0];
    s.unopened = totals_find_unopened(overview);
    return s;
}

static double totals_full_percent(const struct totals *s)
{
    return s->status->limit_bytes ? 100.0 * (double)s->status->block_bytes / (double)s->status->limit_bytes : 0;
}

// ---- sentences ----------------------------------------------------------------------------------------------------

static void summary_put(char *to, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

// What a name too long has cut stays UTF-8, and steers nothing.
static void summary_put(char *to, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(to, size, format, args);
    va_end(args);
    ps_utf8_plain(to);
}

#define STATE(...) summary_put(w->state, sizeof w->state, __VA_ARGS__)
#define RISK(...) summary_put(w->risk, sizeof w->risk, __VA_ARGS__)
#define WORST(...) summary_put(w->worst, sizeof w->worst, __VA_ARGS__)

static const char *summary_s(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static void summary_say_bad(const struct totals *s, struct ps_summary *w)
{
    w->level = PS_LEVEL_BAD;
    if (s->failed_job)
        STATE("Job %.128s has failed: %.300s.", s->failed_job->name, s->failed_job->reason);
    else if (s->lost_job)
        STATE("Job %.128s ends with its workers' next step: ps:%" PRIu32 " has lost what it had of it.",
              s->lost_job->name, totals_find_loss(s, s->lost_job));
    else
        STATE("Worker %" PRIu32 " of job %.128s is dead%s%.200s. %" PRIu32 " worker%s live%s.", s->dead_worker->rank,
              s->dead_job->name, s->dead_worker->reason[0] ? ": " : "", s->dead_worker->reason, s->live,
              summary_s(s->live), s->live == 1 ? "s" : "");
}

static void summary_say_warning(const struct totals *s, struct ps_summary *w)
{
    w->level = PS_LEVEL_WARNING;
    if (s->not_finite_job)
        STATE("The gradients or the loss of job %.128s are not finite.", s->not_finite_job->name);
    else if (totals_full_percent(s) >= SUMMARY_FULL_PERCENT)
        STATE("Memory for tensors is %.0f %% full: what no longer fits is refused.", totals_full_percent(s));
    else if (s->absent_job)
        STATE("Job %.128s waits for %" PRIu32 " worker%s that %s not joined yet%s%.300s.", s->absent_job->name,
              s->absent, summary_s(s->absent), s->absent == 1 ? "has" : "have", s->absent_job->reason[0] ? "; " : "",
              s->absent_job->reason);
    else if (s->unopened)
        STATE("Job %.128s waits for worker 0, which has not started.", s->unopened->job);
    else
        STATE("%s is being drained: it takes no new jobs.", s->whole ? "A ps task" : "This ps task");
}

// "34 s", "12 min", "3 h". to[size]
static void summary_put_time(char *to, size_t size, uint64_t ms)
{
    const double minutes = (double)ms / 60000;
    if (minutes >= 90)
        snprintf(to, size, "%.0f h", minutes / 60);
    else if (minutes >= 1.5)
        snprintf(to, size, "%.0f min", minutes);
    else
        snprintf(to, size, "%.0f s", minutes * 60);
}

// " It is in epoch 3 of 20; about 4 min left.": of the only job, where its chief has said so. to[size]
static void summary_say_how_far(const struct totals *s, char *to, size_t size)
{
    const Job *job = s->running == 1 && s->opening == 0 ? s->trains : NULL;
    char left[32];
    uint64_t epoch;
    int n = 0;
    to[0] = '\0';
    if (!job || !job->progress || !ps_job_epoch(job, &epoch) || epoch >= job->progress->epochs)
        return;
    n = snprintf(to, size, " It is in epoch %" PRIu64 " of %" PRIu64, epoch + 1, job->progress->epochs);
    summary_put_time(left, sizeof left, job->time_left_ms);
    if (job->time_left_ms)
        n += snprintf(to + n, size - (size_t)n, "; about %s left", left);
    snprintf(to + n, size - (size_t)n, ".");
}

static void summary_say_well(const struct totals *s, struct ps_summary *w)
{
    const uint32_t jobs = s->running + s->opening;
    char how_far[128];
    summary_say_how_far(s, how_far, sizeof how_far);
    w->level = PS_LEVEL_OK;
    if (jobs == 0 && s->queued)
        STATE("%" PRIu32 " job%s in the queue, and none runs: psctl queue says for which workers.", s->queued,
              s->queued == 1 ? " waits" : "s wait");
    else if (jobs == 0 && s->interrupted_job)
        STATE("No job runs; job %.128s was interrupted: %.300s.", s->interrupted_job->name, s->interrupted_job->reason);
    else if (jobs == 0 && s->failed)
        STATE("No job runs; %" PRIu32 " job%s of the queue %s failed: psctl queue says which.", s->failed,
              summary_s(s->failed), s->failed == 1 ? "has" : "have");
    else if (jobs == 0 && s->done == 0)
        STATE("%s is well and waits for a job.", s->whole ? "The cluster" : "This ps task");
    else if (jobs == 0)
        STATE("All is well: %" PRIu32 " job%s done, none running.", s->done, s->done == 1 ? " is" : "s are");
    else if (s->status->task == 0)
        STATE("All is well: %" PRIu32 " job%s with %" PRIu32 " live worker%s, none dead.%s", jobs,
              jobs == 1 ? " trains" : "s train", s->live, summary_s(s->live), how_far);
    else
        STATE("This ps task is well: %" PRIu32 " job%s here.", jobs, jobs == 1 ? " trains" : "s train");
}

static void summary_say_state(const struct totals *s, struct ps_summary *w)
{
    if (s->failed_job || s->lost_job || s->dead_job)
        summary_say_bad(s, w);
    else if (s->not_finite_job || s->absent_job || s->unopened || s->status->draining ||
             totals_full_percent(s) >= SUMMARY_FULL_PERCENT)
        summary_say_warning(s, w);
    else
        summary_say_well(s, w);
}

// What the death of a worker does to the job that would lose most, as far as this task knows. to[size]
static void summary_put_death(const struct totals *s, char *to, size_t size)
{
    const uint32_t remain = s->risk_workers, least = s->risk_job->min_workers, all = s->risk_job->workers;
    const char *others = "if a worker dies, the others train its examples";
    if (remain == 1)
        snprintf(to, size, "if its worker dies, the job ends");
    else if (!least)
        snprintf(to, size, "%s, or the job ends with fewer than strategy.min_workers", others);
    else if (remain && remain <= least)
        snprintf(to, size, "if a worker dies, the job ends: it needs %" PRIu32 " of its %" PRIu32 " workers", least,
                 all);
    else if (least > 1)
        snprintf(to, size, "%s; with fewer than %" PRIu32 " workers the job ends", others, least);
    else
        snprintf(to, size, "%s", others);
}

// Of the job that would lose most.
static void summary_say_loss(const struct totals *s, const char *task, struct ps_summary *w)
{
    const Job *job = s->risk_job;
    const Paramserver__V1__Progress *p = job->progress;
    char age[32], others[128];
    summary_put_death(s, others, sizeof others);
    if (totals_risk(job) == 0) {
        RISK("If %s ends, all that was trained since the last checkpoint is lost; %s.", task, others);
    } else if (!p->checkpoint_step) {
        RISK("If %s ends, all that job %.128s has trained is lost: it %s; %s.", task, job->name,
             p->checkpoints == PARAMSERVER__V1__CHECKPOINTS__CHECKPOINTS_NONE ? "writes no checkpoints"
                                                                              : "has no checkpoint yet",
             others);
    } else {
        summary_put_time(age, sizeof age, totals_unsaved(job));
        RISK("If %s ends, job %.128s loses the last %s of its training, since its checkpoint of step %" PRIu64 "; %s.",
             task, job->name, age, p->checkpoint_step, others);
    }
}

// What there still is of a job that has failed, was interrupted, or cannot go on.
static void summary_say_left(const struct totals *s, const Job *job, const char *task, struct ps_summary *w)
{
    const uint32_t lost = totals_find_loss(s, job);
    char since[64] = "";
    if (job->progress && job->progress->checkpoint_step)
        snprintf(since, sizeof since, " since its checkpoint of step %" PRIu64, job->progress->checkpoint_step);
    if (!job->update)
        RISK("Nothing of job %.128s: it ended before its variables were declared.", job->name);
    else if (lost != PS_NONE_LOST)
        RISK("All that job %.128s has trained%s is lost: ps:%" PRIu32 " has lost what it had of it.", job->name, since,
             lost);
    else if (!s->whole && s->status->tasks > 1)
        RISK("What this ps task has of the weights of job %.128s stays here until psctl stop, or until it ends.",
             job->name);
    else
        RISK("The weights of job %.128s stay here until psctl stop, or until %s ends%s.", job->name, task,
             s->status->queue ? "; if the queue has trained it, until its next job begins" : "");
}

static void summary_say_risk(const struct totals *s, struct ps_summary *w)
{
    const char *task = s->whole ? "a ps task" : "this ps task";
    if (s->split_job)
        RISK("The gradient of worker %" PRIu32 " of job %.128s for round %" PRIu64
             " counts in some partitions and not in others.",
             s->split_job->split_worker, s->split_job->name, s->split_job->split_round);
    else if (s->lost_job)
        summary_say_left(s, s->lost_job, task, w);
    else if (s->risk_job)
        summary_say_loss(s, task, w);
    else if (s->failed_job || s->interrupted_job)
        summary_say_left(s, s->failed_job ? s->failed_job : s->interrupted_job, task, w);
    else if (s->done_job)
        RISK("Nothing that a worker has written to its output. The weights here stay until psctl stop, or until %s "
             "ends%s.",
             task, s->status->queue ? "; those of the queue's jobs until its next one begins" : "");
    else
        RISK("Nothing: no job is here.");
}

static void summary_say_worst(const struct totals *s, struct ps_summary *w)
{
    if (s->wait && s->wait->whom[0])
        WORST("Longest wait: %.1f s for %.200s, of %.200s.", (double)s->wait->since_ms / 1000, s->wait->what,
              s->wait->whom);
    else if (s->dead_worker && !ps_member_has_joined(s->dead_worker))
        WORST("Worker %" PRIu32 " of job %.128s, which never joined.", s->dead_worker->rank, s->dead_job->name);
    else if (s->dead_worker)
        WORST("Worker %" PRIu32 " of job %.128s (%.128s).", s->dead_worker->rank, s->dead_job->name,
              s->dead_worker->address);
    else if (s->slow_job)
        WORST("Slowest is worker %" PRIu32 " of job %.128s: step %" PRIu64 ", %.0f examples/s; the mean is %.0f.",
              s->slow.slowest->rank, s->slow_job->name, s->slow.slowest->step, s->slow.slowest->examples_per_second,
              s->slow.examples_per_second / s->slow.live);
    else if (s->status->task != 0)
        WORST("Not known here: ps task 0 knows the workers.");
    else
        WORST("No worker is slower than another.");
}

// ---- what to type -------------------------------------------------------------------------------------------------

// A shell takes it as it is.
static bool summary_is_plain(const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
    return name[0] && name[strspn(name, plain)] == '\0' && strlen(name) < 200;
}

static void summary_say_command(const struct totals *s, struct ps_summary *w)
{
    const char *command = "status", *job = "";
    if (w->level != PS_LEVEL_OK)
        command = "doctor";
    else if (s->wait) {
        command = "waits";
        job = s->wait->job;
    } else if (s->running + s->opening > 0)
        command = "top";
    else if (s->queued || s->failed)
        command = "queue";
    const bool names = summary_is_plain(job);
    snprintf(w->command, sizeof w->command, "psctl %s%s%s", command, names ? " " : "", names ? job : "");
}

void ps_summarize(const struct ps_overview *overview, struct ps_summary *summary)
{
    const struct totals s = totals_of(overview);
    summary_say_state(&s, summary);
    summary_say_risk(&s, summary);
    summary_say_worst(&s, summary);
    summary_say_command(&s, summary);
}

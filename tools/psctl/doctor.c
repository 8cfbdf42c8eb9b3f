// SPDX-License-Identifier: Apache-2.0
//
// psctl doctor: asks every ps task at the same time, each with the deadline, and tries each address meanwhile with
// plain sockets, which tells why one does not answer; who does not is not asked again. So it takes one deadline,
// however many are stopped. Then it compares what the others say of themselves, with each other and with the
// description of the cluster; then looks at each job: is it declared alike everywhere, and are its workers there?
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/limits.h"
#include "common/summary/figures.h"
#include "common/tls/munged.h"
#include "common/tls/tls.h"
#include "common/wire/wire.h"
#include "config.h"
#include "proto/paramserver.pb-c.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/findings.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/operand.h"
#include "tools/psctl/probe.h"
#include "tools/psctl/psctl.h"
#include "tools/psctl/queue.h"
#include "tools/psctl/report.h"
#include "tools/psctl/workers.h"

typedef Paramserver__V1__StatusReply Status;
typedef Paramserver__V1__DescribeReply Description;

enum {
    CLOCK_MS = 1000,
    FULL_PERCENT = 90,
    QUEUE_STANDS_MS = 20000,  // a worker that is started again, or has just ended a job, is there by then
    SUBJECT_MAX = 320,
    ADVICE_MAX = 400,
    TIMEOUT_S = 3,  // of an answer, where --timeout does not say otherwise: all is told within 5 s
};

struct doctor {
    struct cluster *cluster;
    const struct target *target;
    struct answer *answers;     // [tasks] StatusReply
    struct inquiry *inquiries;  // [tasks]
    bool *silent;               // [tasks] did not answer
    struct findings findings;
    char *jobs[REPORT_JOBS];  // names of those that were looked at, as many as a report has
    size_t n_jobs;
    bool nagios;
    const char *report;  // file; NULL: none is asked for
};

static const Status *status_of(const struct doctor *d, size_t task)
{
    return (const Status *)d->answers[task].reply;
}

static const char *task_name(const struct doctor *d, size_t task, char name[SUBJECT_MAX])
{
    snprintf(name, SUBJECT_MAX, "ps:%zu (%s)", task, psc_cluster_address(d->cluster->spec, task));
    return name;
}

// ---- what daemons say ---------------------------------------------------------------------------------------------

// What to do about something that a daemon has said; NULL: nothing is known about that.
static const char *remedy_of(const char *said)
{
    static const struct {
        const char *sign, *advice;
    } known[] = {
        {"No space left on device", "make room on that disk, or name a folder on another"},
        {"Disk quota exceeded", "make room there, have the quota raised, or name a folder elsewhere"},
        {"there is no CUDA module", "psctl check-build, on that host, says what is missing; or train with device: cpu"},
        {"no GPU that CUDA sees", "psctl check-build, on that host, says what is missing; or train with device: cpu"},
        {"there is no gpu:", "correct the device, or the GPUs that the worker is given (CUDA_VISIBLE_DEVICES)"},
        {"two workers cannot have one rank", "give each worker a --rank of its own"},
        {"ranks go from 0 to", "give each worker a --rank of its own, below the number of workers"},
        {" would need ", "start psd with more --memory, or more ps tasks; psctl plan says how much it takes"},
        {"ended by signal 9", "out of memory? the kernel's log (dmesg) says so; psctl plan says how much it takes"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strstr(said, known[i].sign))
            return known[i].advice;
    return NULL;
}

// ---- tasks that do not answer -------------------------------------------------------------------------------------

static void judge_probe(struct doctor *d, size_t task, const struct probe *p)
{
    static const struct {
        const char *finding, *advice;
    } known[] = {
        [PROBE_HTTP2] = {"speaks HTTP/2, but does not answer", "is it another gRPC server? else see psd's log"},
        [PROBE_NO_NAME] = {"its name does not resolve", "correct the name, or the resolver of this machine"},
        [PROBE_NO_SOCKET] = {"the socket cannot be used", "start psd there, or correct the path"},
        [PROBE_REFUSED] = {"connection refused: nobody listens there",
                           "start psd there, or correct the address; why it ended its log says, or dmesg (out of "
                           "memory); its log warns, too, where the host's own name is a loopback address"},
        [PROBE_UNREACHABLE] = {"cannot be connected to", "is the host up? does a firewall drop it?"},
        [PROBE_SILENT] = {"takes the connection, then does not answer",
                          "stopped (kill -CONT), swapping, or hung: see its process"},
        [PROBE_CLOSED] = {"takes the connection, then hangs up: no psd", "end that program, or correct the address"},
        [PROBE_TLS] = {"asks for a certificate, and psctl has none", "say --tls FOLDER, or tls: in the cluster's file"},
        [PROBE_PLAIN] = {"does not speak TLS", "start psd with the same tls, or correct the address"},
        [PROBE_UNTRUSTED] = {"its certificate does not do", "give it one of the authority in ca.pem (psctl tls issue)"},
        [PROBE_NOT_TRUSTED] = {"does not take psctl's certificate", "have its authority issue one (psctl tls issue)"},
        [PROBE_OTHER] = {"is no gRPC server", "end that program, or correct the address"},
    };
    char name[SUBJECT_MAX];
    const char *detail = p->detail, *text = known[p->result].finding;
    // A word of the system that says what our sentence says already.
    if (p->result == PROBE_REFUSED)
        detail = "";
    findings_add(&d->findings, VERDICT_UNREACHABLE, task_name(d, task, name), known[p->result].advice, "%s%s%s%s", text,
                 *detail ? (p->result == PROBE_OTHER ? ", it says \"" : ": ") : "", detail,
                 *detail && p->result == PROBE_OTHER ? "\"" : "");
}

struct inquiry {
    struct doctor *doctor;
    size_t task;
    struct probe probe;
    pthread_t thread;
    bool threaded;
};

static void *doctor_inquire(void *arg)
{
    struct inquiry *q = arg;
    const struct cluster *c = q->doctor->cluster;
    probe(psc_cluster_address(c->spec, q->task), c->timeout_ms, c->tls, &q->probe);
    return NULL;
}

// The task may be well, but for munged of its host or of this one.
static bool doctor_lacks_munge(const struct ps_error *e)
{
    return e->code == PS_UNAUTHENTICATED || strstr(e->text, PS_MUNGED);
}

static bool needs_probe(const struct answer *a)
{
    return !a->reply && cluster_is_silent(a->error.code) && !doctor_lacks_munge(&a->error);
}

// Asked, but not as one of ours would: the text says enough.
static void judge_error(struct doctor *d, size_t task)
{
    char name[SUBJECT_MAX];
    const struct ps_error *e = &d->answers[task].error;
    bool foreign = e->code == PS_UNIMPLEMENTED;
    const char *advice = foreign                 ? "correct the address, or start a psd of this version there"
                         : doctor_lacks_munge(e) ? "does munged run on both hosts, with one key?"
                                                 : "see psd's log";
    findings_add(&d->findings, foreign ? VERDICT_UNREACHABLE : VERDICT_WRONG, task_name(d, task, name), advice,
                 foreign ? "is a gRPC server, but no psd: %s" : "answers with an error: %s", e->text);
}

static void begin_probes(struct doctor *d)
{
    d->inquiries = ps_alloc(d->cluster->tasks * sizeof *d->inquiries);
    for (size_t i = 0; i < d->cluster->tasks; i++) {
        struct inquiry *q = &d->inquiries[i];
        q->doctor = d;
        q->task = i;
        q->threaded = pthread_create(&q->thread, NULL, doctor_inquire, q) == 0;
    }
}

static void find_missing(struct doctor *d)
{
    d->silent = ps_alloc(d->cluster->tasks * sizeof *d->silent);
    for (size_t i = 0; i < d->cluster->tasks; i++) {
        struct inquiry *q = &d->inquiries[i];
        if (q->threaded)
            pthread_join(q->thread, NULL);
        d->silent[i] = needs_probe(&d->answers[i]);
        if (d->silent[i] && !q->threaded)
            doctor_inquire(q);
        if (d->silent[i])
            judge_probe(d, i, &q->probe);
        else if (!d->answers[i].reply)
            judge_error(d, i);
    }
}

// ---- tasks that do ------------------------------------------------------------------------------------------------

// The first task that answered: what the others are compared with.
static size_t doctor_reference(const struct doctor *d)
{
    size_t i = 0;
    while (i < d->cluster->tasks && !status_of(d, i))
        i++;
    return i;
}

static void check_identity(struct doctor *d, size_t task, const char *name)
{
    const Status *s = status_of(d, task), *first = status_of(d, doctor_reference(d));
    struct ps_error e;
    if (cluster_check_task(d->cluster, task, s, &e))
        findings_add(&d->findings, VERDICT_WRONG, name, "give every psd, and psctl, the same cluster", "%s", e.text);
    else if (s->cluster_hash && first->cluster_hash && s->cluster_hash != first->cluster_hash)
        findings_add(&d->findings, VERDICT_WRONG, name, "start every psd with the same addresses, in the same order",
                     "was told of other ps addresses than ps:%zu", doctor_reference(d));
}

static void check_version(struct doctor *d, size_t task, const char *name)
{
    const Status *s = status_of(d, task), *first = status_of(d, doctor_reference(d));
    if (strcmp(s->version, first->version) != 0)
        findings_add(&d->findings, VERDICT_WRONG, name, "run one version on all ps tasks",
                     "is version %.32s, ps:%zu is %.32s", s->version, doctor_reference(d), first->version);
    else if (strcmp(s->version, PACKAGE_VERSION) != 0)
        findings_add(&d->findings, VERDICT_WARNING, name, "use the psctl of the same version",
                     "is version %.32s, this psctl is " PACKAGE_VERSION, s->version);
}

// Its time, as it was told between the question and the answer.
static void check_clock(struct doctor *d, size_t task, const char *name)
{
    const struct answer *a = &d->answers[task];
    int64_t clock = (int64_t)status_of(d, task)->clock_ms, off = 0;
    if (clock == 0)
        return;
    if (clock < a->asked_ms)
        off = clock - a->asked_ms;
    else if (clock > a->answered_ms)
        off = clock - a->answered_ms;
    if (off > CLOCK_MS || off < -CLOCK_MS)
        findings_add(&d->findings, VERDICT_WRONG, name, "have NTP set the clocks of all hosts",
                     "its clock is %.1f s %s this machine's", (double)(off < 0 ? -off : off) / 1000,
                     off < 0 ? "behind" : "ahead of");
}

static void check_load(struct doctor *d, size_t task, const char *name)
{
    const Status *s = status_of(d, task);
    if (s->limit_bytes && s->block_bytes > s->limit_bytes / 100 * FULL_PERCENT)
        findings_add(&d->findings, VERDICT_WARNING, name, "stop old jobs, or start psd with more --memory",
                     "its memory for tensors is %.0f %% full", 100.0 * (double)s->block_bytes / (double)s->limit_bytes);
    if (s->draining) {
        char advice[ADVICE_MAX];
        snprintf(advice, sizeof advice, "psctl drain ps:%zu --undo takes that back", task);
        findings_add(&d->findings, VERDICT_WARNING, name, advice, "is draining: it takes no new jobs");
    }
}

static void check_certificate(struct doctor *d, size_t task, const char *name)
{
    const time_t until = (time_t)status_of(d, task)->certificate_until;
    char date[32] = "";
    struct tm tm;
    if (!until || until > time(NULL) + PS_TLS_SOON_DAYS * 24 * 3600)
        return;
    if (gmtime_r(&until, &tm))
        strftime(date, sizeof date, "%Y-%m-%d", &tm);
    findings_add(&d->findings, VERDICT_WARNING, name, "psctl tls issue FOLDER psd makes a new one, which it takes up",
                 "its certificate ends on %s", date);
}

static void check_task(struct doctor *d, size_t task)
{
    char name[SUBJECT_MAX];
    size_t before = json_array_size(d->findings.table.rows);
    const Status *s = status_of(d, task);
    task_name(d, task, name);
    check_identity(d, task, name);
    check_version(d, task, name);
    check_clock(d, task, name);
    check_load(d, task, name);
    check_certificate(d, task, name);
    if (json_array_size(d->findings.table.rows) == before)
        findings_add(&d->findings, VERDICT_OK, name, NULL, "version %.32s, %zu job%s", s->version, s->n_jobs,
                     s->n_jobs == 1 ? "" : "s");
}

// ---- jobs ---------------------------------------------------------------------------------------------------------

static const Paramserver__V1__JobStatus *job_at(const struct doctor *d, size_t task, const char *job)
{
    const Status *s = status_of(d, task);
    for (size_t i = 0; s && i < s->n_jobs; i++)
        if (strcmp(s->jobs[i]->name, job) == 0)
            return s->jobs[i];
    return NULL;
}

// Is it the same run everywhere?
static void check_run(struct doctor *d, const char *name, const char *job)
{
    const Paramserver__V1__JobStatus *control = job_at(d, 0, job);
    for (size_t i = 1; i < d->cluster->tasks; i++) {
        const Paramserver__V1__JobStatus *here = job_at(d, i, job);
        if (!status_of(d, 0) || !here)
            continue;
        if (!control && strcmp(here->state, "done") != 0)
            findings_add(&d->findings, VERDICT_WRONG, name, "psctl stop it: no worker can go on with it",
                         "is known to ps:%zu and not to the control task", i);
        else if (control && here->run && control->run && here->run != control->run)
            findings_add(&d->findings, VERDICT_WRONG, name, "psctl stop it, then start it again",
                         "is run %" PRIu64 " on ps:0 and run %" PRIu64 " on ps:%zu", control->run, here->run, i);
    }
}

// What was declared, without what differs between the tasks; malloc'd.
static uint8_t *doctor_declaration(const Description *d, bool changes, size_t *len)
{
    Description plan = *d;
    plan.generation = plan.run = 0;
    plan.task = 0;
    plan.n_states = 0;
    plan.states = NULL;
    if (!changes) {
        plan.n_changes = 0;
        plan.changes = NULL;
    }
    *len = paramserver__v1__describe_reply__get_packed_size(&plan);
    uint8_t *packed = ps_alloc(*len + 1);
    paramserver__v1__describe_reply__pack(&plan, packed);
    return packed;
}

static bool doctor_same(const Description *a, const Description *b, bool changes)
{
    size_t a_len, b_len;
    uint8_t *x = doctor_declaration(a, changes, &a_len), *y = doctor_declaration(b, changes, &b_len);
    bool equal = a_len == b_len && memcmp(x, y, a_len) == 0;
    free(x);
    free(y);
    return equal;
}

static void compare_plans(struct doctor *d, const char *name, const struct answer *answers)
{
    size_t first = 0, n = d->cluster->tasks;
    while (first < n && !answers[first].reply)
        first++;
    for (size_t i = 0; i < n; i++) {
        const Description *a = first < n ? (const Description *)answers[first].reply : NULL;
        const Description *b = (const Description *)answers[i].reply;
        // That it is not there, or the task is not, is said elsewhere; another protocol says so here.
        if (!b && status_of(d, i) && answers[i].error.code != PS_NOT_FOUND)
            findings_add(&d->findings, VERDICT_WRONG, name, "use the psctl of the cluster's version",
                         "cannot be described: %s", answers[i].error.text);
        if (!b || i == first)
            continue;
        if (!doctor_same(a, b, false))
            findings_add(&d->findings, VERDICT_WRONG, name, "psctl stop it, then start it again",
                         "is declared otherwise on ps:%zu than on ps:%zu", i, first);
        else if (!doctor_same(a, b, true))
            findings_add(&d->findings, VERDICT_WRONG, name, "psctl set what is to hold once more",
                         "has other changed hyperparameters on ps:%zu than on ps:%zu", i, first);
    }
}

// A client asks for one job's description: each job needs its own.
static void check_plan(struct doctor *d, const char *name, const char *job)
{
    struct cluster c;
    struct answer *answers;
    struct ps_error e;
    if (cluster_open(&c, d->target, job, &e)) {
        findings_add(&d->findings, VERDICT_WARNING, name, NULL, "cannot be looked at: %s", e.text);
        return;
    }
    c.silent = d->silent;
    cluster_describe(&c, &answers);
    compare_plans(d, name, answers);
    cluster_answers_free(answers, c.tasks);
    cluster_close(&c);
}

static void check_worker(struct doctor *d, const char *job, const Paramserver__V1__Member *m)
{
    char name[SUBJECT_MAX];
    snprintf(name, sizeof name, "job %.128s, worker %" PRIu32 "%s%.64s", job, m->rank, m->address[0] ? ", " : "",
             m->address);
    const char *remedy = remedy_of(m->reason);
    if (m->interrupted)
        findings_add(&d->findings, VERDICT_OK, name, "started again, it joins again", "%.200s", m->reason);
    else if (m->state == PARAMSERVER__V1__MEMBER_STATE__DEAD)
        findings_add(&d->findings, VERDICT_UNREACHABLE, name,
                     remedy ? remedy : "see its host and its log; started again, it joins again", "is dead%s%.200s",
                     m->reason[0] ? ": " : "", m->reason);
    else if (m->state == PARAMSERVER__V1__MEMBER_STATE__EXPECTED)
        findings_add(&d->findings, VERDICT_WARNING, name, "start it; where it was, with this --rank, its log says why",
                     "has not joined yet");
    else if (m->state == PARAMSERVER__V1__MEMBER_STATE__LIVE && m->draining)
        findings_add(&d->findings, VERDICT_WARNING, name, NULL, "was asked to leave");
}

// It goes on so, and is worth nothing.
static void check_numbers(struct doctor *d, const char *name, const struct job_sum *job,
                          const Paramserver__V1__WorkersReply *workers)
{
    const struct ps_figures f = ps_figures_of(workers);
    if (job->nonfinite > 0 || ps_figures_has_diverged(&f))
        findings_add(
            &d->findings, VERDICT_WARNING, name,
            "psctl stop it, and see its learning rate and data; refuse_nonfinite or terminate_on_nan end such a "
            "training by themselves",
            "its gradients or its loss are not finite");
}

static void check_workers(struct doctor *d, const char *name, const struct job_sum *job)
{
    Paramserver__V1__WorkersReply *reply;
    struct ps_error e;
    if (!status_of(d, 0))
        findings_add(&d->findings, VERDICT_UNREACHABLE, name, "see ps:0; where it has ended, the job has too",
                     "its control task ps:0 does not answer; its workers are not known");
    if (!job->control)
        return;
    if (workers_ask(d->cluster, job->name, &reply, &e)) {
        findings_add(&d->findings, VERDICT_WARNING, name, NULL, "its workers are not known: %s", e.text);
        return;
    }
    for (size_t i = 0; i < reply->n_members; i++)
        check_worker(d, job->name, reply->members[i]);
    check_numbers(d, name, job, reply);
    ps_msg_free(&reply->base);
}

// A job that was declared is on all ps tasks. Of ps:0 check_workers says more; an error is told where it was answered.
static void check_tasks_of(struct doctor *d, const char *name, const struct job_sum *job)
{
    size_t first = 0, missing = 0;
    for (size_t i = d->cluster->tasks - 1; i > 0 && job->update; i--)
        if (d->silent[i]) {
            first = i;
            missing++;
        }
    char others[40] = "";
    if (missing > 1)
        snprintf(others, sizeof others, " and %zu more", missing - 1);
    if (missing)
        findings_add(&d->findings, VERDICT_WARNING, name,
                     "its workers wait for some seconds; what a psd has of a job is lost where it ends",
                     "is %.32s, and needs ps:%zu%s, which %s not answer", job->state, first, others,
                     missing > 1 ? "do" : "does");
}

// Of a task that does not have the job: it answers, or nobody listens there any more. One that is silent may have it.
static bool doctor_has_lost(const struct doctor *d, size_t task)
{
    const struct probe *p = &d->inquiries[task].probe;
    return status_of(d, task) || (d->silent[task] && (p->result == PROBE_REFUSED || p->result == PROBE_NO_SOCKET));
}

// A ps task that does not have the job any more, though it was declared, or else one that may not; tasks: none.
static size_t doctor_find_loss(const struct doctor *d, const struct job_sum *job)
{
    size_t unknown = d->cluster->tasks;
    for (size_t i = 0; job->update && i < d->cluster->tasks; i++) {
        if (job_at(d, i, job->name))
            continue;
        if (doctor_has_lost(d, i))
            return i;
        unknown = unknown < i ? unknown : i;
    }
    return unknown;
}

// Where what the ps tasks had is lost, and with it what files there are.
#define FROM_FILES                                                                                            \
    "it goes on from its backup, or with --resume from its checkpoint, if it has written one, else from the " \
    "beginning with --set on_existing=replace; or psctl stop it"

// How it is started again: from its checkpoint, or from what the ps tasks have, if none of them has lost that. to[size]
static void doctor_put_way_on(const struct doctor *d, const struct job_sum *job, char *to, size_t size)
{
    const Paramserver__V1__Progress *p = jobs_progress(job);
    const size_t lost = doctor_find_loss(d, job);
    int n = 0;
    if (lost < d->cluster->tasks)
        n = snprintf(to, size, "ps:%zu %s: ", lost,
                     status_of(d, lost) ? "has lost what it had of it" : "does not answer");
    to += n;
    size -= (size_t)n;
    if (p && p->checkpoint_step)
        snprintf(to, size,
                 "started again, it goes on from its checkpoint of step %" PRIu64
                 ", by itself from a backup, else with --resume; or psctl stop it",
                 p->checkpoint_step);
    else if (n && !doctor_has_lost(d, lost))
        snprintf(
            to, size,
            "have ps:%zu answer first, which may have all of it; if that has ended, start the job again: " FROM_FILES,
            lost);
    else if (n)
        snprintf(to, size, "start it again: " FROM_FILES);
    else
        snprintf(to, size, "start it again with --set on_existing=resume (or replace), or psctl stop it");
}

static void check_failed(struct doctor *d, const char *name, const struct job_sum *job)
{
    const char *remedy = remedy_of(job->reason);
    char advice[ADVICE_MAX];
    int n = snprintf(advice, sizeof advice, "%s%s", remedy ? remedy : "", remedy ? "; then " : "");
    doctor_put_way_on(d, job, advice + n, sizeof advice - (size_t)n);
    findings_add(&d->findings, VERDICT_FAILED, name, advice, "has failed: %.300s", job->reason);
}

static void check_interrupted(struct doctor *d, const char *name, const struct job_sum *job)
{
    char advice[ADVICE_MAX];
    doctor_put_way_on(d, job, advice, sizeof advice);
    findings_add(&d->findings, VERDICT_OK, name, advice, "was interrupted: %.300s", job->reason);
}

// One that runs ends as soon as a worker asks that ps task for it. Of ps:0 check_run says it.
static void check_loss(struct doctor *d, const char *name, const struct job_sum *job)
{
    const size_t lost = doctor_find_loss(d, job);
    char advice[ADVICE_MAX];
    if (lost == 0 || lost == d->cluster->tasks || !status_of(d, lost))
        return;
    doctor_put_way_on(d, job, advice, sizeof advice);
    findings_add(&d->findings, VERDICT_WRONG, name, advice, "is %.32s, and ends with its workers' next step",
                 job->state);
}

static void doctor_check_job(struct doctor *d, const struct job_sum *job)
{
    char name[SUBJECT_MAX];
    size_t before = json_array_size(d->findings.table.rows);
    const bool interrupted = strcmp(job->state, "interrupted") == 0,
               ended_early = strcmp(job->state, "failed") == 0 || interrupted,
               over = ended_early || strcmp(job->state, "done") == 0;
    snprintf(name, sizeof name, "job %.200s", job->name);
    if (ended_early)
        (interrupted ? check_interrupted : check_failed)(d, name, job);
    // One that has ended early may have done so on the way to all tasks.
    if (!ended_early) {
        check_run(d, name, job->name);
        if (job->update)  // else it is not declared, and has no plan
            check_plan(d, name, job->name);
    }
    if (!over) {
        check_tasks_of(d, name, job);
        check_loss(d, name, job);
        check_workers(d, name, job);
    }
    uint32_t live = job->control ? job->control->live_workers : 0;
    if (json_array_size(d->findings.table.rows) == before)
        findings_add(&d->findings, VERDICT_OK, name, NULL, "%.32s, %" PRIu32 " live worker%s", job->state, live,
                     live == 1 ? "" : "s");
}

// ---- workers that wait to join, and the queue ---------------------------------------------------------------------

static void check_rank(struct doctor *d, const Paramserver__V1__Wait *w)
{
    char name[SUBJECT_MAX];
    snprintf(name, sizeof name, "job %.200s, worker %" PRIu32, w->job, w->worker - 1);
    findings_add(&d->findings, VERDICT_WARNING, name,
                 "if both live, give each worker a --rank of its own; else the second is let in when the first is dead",
                 "a second worker of this rank waits for the first: %.200s", w->whom);
}

// Of the job `only` (NULL: of all): workers that have come before worker 0, which opens the job, and those whose rank
// another one has. Returns how many of the first there are.
static size_t check_waiting(struct doctor *d, const char *only)
{
    Paramserver__V1__WaitsRequest request = PARAMSERVER__V1__WAITS_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct ps_error e;
    size_t n = 0;
    if (!status_of(d, 0) || cluster_ask_one(d->cluster, 0, PARAMSERVER__V1__METHOD__WAITS, &request.base,
                                            &paramserver__v1__waits_reply__descriptor, &reply, &e))
        return 0;
    const Paramserver__V1__WaitsReply *waits = (const Paramserver__V1__WaitsReply *)reply;
    for (size_t i = 0; i < waits->n_waits; i++) {
        const Paramserver__V1__Wait *w = waits->waits[i];
        char name[SUBJECT_MAX];
        if (w->method != PARAMSERVER__V1__METHOD__JOIN || (only && strcmp(only, w->job) != 0))
            continue;
        if (strstr(w->whom, "whose death is not certain yet"))
            check_rank(d, w);
        if (strcmp(w->whom, "worker 0") != 0)
            continue;
        snprintf(name, sizeof name, "job %.200s", w->job);
        findings_add(&d->findings, VERDICT_WARNING, name, "start it; where it was, with --rank 0, its log says why",
                     "worker %" PRIu32 " waits for worker 0, which has not started", w->worker - 1);
        n++;
    }
    ps_msg_free(reply);
    return n;
}

struct examination {
    struct doctor *doctor;
    const char *only;
    size_t found;               // jobs of the queue that were asked for
    bool runs;                  // one of the queue does
    uint64_t now_ms, since_ms;  // since_ms: when the last of those that have ended did, or the next one was submitted
    char next[SUBJECT_MAX];     // whose turn it is; "": none waits, or it is not the one that was asked for
    uint64_t number;            // its number,
    uint32_t workers, present;  // its workers, and how many of them are there
};

static void queue_take_job(struct examination *v, const Paramserver__V1__QueuedJob *job, uint64_t now_ms)
{
    const bool queued = job->state == PARAMSERVER__V1__QUEUE_STATE__JOB_QUEUED;
    const uint64_t moment = queued ? job->submitted_ms : job->ended_ms;
    v->now_ms = now_ms;
    v->runs |= job->state == PARAMSERVER__V1__QUEUE_STATE__JOB_RUNNING;
    if (!queued || !v->workers)
        v->since_ms = v->since_ms > moment ? v->since_ms : moment;
    if (!queued || v->workers)
        return;
    v->workers = job->workers;
    v->present = job->present;
    v->number = job->number;
    if (!v->only || strcmp(v->only, job->name) == 0)
        snprintf(v->next, sizeof v->next, "job %.200s, number %" PRIu64 " of the queue", job->name, job->number);
}

// The job whose turn it is lacks workers, for so long that none is on its way.
static void check_next(const struct examination *v)
{
    char advice[ADVICE_MAX];
    if (v->runs || !v->next[0] || v->present >= v->workers || v->now_ms < v->since_ms + QUEUE_STANDS_MS)
        return;
    snprintf(
        advice, sizeof advice,
        "start workerd on the hosts that lack it: the log of one that waits names the rank; or psctl cancel %" PRIu64,
        v->number);
    findings_add(&v->doctor->findings, VERDICT_WARNING, v->next, advice,
                 "no job runs, and this one needs %" PRIu32 " worker%s, of which %" PRIu32 " %s there", v->workers,
                 v->workers == 1 ? "" : "s", v->present, v->present == 1 ? "is" : "are");
}

static void check_queued(const Paramserver__V1__QueuedJob *job, uint64_t now_ms, const char *complaint, void *arg)
{
    struct examination *v = arg;
    struct findings *f = &v->doctor->findings;
    const char *remedy = remedy_of(complaint);
    const bool failed = job->state == PARAMSERVER__V1__QUEUE_STATE__JOB_FAILED;
    char name[SUBJECT_MAX], advice[ADVICE_MAX];
    queue_take_job(v, job, now_ms);
    if (v->only && strcmp(v->only, job->name) != 0)
        return;
    v->found++;
    snprintf(name, sizeof name, "job %.200s, number %" PRIu64 " of the queue", job->name, job->number);
    snprintf(advice, sizeof advice, "%s%spsctl logs %" PRIu64 " shows the rest; cancel --forget it to be silent",
             remedy ? remedy : "", remedy ? "; " : "", job->number);
    if (job->unwritten)
        findings_add(f, VERDICT_WRONG, name, "make room on the disk of ps:0's --queue folder: no job begins until then",
                     "its state cannot be written there: psd's log says why");
    if (failed && job->ended_ms + PS_FAILED_S * UINT64_C(1000) > now_ms)
        findings_add(f, VERDICT_FAILED, name, advice, "has failed with exit code %" PRIu32 "%s%.300s", job->code,
                     *complaint ? ": " : "", complaint);
    else if (!failed && remedy)
        findings_add(f, VERDICT_WARNING, name, advice, "says: %.300s", complaint);
}

// Returns how many there are.
static size_t check_queue(struct doctor *d, const char *only)
{
    struct examination v = {.doctor = d, .only = only};
    if (status_of(d, 0))
        queue_examine(d->cluster, check_queued, &v);
    check_next(&v);
    return v.found;
}

// ---- the command --------------------------------------------------------------------------------------------------

// e: that the job asked for is nowhere, or may be; what the queue has, and a job that is not declared yet, ps:0 knows.
static void doctor_examine(struct doctor *d, const char *only, struct ps_error *e)
{
    struct jobs jobs;
    e->code = PS_OK;
    begin_probes(d);
    jobs_ask(d->cluster, &d->answers, &jobs);
    find_missing(d);
    for (size_t i = 0; i < d->cluster->tasks; i++)
        if (status_of(d, i))
            check_task(d, i);
    for (size_t i = 0; i < jobs.n; i++) {
        if (only && strcmp(only, jobs.v[i].name) != 0)
            continue;
        doctor_check_job(d, &jobs.v[i]);
        if (d->n_jobs < REPORT_JOBS)
            d->jobs[d->n_jobs++] = ps_strdup(jobs.v[i].name);
    }
    const size_t waiting = check_waiting(d, only), queued = check_queue(d, only);
    if (only && !waiting && !queued && jobs_find(&jobs, only, e) && !status_of(d, 0))
        ps_fail(e, PS_NOT_FOUND, "whether there is a job %.128s is not known: ps:0 does not answer", only);
    free(jobs.v);
    cluster_answers_free(d->answers, d->cluster->tasks);
    free(d->inquiries);
    free(d->silent);
}

static enum ps_code doctor_report(const struct doctor *d, struct ps_error *e)
{
    const bool shows = !operand_is_stdout(d->report);
    if (report_write(d->report, &d->findings, d->target, (const char *const *)d->jobs, d->n_jobs, e))
        return e->code;
    if (shows)
        printf("%s has names of hosts, users, jobs and folders: read it before you send it\n", d->report);
    return PS_OK;
}

// The exit code is that of what was found; missing: the job asked for, which is said beside it.
static int doctor_show(const struct doctor *d, const struct ps_error *missing)
{
    const int exit_code = findings_exit(&d->findings);
    struct ps_error e;
    if (d->nagios)
        return missing->code && exit_code == 0 ? findings_plugin_unknown(missing, stdout)
                                               : findings_plugin(&d->findings, stdout);
    if (d->report && doctor_report(d, &e))
        return call_report(&e);
    if (!d->report)
        findings_show(&d->findings, d->target->json, stdout);
    const int own = missing->code ? call_report(missing) : 0;
    return exit_code ? exit_code : own;
}

static int doctor_ask(struct doctor *d, const char *only)
{
    struct cluster c;
    struct ps_error e;
    if (cluster_open(&c, d->target, only, &e))
        return d->nagios ? findings_plugin_unknown(&e, stdout) : call_report(&e);
    d->cluster = &c;
    findings_init(&d->findings);
    doctor_examine(d, only, &e);
    const int exit_code = doctor_show(d, &e);
    findings_fini(&d->findings);
    for (size_t i = 0; i < d->n_jobs; i++)
        free(d->jobs[i]);
    cluster_close(&c);
    return exit_code;
}

static bool doctor_is_plugin(const struct call *call)
{
    bool is = false;
    for (int i = 0; i < call->argc; i++)
        is |= strcmp(call->argv[i], "--nagios") == 0;
    return is;
}

// Nagios shows what is on standard output, and knows no code above 3.
static int doctor_end_wrong(bool plugin, int exit_code)
{
    struct ps_error e;
    if (!plugin || !exit_code)
        return exit_code;
    ps_fail(&e, PS_INVALID_ARGUMENT, "the command line of psctl doctor is wrong: standard error says how");
    return findings_plugin_unknown(&e, stdout);
}

int command_doctor(struct call *call)
{
    const bool plugin = doctor_is_plugin(call);
    struct doctor d = {.target = &call->target};
    const struct cli_option options[] = {
        TARGET_OPTIONS(&call->target), {.name = "nagios", .flag = &d.nagios}, {.name = "report", .text = &d.report}};
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return doctor_end_wrong(plugin, exit_code);
    if (d.report && (d.nagios || call->target.json))
        return doctor_end_wrong(
            plugin, call_wrong(call, "--report is a text for people: expected neither --nagios nor --json with it"));
    if (d.nagios && call->target.json)
        return doctor_end_wrong(plugin, call_wrong(call, "--nagios is a line for Nagios: expected no --json with it"));
    if (call->target.timeout == 0)
        call->target.timeout = TIMEOUT_S;
    return doctor_ask(&d, call->argc ? call->argv[0] : NULL);
}

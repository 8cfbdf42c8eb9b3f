// SPDX-License-Identifier: Apache-2.0
#include "psd/service/waits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/utf8.h"
#include "psd/service/file_thread.h"

enum { TEXT_MAX = PSD_WAIT_TEXT_MAX };

// What a call waits for whose job is not there yet, and for whom.
static const char waits_to_open[] = "the job to be opened", waits_opener[] = "worker 0";

static void waits_walk(struct psd_core *core, struct psd_job *job, const struct psd_look *look)
{
    struct psd_table *table = &core->table;
    if (job) {
        psd_job_walk(job, look);
        return;
    }
    pthread_mutex_lock(&table->lock);
    bool wanted = table->joining.n && look->look(&table->joining, look->arg);
    pthread_mutex_unlock(&table->lock);
    if (wanted)
        psd_look_report(look, NULL, waits_to_open, waits_opener);
}

// ---- time ---------------------------------------------------------------------------------------------------------

// A call may have been parked since `now` was looked up.
static uint64_t waits_parked_ns(const struct psd_call *call, uint64_t now)  // ns
{
    return now > call->parked_since ? now - call->parked_since : 0;
}

struct late {
    uint64_t now;
    uint64_t next;  // the first deadline of those that are left
    struct psd_call *calls;
};

static bool take_late(struct psd_waiters *list, void *arg)
{
    struct late *late = arg;
    psd_take_late(list, late->now, &late->calls);
    late->next = list->n && list->earliest < late->next ? list->earliest : late->next;
    return late->calls != NULL;
}

static void answer_late(struct psd_job *job, const char *what, const char *whom, void *arg)
{
    struct late *late = arg;
    (void)job;
    while (late->calls) {
        struct psd_call *call = late->calls;
        char text[2 * TEXT_MAX + 64];
        late->calls = call->next;
        snprintf(text, sizeof text, "waited %.1f s for %s%s%s", (double)waits_parked_ns(call, late->now) / 1e9, what,
                 whom[0] ? ", for " : "", whom);
        psd_call_give_up(call, late->now, PS_DEADLINE_EXCEEDED, text);
    }
}

void psd_waits_end_late(struct psd_core *core, struct psd_job *job, uint64_t now)
{
    struct late late = {.now = now, .next = UINT64_MAX};
    if (job)
        atomic_store(&job->late_at, UINT64_MAX);
    waits_walk(core, job, &(struct psd_look){take_late, answer_late, &late, now});
    if (job)
        psd_wait_lower(&job->late_at, late.next);
}

enum { STALL_LINES = 16 };

// The name in a Join or a Describe, whose job may not be there yet. "": another call.
static const char *waits_job_to_open(const struct psd_call *call)
{
    if (call->message && call->method == PARAMSERVER__V1__METHOD__JOIN)
        return ((const Paramserver__V1__JoinRequest *)call->message)->caller->job;
    if (call->message && call->method == PARAMSERVER__V1__METHOD__DESCRIBE)
        return ((const Paramserver__V1__DescribeRequest *)call->message)->caller->job;
    return "";
}

// Calls that wait for the same have one line in the log.
struct stall {
    uint64_t before;  // those who have waited since then or longer
    uint64_t next;    // the first that has waited for less
    uint32_t n;       // of the list that is being looked at
    struct stall_line {
        char job[TEXT_MAX];
        char what[TEXT_MAX], whom[TEXT_MAX];  // whom: the first call of them waits for
        bool others;                          // and others for others
        uint32_t n;
    } lines[STALL_LINES];
    size_t n_lines;
    uint32_t more;  // calls, for none of these
};

// Has the call waited for long, which has not been logged yet?
static bool stall_notice(struct stall *s, struct psd_call *call)
{
    if (call->stall_logged)
        return false;
    if (call->parked_since > s->before) {
        s->next = call->parked_since < s->next ? call->parked_since : s->next;
        return false;
    }
    call->stall_logged = true;
    return true;
}

static bool find_stalled(struct psd_waiters *list, void *arg)
{
    struct stall *s = arg;
    s->n = 0;
    for (struct psd_call *call = list->first; call; call = call->next)
        s->n += stall_notice(s, call);
    return s->n;
}

static void stall_add(struct stall *s, const char *job, uint32_t n, const char *what, const char *whom)
{
    size_t i = 0;
    while (i < s->n_lines && (strcmp(s->lines[i].what, what) != 0 || strcmp(s->lines[i].job, job) != 0))
        i++;
    if (i == STALL_LINES) {
        s->more += n;
        return;
    }
    struct stall_line *line = &s->lines[i];
    if (i == s->n_lines) {
        *line = (struct stall_line){.n = 0};
        snprintf(line->job, sizeof line->job, "%s", job);
        snprintf(line->what, sizeof line->what, "%s", what);
        snprintf(line->whom, sizeof line->whom, "%s", whom);
        s->n_lines++;
    }
    line->others |= strcmp(line->whom, whom) != 0;
    line->n += n;
}

static void add_stalled(struct psd_job *job, const char *what, const char *whom, void *arg)
{
    struct stall *s = arg;
    stall_add(s, job->name, s->n, what, whom);
}

// Of calls that wait for several jobs to be opened.
static bool find_unopened(struct psd_waiters *list, void *arg)
{
    struct stall *s = arg;
    for (struct psd_call *call = list->first; call; call = call->next)
        if (stall_notice(s, call))
            stall_add(s, waits_job_to_open(call), 1, waits_to_open, waits_opener);
    return false;
}

static void log_stalled(const struct psd_job *job, const struct stall *s)
{
    for (const struct stall_line *l = s->lines; l < s->lines + s->n_lines; l++)
        ps_warn("job '%s': %" PRIu32 " call%s wait%s long for %s%s%s%s", l->job, l->n, l->n == 1 ? "" : "s",
                l->n == 1 ? "s" : "", l->what, l->whom[0] ? ": " : "", l->whom, l->others ? ", and others" : "");
    if (s->more)
        ps_warn("%s%s%s%" PRIu32 " more calls wait long for other things", job ? "job '" : "", job ? job->name : "",
                job ? "': " : "", s->more);
}

void psd_waits_log_stalls(struct psd_core *core, struct psd_job *job, uint64_t now)
{
    uint64_t limit = core->config.stall_ms * PS_MS;
    struct stall s;
    if (!limit || now <= limit)
        return;
    s.before = now - limit;
    s.next = UINT64_MAX;
    s.n_lines = s.more = 0;
    if (job)
        atomic_store(&job->stalled_at, UINT64_MAX);
    waits_walk(core, job, &(struct psd_look){job ? find_stalled : find_unopened, add_stalled, &s});
    log_stalled(job, &s);
    if (job && s.next != UINT64_MAX)
        psd_wait_lower(&job->stalled_at, s.next + limit);
}

uint64_t psd_waits_tick(struct psd_core *core, struct psd_job *job, uint64_t now, uint64_t component_due)
{
    if (component_due <= now || atomic_load(&job->late_at) <= now)
        psd_waits_end_late(core, job, now);
    if (atomic_load(&job->stalled_at) <= now)
        psd_waits_log_stalls(core, job, now);
    const uint64_t late_at = atomic_load(&job->late_at), stalled_at = atomic_load(&job->stalled_at);
    return late_at < stalled_at ? late_at : stalled_at;
}

static bool count_calls(struct psd_waiters *list, void *arg)
{
    *(uint32_t *)arg += list->n;
    return false;
}

static void count_file_call(const struct psd_call *call, void *arg)
{
    (void)call;
    ++*(uint32_t *)arg;
}

uint32_t psd_waits_count(struct psd_core *core, struct psd_job *job)
{
    uint32_t n = 0;
    waits_walk(core, job, &(struct psd_look){count_calls, NULL, &n});
    psd_file_thread_look(core->shard_thread, job, count_file_call, &n);
    return n;
}

// ---- Waits --------------------------------------------------------------------------------------------------------

// Calls as they are told, in the order in which they were found; calls of one list share their texts.
struct listing {
    uint64_t now;
    Paramserver__V1__Wait *waits;
    uint8_t (*clients)[16];
    size_t n, cap, worded;  // the first `worded` of them have their texts
    char **texts;
    size_t n_texts, cap_texts;
    const struct psd_job *job;  // the one being walked; NULL: calls that are in none
    const char *only;           // of these only those for the job of this name; "": all
    bool broken;                // no memory
};

// The lists of those who wait in one collective have the same texts, one list after the other.
static char *waits_keep_text(struct listing *l, const char *text)
{
    for (size_t i = l->n_texts; i > 0 && i + 2 > l->n_texts; i--)
        if (strcmp(l->texts[i - 1], text) == 0)
            return l->texts[i - 1];
    char **texts = ps_try_reserve(l->texts, l->n_texts + 1, &l->cap_texts, sizeof *texts);
    char *copy = texts ? ps_try_strdup(text) : NULL;
    l->texts = texts ? texts : l->texts;
    l->broken |= !copy;
    if (copy)
        l->texts[l->n_texts++] = copy;
    return copy ? copy : (char *)"";
}

static bool waits_is_meant(const struct listing *l, const struct psd_call *call)
{
    return l->job || !l->only[0] || strcmp(l->only, waits_job_to_open(call)) == 0;
}

static bool add_wait(struct listing *l, const struct psd_call *call)
{
    size_t cap = l->cap;
    Paramserver__V1__Wait *waits = ps_try_reserve(l->waits, l->n + 1, &cap, sizeof *waits);
    l->waits = waits ? waits : l->waits;
    uint8_t(*clients)[16] = waits ? ps_try_reserve(l->clients, l->n + 1, &l->cap, sizeof *clients) : NULL;
    if (!clients)
        return false;
    l->clients = clients;
    Paramserver__V1__Wait *w = &l->waits[l->n];
    paramserver__v1__wait__init(w);
    w->method = (Paramserver__V1__Method)call->method;
    w->worker = call->worker;
    memcpy(l->clients[l->n], call->client, sizeof call->client);
    w->job = l->job ? l->job->name : waits_keep_text(l, waits_job_to_open(call));
    w->since_ms = waits_parked_ns(call, l->now) / PS_MS;
    w->left_ms = call->deadline == UINT64_MAX ? 0 : call->deadline > l->now ? (call->deadline - l->now) / PS_MS + 1 : 1;
    l->n++;
    return true;
}

static bool list_calls(struct psd_waiters *list, void *arg)
{
    struct listing *l = arg;
    for (const struct psd_call *call = list->first; call && !l->broken; call = call->next)
        l->broken = waits_is_meant(l, call) && !add_wait(l, call);
    return l->n > l->worded;
}

static void list_texts(struct psd_job *job, const char *what, const char *whom, void *arg)
{
    struct listing *l = arg;
    char *a = waits_keep_text(l, what), *b = waits_keep_text(l, whom);
    (void)job;
    for (; l->worded < l->n; l->worded++) {
        l->waits[l->worded].what = a;
        l->waits[l->worded].whom = b;
    }
}

static int longest_first(const void *a, const void *b)
{
    const Paramserver__V1__Wait *const *x = a, *const *y = b;
    return ((*x)->since_ms < (*y)->since_ms) - ((*x)->since_ms > (*y)->since_ms);
}

enum { WAIT_OVERHEAD = 64, REPLY_ROOM = PS_CHUNK_MAX - 1024 };

// As many as fit one reply.
static size_t waits_fit_reply(Paramserver__V1__Wait *const *waits, size_t n)
{
    size_t bytes = 0, i = 0;
    for (; i < n && bytes < REPLY_ROOM; i++)
        bytes += WAIT_OVERHEAD + strlen(waits[i]->job) + strlen(waits[i]->what) + strlen(waits[i]->whom);
    return i;
}

static int reply_listing(struct psd_request *t, struct listing *l, size_t skip)
{
    Paramserver__V1__WaitsReply out = PARAMSERVER__V1__WAITS_REPLY__INIT;
    Paramserver__V1__Wait **order = ps_try_alloc_array(l->n, sizeof(void *));
    if (!order || l->broken) {
        free(order);
        return ps_no_memory(&t->error, "a list of parked calls");
    }
    for (size_t i = 0; i < l->n; i++) {
        order[i] = &l->waits[i];
        l->waits[i].client = (ProtobufCBinaryData){sizeof l->clients[i], l->clients[i]};
    }
    qsort(order, l->n, sizeof(void *), longest_first);
    skip = skip < l->n ? skip : l->n;
    out.generation = t->core->generation;
    out.total = (uint32_t)l->n;
    out.n_waits = waits_fit_reply(order + skip, l->n - skip);
    out.waits = order + skip;
    int code = psd_request_reply(t, &out.base, NULL);
    free(order);
    return code;
}

static void list_file_call(const struct psd_call *call, void *arg)
{
    struct listing *l = arg;
    l->broken = l->broken || (waits_is_meant(l, call) && !add_wait(l, call));
}

static void list_job(struct psd_core *core, struct psd_job *job, struct listing *l)
{
    l->job = job;
    waits_walk(core, job, &(struct psd_look){list_calls, list_texts, l});
    psd_file_thread_look(job ? core->shard_thread : core->file_thread, job, list_file_call, l);
    list_texts(job, "a file", "this ps task's disk", l);
}

int psd_waits(struct psd_request *t)
{
    const Paramserver__V1__WaitsRequest *r = (const Paramserver__V1__WaitsRequest *)t->request;
    struct listing l = {.now = psd_now(t->core), .only = r->job};
    struct psd_jobs jobs;
    int code = (int)psd_jobs_hold(&t->core->table, r->job, &jobs, &t->error);
    if (code == PS_OK || code == PS_NOT_FOUND)
        list_job(t->core, NULL, &l);
    // It may not be opened yet, which the control task knows: that nobody waits for it is its to say.
    if (code == PS_NOT_FOUND && (l.n || t->core->config.task))
        code = PS_OK;
    if (code == PS_OK) {
        for (size_t i = 0; i < jobs.n; i++)
            list_job(t->core, jobs.v[i], &l);
        code = reply_listing(t, &l, r->skip);
        psd_jobs_release(&jobs);
    }
    for (size_t i = 0; i < l.n_texts; i++)
        free(l.texts[i]);
    free(l.texts);
    free(l.clients);
    free(l.waits);
    return code;
}

// SPDX-License-Identifier: Apache-2.0
// This worker among the members of the job, all at the control task: joining and heartbeats.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/machine.h"
#include "common/base/utf8.h"
#include "common/wire/progress.h"
#include "common/wire/wire.h"
#include "libclient/convert.h"
#include "libclient/member.h"
#include "libclient/op.h"

static int member_timeout_ms(const struct psc_client *c)
{
    return (int)(c->timeout_ns / PS_MS);
}

// Locked.
static void member_note_all(struct psc_client *c, uint64_t epoch, uint32_t live, uint32_t chief)
{
    c->member.epoch = epoch;
    c->member.live = live;
    c->member.chief = chief;
}

// ---- heartbeats ---------------------------------------------------------------------------------------------------

static void heartbeat_send(void *arg);

static bool heartbeat_is_final(enum ps_code code)
{
    return code != PS_UNAVAILABLE && code != PS_DEADLINE_EXCEEDED && code != PS_RESOURCE_EXHAUSTED &&
           code != PS_CANCELLED;
}

// Locked. Answers may overtake each other.
static void member_note_heartbeat(struct psc_client *c, const Paramserver__V1__HeartbeatReply *r)
{
    struct psc__membership *m = &c->member;
    const uint64_t silent = r->chief_silent_ms * PS_MS, now = psc__now(c), heard = now > silent ? now - silent : 0;
    if (r->furthest > m->furthest)
        m->furthest = r->furthest;
    if (r->epoch >= m->epoch)
        m->heir = r->chief == (uint32_t)c->rank && r->chief_is_heir;
    if (r->epoch > m->epoch) {
        member_note_all(c, r->epoch, r->live, r->chief);
        m->chief_heard = heard;
    } else if (r->chief == m->chief && heard > m->chief_heard) {
        m->chief_heard = heard;
    }
}

enum ps_code psc__heartbeat_heard(struct psc_client *c, const struct ps_slices *reply, struct ps_error *e)
{
    ProtobufCMessage *m;
    if (psc__decode(&c->tasks[0], &paramserver__v1__heartbeat_reply__descriptor, reply, &m, e) != PS_OK)
        return e->code;
    const Paramserver__V1__HeartbeatReply *r = (Paramserver__V1__HeartbeatReply *)m;
    c->member.heard = psc__now(c);
    c->member.unanswered = 0;
    c->member.draining = r->drain;
    c->member.checkpoints = r->checkpoints;
    if (psc__saw_generation(&c->tasks[0], r->generation))
        member_note_heartbeat(c, r);
    ps_msg_free(m);
    return PS_OK;
}

// A reply to look_for_task, or none: call.c has noted which.
static void task_looked_for(void *arg, const struct ps_error *e, struct ps_slices *reply)
{
    struct psc_client *c = arg;
    (void)e, (void)reply;
    psc__lock(c);
    c->member.looking = false;
    psc__unlock(c);
}

// Locked. A worker that waits for others at the control task would not notice that another task is gone, which is what
// the others may have ended of: with each heartbeat it asks one of them whether it is there, in turn, but stays with
// one that is not.
static void look_for_task(struct psc_client *c)
{
    struct psc__membership *m = &c->member;
    Paramserver__V1__StatusRequest request = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    struct ps_error e;
    if (m->looking || c->n_tasks == 1 || psc__now(c) < m->dead_after_ns ||
        !psc__calls_wait_for_others(c, psc__now(c) - m->dead_after_ns))
        return;
    if (!c->tasks[m->looked_at].refused_since)
        m->looked_at = m->looked_at + 1 < c->n_tasks ? m->looked_at + 1 : 1;
    request.job = c->job;
    struct psc__call_spec spec = {.task = m->looked_at,
                                  .method = PARAMSERVER__V1__METHOD__STATUS,
                                  .message = &request.base,
                                  .timeout_ms = (int)(m->dead_after_ns / PS_MS),
                                  .once = true,
                                  .done = task_looked_for,
                                  .arg = c};
    m->looking = psc__call_locked(c, &spec, &e) == PS_OK;
}

// Of heartbeats without an answer one may be this process's own doing, or its machine's: they stood still meanwhile.
enum { LEAST_UNANSWERED = 2 };

// Locked. A heartbeat is over; the next one follows unless that ends the client.
static void heartbeat_ended(struct psc_client *c, const struct ps_error *e)
{
    uint64_t silent = psc__now(c) - c->member.heard;
    c->member.unsent |= e->code != PS_OK;
    c->member.unanswered += e->code != PS_OK;
    if (e->code == PS_NOT_FOUND)
        psc__lost_job(&c->tasks[0], e->text);
    else if (e->code != PS_OK && heartbeat_is_final(e->code))
        psc__end(c, PS_ABORTED, "the job has ended: %s", e->text);
    c->tasks[0].given_up |= c->member.unanswered >= LEAST_UNANSWERED && silent > 2 * c->member.dead_after_ns;
    if (c->tasks[0].given_up)
        psc__end(c, PS_UNAVAILABLE, PSC__TASK ", the control task, has been silent for %.1f s: %s",
                 PSC__TASK_ARGS(&c->tasks[0]), (double)silent / 1e9, e->text);
    psc__ops_expire(c);
    if (c->ended.code == PS_OK)
        look_for_task(c);
    if (c->ended.code == PS_OK)
        psc__after(c, c->member.heartbeat_ns, heartbeat_send, c);
}

static void heartbeat_answered(void *arg, const struct ps_error *error, struct ps_slices *reply)
{
    struct psc_client *c = arg;
    struct ps_error e = *error;
    psc__lock(c);
    if (e.code == PS_OK)
        psc__heartbeat_heard(c, reply, &e);
    heartbeat_ended(c, &e);
    psc__unlock(c);
}

enum ps_code psc__heartbeat(struct psc_client *c, psc__call_fn done, void *arg, bool owns_arg, struct ps_error *e)
{
    struct psc__membership *m = &c->member;
    Paramserver__V1__HeartbeatRequest request = PARAMSERVER__V1__HEARTBEAT_REQUEST__INIT;
    struct ps_progress_message progress;
    // Several may be lost before the silence counts as death.
    uint64_t patience = m->dead_after_ns / 4 > m->heartbeat_ns ? m->dead_after_ns / 4 : m->heartbeat_ns;
    request.epoch = m->epoch;
    request.step = m->step;
    request.examples_per_second = m->examples_per_second;
    request.loss = m->loss;
    request.checkpoint = m->checkpoint;
    request.checkpoint_failed = m->checkpoint_failed;
    request.checkpoint_text = m->checkpoint_text;
    request.waits = psc__calls_wait_for_others(c, UINT64_MAX);
    if (m->chief == (uint32_t)c->rank)
        request.progress = ps_progress_write(&m->progress, &progress);
    m->unsent = false;
    struct psc__call_spec spec = {.method = PARAMSERVER__V1__METHOD__HEARTBEAT,
                                  .message = &request.base,
                                  .timeout_ms = (int)(patience / PS_MS),
                                  .once = true,
                                  .last = c->ended.code == PS_CANCELLED,
                                  .done = done,
                                  .arg = arg,
                                  .owns_arg = owns_arg};
    return psc__call_locked(c, &spec, e);
}

static void heartbeat_send(void *arg)
{
    struct psc_client *c = arg;
    struct ps_error e;
    psc__lock(c);
    if (psc__heartbeat(c, heartbeat_answered, c, false, &e) != PS_OK)
        heartbeat_ended(c, &e);
    psc__unlock(c);
}

// ---- joining ------------------------------------------------------------------------------------------------------

struct join {
    struct psc_client *client;
    uint64_t started, deadline;
    uint32_t left;  // tasks that have not been heard
    struct probe {
        struct join *join;
        struct psc__task *task;
        struct ps_error error;
    } * probes;
    psc__done_fn done;
    void *arg;
};

static void join_end(struct join *j, const struct ps_error *e)
{
    j->done(j->arg, e);
    free(j->probes);
    free(j);
}

static enum ps_code join_read(struct psc_client *c, const struct ps_slices *reply, struct ps_error *e)
{
    ProtobufCMessage *m;
    if (psc__decode(&c->tasks[0], &paramserver__v1__join_reply__descriptor, reply, &m, e) != PS_OK)
        return e->code;
    const Paramserver__V1__JoinReply *r = (Paramserver__V1__JoinReply *)m;
    psc__lock(c);
    if (r->heartbeat_ms == 0 || r->dead_after_ms < r->heartbeat_ms) {
        ps_fail(e, PS_INTERNAL, PSC__TASK ": heartbeat_ms %u, dead_after_ms %u", PSC__TASK_ARGS(&c->tasks[0]),
                r->heartbeat_ms, r->dead_after_ms);
    } else if (!psc__saw_generation(&c->tasks[0], r->generation)) {
        *e = c->ended;
    } else {
        c->member.run = r->run;
        c->member.incarnation = r->incarnation;
        c->on_existing = (psc_on_existing)r->on_existing;
        c->resumed_round = r->resumed_round;
        c->member.joined = true;
        c->member.late = r->late;
        c->member.arrival = r->arrival;
        c->member.data_epoch = r->data_epoch;
        c->member.heartbeat_ns = r->heartbeat_ms * PS_MS;
        c->member.dead_after_ns = r->dead_after_ms * PS_MS;
        c->member.heard = c->member.chief_heard = psc__now(c);
        member_note_all(c, r->epoch, r->live, r->chief);
        psc__after(c, c->member.heartbeat_ns, heartbeat_send, c);
    }
    psc__unlock(c);
    ps_msg_free(m);
    return e->code;
}

static void join_failed(struct join *j, struct ps_error *e)
{
    ps_error_prefix(e, "join as worker %d of job '%s'", j->client->rank, j->client->job);
    join_end(j, e);
}

static void join_answered(void *arg, const struct ps_error *error, struct ps_slices *reply)
{
    struct join *j = arg;
    struct ps_error e = *error;
    if (e.code == PS_OK)
        join_read(j->client, reply, &e);
    if (e.code == PS_OK)
        join_end(j, &e);
    else
        join_failed(j, &e);
}

static void join_send(struct join *j)
{
    struct psc_client *c = j->client;
    Paramserver__V1__JoinRequest request = PARAMSERVER__V1__JOIN_REQUEST__INIT;
    struct ps_error e;
    char host[PS_HOST_NAME], address[160];
    snprintf(address, sizeof address, "pid %d on %s", (int)getpid(), ps_host_name(host));
    request.address = address;
    request.workers = c->workers;
    request.min_workers = c->min_workers;
    request.update = (Paramserver__V1__Update)c->update;
    request.on_existing = (Paramserver__V1__OnExisting)c->on_existing;
    request.staleness = c->staleness;
    request.join_within_ms = c->join_within_ms;
    request.newest = c->member.newest;
    request.configuration = c->configuration;
    request.follows_mode = c->follows_mode;
    struct psc__call_spec spec = {.method = PARAMSERVER__V1__METHOD__JOIN,
                                  .message = &request.base,
                                  .timeout_ms = psc__ms_left(c, j->deadline),
                                  .awaits = c->rank ? "worker 0 to open the job" : NULL,
                                  .done = join_answered,
                                  .arg = j};
    if (psc__call(c, &spec, &e) != PS_OK)
        join_failed(j, &e);
}

// One sentence for all tasks that were not there; another error than that comes first.
static enum ps_code join_probes_error(const struct join *j, struct ps_error *e)
{
    char names[440] = "";
    size_t at = 0;
    const struct ps_error *last = NULL;
    for (uint32_t i = 0; i < j->client->n_tasks; i++) {
        const struct probe *p = &j->probes[i];
        if (p->error.code == PS_OK)
            continue;
        if (p->error.code != PS_UNAVAILABLE && p->error.code != PS_DEADLINE_EXCEEDED)
            return (*e = p->error).code;
        last = &p->error;
        if (at < sizeof names)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s" PSC__TASK ": %s", at ? "; " : "",
                                   PSC__TASK_ARGS(p->task), p->task->why[0] ? p->task->why : "it is silent");
    }
    if (!last)
        return PS_OK;
    const uint64_t took = psc__now(j->client) - j->started;
    return ps_fail(e, PS_UNAVAILABLE, "no answer within %.1f s from %s", (double)took / 1e9, names);
}

static enum ps_code probe_read(struct psc__task *t, const struct ps_slices *reply, struct ps_error *e)
{
    ProtobufCMessage *m;
    if (psc__decode(t, &paramserver__v1__status_reply__descriptor, reply, &m, e) != PS_OK)
        return e->code;
    const Paramserver__V1__StatusReply *r = (Paramserver__V1__StatusReply *)m;
    // Its generation is not noted: until it is joined, or declared, a task has nothing of this job to lose.
    psc__lock(t->client);
    if (r->newest > t->client->member.newest)
        t->client->member.newest = r->newest;
    psc__unlock(t->client);
    if (r->task != t->index)
        ps_fail(e, PS_FAILED_PRECONDITION,
                PSC__TASK " says that it is ps:%u: the cluster is described differently there", PSC__TASK_ARGS(t),
                r->task);
    ps_msg_free(m);
    return e->code;
}

// All have answered, or never will.
static void join_probes_end(struct join *j)
{
    struct ps_error e = {.code = PS_OK};
    if (join_probes_error(j, &e) == PS_OK)
        join_send(j);
    else
        join_end(j, &e);
}

static void probe_answered(void *arg, const struct ps_error *error, struct ps_slices *reply)
{
    struct probe *p = arg;
    struct join *j = p->join;
    struct ps_error e = *error;
    if (e.code == PS_OK)
        probe_read(p->task, reply, &e);
    psc__lock(j->client);
    p->error = e;
    bool last = --j->left == 0;
    psc__unlock(j->client);
    if (last)
        join_probes_end(j);
}

static struct join *join_new(struct psc_client *c, psc__done_fn done, void *arg)
{
    struct join *j = ps_try_alloc(sizeof *j);
    struct probe *probes = ps_try_alloc_array(c->n_tasks, sizeof *probes);
    if (!j || !probes) {
        free(j);
        free(probes);
        return NULL;
    }
    *j = (struct join){.client = c, .probes = probes, .done = done, .arg = arg};
    j->started = psc__now(c);
    j->deadline = j->started + c->timeout_ns;
    for (uint32_t i = 0; i < c->n_tasks; i++)
        probes[i] = (struct probe){.join = j, .task = &c->tasks[i]};
    return j;
}

// True: there was no memory for any.
static bool join_send_probes(struct join *j)
{
    struct psc_client *c = j->client;
    Paramserver__V1__StatusRequest request = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    request.job = c->job;
    // With the lock: none may be answered, and with the last one all freed, before the loop is through.
    psc__lock(c);
    for (uint32_t i = 0; i < c->n_tasks; i++) {
        struct psc__call_spec spec = {.task = i,
                                      .method = PARAMSERVER__V1__METHOD__STATUS,
                                      .message = &request.base,
                                      .timeout_ms = member_timeout_ms(c),
                                      .done = probe_answered,
                                      .arg = &j->probes[i]};
        j->left += psc__call_locked(c, &spec, &j->probes[i].error) == PS_OK;
    }
    bool none = j->left == 0;
    psc__unlock(c);
    return none;
}

void psc__join(struct psc_client *c, psc__done_fn done, void *arg)
{
    struct ps_error e = {.code = PS_OK};
    struct join *j = c->rank < 0 ? NULL : join_new(c, done, arg);
    if (c->rank >= 0 && !j)
        ps_no_memory(&e, "joining");
    if (!j)
        done(arg, &e);
    else if (join_send_probes(j))
        join_probes_end(j);
}

// ---- what is known ------------------------------------------------------------------------------------------------

void psc_report(psc_client *client, uint64_t step, double examples_per_second, double loss)
{
    psc__lock(client);
    client->member.step = step;
    client->member.examples_per_second = examples_per_second;
    client->member.loss = loss;
    client->member.unsent = true;
    psc__unlock(client);
}

psc_code psc_health(psc_client *client, psc_error *error)
{
    psc__lock(client);
    psc_code code = psc__error_out(&client->ended, error);
    psc__unlock(client);
    return code;
}

bool psc_is_chief(psc_client *client)
{
    psc__lock(client);
    bool chief = client->member.joined && client->member.chief == (uint32_t)client->rank;
    psc__unlock(client);
    return chief;
}

bool psc_is_heir(psc_client *client)
{
    psc__lock(client);
    bool heir = client->member.heir;
    psc__unlock(client);
    return heir;
}

uint64_t psc_furthest(psc_client *client)
{
    psc__lock(client);
    uint64_t step = client->member.furthest;
    psc__unlock(client);
    return step;
}

uint64_t psc_chief_silence(psc_client *client)
{
    psc__lock(client);
    uint64_t ms = client->rank < 0 ? 0 : (psc__now(client) - client->member.chief_heard) / PS_MS;
    psc__unlock(client);
    return ms;
}

uint32_t psc_live_workers(psc_client *client)
{
    psc__lock(client);
    uint32_t live = client->member.live;
    psc__unlock(client);
    return live;
}

bool psc_is_late(psc_client *client)
{
    psc__lock(client);
    bool late = client->member.late;
    psc__unlock(client);
    return late;
}

uint64_t psc_arrival(psc_client *client)
{
    psc__lock(client);
    uint64_t arrival = client->member.arrival;
    psc__unlock(client);
    return arrival;
}

uint64_t psc_data_epoch(psc_client *client)
{
    psc__lock(client);
    uint64_t epoch = client->member.data_epoch;
    psc__unlock(client);
    return epoch;
}

bool psc_is_draining(psc_client *client)
{
    psc__lock(client);
    bool draining = client->member.draining;
    psc__unlock(client);
    return draining;
}

uint64_t psc_checkpoints(psc_client *client)
{
    psc__lock(client);
    uint64_t checkpoints = client->member.checkpoints;
    psc__unlock(client);
    return checkpoints;
}

void psc_report_checkpoint(psc_client *client, uint64_t number, bool failed, const char *text)
{
    struct psc__membership *m = &client->member;
    psc__lock(client);
    const bool is_there = number == m->checkpoint && !m->checkpoint_failed;
    if (!failed || !is_there) {
        ps_utf8_cut(text, m->checkpoint_text, sizeof m->checkpoint_text);
        m->checkpoint = number;
        m->checkpoint_failed = failed;
        m->unsent = true;
    }
    psc__unlock(client);
}

void psc_report_interrupted(psc_client *client)
{
    psc__lock(client);
    client->member.interrupted = true;
    psc__unlock(client);
}

void psc_report_epoch(psc_client *client, uint64_t epochs, uint64_t ended, const psc_metric *metrics, size_t n)
{
    struct ps_progress *p = &client->member.progress;
    psc__lock(client);
    if (n || ended != p->ended)
        p->n = 0;
    p->epochs = epochs;
    p->ended = ended;
    for (size_t i = 0; i < n; i++)
        ps_progress_add(p, metrics[i].name, metrics[i].value);
    client->member.unsent = true;
    psc__unlock(client);
}

void psc_report_saved(psc_client *client, bool some, uint64_t step, uint64_t written_ms)
{
    struct ps_progress *p = &client->member.progress;
    psc__lock(client);
    p->checkpoints = some ? PS_CHECKPOINTS_SOME : PS_CHECKPOINTS_NONE;
    p->checkpoint = step;
    p->checkpoint_ms = written_ms;
    client->member.unsent = true;
    psc__unlock(client);
}

uint64_t psc_run(psc_client *client)
{
    psc__lock(client);
    uint64_t run = client->member.run;
    psc__unlock(client);
    return run;
}

uint64_t psc_resumptions(psc_client *client)
{
    psc__lock(client);
    uint64_t resumptions = client->resumptions;
    psc__unlock(client);
    return resumptions;
}

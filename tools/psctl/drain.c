// SPDX-License-Identifier: Apache-2.0
//
// psctl drain: before maintenance. A ps task takes no new jobs and goes on with those it has; a worker is asked to
// leave after its step.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/summary/figures.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "tools/common/table.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/operand.h"
#include "tools/psctl/psctl.h"
#include "tools/psctl/workers.h"

static const struct table_column columns[] = {
    {"what", "what", TABLE_TEXT}, {"state", "state", TABLE_TEXT}, {"jobs", "still runs", TABLE_LIST}};

struct drain {
    uint32_t index;   // of the ps task, or the worker's rank
    const char *job;  // of the worker; NULL: a ps task
    uint64_t worker;  // the incarnation that is asked to leave; 0: none was alive yet
    bool undo, wait, json;
    long wait_max;   // seconds
    char state[32];  // what was found last
    json_t *jobs;    // that still run on the ps task
};

// ---- asking -------------------------------------------------------------------------------------------------------

static enum ps_code drain_ask(struct cluster *c, struct drain *d, struct ps_error *e)
{
    Paramserver__V1__DrainRequest request = PARAMSERVER__V1__DRAIN_REQUEST__INIT;
    ProtobufCMessage *reply;
    request.undo = d->undo;
    if (d->job) {
        request.job = (char *)d->job;
        request.worker = d->index + 1;
    }
    if (cluster_ask_one(c, d->job ? 0 : d->index, PARAMSERVER__V1__METHOD__DRAIN, &request.base,
                        &paramserver__v1__drain_reply__descriptor, &reply, e))
        return e->code;
    const Paramserver__V1__DrainReply *r = (const Paramserver__V1__DrainReply *)reply;
    json_array_clear(d->jobs);
    for (size_t i = 0; !d->job && i < r->n_jobs; i++)
        json_array_append_new(d->jobs, json_string(r->jobs[i]));
    snprintf(d->state, sizeof d->state, "%s",
             d->undo               ? (d->job ? "stays" : "takes jobs")
             : d->job || r->n_jobs ? "draining"
                                   : "drained");
    ps_msg_free(reply);
    return PS_OK;
}

// What has become of the worker that was asked to leave; NULL: it has not left yet. It has where it is not alive, or
// another one is in its place, which nobody has asked.
static const char *drain_end_of(struct drain *d, const Paramserver__V1__Member *m)
{
    if (m->state != PARAMSERVER__V1__MEMBER_STATE__LIVE)
        return ps_member_state(m);
    if (d->worker && m->incarnation != d->worker && !m->draining)
        return "left";
    d->worker = m->incarnation;
    return NULL;
}

static enum ps_code look_at_worker(struct cluster *c, struct drain *d, struct ps_error *e)
{
    Paramserver__V1__WorkersReply *reply;
    const char *end = NULL;
    if (workers_ask(c, d->job, &reply, e))
        return e->code;
    for (size_t i = 0; i < reply->n_members; i++)
        if (reply->members[i]->rank == d->index)
            end = drain_end_of(d, reply->members[i]);
    snprintf(d->state, sizeof d->state, "%s", end ? end : "draining");
    ps_msg_free(&reply->base);
    return PS_OK;
}

// ---- showing ------------------------------------------------------------------------------------------------------

static char *name_of(const struct drain *d)
{
    return d->job ? ps_printf("job %s, worker %" PRIu32, d->job, d->index) : ps_printf("ps:%" PRIu32, d->index);
}

static void drain_show(const struct drain *d)
{
    struct table t;
    char *name = name_of(d);
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    table_row(&t);
    table_cell(&t, table_text(name));
    table_cell(&t, table_text(d->state));
    table_cell(&t, json_array_size(d->jobs) ? json_incref(d->jobs) : NULL);
    table_show(&(struct table_part){"drain", &t, true}, 1, d->json, stdout);
    table_fini(&t);
    free(name);
}

static bool drain_is_over(const struct drain *d)
{
    return strcmp(d->state, "draining") != 0;
}

static enum ps_code drain_fail_absent(const struct drain *d, struct ps_error *e)
{
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "worker %" PRIu32
                   " of job %.128s is %s, and cannot be asked to leave: it trains if it is started while the job runs",
                   d->index, d->job, d->state);
}

// Progress for people, on a line of its own whenever something has changed.
static enum ps_code drain_wait_for(struct cluster *c, struct drain *d, struct ps_error *e)
{
    uint64_t end = ps_now() + (uint64_t)d->wait_max * PS_SECOND;
    size_t jobs = SIZE_MAX;
    while (!drain_is_over(d)) {
        if (json_array_size(d->jobs) != jobs && !d->json) {
            jobs = json_array_size(d->jobs);
            drain_show(d);
            fflush(stdout);
        }
        if (ps_now() > end) {
            char *name = name_of(d);
            ps_fail(e, PS_DEADLINE_EXCEEDED, "%s is still draining after %ld s", name, d->wait_max);
            free(name);
            return e->code;
        }
        ps_sleep(500 * PS_MS);
        if (d->job ? look_at_worker(c, d, e) : drain_ask(c, d, e))
            return e->code;
    }
    return d->job && strcmp(d->state, "left") != 0 ? drain_fail_absent(d, e) : PS_OK;
}

// A worker that has left is not asked. One that has not come, or is dead, cannot be.
static enum ps_code drain_begin(struct cluster *c, struct drain *d, struct ps_error *e)
{
    if (d->job && look_at_worker(c, d, e))
        return e->code;
    if (!d->job || !drain_is_over(d))
        return drain_ask(c, d, e);
    return d->undo || strcmp(d->state, "left") == 0 ? PS_OK : drain_fail_absent(d, e);
}

static int drain_run(struct cluster *c, struct drain *d)
{
    struct ps_error e;
    if (!d->job && d->index >= c->tasks) {
        ps_fail(&e, PS_NOT_FOUND, "there is no ps:%" PRIu32 " among %zu ps tasks", d->index, c->tasks);
        return call_report(&e);
    }
    if (cluster_check(c, &e) || drain_begin(c, d, &e) || (d->wait && !d->undo && drain_wait_for(c, d, &e)))
        return d->job ? jobs_report_error(c, d->job, &e) : call_report(&e);
    drain_show(d);
    return 0;
}

int command_drain(struct call *call)
{
    struct drain d = {.wait_max = 3600};
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target),
                                         {.name = "undo", .flag = &d.undo},
                                         {.name = "wait", .flag = &d.wait},
                                         {.name = "wait-max", .number = &d.wait_max, .min = 1, .max = 31 * 24 * 3600}};
    struct cluster c;
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    d.job = call->argc == 2 ? call->argv[0] : NULL;
    d.json = call->target.json;
    if (operand_task(call->argv[call->argc - 1], d.job ? "worker" : "ps", &d.index, &e))
        return call_wrong(call, "%s", e.text);
    if (cluster_open(&c, &call->target, d.job, &e))
        return call_report(&e);
    d.jobs = json_array();
    exit_code = drain_run(&c, &d);
    json_decref(d.jobs);
    cluster_close(&c);
    return exit_code;
}

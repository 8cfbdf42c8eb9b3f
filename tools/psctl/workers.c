// SPDX-License-Identifier: Apache-2.0
//
// psctl workers: a job's members, as the control task knows them.
#include "tools/psctl/workers.h"
#include "common/summary/figures.h"
#include "common/wire/members.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/psctl.h"

// On a narrow screen the last ones are left out.
static const struct table_column columns[] = {
    {"job", "job", TABLE_TEXT},
    {"worker", "worker", TABLE_COUNT},
    {"state", "state", TABLE_TEXT},
    {"step", "step", TABLE_COUNT},
    {"examples_per_second", "examples/s", TABLE_REAL},
    {"loss", "loss", TABLE_REAL},
    {"silent_ms", "silent", TABLE_MS},
    {"excluded", "excluded", TABLE_FLAG},
    {"draining", "draining", TABLE_FLAG},
    {"clock", "clock", TABLE_COUNT, .detail = true},
    {"lead", "lead", TABLE_COUNT},
    {"process", "process", TABLE_TEXT, .detail = true},
    {"reason", "reason", TABLE_SENTENCE},
};

static void member_row(struct table *t, const char *job, const Paramserver__V1__Member *m, uint64_t slowest)
{
    bool clocked = m->state == PARAMSERVER__V1__MEMBER_STATE__LIVE && slowest <= m->clock;
    bool joined = ps_member_has_joined(m), steps = joined && m->step;
    table_row(t);
    table_cell(t, table_text(job));
    table_cell(t, json_integer(m->rank));
    table_cell(t, table_text(ps_member_state(m)));
    table_cell(t, joined ? table_count(m->step) : NULL);
    table_cell(t, steps ? json_real(m->examples_per_second) : NULL);
    table_cell(t, steps ? table_real(m->loss) : NULL);
    table_cell(t, joined ? table_count(m->silent_ms) : NULL);
    table_cell(t, json_boolean(m->excluded));
    table_cell(t, json_boolean(m->draining));
    table_cell(t, clocked ? table_count(m->clock) : NULL);
    table_cell(t, clocked ? table_count(m->clock - slowest) : NULL);
    table_cell(t, table_text(m->address));
    table_cell(t, table_text(m->reason));
}

// The least clock of the live workers, from which each one's lead is counted. UINT64_MAX: this job has no clock.
static uint64_t slowest_clock(const Paramserver__V1__WorkersReply *reply)
{
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < reply->n_members; i++) {
        const Paramserver__V1__Member *m = reply->members[i];
        most = m->clock > most ? m->clock : most;
        if (m->state == PARAMSERVER__V1__MEMBER_STATE__LIVE && !m->excluded && m->clock < least)
            least = m->clock;
    }
    return most ? least : UINT64_MAX;
}

void workers_table(struct table *t)
{
    table_init(t, columns, sizeof columns / sizeof columns[0]);
}

void workers_rows(struct table *t, const char *job, const Paramserver__V1__WorkersReply *reply)
{
    uint64_t slowest = slowest_clock(reply);
    for (size_t i = 0; i < reply->n_members; i++)
        member_row(t, job, reply->members[i], slowest);
}

static void workers_show(const char *job, const Paramserver__V1__WorkersReply *reply, bool json)
{
    struct table t;
    workers_table(&t);
    workers_rows(&t, json ? job : NULL, reply);
    table_show(&(struct table_part){"workers", &t, false}, 1, json, stdout);
    table_fini(&t);
}

static enum ps_code workers_page(void *cluster, const Paramserver__V1__WorkersRequest *request,
                                 Paramserver__V1__WorkersReply **reply, struct ps_error *e)
{
    return cluster_ask_one(cluster, 0, PARAMSERVER__V1__METHOD__WORKERS, &request->base,
                           &paramserver__v1__workers_reply__descriptor, (ProtobufCMessage **)reply, e);
}

enum ps_code workers_ask(struct cluster *c, const char *job, Paramserver__V1__WorkersReply **reply, struct ps_error *e)
{
    return ps_members_ask(job, workers_page, c, reply, e);
}

static int workers_request(struct cluster *c, struct call *call)
{
    struct ps_error e;
    Paramserver__V1__WorkersReply *reply;
    if (workers_ask(c, call->argv[0], &reply, &e))
        return jobs_report_error(c, call->argv[0], &e);
    workers_show(call->argv[0], reply, call->target.json);
    ps_msg_free(&reply->base);
    return 0;
}

int command_workers(struct call *call)
{
    return cluster_command(call, workers_request);
}

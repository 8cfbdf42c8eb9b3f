// SPDX-License-Identifier: Apache-2.0
//
// psctl workers: a job's members, as the control task knows them.
#include "common/wire.h"
#include "proto/paramserver.pb-c.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/table.h"

static const struct table_column columns[] = {
    {"rank", "worker", TABLE_COUNT},
    {"state", "state", TABLE_TEXT},
    {"address", "address", TABLE_TEXT},
    {"step", "step", TABLE_COUNT},
    {"images_per_second", "images/s", TABLE_REAL},
    {"loss", "loss", TABLE_REAL},
    {"silent_ms", "silent", TABLE_MS},
    {"reason", "reason", TABLE_TEXT},
};

static const char *state_name(int state)
{
    switch (state) {
    case PARAMSERVER__V1__MEMBER_STATE__EXPECTED:
        return "expected";
    case PARAMSERVER__V1__MEMBER_STATE__LIVE:
        return "live";
    case PARAMSERVER__V1__MEMBER_STATE__LEFT:
        return "left";
    case PARAMSERVER__V1__MEMBER_STATE__DEAD:
        return "dead";
    default:
        return NULL;
    }
}

static void member_row(struct table *t, const Paramserver__V1__Member *m)
{
    bool joined = m->state != PARAMSERVER__V1__MEMBER_STATE__EXPECTED;
    table_row(t);
    table_cell(t, json_integer(m->rank));
    table_cell(t, table_text(state_name((int)m->state)));
    table_cell(t, table_text(m->address));
    table_cell(t, joined ? json_integer((json_int_t)m->step) : NULL);
    table_cell(t, joined ? json_real(m->images_per_second) : NULL);
    table_cell(t, joined ? json_real(m->loss) : NULL);
    table_cell(t, joined ? json_integer((json_int_t)m->silent_ms) : NULL);
    table_cell(t, table_text(m->reason));
}

static void show(const Paramserver__V1__WorkersReply *reply, bool json)
{
    struct table t;
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < reply->n_members; i++)
        member_row(&t, reply->members[i]);
    table_show(&(struct table_part){"workers", &t, false}, 1, json, stdout);
    table_fini(&t);
}

static int ask(struct cluster *c, struct call *call)
{
    Paramserver__V1__WorkersRequest request = PARAMSERVER__V1__WORKERS_REQUEST__INIT;
    struct ps_error e;
    ProtobufCMessage *reply;
    request.job = call->argv[0];
    if (cluster_ask_one(c, 0, PARAMSERVER__V1__METHOD__WORKERS, &request.base,
                        &paramserver__v1__workers_reply__descriptor, &reply, &e))
        return report(&e);
    show((const Paramserver__V1__WorkersReply *)reply, call->target.json);
    ps_msg_free(reply);
    return 0;
}

int command_workers(struct call *call)
{
    return cluster_command(call, ask);
}

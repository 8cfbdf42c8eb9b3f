// SPDX-License-Identifier: Apache-2.0
//
// psctl set-mode: the next epoch of a running job is async, ssp or sync. The control task tells its workers, with what
// they train next.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/summary/figures.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "tools/common/table.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/psctl.h"

typedef Paramserver__V1__SetModeRequest Request;
typedef Paramserver__V1__SetModeReply Reply;

enum { MODE_TEXT_MAX = 48, NO_STALENESS = -1 };

static const struct table_column columns[] = {
    {"job", "job", TABLE_TEXT},           {"update", "update", TABLE_TEXT},     {"staleness", "staleness", TABLE_COUNT},
    {"epoch", "from epoch", TABLE_INDEX}, {"replaced", "replaced", TABLE_TEXT},
};

static const char *mode_text(Paramserver__V1__Update update, uint32_t staleness, char text[MODE_TEXT_MAX])
{
    if (update == PARAMSERVER__V1__UPDATE__SSP)
        snprintf(text, MODE_TEXT_MAX, "ssp with staleness %" PRIu32, staleness);
    else
        snprintf(text, MODE_TEXT_MAX, "%s", ps_mode_name(update));
    return text;
}

// Epochs are counted from 1 where people read them.
static void mode_say(const Request *asked, const Reply *reply)
{
    char mode[MODE_TEXT_MAX], replaced[MODE_TEXT_MAX];
    mode_text(asked->update, asked->staleness, mode);
    if (reply->data_epoch)
        printf("job %s is %s from epoch %" PRIu64 " on", asked->job, mode, reply->data_epoch + 1);
    else
        printf("job %s is %s already", asked->job, mode);
    if (reply->replaced)
        printf(", and not %s", mode_text(reply->replaced, reply->replaced_staleness, replaced));
    printf("\n");
}

static void mode_show(const Request *asked, const Reply *reply)
{
    char replaced[MODE_TEXT_MAX];
    struct table t;
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    table_row(&t);
    table_cell(&t, table_text(asked->job));
    table_cell(&t, table_text(ps_mode_name(asked->update)));
    table_cell(&t, asked->update == PARAMSERVER__V1__UPDATE__SSP ? table_count(asked->staleness) : NULL);
    table_cell(&t, reply->data_epoch ? table_count(reply->data_epoch) : NULL);
    table_cell(&t,
               reply->replaced ? table_text(mode_text(reply->replaced, reply->replaced_staleness, replaced)) : NULL);
    table_show(&(struct table_part){"jobs", &t, false}, 1, true, stdout);
    table_fini(&t);
}

static int mode_set(struct cluster *c, const Request *request, bool json)
{
    ProtobufCMessage *reply;
    struct ps_error e;
    if (cluster_check(c, &e))
        return call_report(&e);
    if (cluster_ask_one(c, 0, PARAMSERVER__V1__METHOD__SET_MODE, &request->base,
                        &paramserver__v1__set_mode_reply__descriptor, &reply, &e))
        return jobs_report_error(c, request->job, &e);
    if (json)
        mode_show(request, (const Reply *)reply);
    else
        mode_say(request, (const Reply *)reply);
    ps_msg_free(reply);
    return 0;
}

// UPDATE_NONE: it is the name of none.
static Paramserver__V1__Update mode_find(const char *name)
{
    for (int u = PARAMSERVER__V1__UPDATE__SSP; u > PARAMSERVER__V1__UPDATE__UPDATE_NONE; u--)
        if (strcmp(name, ps_mode_name((Paramserver__V1__Update)u)) == 0)
            return (Paramserver__V1__Update)u;
    return PARAMSERVER__V1__UPDATE__UPDATE_NONE;
}

int command_set_mode(struct call *call)
{
    Request request = PARAMSERVER__V1__SET_MODE_REQUEST__INIT;
    long staleness = NO_STALENESS;
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target),
                                         {.name = "staleness", .number = &staleness, .min = 0, .max = 1 << 20}};
    struct cluster c;
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    request.job = call->argv[0];
    request.update = mode_find(call->argv[1]);
    const bool ssp = request.update == PARAMSERVER__V1__UPDATE__SSP;
    if (request.update == PARAMSERVER__V1__UPDATE__UPDATE_NONE)
        return call_wrong(call, "%.64s is no mode: expected async, ssp or sync", call->argv[1]);
    if (ssp != (staleness != NO_STALENESS))
        return call_wrong(call, ssp ? "ssp needs --staleness N" : "--staleness goes with ssp alone");
    request.staleness = ssp ? (uint32_t)staleness : 0;
    if (cluster_open(&c, &call->target, call->argv[0], &e))
        return call_report(&e);
    exit_code = mode_set(&c, &request, call->target.json);
    cluster_close(&c);
    return exit_code;
}

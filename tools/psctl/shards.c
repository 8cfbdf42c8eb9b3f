// SPDX-License-Identifier: Apache-2.0
//
// psctl shards: what each ps task holds of each job, and how busy it is with it.
#include <string.h>

#include "proto/paramserver.pb-c.h"
#include "tools/common/table.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/psctl.h"

static const struct table_column columns[] = {
    {"task", "ps", TABLE_COUNT},
    {"address", "address", TABLE_TEXT},
    {"state", "state", TABLE_TEXT},
    {"resident_bytes", "resident", TABLE_BYTES, .detail = true},
    {"job", "job", TABLE_TEXT},
    {"variables", "variables", TABLE_COUNT, .detail = true},
    {"partitions", "partitions", TABLE_COUNT, .detail = true},
    {"bytes", "bytes", TABLE_BYTES},
    {"dedup_bytes", "dedup", TABLE_BYTES, .detail = true},
    {"requests", "requests", TABLE_COUNT, .detail = true},
    {"requests_per_second", "requests/s", TABLE_REAL, .detail = true},
    {"bytes_per_second", "bytes/s", TABLE_BYTES},
    {"waiting", "waiting", TABLE_COUNT},
};

static void task_cells(struct table *t, struct cluster *c, size_t task, const struct answer *answer)
{
    const Paramserver__V1__StatusReply *status = (const Paramserver__V1__StatusReply *)answer->reply;
    table_row(t);
    table_cell(t, table_count(task));
    table_cell(t, table_text(psc_cluster_address(c->spec, task)));
    table_cell(t, table_text(cluster_task_state(answer)));
    table_cell(t, status ? table_count(status->resident_bytes) : NULL);
}

static void job_cells(struct table *t, const Paramserver__V1__JobStatus *job)
{
    table_cell(t, table_text(job->name));
    table_cell(t, json_integer(job->variables));
    table_cell(t, json_integer(job->partitions));
    table_cell(t, table_count(job->bytes));
    table_cell(t, table_count(job->dedup_bytes));
    table_cell(t, table_count(job->updates));
    table_cell(t, json_real(job->updates_per_second));
    table_cell(t, json_real(job->bytes_per_second));
    table_cell(t, json_integer(job->waiting));
}

// A row per job; one without where the task holds nothing.
static void task_rows(struct table *t, struct cluster *c, size_t task, const struct answer *answer, const char *only)
{
    const Paramserver__V1__StatusReply *status = (const Paramserver__V1__StatusReply *)answer->reply;
    size_t shown = 0;
    for (size_t i = 0; status && i < status->n_jobs; i++) {
        if (only && strcmp(status->jobs[i]->name, only) != 0)
            continue;
        task_cells(t, c, task, answer);
        job_cells(t, status->jobs[i]);
        shown++;
    }
    if (shown == 0)
        task_cells(t, c, task, answer);
}

static void shards_show(struct cluster *c, const struct answer *answers, const struct jobs *jobs, const char *only,
                        bool json)
{
    struct table t;
    (void)jobs;
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < c->tasks; i++)
        task_rows(&t, c, i, &answers[i], only);
    table_show(&(struct table_part){"shards", &t, false}, 1, json, stdout);
    table_fini(&t);
}

static int shards_ask(struct cluster *c, struct call *call)
{
    return jobs_show(c, call, shards_show);
}

int command_shards(struct call *call)
{
    return cluster_command(call, shards_ask);
}

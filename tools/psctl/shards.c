// SPDX-License-Identifier: Apache-2.0
//
// psctl shards: what each ps task holds of each job, and how busy it is with it.
#include <string.h>

#include "proto/paramserver.pb-c.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/table.h"

static const struct table_column columns[] = {
    {"task", "ps", TABLE_COUNT},
    {"address", "address", TABLE_TEXT},
    {"state", "state", TABLE_TEXT},
    {"resident_bytes", "resident", TABLE_BYTES},
    {"job", "job", TABLE_TEXT},
    {"variables", "variables", TABLE_COUNT},
    {"partitions", "partitions", TABLE_COUNT},
    {"bytes", "bytes", TABLE_BYTES},
    {"updates_per_second", "updates/s", TABLE_REAL},
    {"bytes_per_second", "bytes/s", TABLE_BYTES},
    {"waiting", "waiting", TABLE_COUNT},
};

static void task_cells(struct table *t, struct cluster *c, size_t task, const struct answer *answer)
{
    const Paramserver__V1__StatusReply *status = (const Paramserver__V1__StatusReply *)answer->reply;
    table_row(t);
    table_cell(t, json_integer((json_int_t)task));
    table_cell(t, table_text(psc_cluster_address(c->spec, task)));
    table_cell(t, table_text(cluster_task_state(answer)));
    table_cell(t, status ? json_integer((json_int_t)status->resident_bytes) : NULL);
}

static void job_cells(struct table *t, const Paramserver__V1__JobStatus *job)
{
    table_cell(t, table_text(job->name));
    table_cell(t, json_integer(job->variables));
    table_cell(t, json_integer(job->partitions));
    table_cell(t, json_integer((json_int_t)job->bytes));
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

static void show(struct cluster *c, const struct answer *answers, const char *only, bool json)
{
    struct table t;
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < c->tasks; i++)
        task_rows(&t, c, i, &answers[i], only);
    table_show(&(struct table_part){"shards", &t, false}, 1, json, stdout);
    table_fini(&t);
}

int command_shards(struct call *call)
{
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target)};
    struct cluster c;
    struct answer *answers;
    struct jobs jobs;
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, 3, &exit_code))
        return exit_code;
    const char *only = call->argc ? call->argv[0] : NULL;
    if (cluster_open(&c, &call->target, only, &e))
        return report(&e);
    jobs_ask(&c, &answers, &jobs);
    show(&c, answers, only, call->target.json);
    exit_code = cluster_report(answers, c.tasks);
    if (exit_code == 0 && only && !jobs_find(&jobs, only, &e))
        exit_code = report(&e);
    jobs_fini(&jobs);
    cluster_answers_free(answers, c.tasks);
    cluster_close(&c);
    return exit_code;
}

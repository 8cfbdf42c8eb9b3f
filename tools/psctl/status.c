// SPDX-License-Identifier: Apache-2.0
//
// psctl status: the cluster in words; every ps task, and every job summed over the tasks.
#include <string.h>

#include "common/summary/figures.h"
#include "proto/paramserver.pb-c.h"
#include "tools/common/table.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/psctl.h"
#include "tools/psctl/words.h"

static const struct table_column task_columns[] = {
    {"task", "ps", TABLE_COUNT},
    {"address", "address", TABLE_TEXT},
    {"state", "state", TABLE_TEXT},
    {"version", "version", TABLE_TEXT, .detail = true},
    {"uptime_ms", "up for", TABLE_MS},
    {"jobs", "jobs", TABLE_COUNT},
    {"resident_bytes", "resident", TABLE_BYTES},
    {"block_bytes", "blocks", TABLE_BYTES},
    {"pinned_bytes", "pinned", TABLE_BYTES, .detail = true},
    {"limit_bytes", "limit", TABLE_BYTES, .detail = true},
    {"queued_bytes", "queued", TABLE_BYTES, .detail = true},
};

static const struct table_column job_columns[] = {
    {"name", "job", TABLE_TEXT},
    {"user", "user", TABLE_TEXT},
    {"state", "state", TABLE_TEXT},
    {"update", "update", TABLE_TEXT, .detail = true},
    {"workers", "workers", TABLE_COUNT, .always = true},
    {"partitions", "partitions", TABLE_COUNT, .detail = true},
    {"bytes", "bytes", TABLE_BYTES},
    {"round", "round", TABLE_COUNT, .detail = true},
    {"epoch", "epoch", TABLE_INDEX},
    {"epochs", "of", TABLE_COUNT},
    {"epoch_done", "done", TABLE_SHARE},
    {"time_left_ms", "time left", TABLE_MS},
    {"age_ms", "age", TABLE_MS},
    {"checkpoint_step", "checkpoint", TABLE_COUNT, .detail = true},
    {"checkpoint_age_ms", "ago", TABLE_MS, .detail = true},
    {"steps", "steps", TABLE_COUNT},
    {"examples_per_second", "examples/s", TABLE_REAL},
    {"requests_per_second", "requests/s", TABLE_REAL, .detail = true},
    {"bytes_per_second", "bytes/s", TABLE_BYTES, .detail = true},
    {"bytes_moved", "moved", TABLE_BYTES},
    {"waiting", "waiting", TABLE_COUNT},
    {"reason", "reason", TABLE_SENTENCE},
};

static const struct table_column epoch_columns[] = {
    {"job", "job", TABLE_TEXT},
    {"epoch", "last epoch", TABLE_INDEX},
    {"metrics", "metrics", TABLE_NUMBERS},
};

static json_t *status_limit(uint64_t bytes)
{
    return bytes ? table_count(bytes) : NULL;
}

static void status_task_row(struct table *t, struct cluster *c, size_t task, const struct answer *answer)
{
    const Paramserver__V1__StatusReply *s = (const Paramserver__V1__StatusReply *)answer->reply;
    table_row(t);
    table_cell(t, table_count(task));
    table_cell(t, table_text(psc_cluster_address(c->spec, task)));
    table_cell(t, table_text(cluster_task_state(answer)));
    if (!s)
        return;
    table_cell(t, table_text(s->version));
    table_cell(t, table_count(s->uptime_ms));
    table_cell(t, table_count(s->n_jobs));
    table_cell(t, table_count(s->resident_bytes));
    table_cell(t, table_count(s->block_bytes));
    table_cell(t, table_count(s->pinned_bytes));
    table_cell(t, status_limit(s->limit_bytes));
    table_cell(t, table_count(s->queued_bytes));
}

static void status_job_row(struct table *t, const struct job_sum *job)
{
    table_row(t);
    table_cell(t, table_text(job->name));
    table_cell(t, table_text(job->user));
    table_cell(t, table_text(job->state));
    table_cell(t, table_text(ps_mode_name((Paramserver__V1__Update)job->update)));
    table_cell(t, jobs_live_workers(job));
    table_cell(t, table_count(job->partitions));
    table_cell(t, table_count(job->bytes));
    table_cell(t, job->update == PARAMSERVER__V1__UPDATE__SYNC ? table_count(job->round) : NULL);
    table_cell(t, jobs_epoch(job));
    table_cell(t, jobs_epochs(job));
    table_cell(t, jobs_epoch_done(job));
    table_cell(t, jobs_time_left(job));
    table_cell(t, jobs_age(job));
    table_cell(t, jobs_checkpoint(job));
    table_cell(t, jobs_checkpoint_age(job));
    table_cell(t, table_count(job->steps));
    table_cell(t, jobs_speed(job));
    table_cell(t, json_real(job->updates_per_second));
    table_cell(t, json_real(job->bytes_per_second));
    table_cell(t, table_count(job->bytes_moved));
    table_cell(t, table_count(job->waiting));
    table_cell(t, table_text(job->reason));
}

// The epoch that has ended last.
static void status_epoch_row(struct table *t, const struct job_sum *job)
{
    const Paramserver__V1__Progress *p = jobs_progress(job);
    if (!p || p->epochs_ended == 0 || p->n_metrics == 0)
        return;
    table_row(t);
    table_cell(t, table_text(job->name));
    table_cell(t, table_count(p->epochs_ended - 1));
    table_cell(t, jobs_metrics(p));
}

static void status_show(struct cluster *c, const struct answer *answers, const struct jobs *jobs, const char *only,
                        bool json)
{
    struct table tasks, sums, epochs, summary;
    struct ps_summary words;
    words_find(c, answers, only, &words);
    words_table(&words, &summary);
    table_init(&tasks, task_columns, sizeof task_columns / sizeof task_columns[0]);
    table_init(&sums, job_columns, sizeof job_columns / sizeof job_columns[0]);
    table_init(&epochs, epoch_columns, sizeof epoch_columns / sizeof epoch_columns[0]);
    for (size_t i = 0; i < c->tasks; i++)
        status_task_row(&tasks, c, i, &answers[i]);
    for (size_t i = 0; i < jobs->n; i++)
        if (!only || strcmp(jobs->v[i].name, only) == 0) {
            status_job_row(&sums, &jobs->v[i]);
            status_epoch_row(&epochs, &jobs->v[i]);
        }
    const struct table_part parts[] = {
        {"tasks", &tasks, false}, {"jobs", &sums, false}, {"epochs", &epochs, false}, {"summary", &summary, true}};
    if (!json)
        words_print(&words);
    table_show(parts, json ? 4 : 3, json, stdout);
    table_fini(&summary);
    table_fini(&epochs);
    table_fini(&sums);
    table_fini(&tasks);
}

static int status_ask(struct cluster *c, struct call *call)
{
    return jobs_show(c, call, status_show);
}

int command_status(struct call *call)
{
    return cluster_command(call, status_ask);
}

// SPDX-License-Identifier: Apache-2.0
//
// psctl jobs: every job with all its counts; of one job also the rule it trains by, as it is now.
#include <stdlib.h>
#include <string.h>

#include "common/math/schedule.h"
#include "common/summary/figures.h"
#include "proto/paramserver.pb-c.h"
#include "tools/common/table.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/psctl.h"
#include "tools/psctl/queue.h"

typedef Paramserver__V1__DescribeReply Description;

static const struct table_column job_columns[] = {
    {"name", "job", TABLE_TEXT},
    {"user", "user", TABLE_TEXT},
    {"state", "state", TABLE_TEXT},
    {"update", "update", TABLE_TEXT},
    {"workers", "workers", TABLE_COUNT, .always = true},
    {"all_workers", "of", TABLE_COUNT, .detail = true},
    {"min_workers", "at least", TABLE_COUNT, .detail = true},
    {"round", "round", TABLE_COUNT},
    {"staleness", "staleness", TABLE_COUNT, .detail = true},
    {"epoch", "epoch", TABLE_INDEX},
    {"epochs", "of", TABLE_COUNT},
    {"examples_done", "examples", TABLE_COUNT},
    {"examples", "of", TABLE_COUNT},
    {"time_left_ms", "time left", TABLE_MS, .detail = true},
    {"age_ms", "age", TABLE_MS, .detail = true},
    {"checkpoint_step", "checkpoint", TABLE_COUNT, .detail = true},
    {"checkpoint_age_ms", "ago", TABLE_MS, .detail = true},
    {"steps", "steps", TABLE_COUNT, .detail = true},
    {"requests", "requests", TABLE_COUNT, .detail = true},
    {"duplicates", "duplicates", TABLE_COUNT, .detail = true},
    {"stale", "stale", TABLE_COUNT, .detail = true},
    {"nonfinite", "not finite", TABLE_COUNT, .detail = true},
    {"partitions", "partitions", TABLE_COUNT, .detail = true},
    {"bytes", "bytes", TABLE_BYTES},
    {"dedup_bytes", "dedup", TABLE_BYTES, .detail = true},
    {"waiting", "waiting", TABLE_COUNT, .detail = true},
    {"splits", "split gradients", TABLE_COUNT},
    {"split_worker", "last of worker", TABLE_COUNT},
    {"split_round", "in round", TABLE_COUNT},
    {"run", "run", TABLE_COUNT, .detail = true},
    {"reason", "reason", TABLE_SENTENCE},
};

static const struct table_column rule_columns[] = {
    {"rule", "rule", TABLE_TEXT},
    {"replicas_to_aggregate", "replicas to aggregate", TABLE_COUNT},
    {"grace_ms", "grace, ms", TABLE_COUNT},
    {"staleness", "staleness allowed", TABLE_COUNT},
    {"schedule", "schedule", TABLE_TEXT},
    {"initial", "initial", TABLE_REAL},
    {"decay_steps", "decay steps", TABLE_COUNT},
    {"decay_rate", "decay rate", TABLE_REAL},
    {"staircase", "staircase", TABLE_FLAG},
    {"alpha", "alpha", TABLE_REAL},
    {"boundaries", "boundaries", TABLE_LIST},
    {"values", "values", TABLE_LIST},
    {"warmup_steps", "warm-up steps", TABLE_COUNT},
    {"warmup_initial", "warm-up from", TABLE_REAL},
    {"t_mul", "t_mul", TABLE_REAL},
    {"m_mul", "m_mul", TABLE_REAL},
    {"end_learning_rate", "end", TABLE_REAL},
    {"power", "power", TABLE_REAL},
    {"cycle", "cycle", TABLE_FLAG},
};

static const struct table_column hyper_columns[] = {
    {"name", "hyperparameter", TABLE_TEXT}, {"value", "value", TABLE_REAL},
    {"round", "since round", TABLE_COUNT},  {"declared", "declared", TABLE_REAL},
    {"next_value", "next", TABLE_REAL},     {"next_round", "from round", TABLE_COUNT},
};

// Gradients that count for some variables alone, because their workers died while they sent them.
static void job_split_cells(struct table *t, const Paramserver__V1__JobStatus *control)
{
    bool any = control && control->splits;
    table_cell(t, any ? table_count(control->splits) : NULL);
    table_cell(t, any ? table_count(control->split_worker) : NULL);
    table_cell(t, any ? table_count(control->split_round) : NULL);
}

static void job_command_row(struct table *t, const struct job_sum *job)
{
    bool sync = job->update == PARAMSERVER__V1__UPDATE__SYNC;
    table_row(t);
    table_cell(t, table_text(job->name));
    table_cell(t, table_text(job->user));
    table_cell(t, table_text(job->state));
    table_cell(t, table_text(ps_mode_name((Paramserver__V1__Update)job->update)));
    table_cell(t, jobs_live_workers(job));
    table_cell(t, jobs_all_workers(job));
    table_cell(t, jobs_min_workers(job));
    table_cell(t, sync ? table_count(job->round) : NULL);
    table_cell(t, sync ? NULL : table_count(job->staleness));
    table_cell(t, jobs_epoch(job));
    table_cell(t, jobs_epochs(job));
    table_cell(t, job->examples ? table_count(job->examples_done) : NULL);
    table_cell(t, job->examples ? table_count(job->examples) : NULL);
    table_cell(t, jobs_time_left(job));
    table_cell(t, jobs_age(job));
    table_cell(t, jobs_checkpoint(job));
    table_cell(t, jobs_checkpoint_age(job));
    table_cell(t, table_count(job->steps));
    table_cell(t, table_count(job->updates));
    table_cell(t, table_count(job->duplicates));
    table_cell(t, table_count(job->stale));
    table_cell(t, table_count(job->nonfinite));
    table_cell(t, table_count(job->partitions));
    table_cell(t, table_count(job->bytes));
    table_cell(t, table_count(job->dedup_bytes));
    table_cell(t, table_count(job->waiting));
    job_split_cells(t, job->control);
    table_cell(t, table_count(job->run));
    table_cell(t, table_text(job->reason));
}

static void jobs_table(struct table *t, const struct jobs *jobs, const char *only)
{
    table_init(t, job_columns, sizeof job_columns / sizeof job_columns[0]);
    for (size_t i = 0; i < jobs->n; i++)
        if (!only || strcmp(jobs->v[i].name, only) == 0)
            job_command_row(t, &jobs->v[i]);
}

// ---- one job's rule -----------------------------------------------------------------------------------------------

static void schedule_cells(struct table *t, const Paramserver__V1__Schedule *s)
{
    enum ps_schedule_kind kind = ps_schedule_find(s->kind);
    bool piecewise = kind == PS_PIECEWISE, restarts = kind == PS_COSINE_RESTARTS, polynomial = kind == PS_POLYNOMIAL;
    bool decays = kind == PS_EXPONENTIAL || kind == PS_INVERSE_TIME, cosine = kind == PS_COSINE || restarts;
    json_t *boundaries = json_array(), *values = json_array();
    for (size_t i = 0; i < s->n_boundaries; i++)
        json_array_append_new(boundaries, table_count(s->boundaries[i]));
    for (size_t i = 0; i < s->n_values; i++)
        json_array_append_new(values, json_real(s->values[i]));
    table_cell(t, table_text(s->kind));
    table_cell(t, piecewise ? NULL : json_real(s->initial));
    table_cell(t, piecewise || kind == PS_CONSTANT ? NULL : table_count(s->decay_steps));
    table_cell(t, decays ? json_real(s->decay_rate) : NULL);
    table_cell(t, json_boolean(decays && s->staircase));
    table_cell(t, cosine ? json_real(s->alpha) : NULL);
    table_cell(t, piecewise ? json_incref(boundaries) : NULL);
    table_cell(t, piecewise ? json_incref(values) : NULL);
    table_cell(t, s->warmup_steps ? table_count(s->warmup_steps) : NULL);
    table_cell(t, s->warmup_steps ? json_real(s->warmup_initial) : NULL);
    table_cell(t, restarts ? json_real(s->t_mul) : NULL);
    table_cell(t, restarts ? json_real(s->m_mul) : NULL);
    table_cell(t, polynomial ? json_real(s->end_learning_rate) : NULL);
    table_cell(t, polynomial ? json_real(s->power) : NULL);
    table_cell(t, json_boolean(polynomial && s->cycle));
    json_decref(boundaries);
    json_decref(values);
}

static void rule_row(struct table *t, const Description *d)
{
    table_row(t);
    table_cell(t, table_text(d->rule));
    table_cell(t, d->replicas_to_aggregate ? table_count(d->replicas_to_aggregate) : NULL);
    table_cell(t, d->grace_ms ? table_count(d->grace_ms) : NULL);
    table_cell(t, d->update == PARAMSERVER__V1__UPDATE__SSP ? table_count(d->staleness) : NULL);
    if (d->schedule && d->schedule->kind[0])
        schedule_cells(t, d->schedule);
}

// What was changed by hand of one hyperparameter, seen from a round: what holds in it, and what is to come. NULL:
// nothing.
struct changes {
    const Paramserver__V1__HyperChange *now, *next;
};

// The latest change wins from its round on, even over an earlier change that names a later round.
static struct changes changes_of(const Description *d, const char *name, uint64_t round)
{
    struct changes c = {0};
    for (size_t i = 0; i < d->n_changes; i++) {
        const Paramserver__V1__HyperChange *change = d->changes[i];
        if (strcmp(change->name, name) != 0)
            continue;
        if (change->round <= round)
            c = (struct changes){.now = change};
        else if (!c.next || change->round <= c.next->round)
            c.next = change;
    }
    return c;
}

// round: the one that is open; 0: the job has none, and what is meant for one is to come.
static void hyper_row(struct table *t, const Description *d, const Paramserver__V1__Hyper *declared, uint64_t round)
{
    const struct changes c = changes_of(d, declared->name, round);
    bool scheduled = d->schedule && d->schedule->kind[0] && strcmp(declared->name, "learning_rate") == 0;
    table_row(t);
    table_cell(t, table_text(declared->name));
    table_cell(t, c.now ? json_real(c.now->value) : scheduled ? NULL : json_real(declared->value));
    table_cell(t, c.now && c.now->round ? table_count(c.now->round) : NULL);
    table_cell(t, c.now && !scheduled ? json_real(declared->value) : NULL);
    table_cell(t, c.next ? json_real(c.next->value) : NULL);
    table_cell(t, c.next ? table_count(c.next->round) : NULL);
}

static uint64_t open_round(const struct jobs *jobs, const char *name)
{
    for (size_t i = 0; i < jobs->n; i++)
        if (strcmp(jobs->v[i].name, name) == 0 && jobs->v[i].update == PARAMSERVER__V1__UPDATE__SYNC)
            return jobs->v[i].round + 1;
    return 0;
}

// ---- the command --------------------------------------------------------------------------------------------------

static const Description *first_description(const struct answer *answers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (answers[i].reply)
            return (const Description *)answers[i].reply;
    return NULL;
}

static void show_one(struct cluster *c, const struct jobs *jobs, const char *name, bool json)
{
    struct answer *answers;
    struct table job, rule, hypers;
    jobs_table(&job, jobs, name);
    table_init(&rule, rule_columns, sizeof rule_columns / sizeof rule_columns[0]);
    table_init(&hypers, hyper_columns, sizeof hyper_columns / sizeof hyper_columns[0]);
    cluster_describe(c, &answers);
    const Description *d = first_description(answers, c->tasks);
    if (d) {
        rule_row(&rule, d);
        for (size_t i = 0; i < d->n_hypers; i++)
            hyper_row(&hypers, d, d->hypers[i], open_round(jobs, name));
    }
    const struct table_part parts[] = {{"job", &job, true}, {"rule", &rule, true}, {"hypers", &hypers, false}};
    table_show(parts, 3, json, stdout);
    cluster_answers_free(answers, c->tasks);
    table_fini(&hypers);
    table_fini(&rule);
    table_fini(&job);
}

static bool all_answered(const struct answer *answers, size_t n)
{
    size_t i = 0;
    while (i < n && answers[i].reply)
        i++;
    return i == n;
}

static void job_command_show(struct cluster *c, const struct answer *answers, const struct jobs *jobs, const char *only,
                             bool json)
{
    struct table t;
    if (only) {
        if (jobs_find(jobs, only, NULL) == PS_OK)
            show_one(c, jobs, only, json);
        return;
    }
    jobs_table(&t, jobs, NULL);
    table_show(&(struct table_part){"jobs", &t, false}, 1, json, stdout);
    table_fini(&t);
    if (jobs->n == 0 && !json && all_answered(answers, c->tasks))
        fprintf(stderr, "psctl: no jobs\n");
}

static int job_command_ask(struct cluster *c, struct call *call)
{
    const int exit_code = jobs_show(c, call, job_command_show);
    if (exit_code == 0 && !call->argc && !call->target.json)
        queue_show_open(c);
    return exit_code;
}

int command_jobs(struct call *call)
{
    return cluster_command(call, job_command_ask);
}

// SPDX-License-Identifier: Apache-2.0
//
// psctl run: a whole job on this machine. Checks the job, makes a place for the sockets, writes the command
// lines of every process, and leaves the rest to the group.
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/file/output.h"
#include "common/job/job.h"
#include "tools/common/program.h"
#include "tools/common/rundir.h"
#include "tools/common/table.h"
#include "tools/psctl/child.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/group.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/psctl.h"
#include "workerd/job/objectives.h"

enum { TRAFFIC_S = 5 };  // so long a ps task may take to say what it has moved

struct run {
    const char *file;                   // of the job
    long n_ps, n_workers, min_workers;  // 0: not said
    struct cli_list sets;
    const char *summary, *timeline, *http;
    bool resume, keep_dir;
    bool peers;    // the workers reach each other
    bool goes_on;  // the job writes backups
    char *job;     // its name
    char *shards;  // the folder of those that the ps tasks write; NULL: none

    char psd[PATH_MAX], workerd[PATH_MAX];
    struct rundir dir;
};

// ---- command lines ------------------------------------------------------------------------------------------------

// A growing argv; its words are its own.
struct words {
    char **v;
    int n;
};

static void words_add(struct words *w, const char *word)
{
    w->v = ps_realloc(w->v, (size_t)(w->n + 2) * sizeof *w->v);
    w->v[w->n++] = ps_strdup(word);
    w->v[w->n] = NULL;
}

static void add_option(struct words *w, const char *name, const char *value)
{
    words_add(w, name);
    words_add(w, value);
}

static void add_number(struct words *w, const char *name, long value)
{
    char text[24];
    snprintf(text, sizeof text, "%ld", value);
    add_option(w, name, text);
}

static char *run_peers(const struct run *run)
{
    char *list = ps_strdup(""), address[RUNDIR_PATH_MAX];
    for (int i = 0; i < run->n_ps; i++) {
        char *longer = ps_printf("%s%s%s", list, i ? "," : "", rundir_address(&run->dir, i, address));
        free(list);
        list = longer;
    }
    return list;
}

static char **ps_words(const struct run *run, int task)
{
    struct words w = {0};
    char address[RUNDIR_PATH_MAX], *list = run_peers(run);
    words_add(&w, run->psd);
    words_add(&w, "--quiet");
    add_option(&w, "--listen", rundir_address(&run->dir, task, address));
    add_number(&w, "--task", task);
    add_option(&w, "--peers", list);
    add_number(&w, "--ready-fd", CHILD_READY_FD);
    if (run->shards)
        add_option(&w, "--checkpoints", run->shards);
    if (run->http && task == 0)
        add_option(&w, "--http", run->http);
    free(list);
    return w.v;
}

static char **worker_words(const struct run *run, int rank)
{
    struct words w = {0};
    char path[RUNDIR_PATH_MAX];
    words_add(&w, run->workerd);
    add_option(&w, "--job", run->file);
    for (int i = 0; i < run->sets.n; i++)
        add_option(&w, "--set", run->sets.items[i]);
    if (run->n_ps > 0 || run->peers) {
        add_option(&w, "--cluster", rundir_cluster_file(&run->dir, path));
        add_number(&w, "--rank", rank);
        add_number(&w, "--workers", run->n_workers);
        add_number(&w, "--min-workers", run->min_workers);
    }
    if (run->peers || (run->n_ps > 0 && rank == 0))
        add_number(&w, "--ready-fd", CHILD_READY_FD);
    if (run->summary)
        add_option(&w, "--summary", run->summary);
    if (run->timeline)
        add_option(&w, "--timeline", run->timeline);
    if (run->resume)
        words_add(&w, "--resume");
    return w.v;
}

static char ***words_of_all(const struct run *run, char **(*words)(const struct run *run, int i), long n)
{
    char ***all = ps_alloc((size_t)(n + 1) * sizeof *all);
    for (int i = 0; i < n; i++)
        all[i] = words(run, i);
    return all;
}

static void words_free(char ***all)
{
    for (char ***one = all; *one; one++) {
        for (char **word = *one; *word; word++)
            free(*word);
        free(*one);
    }
    free(all);
}

// ---- the run ------------------------------------------------------------------------------------------------------

// What the job has sent and fetched. A task that does not answer may have any part of it, and is told of; where none
// answers, nothing is said.
static void run_say_traffic(void *arg)
{
    const struct run *run = arg;
    char path[RUNDIR_PATH_MAX], bytes[32], silent[64] = "";
    const struct target target = {.file = rundir_cluster_file(&run->dir, path), .timeout = TRAFFIC_S};
    struct answer *answers;
    struct cluster c;
    struct jobs jobs;
    struct ps_error e;
    uint64_t moved = 0;
    size_t answered = 0;
    if (cluster_open(&c, &target, NULL, &e))
        return;
    jobs_ask(&c, &answers, &jobs);
    for (size_t i = 0; i < jobs.n; i++)
        moved += jobs.v[i].bytes_moved;
    for (size_t i = 0; i < c.tasks; i++)
        answered += answers[i].reply != NULL;
    table_bytes_text((double)moved, bytes, sizeof bytes);
    if (answered < c.tasks)
        snprintf(silent, sizeof silent, ", as %zu of %zu ps tasks say", answered, c.tasks);
    if (answered)
        fprintf(stderr, "psctl: pushed and pulled: %s%s\n", bytes, silent);
    free(jobs.v);
    cluster_answers_free(answers, c.tasks);
    cluster_close(&c);
}

static int run_start(struct run *run)
{
    char path[RUNDIR_PATH_MAX], notice[256], save[512];
    char ***ps = words_of_all(run, ps_words, run->n_ps), ***workers = words_of_all(run, worker_words, run->n_workers);
    snprintf(notice, sizeof notice, "ps tasks: %ld, workers: %ld; psctl --cluster %s status shows them", run->n_ps,
             run->n_workers, rundir_cluster_file(&run->dir, path));
    snprintf(save, sizeof save, "psctl --cluster %s save %.200s FILE", path, run->job);
    const struct group_spec spec = {.ps = ps,
                                    .workers = workers,
                                    .n_ps = (int)run->n_ps,
                                    .n_workers = (int)run->n_workers,
                                    .min_workers = (int)run->min_workers,
                                    .ends_together = run->peers,
                                    .goes_on = run->goes_on,
                                    .page = run->http,
                                    .notice = run->n_ps ? notice : NULL,
                                    .in_need = run->n_ps && !run->peers ? save : NULL,
                                    .trained = run->n_ps ? run_say_traffic : NULL,
                                    .arg = run};
    int exit_code = group_run(&spec);
    words_free(workers);
    words_free(ps);
    return exit_code;
}

// With a directory for the sockets.
static int start_in_dir(struct run *run)
{
    struct ps_error e;
    if ((run->n_ps > 0 && program_find("psd", "PSD", run->psd, sizeof run->psd, &e)) ||
        rundir_create(&run->dir, (int)run->n_ps, run->peers ? (int)run->n_workers : 0, &e))
        return call_report(&e);
    int exit_code = run_start(run);
    if (run->keep_dir) {
        fprintf(stderr, "psctl: kept %s\n", run->dir.path);
        rundir_keep(&run->dir);
    } else {
        rundir_remove(&run->dir);
    }
    return exit_code;
}

static enum ps_code run_check_model(const struct ps_job *job, struct ps_error *e)
{
    struct wk_objectives o;
    struct nn_model *model = NULL;
    enum ps_code code = nn_model_load(job->model, &model, e);
    if (code == PS_OK)
        code = wk_objectives_bind(&o, job, model, e);
    nn_model_free(model);
    return code;
}

// How many of each kind the strategy has; what was said in vain is said.
static void run_take_counts(struct run *run, const struct ps_job *job)
{
    const char *strategy = ps_job_strategies[job->strategy];
    const bool has_ps = ps_job_needs_ps(job);
    run->peers = ps_job_needs_peers(job);
    run->goes_on = ps_job_goes_on(job, run->resume);
    run->job = ps_strdup(job->name);
    const char *shards = ps_callbacks_shards(&job->callbacks);
    run->shards = shards ? ps_strdup(shards) : NULL;
    if (!has_ps && run->n_ps)
        fprintf(stderr, "psctl: strategy %s has no ps tasks: --ps %ld is not used\n", strategy, run->n_ps);
    if (!has_ps && !run->peers && run->n_workers > 1)
        fprintf(stderr, "psctl: strategy %s has one worker: --workers %ld is not used\n", strategy, run->n_workers);
    run->n_ps = !has_ps ? 0 : run->n_ps ? run->n_ps : 2;
    run->n_workers = !has_ps && !run->peers ? 1 : run->n_workers ? run->n_workers : 2;
}

// What the job's file says, before anything starts.
static enum ps_code run_check_job(struct run *run, struct ps_error *e)
{
    struct ps_job *job;
    if (ps_job_load(run->file, run->sets.items, (size_t)run->sets.n, &job, e))
        return e->code;
    run_take_counts(run, job);
    if (run->min_workers == 0)
        run->min_workers = ps_job_min_workers(job, (uint32_t)run->n_workers);
    enum ps_code code = ps_job_check_files(job, run->summary, run->timeline, e);
    if (code == PS_OK)
        code = ps_callbacks_check_files(&job->callbacks, e);
    if (code == PS_OK && run->resume)
        code = ps_job_check_resume(job, run->file, e);
    if (code == PS_OK && run->timeline)
        code = ps_output_check(run->timeline, e);
    if (code == PS_OK)
        code = run_check_model(job, e);
    ps_job_free(job);
    if (code)
        return code;
    if (run->http && run->n_ps == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "--http shows what ps task 0 knows, and %s has none: see workerd --http",
                       run->file);
    if (run->min_workers > run->n_workers)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s needs %ld workers, and there are to be %ld: give --workers",
                       run->file, run->min_workers, run->n_workers);
    return PS_OK;
}

// What workerd counts seconds_to_first_step from.
static void note_start(void)
{
    char ns[24];
    snprintf(ns, sizeof ns, "%" PRIu64, ps_now());
    setenv("PS_STARTED_NS", ns, 1);
}

int command_run(struct call *call)
{
    struct run run = {0};
    const struct cli_option options[] = {
        {.name = "ps", .number = &run.n_ps, .min = 1, .max = GROUP_MAX},
        {.name = "workers", .number = &run.n_workers, .min = 1, .max = GROUP_MAX},
        {.name = "min-workers", .number = &run.min_workers, .min = 1, .max = GROUP_MAX},
        {.name = "set", .list = &run.sets},
        {.name = "summary", .text = &run.summary},
        {.name = "timeline", .text = &run.timeline},
        {.name = "http", .text = &run.http},
        {.name = "resume", .flag = &run.resume},
        {.name = "keep-dir", .flag = &run.keep_dir}};
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    note_start();
    run.file = call->argv[0];
    if (run_check_job(&run, &e) || program_find("workerd", "WORKERD", run.workerd, sizeof run.workerd, &e))
        exit_code = call_report(&e);
    else
        exit_code = run.n_ps > 0 || run.peers ? start_in_dir(&run) : run_start(&run);
    free(run.sets.items);
    free(run.shards);
    free(run.job);
    return exit_code;
}

// SPDX-License-Identifier: Apache-2.0
//
// psctl top: tasks, jobs and workers, asked anew every second. On a terminal one screen that renews itself; elsewhere
// one text (or JSON document) after the other.
//
// The cluster is asked on a thread of libuv's pool, so that a task which does not answer holds up neither a key nor a
// signal; a look that takes longer than the interval is shown late, and no second one is begun meanwhile.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/utf8.h"
#include "common/summary/figures.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/psctl.h"
#include "tools/psctl/screen.h"
#include "tools/psctl/workers.h"

typedef Paramserver__V1__StatusReply Status;

// On a narrow screen the last ones are left out, but for the reason.
static const struct table_column task_columns[] = {
    {"task", "ps", TABLE_COUNT},
    {"address", "address", TABLE_TEXT},
    {"state", "state", TABLE_TEXT},
    {"waiting", "waiting", TABLE_COUNT},
    {"requests_per_second", "requests/s", TABLE_REAL},
    {"bytes_per_second", "bytes/s", TABLE_BYTES},
    {"resident_bytes", "resident", TABLE_BYTES},
    {"block_bytes", "blocks", TABLE_BYTES},
    {"pinned_bytes", "pinned", TABLE_BYTES},
    {"queued_bytes", "queued", TABLE_BYTES},
};

static const struct table_column job_columns[] = {
    {"name", "job", TABLE_TEXT},
    {"state", "state", TABLE_TEXT},
    {"waiting", "waiting", TABLE_COUNT},
    {"workers", "workers", TABLE_COUNT, .always = true},
    {"round", "round", TABLE_COUNT},
    {"staleness", "staleness", TABLE_COUNT},
    {"epoch", "epoch", TABLE_INDEX},
    {"epochs", "of", TABLE_COUNT},
    {"epoch_done", "done", TABLE_SHARE},
    {"time_left_ms", "time left", TABLE_MS},
    {"requests_per_second", "requests/s", TABLE_REAL},
    {"bytes_per_second", "bytes/s", TABLE_BYTES},
    {"nonfinite", "not finite", TABLE_COUNT},
    {"update", "update", TABLE_TEXT},
    {"reason", "reason", TABLE_SENTENCE},
};

// What a look has seen.
struct view {
    char time[16];
    char missing[160];  // that the job asked for is not there; "": it is, or none is asked for
    struct table tasks, jobs, workers;
};

enum { PARTS = 3 };

struct top {
    struct cluster *cluster;
    const char *only;  // a job
    bool json, once, live;
    long interval;  // seconds
    int exit_code;

    uv_loop_t loop;
    uv_timer_t timer;
    uv_signal_t signals[3];
    uv_work_t look;
    bool looking, over;
    struct view *next;   // the look's, while there is one
    struct view *shown;  // live; NULL: nothing yet
    struct screen screen;
};

// ---- a look -------------------------------------------------------------------------------------------------------

static void top_task_row(struct table *t, const struct cluster *c, size_t task, const struct answer *answer)
{
    const Status *s = (const Status *)answer->reply;
    double updates = 0, bytes = 0;
    uint64_t waiting = 0;
    table_row(t);
    table_cell(t, table_count(task));
    table_cell(t, table_text(psc_cluster_address(c->spec, task)));
    table_cell(t, table_text(cluster_task_state(answer)));
    if (!s)
        return;
    for (size_t i = 0; i < s->n_jobs; i++) {
        updates += s->jobs[i]->updates_per_second;
        bytes += s->jobs[i]->bytes_per_second;
        waiting += s->jobs[i]->waiting;
    }
    table_cell(t, table_count(waiting));
    table_cell(t, json_real(updates));
    table_cell(t, json_real(bytes));
    table_cell(t, table_count(s->resident_bytes));
    table_cell(t, table_count(s->block_bytes));
    table_cell(t, table_count(s->pinned_bytes));
    table_cell(t, table_count(s->queued_bytes));
}

static void top_job_row(struct table *t, const struct job_sum *job)
{
    bool sync = job->update == PARAMSERVER__V1__UPDATE__SYNC;
    table_row(t);
    table_cell(t, table_text(job->name));
    table_cell(t, table_text(job->state));
    table_cell(t, table_count(job->waiting));
    table_cell(t, jobs_live_workers(job));
    table_cell(t, sync ? table_count(job->round) : NULL);
    table_cell(t, sync ? NULL : table_count(job->staleness));
    table_cell(t, jobs_epoch(job));
    table_cell(t, jobs_epochs(job));
    table_cell(t, jobs_epoch_done(job));
    table_cell(t, jobs_time_left(job));
    table_cell(t, json_real(job->updates_per_second));
    table_cell(t, json_real(job->bytes_per_second));
    table_cell(t, table_count(job->nonfinite));
    table_cell(t, table_text(ps_mode_name((Paramserver__V1__Update)job->update)));
    table_cell(t, table_text(job->reason));
}

static void worker_rows(struct table *t, struct top *top, const struct job_sum *job)
{
    Paramserver__V1__WorkersReply *reply;
    struct ps_error e;
    if (workers_ask(top->cluster, job->name, &reply, &e) != PS_OK)
        return;  // the control task's row says what is the matter
    workers_rows(t, job->name, reply);
    ps_msg_free(&reply->base);
}

static void top_fill(struct top *top, const struct answer *answers, const struct jobs *jobs, struct view *v)
{
    for (size_t i = 0; i < top->cluster->tasks; i++)
        top_task_row(&v->tasks, top->cluster, i, &answers[i]);
    for (size_t i = 0; i < jobs->n; i++) {
        if (top->only && strcmp(jobs->v[i].name, top->only) != 0)
            continue;
        top_job_row(&v->jobs, &jobs->v[i]);
        if (answers[0].reply)
            worker_rows(&v->workers, top, &jobs->v[i]);
    }
}

// Where a task answers: that none does, the tasks' rows say.
static void top_note_missing(const struct top *top, const struct answer *answers, const struct jobs *jobs,
                             struct view *v)
{
    struct ps_error e;
    bool answered = false;
    for (size_t i = 0; i < top->cluster->tasks; i++)
        answered |= answers[i].reply != NULL;
    v->missing[0] = '\0';
    if (!top->only || !answered || jobs_find(jobs, top->only, &e) == PS_OK)
        return;
    snprintf(v->missing, sizeof v->missing, "%.*s", (int)sizeof v->missing - 1, e.text);
    ps_utf8_plain(v->missing);
}

// On a thread of the pool.
static void top_look(uv_work_t *work)
{
    struct top *top = work->data;
    struct view *v = top->next = ps_alloc(sizeof *v);
    struct answer *answers;
    struct jobs jobs;
    struct tm local;
    table_init(&v->tasks, task_columns, sizeof task_columns / sizeof task_columns[0]);
    table_init(&v->jobs, job_columns, sizeof job_columns / sizeof job_columns[0]);
    workers_table(&v->workers);
    jobs_ask(top->cluster, &answers, &jobs);
    top_fill(top, answers, &jobs, v);
    top_note_missing(top, answers, &jobs, v);
    strftime(v->time, sizeof v->time, "%H:%M:%S", localtime_r(&(time_t){time(NULL)}, &local));
    if (top->once)
        top->exit_code = jobs_report(top->cluster, answers, &jobs, top->only);
    free(jobs.v);
    cluster_answers_free(answers, top->cluster->tasks);
}

// ---- what is shown ------------------------------------------------------------------------------------------------

static void top_parts_of(const struct view *v, struct table_part parts[PARTS])
{
    parts[0] = (struct table_part){"tasks", &v->tasks, false};
    parts[1] = (struct table_part){"jobs", &v->jobs, false};
    parts[2] = (struct table_part){"workers", &v->workers, false};
}

static void view_free(struct view *v)
{
    if (!v)
        return;
    table_fini(&v->workers);
    table_fini(&v->jobs);
    table_fini(&v->tasks);
    free(v);
}

static void top_draw(struct screen *s, const struct table_screen *size, FILE *to)
{
    const struct top *top = s->arg;
    struct table_part parts[PARTS];
    if (!top->shown)
        return;
    top_parts_of(top->shown, parts);
    fprintf(to, "psctl top  %s  q quits%s%s\n\n", top->shown->time, *top->shown->missing ? "  " : "",
            top->shown->missing);
    table_show_screen(parts, PARTS, &(struct table_screen){size->rows - 2, size->columns, size->utf8}, to);
}

static void top_print(const struct top *top)
{
    struct table_part parts[PARTS];
    top_parts_of(top->next, parts);
    if (!top->json)
        printf("psctl top  %s%s%s\n\n", top->next->time, *top->next->missing && !top->once ? "  " : "",
               top->once ? "" : top->next->missing);
    table_show(parts, PARTS, top->json, stdout);
    printf("%s", top->once || top->json ? "" : "\n");
    fflush(stdout);
}

// ---- the loop -----------------------------------------------------------------------------------------------------

static void top_finish(struct top *top)
{
    if (top->over)
        return;
    top->over = true;
    uv_close((uv_handle_t *)&top->timer, NULL);
    for (int i = 0; top->live && i < 3; i++)
        uv_close((uv_handle_t *)&top->signals[i], NULL);
    if (top->live)
        screen_close(&top->screen);
}

static void top_on_looked(uv_work_t *work, int status)
{
    struct top *top = work->data;
    (void)status;
    top->looking = false;
    if (!top->over && !top->live)
        top_print(top);
    view_free(top->live ? top->shown : top->next);
    top->shown = top->live ? top->next : NULL;
    if (!top->over && top->live)
        screen_draw(&top->screen);
    if (top->once || ferror(stdout))
        top_finish(top);
}

static void on_timer(uv_timer_t *timer)
{
    struct top *top = timer->data;
    if (!top->looking)
        top->looking = uv_queue_work(&top->loop, &top->look, top_look, top_on_looked) == 0;
}

static void on_key(struct screen *s, char c)
{
    struct top *top = s->arg;
    const char interrupt = 3, end_of_file = 4;  // what ^C and ^D are in raw mode
    if (c == interrupt)
        top->exit_code = 128 + SIGINT;
    if (c == 'q' || c == 'Q' || c == interrupt || c == end_of_file)
        top_finish(top);
}

static void top_on_signal(uv_signal_t *handle, int signum)
{
    struct top *top = handle->data;
    top->exit_code = 128 + signum;
    top_finish(top);
}

static void go_live(struct top *top)
{
    static const int signum[] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < 3; i++) {
        uv_signal_init(&top->loop, &top->signals[i]);
        top->signals[i].data = top;
        uv_signal_start(&top->signals[i], top_on_signal, signum[i]);
    }
    top->screen.draw = top_draw;
    top->screen.key = on_key;
    top->screen.arg = top;
    screen_open(&top->screen, &top->loop);
}

static int top_run(struct top *top)
{
    uv_loop_init(&top->loop);
    uv_timer_init(&top->loop, &top->timer);
    top->timer.data = top->look.data = top;
    if (top->live)
        go_live(top);
    uv_timer_start(&top->timer, on_timer, 0, (uint64_t)top->interval * 1000);
    uv_run(&top->loop, UV_RUN_DEFAULT);
    uv_loop_close(&top->loop);
    view_free(top->shown);
    return top->exit_code;
}

int command_top(struct call *call)
{
    struct top top = {.interval = 1};
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target),
                                         {.name = "interval", .number = &top.interval, .min = 1, .max = 3600},
                                         {.name = "once", .flag = &top.once}};
    struct cluster c;
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    // A screen wants to be renewed: who does not answer soon is shown as such.
    if (call->target.timeout == 0)
        call->target.timeout = 1;
    if (cluster_open(&c, &call->target, NULL, &e))
        return call_report(&e);
    top.cluster = &c;
    top.only = call->argc ? call->argv[0] : NULL;
    top.json = call->target.json;
    top.live = !top.once && !top.json && screen_possible();
    exit_code = top_run(&top);
    cluster_close(&c);
    return exit_code;
}

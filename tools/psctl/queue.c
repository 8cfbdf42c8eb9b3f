// SPDX-License-Identifier: Apache-2.0
//
// psctl queue, cancel and logs: jobs that wait for workers, and those that workers of the queue train.
#include "tools/psctl/queue.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/signals.h"
#include "common/base/utf8.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "tools/common/table.h"
#include "tools/psctl/psctl.h"

static const struct table_column columns[] = {
    {"number", "number", TABLE_COUNT},
    {"name", "job", TABLE_TEXT},
    {"user", "user", TABLE_TEXT},
    {"state", "state", TABLE_TEXT},
    {"exit_code", "exit code", TABLE_COUNT},
    {"priority", "priority", TABLE_REAL},
    {"workers", "workers", TABLE_COUNT},
    {"present", "there", TABLE_COUNT},
    {"waited_ms", "waited", TABLE_MS},
    {"ran_ms", "ran", TABLE_MS},
    {"ended_ms_ago", "ended", TABLE_MS, .detail = true},
};

static const char *queue_state(const Paramserver__V1__QueuedJob *job)
{
    switch (job->state) {
    case PARAMSERVER__V1__QUEUE_STATE__JOB_QUEUED:
        return "queued";
    case PARAMSERVER__V1__QUEUE_STATE__JOB_RUNNING:
        return job->cancelled ? "ending" : "running";
    case PARAMSERVER__V1__QUEUE_STATE__JOB_DONE:
        return "done";
    case PARAMSERVER__V1__QUEUE_STATE__JOB_FAILED:
        return "failed";
    case PARAMSERVER__V1__QUEUE_STATE__JOB_CANCELLED:
        return "cancelled";
    default:
        return "?";
    }
}

static bool queue_is_over(Paramserver__V1__QueueState state)
{
    return state >= PARAMSERVER__V1__QUEUE_STATE__JOB_DONE;
}

static json_t *queue_span(uint64_t from, uint64_t to)
{
    return from && to >= from ? table_count(to - from) : NULL;
}

static json_t *queue_exit_code(const Paramserver__V1__QueuedJob *job)
{
    const bool has_one =
        job->state == PARAMSERVER__V1__QUEUE_STATE__JOB_DONE || job->state == PARAMSERVER__V1__QUEUE_STATE__JOB_FAILED;
    return has_one ? table_count(job->code) : NULL;
}

static void queue_row(struct table *t, const Paramserver__V1__QueuedJob *job, uint64_t now)
{
    const bool over = queue_is_over(job->state);
    const uint64_t end = job->ended_ms ? job->ended_ms : now;
    table_row(t);
    table_cell(t, table_count(job->number));
    table_cell(t, table_text(job->name));
    table_cell(t, table_text(job->user));
    table_cell(t, table_text(queue_state(job)));
    table_cell(t, queue_exit_code(job));
    table_cell(t, json_integer(job->priority));
    table_cell(t, table_count(job->workers));
    table_cell(t, over ? NULL : table_count(job->present));
    table_cell(t, queue_span(job->submitted_ms, job->began_ms ? job->began_ms : end));
    table_cell(t, job->began_ms ? queue_span(job->began_ms, end) : NULL);
    table_cell(t, over ? queue_span(job->ended_ms, now) : NULL);
}

static enum ps_code queue_list(struct cluster *c, const char *what, Paramserver__V1__ListReply **list,
                               struct ps_error *e)
{
    Paramserver__V1__ListRequest request = PARAMSERVER__V1__LIST_REQUEST__INIT;
    ProtobufCMessage *reply;
    request.job = (char *)what;
    if (cluster_ask_one(c, 0, PARAMSERVER__V1__METHOD__LIST, &request.base, &paramserver__v1__list_reply__descriptor,
                        &reply, e))
        return e->code;
    *list = (Paramserver__V1__ListReply *)reply;
    return PS_OK;
}

bool queue_place(struct cluster *c, const char *what, char *to, size_t size)
{
    Paramserver__V1__ListReply *list = NULL;
    struct ps_error e;
    if (queue_list(c, what, &list, &e))
        return false;
    const bool found = list->n_jobs > 0;
    if (found)
        snprintf(to, size, "number %" PRIu64 " of the queue, job %.128s, is %s: psctl queue shows it",
                 list->jobs[0]->number, list->jobs[0]->name, queue_state(list->jobs[0]));
    ps_msg_free(&list->base);
    return found;
}

// ---- psctl queue --------------------------------------------------------------------------------------------------

static int queue_ask(struct cluster *c, struct call *call)
{
    Paramserver__V1__ListReply *list = NULL;
    struct table t;
    struct ps_error e;
    if (queue_list(c, call->argc ? call->argv[0] : "", &list, &e))
        return call_report(&e);
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < list->n_jobs; i++)
        queue_row(&t, list->jobs[i], list->clock_ms);
    if (call->target.json || list->n_jobs)
        table_show(&(struct table_part){"queue", &t, false}, 1, call->target.json, stdout);
    else
        puts("no job is queued");
    table_fini(&t);
    ps_msg_free(&list->base);
    return 0;
}

int command_queue(struct call *call)
{
    return cluster_command(call, queue_ask);
}

void queue_show_open(struct cluster *c)
{
    Paramserver__V1__ListReply *list = NULL;
    struct table t;
    struct ps_error e;
    size_t open = 0;
    if (queue_list(c, "", &list, &e))
        return;
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < list->n_jobs; i++)
        if (!queue_is_over(list->jobs[i]->state)) {
            queue_row(&t, list->jobs[i], list->clock_ms);
            open++;
        }
    if (open) {
        putchar('\n');
        table_show(&(struct table_part){"queue", &t, false}, 1, false, stdout);
    }
    table_fini(&t);
    ps_msg_free(&list->base);
}

// ---- psctl cancel -------------------------------------------------------------------------------------------------

static void cancel_show(const Paramserver__V1__CancelReply *r, bool json)
{
    const bool runs = r->state == PARAMSERVER__V1__QUEUE_STATE__JOB_RUNNING;
    if (json)
        printf("{\"number\": %" PRIu64 ", \"state\": \"%s\"}\n", r->number, runs ? "ending" : "cancelled");
    else
        printf("job %" PRIu64 " %s\n", r->number, runs ? "is cancelled: its workers are told to end" : "is cancelled");
}

static void forget_show(const Paramserver__V1__CancelReply *r, bool json)
{
    if (json)
        printf("{\"forgotten\": %" PRIu32 "}\n", r->forgotten);
    else
        printf("%" PRIu32 " job%s and what %s workers said %s gone\n", r->forgotten, r->forgotten == 1 ? "" : "s",
               r->forgotten == 1 ? "its" : "their", r->forgotten == 1 ? "is" : "are");
}

int command_cancel(struct call *call)
{
    Paramserver__V1__CancelRequest request = PARAMSERVER__V1__CANCEL_REQUEST__INIT;
    bool forget = false;
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target), {.name = "forget", .flag = &forget}};
    ProtobufCMessage *reply;
    struct cluster c;
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    if (cluster_open(&c, &call->target, NULL, &e))
        return call_report(&e);
    request.job = call->argv[0];
    request.forget = forget;
    if (cluster_ask_one(&c, 0, PARAMSERVER__V1__METHOD__CANCEL, &request.base,
                        &paramserver__v1__cancel_reply__descriptor, &reply, &e)) {
        exit_code = call_report(&e);
    } else {
        exit_code = 0;
        (forget ? forget_show : cancel_show)((const Paramserver__V1__CancelReply *)reply, call->target.json);
        ps_msg_free(reply);
    }
    cluster_close(&c);
    return exit_code;
}

// ---- psctl logs ---------------------------------------------------------------------------------------------------

enum {
    LOG_ASK_MS = 500,      // between two questions for more
    LOG_PATIENCE_S = 120,  // ps task 0 may be away for so long
    LOG_LINE_MAX = 4096,   // bytes; longer ones are cut in pieces
    LOG_KEPT_MAX = 400,
};

struct log {
    const char *what;
    char number[24];  // once it is known: another job of the name may come
    uint64_t offset;
    char line[LOG_LINE_MAX];
    size_t len;   // of it, so far
    bool judged;  // nothing is shown; the last error, else the last warning, is kept
    char level;   // of the one that is kept: see log_levels
    char complaint[LOG_KEPT_MAX];
    Paramserver__V1__QueueState state;
    uint32_t code;
};

// What a line complains of.
struct log_complaint {
    char level;  // '\0': of nothing
    char text[LOG_LINE_MAX];
};

// From the least on: a warning, an error, what the process says that starts workers.
static const char log_levels[] = "WE:";

// "workerd[1] E device gpu: ..."; or of the process that starts workers "workerd[1]: the worker was ended by ...",
// which comes before all that follows from it.
static void log_read_plain(const char *line, struct log_complaint *c)
{
    const char *by = strstr(line, "workerd["), *space = by ? strchr(by, ' ') : NULL;
    const bool starter = space && space[-1] == ':';
    if (!space || (!starter && (!space[1] || space[2] != ' ')))
        return;
    const char level = starter ? ':' : space[1];
    c->level = strchr(log_levels, level) ? level : '\0';
    ps_utf8_cut(space + (starter ? 1 : 3), c->text, sizeof c->text);
}

// As with PARAMSERVER_LOG=json (common/base/log.h).
static void log_read_object(const char *line, struct log_complaint *c)
{
    json_t *o = json_loads(line, 0, NULL);
    const char *level = "", *program = "", *text = "";
    json_unpack(o, "{s:s, s:s, s:s}", "level", &level, "program", &program, "text", &text);
    if (strncmp(program, "workerd[", 8) == 0)
        c->level = strcmp(level, "error") == 0 ? 'E' : strcmp(level, "warning") == 0 ? 'W' : '\0';
    ps_utf8_cut(text, c->text, sizeof c->text);
    json_decref(o);
}

static void log_judge(struct log *l)
{
    struct log_complaint c = {'\0', ""};
    if (l->line[0] == '{')
        log_read_object(l->line, &c);
    else
        log_read_plain(l->line, &c);
    if (!c.level || (l->level && strchr(log_levels, c.level) < strchr(log_levels, l->level)))
        return;
    if (l->level == c.level && strstr(c.text, "stopped by "))
        return;  // as another one has failed
    l->level = c.level;
    ps_utf8_cut(c.text, l->complaint, sizeof l->complaint);
}

static void log_end_line(struct log *l)
{
    l->line[l->len] = '\0';
    ps_utf8_plain(l->line);  // it may be anything
    if (l->judged)
        log_judge(l);
    else
        puts(l->line);
    l->len = 0;
}

static void log_take(struct log *l, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '\n' && text[i] != '\r' && text[i] != '\0')
            l->line[l->len++] = text[i];
        if (text[i] == '\n' || l->len == sizeof l->line - 1)
            log_end_line(l);
    }
}

// What is new. *more: there may be more of it at once.
static enum ps_code log_ask(struct cluster *c, struct log *l, bool *more, struct ps_error *e)
{
    Paramserver__V1__LogsRequest request = PARAMSERVER__V1__LOGS_REQUEST__INIT;
    ProtobufCMessage *reply;
    request.job = l->number[0] ? l->number : (char *)l->what;
    request.offset = l->offset;
    if (cluster_ask_one(c, 0, PARAMSERVER__V1__METHOD__LOGS, &request.base, &paramserver__v1__logs_reply__descriptor,
                        &reply, e))
        return e->code;
    const Paramserver__V1__LogsReply *r = (const Paramserver__V1__LogsReply *)reply;
    snprintf(l->number, sizeof l->number, "%" PRIu64, r->number);
    if (r->offset > l->offset && !l->judged)
        fprintf(stderr, "psctl: %" PRIu64 " bytes before this are not kept any more\n", r->offset - l->offset);
    log_take(l, (const char *)r->text.data, r->text.len);
    l->offset = r->offset + r->text.len;
    l->state = r->state;
    l->code = r->code;
    *more = r->text.len > 0;
    ps_msg_free(reply);
    fflush(stdout);
    return PS_OK;
}

// The signal by which someone stops following a job.
static volatile sig_atomic_t log_left;

static void log_on_signal(int number)
{
    ps_signal_set(&log_left, number);
}

// Not those that nohup, say, has psctl ignore. A second one ends psctl at once.
static void log_heed_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = log_on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!ps_signal_ignored(numbers[i]))
            sigaction(numbers[i], &action, NULL);
}

// It is followed no more, which has not touched the job.
static void log_say_goes_on(const struct log *l)
{
    const char *job = l->number[0] ? l->number : l->what;
    fprintf(stderr, "psctl: job %s goes on: psctl logs -f %s follows it, psctl cancel %s ends it\n", job, job, job);
}

// Must what is followed be left? A signal has come, or what is shown cannot be written.
static bool log_must_leave(void)
{
    return ps_signal_number(&log_left) || ferror(stdout);
}

// Until the job has ended, or ps task 0 is away for too long, or log_must_leave.
static enum ps_code log_follow(struct cluster *c, struct log *l, bool follow, struct ps_error *e)
{
    uint64_t answered = ps_now();
    for (bool more = true; !log_must_leave() && (more || (follow && !queue_is_over(l->state)));) {
        const enum ps_code code = log_ask(c, l, &more, e);
        if (code == PS_OK)
            answered = ps_now();
        else if (!follow || !l->number[0] || !cluster_is_silent(e->code) ||
                 ps_now() - answered > LOG_PATIENCE_S * PS_SECOND)
            return code;
        if (!more && follow)
            ps_sleep(LOG_ASK_MS * PS_MS);
        more = more && code == PS_OK;
    }
    return PS_OK;
}

static int log_exit_code(const struct log *l)
{
    if (l->state == PARAMSERVER__V1__QUEUE_STATE__JOB_CANCELLED)
        return ps_code_exit(PS_CANCELLED);
    return l->state == PARAMSERVER__V1__QUEUE_STATE__JOB_FAILED ? (int)(l->code ? l->code : 70) : 0;
}

int queue_show_output(struct cluster *c, const char *what, bool follow)
{
    struct log l = {.what = what};
    struct ps_error e;
    if (follow)
        log_heed_signals();
    const enum ps_code code = log_follow(c, &l, follow, &e);
    if (l.len)
        log_end_line(&l);
    const int left = ps_signal_number(&log_left);
    const bool leaves = follow && log_must_leave() && !queue_is_over(l.state);
    if (leaves)
        log_say_goes_on(&l);
    if (leaves && left)
        raise(left);  // its handler is gone since it came
    if (code)
        return call_report(&e);
    if (!follow || leaves)
        return 0;  // main says that the output cannot be written, and makes it 74
    const int exit_code = log_exit_code(&l);
    fprintf(stderr, "psctl: job %s %s", l.number,
            l.state == PARAMSERVER__V1__QUEUE_STATE__JOB_CANCELLED ? "was cancelled\n"
            : exit_code                                            ? "has failed"
                                                                   : "is done\n");
    if (l.state == PARAMSERVER__V1__QUEUE_STATE__JOB_FAILED)
        fprintf(stderr, " with exit code %d\n", exit_code);
    return exit_code;
}

// ---- what jobs complain of ----------------------------------------------------------------------------------------

static void queue_examine_job(struct cluster *c, const Paramserver__V1__QueuedJob *job, uint64_t now_ms,
                              queue_examine_fn examine, void *arg)
{
    struct log l = {.judged = true};
    struct ps_error e;
    snprintf(l.number, sizeof l.number, "%" PRIu64, job->number);
    if (job->state == PARAMSERVER__V1__QUEUE_STATE__JOB_RUNNING ||
        job->state == PARAMSERVER__V1__QUEUE_STATE__JOB_FAILED)
        log_follow(c, &l, false, &e);  // without the log there is no complaint
    examine(job, now_ms, l.complaint, arg);
}

// Is there one of the same name before it that is done, or has failed? The latest of the ended ones are the first.
// What psd counts as failed goes by the same rule.
static bool queue_has_later(const Paramserver__V1__ListReply *list, size_t job)
{
    for (size_t i = 0; i < job; i++)
        if ((list->jobs[i]->state == PARAMSERVER__V1__QUEUE_STATE__JOB_DONE ||
             list->jobs[i]->state == PARAMSERVER__V1__QUEUE_STATE__JOB_FAILED) &&
            strcmp(list->jobs[i]->name, list->jobs[job]->name) == 0)
            return true;
    return false;
}

void queue_examine(struct cluster *c, queue_examine_fn examine, void *arg)
{
    Paramserver__V1__ListReply *list = NULL;
    struct ps_error e;
    if (queue_list(c, "", &list, &e))
        return;
    for (size_t i = 0; i < list->n_jobs; i++)
        if (!queue_is_over(list->jobs[i]->state) || !queue_has_later(list, i) || list->jobs[i]->unwritten)
            queue_examine_job(c, list->jobs[i], list->clock_ms, examine, arg);
    ps_msg_free(&list->base);
}

int command_logs(struct call *call)
{
    bool follow = false;
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target),
                                         {.name = "follow", .letter = 'f', .flag = &follow}};
    struct cluster c;
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    if (cluster_open(&c, &call->target, NULL, &e))
        return call_report(&e);
    exit_code = queue_show_output(&c, call->argv[0], follow);
    cluster_close(&c);
    return exit_code;
}

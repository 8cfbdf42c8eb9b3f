// SPDX-License-Identifier: Apache-2.0
//
// psctl trace: the calls that have waited, on every ps task: summed up, each, or as a timeline.
#include "tools/psctl/trace.h"
#include "tools/psctl/psctl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/file/timeline.h"
#include "common/wire/wire.h"
#include "tools/psctl/caller.h"
#include "tools/psctl/cluster.h"

static const struct table_column event_columns[] = {
    {"task", "ps", TABLE_COUNT},    {"job", "job", TABLE_TEXT},         {"who", "who", TABLE_TEXT},
    {"method", "call", TABLE_TEXT}, {"what", "waited for", TABLE_TEXT}, {"whom", "of whom", TABLE_TEXT},
    {"waited_us", "for", TABLE_US}, {"ended_us", "ago", TABLE_US},      {"end", "then", TABLE_TEXT},
};

// What was asked for, and what the tasks have answered.
struct tracing {
    const char *job;  // NULL: all
    bool events, json;
    const char *timeline;  // NULL: none is written
    struct trace trace;
    ProtobufCMessage **more;  // [n_more] answers that trace points into, besides the first of each task
    size_t n_more;
};

// ---- asking -------------------------------------------------------------------------------------------------------

static Paramserver__V1__TraceRequest trace_request(const char *job, size_t skip)
{
    Paramserver__V1__TraceRequest request = PARAMSERVER__V1__TRACE_REQUEST__INIT;
    if (job)
        request.job = (char *)job;
    request.skip = (uint32_t)skip;
    return request;
}

// at: when it was answered, ns on ps_now()'s clock.
static void trace_take(struct trace *trace, size_t task, const Paramserver__V1__TraceReply *reply, uint64_t at)
{
    trace->v = ps_realloc(trace->v, (trace->n + reply->n_waits + 1) * sizeof *trace->v);
    for (size_t i = 0; i < reply->n_waits; i++) {
        const Paramserver__V1__PastWait *past = reply->waits[i];
        const uint64_t ended = TRACE_NOW + at - past->ended_us * 1000;
        trace->v[trace->n++] = (struct trace_wait){task, past, ended - past->waited_us * 1000, ended};
    }
}

// The rest of a list that was more than one answer holds. What is added meanwhile shifts it: some may come twice.
static enum ps_code trace_ask_rest(struct cluster *c, struct tracing *x, uint32_t task,
                                   const Paramserver__V1__TraceReply *first, struct ps_error *e)
{
    size_t seen = first->n_waits, total = first->total;
    while (seen < total) {
        Paramserver__V1__TraceRequest request = trace_request(x->job, seen);
        ProtobufCMessage *reply;
        if (cluster_ask_one(c, task, PARAMSERVER__V1__METHOD__TRACE, &request.base,
                            &paramserver__v1__trace_reply__descriptor, &reply, e))
            return e->code;
        const Paramserver__V1__TraceReply *more = (const Paramserver__V1__TraceReply *)reply;
        x->more = ps_realloc(x->more, (x->n_more + 1) * sizeof(ProtobufCMessage *));
        x->more[x->n_more++] = reply;
        trace_take(&x->trace, task, more, ps_now());
        seen += more->n_waits;
        total = more->n_waits ? total : 0;
    }
    return PS_OK;
}

static uint64_t trace_answered_at(const struct answer *answer)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    const int64_t since_ms = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000 - answer->answered_ms;
    return ps_now() - (since_ms > 0 ? (uint64_t)since_ms * PS_MS : 0);
}

static int trace_collect(struct cluster *c, struct tracing *x, const struct answer *answers)
{
    struct ps_error e;
    int exit_code = 0;
    for (size_t task = 0; task < c->tasks; task++) {
        const Paramserver__V1__TraceReply *reply = (const Paramserver__V1__TraceReply *)answers[task].reply;
        if (!reply)
            continue;
        trace_take(&x->trace, task, reply, trace_answered_at(&answers[task]));
        if (trace_ask_rest(c, x, (uint32_t)task, reply, &e))
            exit_code = call_report(&e);
    }
    return exit_code;
}

// ---- each wait ----------------------------------------------------------------------------------------------------

static const char *event_end(Paramserver__V1__WaitEnd end)
{
    return end == PARAMSERVER__V1__WAIT_END__WENT_ON           ? "went on"
           : end == PARAMSERVER__V1__WAIT_END__END_BY_DEADLINE ? "met its deadline"
           : end == PARAMSERVER__V1__WAIT_END__END_CANCELLED   ? "was cancelled"
           : end == PARAMSERVER__V1__WAIT_END__END_WITH_JOB    ? "ended with its job"
                                                               : "was refused";
}

static void event_row(struct table *t, const struct trace_wait *w)
{
    const Paramserver__V1__PastWait *past = w->past;
    table_row(t);
    table_cell(t, table_count(w->task));
    table_cell(t, table_text(past->job));
    table_cell(t, caller_name(past->worker, &past->client));
    table_cell(t, table_text(caller_method((int)past->method)));
    table_cell(t, table_text(past->what));
    table_cell(t, caller_worker(past->whom));
    table_cell(t, table_count(past->waited_us));
    table_cell(t, table_count(past->ended_us));
    table_cell(t, table_text(event_end(past->end)));
}

static int events_latest_first(const void *a, const void *b)
{
    const struct trace_wait *x = a, *y = b;
    return (x->ended < y->ended) - (x->ended > y->ended);
}

static void trace_show_events(struct tracing *x)
{
    struct table t;
    table_init(&t, event_columns, sizeof event_columns / sizeof event_columns[0]);
    qsort(x->trace.v, x->trace.n, sizeof *x->trace.v, events_latest_first);
    for (size_t i = 0; i < x->trace.n; i++)
        event_row(&t, &x->trace.v[i]);
    table_show(&(struct table_part){"waits", &t, false}, 1, x->json, stdout);
    table_fini(&t);
}

// ---- what they come to --------------------------------------------------------------------------------------------

static void trace_show_sum(const struct tracing *x)
{
    struct table t;
    table_init(&t, trace_sum_columns, trace_sum_n_columns);
    trace_sum_fill(&t, &x->trace);
    if (!x->json && x->trace.n) {
        trace_sum_say(&x->trace, stdout);
        putchar('\n');
    }
    table_show(&(struct table_part){"trace", &t, false}, 1, x->json, stdout);
    table_fini(&t);
}

// ---- the timeline -------------------------------------------------------------------------------------------------

static int events_first_first(const void *a, const void *b)
{
    const struct trace_wait *x = a, *y = b;
    return (x->began > y->began) - (x->began < y->began);
}

static void timeline_add_wait(struct ps_timeline *timeline, const struct trace_wait *w)
{
    const Paramserver__V1__PastWait *past = w->past;
    char whom[32] = "";
    if (past->whom)
        snprintf(whom, sizeof whom, "for worker %u", past->whom - 1);
    ps_track_add(ps_timeline_track(timeline, past->worker - 1, PS_STREAM_SERVER),
                 &(struct ps_span){.kind = PS_SPAN_WAIT,
                                   .name = past->what,
                                   .part = *whom ? whom : NULL,
                                   .start = w->began - TRACE_NOW,
                                   .argument = "ps task",
                                   .value = w->task},
                 w->ended - TRACE_NOW);
}

static int trace_write_timeline(struct tracing *x)
{
    struct ps_timeline *timeline;
    struct ps_error e;
    if (ps_timeline_open(x->timeline, &timeline, &e))
        return call_report(&e);
    qsort(x->trace.v, x->trace.n, sizeof *x->trace.v, events_first_first);
    for (size_t i = 0; i < x->trace.n; i++)
        if (x->trace.v[i].past->worker)
            timeline_add_wait(timeline, &x->trace.v[i]);
    return ps_timeline_close(timeline, &e) ? call_report(&e) : 0;
}

// ---- the command --------------------------------------------------------------------------------------------------

// answered: some task has. Else there is nothing to write in place of an earlier file.
static int trace_show(struct tracing *x, bool answered)
{
    const int exit_code = x->timeline && answered ? trace_write_timeline(x) : 0;
    if (x->events)
        trace_show_events(x);
    else
        trace_show_sum(x);
    return exit_code;
}

static int trace_ask(struct cluster *c, struct tracing *x)
{
    Paramserver__V1__TraceRequest request = trace_request(x->job, 0);
    struct answer *answers;
    cluster_ask(c, PARAMSERVER__V1__METHOD__TRACE, &request.base, &paramserver__v1__trace_reply__descriptor, &answers);
    bool answered = false;
    for (size_t task = 0; task < c->tasks; task++)
        answered |= answers[task].reply != NULL;
    int exit_code = trace_collect(c, x, answers);
    const int written = trace_show(x, answered), missing = cluster_report(answers, c->tasks);
    exit_code = exit_code ? exit_code : missing ? missing : written;
    if (exit_code == 0 && x->trace.n == 0 && !x->json)
        fprintf(stderr, "psctl: nobody has waited\n");
    for (size_t i = 0; i < x->n_more; i++)
        ps_msg_free(x->more[i]);
    free(x->more);
    free(x->trace.v);
    cluster_answers_free(answers, c->tasks);
    return exit_code;
}

int command_trace(struct call *call)
{
    struct tracing x = {0};
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target),
                                         {.name = "events", .flag = &x.events},
                                         {.name = "timeline", .text = &x.timeline}};
    struct cluster c;
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    x.job = call->argc ? call->argv[0] : NULL;
    x.json = call->target.json;
    if (x.timeline && !x.job)
        return call_wrong(call, "a timeline is of one job: expected JOB");
    if (cluster_open(&c, &call->target, x.job, &e))
        return call_report(&e);
    exit_code = trace_ask(&c, &x);
    cluster_close(&c);
    return exit_code;
}

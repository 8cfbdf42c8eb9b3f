// SPDX-License-Identifier: Apache-2.0
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/utf8.h"
#include "tools/psctl/caller.h"
#include "tools/psctl/trace.h"

typedef const struct trace_wait *trace_ref;

const struct table_column trace_sum_columns[] = {
    {"task", "ps", TABLE_COUNT},
    {"job", "job", TABLE_TEXT},
    {"who", "who", TABLE_TEXT},
    {"method", "call", TABLE_TEXT},
    {"kind", "waited for", TABLE_TEXT},
    {"waits", "times", TABLE_COUNT},
    {"total_us", "total", TABLE_US},
    {"median_us", "median", TABLE_US},
    {"longest_us", "longest", TABLE_US, .detail = true},
    {"time_share", "of the time", TABLE_SHARE},
    {"whom", "of whom", TABLE_TEXT},
    {"whom_share", "share", TABLE_SHARE},
};
const size_t trace_sum_n_columns = sizeof trace_sum_columns / sizeof trace_sum_columns[0];

// "round"
static const char *trace_kind(Paramserver__V1__WaitKind kind, char to[32])
{
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value(&paramserver__v1__wait_kind__descriptor, (int)kind);
    snprintf(to, 32, "%s", v ? v->name + strlen("FOR_") : "?");
    for (char *c = to; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return to;
}

// ---- time ---------------------------------------------------------------------------------------------------------

static uint64_t trace_length(trace_ref w)  // ns
{
    return w->ended - w->began;
}

static int trace_compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int trace_by_length(const void *a, const void *b)
{
    return trace_compare(trace_length(*(const trace_ref *)a), trace_length(*(const trace_ref *)b));
}

// Of waits in the order in which they began: the time in which there was one, or several at once.
static uint64_t trace_union(const trace_ref *v, size_t n)
{
    uint64_t total = 0, until = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t from = i && v[i]->began < until ? until : v[i]->began;
        total += v[i]->ended > from ? v[i]->ended - from : 0;
        until = i && until > v[i]->ended ? until : v[i]->ended;
    }
    return total;
}

// From the first of a job's waits to the end of the last, at one ps task, or with all_tasks at any.
static uint64_t trace_span(const struct trace *trace, trace_ref of, bool all_tasks)
{
    uint64_t from = of->began, to = of->ended;
    for (size_t i = 0; i < trace->n; i++) {
        trace_ref w = &trace->v[i];
        if (strcmp(w->past->job, of->past->job) != 0 || (!all_tasks && w->task != of->task))
            continue;
        from = w->began < from ? w->began : from;
        to = w->ended > to ? w->ended : to;
    }
    return to - from;
}

static double trace_share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

// ---- groups -------------------------------------------------------------------------------------------------------

typedef int (*trace_order)(const void *a, const void *b);

// How far two waits are of one caller. Clients that are no workers are told apart by their ids.
static int trace_compare_callers(trace_ref a, trace_ref b)
{
    const size_t len = a->past->client.len < b->past->client.len ? a->past->client.len : b->past->client.len;
    const int by_worker = trace_compare(a->past->worker, b->past->worker);
    return by_worker || a->past->worker || !len ? by_worker : memcmp(a->past->client.data, b->past->client.data, len);
}

static int trace_compare_rows(trace_ref a, trace_ref b)
{
    int order = trace_compare(a->task, b->task);
    order = order ? order : strcmp(a->past->job, b->past->job);
    order = order ? order : trace_compare_callers(a, b);
    order = order ? order : trace_compare(a->past->method, b->past->method);
    return order ? order : trace_compare(a->past->kind, b->past->kind);
}

static int trace_by_row(const void *a, const void *b)
{
    trace_ref x = *(const trace_ref *)a, y = *(const trace_ref *)b;
    const int order = trace_compare_rows(x, y);
    return order ? order : trace_compare(x->began, y->began);
}

static int trace_compare_waiters(trace_ref a, trace_ref b)
{
    int order = strcmp(a->past->job, b->past->job);
    order = order ? order : trace_compare(a->past->whom, b->past->whom);
    return order ? order : trace_compare_callers(a, b);
}

static int trace_by_awaited(const void *a, const void *b)
{
    trace_ref x = *(const trace_ref *)a, y = *(const trace_ref *)b;
    const int order = trace_compare_waiters(x, y);
    return order ? order : trace_compare(x->began, y->began);
}

static trace_ref *trace_sorted(const struct trace *trace, trace_order order)
{
    trace_ref *v = ps_alloc((trace->n + 1) * sizeof(trace_ref));
    for (size_t i = 0; i < trace->n; i++)
        v[i] = &trace->v[i];
    qsort(v, trace->n, sizeof(trace_ref), order);
    return v;
}

// How many of the n, from the first on, are alike.
static size_t trace_run(const trace_ref *v, size_t n, int (*compare)(trace_ref a, trace_ref b))
{
    size_t i = 1;
    while (i < n && compare(v[0], v[i]) == 0)
        i++;
    return i;
}

// ---- rows ---------------------------------------------------------------------------------------------------------

struct trace_row {
    trace_ref first;
    size_t n;
    uint64_t total, median, longest, during;  // ns; during: in which there was one at least
    uint32_t whom;                            // as in Caller
    uint64_t whom_total;                      // ns
};

static int trace_by_whom(const void *a, const void *b)
{
    return trace_compare((*(const trace_ref *)a)->past->whom, (*(const trace_ref *)b)->past->whom);
}

// Whom most of the time went to.
static void row_find_whom(struct trace_row *row, trace_ref *v)
{
    qsort(v, row->n, sizeof(trace_ref), trace_by_whom);
    for (size_t i = 0; i < row->n;) {
        const uint32_t whom = v[i]->past->whom;
        uint64_t total = 0;
        for (; i < row->n && v[i]->past->whom == whom; i++)
            total += trace_length(v[i]);
        if (whom && (!row->whom || total > row->whom_total)) {
            row->whom = whom;
            row->whom_total = total;
        }
    }
}

// Orders the waits anew.
static struct trace_row row_sum(trace_ref *v, size_t n)
{
    struct trace_row row = {.first = v[0], .n = n, .during = trace_union(v, n)};
    for (size_t i = 0; i < n; i++)
        row.total += trace_length(v[i]);
    qsort(v, n, sizeof(trace_ref), trace_by_length);
    row.median = (trace_length(v[(n - 1) / 2]) + trace_length(v[n / 2])) / 2;
    row.longest = trace_length(v[n - 1]);
    row_find_whom(&row, v);
    return row;
}

static int rows_by_total(const void *a, const void *b)
{
    return trace_compare(((const struct trace_row *)b)->total, ((const struct trace_row *)a)->total);
}

static void sum_row(struct table *t, const struct trace *trace, const struct trace_row *row)
{
    const Paramserver__V1__PastWait *past = row->first->past;
    char kind[32];
    table_row(t);
    table_cell(t, table_count(row->first->task));
    table_cell(t, table_text(past->job));
    table_cell(t, caller_name(past->worker, &past->client));
    table_cell(t, table_text(caller_method((int)past->method)));
    table_cell(t, table_text(trace_kind(past->kind, kind)));
    table_cell(t, table_count(row->n));
    table_cell(t, table_count(row->total / 1000));
    table_cell(t, table_count(row->median / 1000));
    table_cell(t, table_count(row->longest / 1000));
    table_cell(t, json_real(trace_share(row->during, trace_span(trace, row->first, false))));
    table_cell(t, caller_worker(row->whom));
    table_cell(t, row->whom ? json_real(trace_share(row->whom_total, row->total)) : NULL);
}

void trace_sum_fill(struct table *t, const struct trace *trace)
{
    trace_ref *v = trace_sorted(trace, trace_by_row);
    struct trace_row *rows = ps_alloc((trace->n + 1) * sizeof *rows);
    size_t n_rows = 0;
    for (size_t i = 0, n; i < trace->n; i += n) {
        n = trace_run(v + i, trace->n - i, trace_compare_rows);
        rows[n_rows++] = row_sum(v + i, n);
    }
    qsort(rows, n_rows, sizeof *rows, rows_by_total);
    for (size_t i = 0; i < n_rows; i++)
        sum_row(t, trace, &rows[i]);
    free(rows);
    free(v);
}

// ---- who makes others wait ----------------------------------------------------------------------------------------

enum { SAID_MAX = 3 };  // of those who wait for one worker

// Who has waited, longest first, for the worker that others have waited for longest.
struct trace_worst {
    uint32_t whom;   // as in Caller; 0: nobody is known to have been waited for
    uint64_t total;  // ns, of all who have waited for it
    size_t n;
    struct trace_waiter {
        trace_ref first;
        uint64_t during;  // ns
    } v[SAID_MAX];
};

static void worst_add(struct trace_worst *b, const trace_ref *v, size_t n)
{
    struct trace_waiter one = {v[0], trace_union(v, n)};
    b->whom = v[0]->past->whom;
    b->total += one.during;
    for (size_t i = 0; i < SAID_MAX; i++)
        if (i >= b->n || b->v[i].during < one.during) {
            const struct trace_waiter before = b->v[i];
            b->v[i] = one;
            one = before;
            if (i >= b->n)
                break;
        }
    b->n += b->n < SAID_MAX;
}

static int trace_compare_awaited(trace_ref a, trace_ref b)
{
    const int order = strcmp(a->past->job, b->past->job);
    return order ? order : trace_compare(a->past->whom, b->past->whom);
}

// All waits of one job for one worker.
static struct trace_worst worst_sum(const trace_ref *v, size_t n)
{
    struct trace_worst b = {0};
    for (size_t i = 0, one; i < n; i += one) {
        one = trace_run(v + i, n - i, trace_compare_waiters);
        worst_add(&b, v + i, one);
    }
    return b;
}

static void worst_say(const struct trace *trace, const struct trace_worst *b, FILE *to)
{
    const uint64_t span = trace_span(trace, b->v[0].first, true);
    char job[256], time[32];
    snprintf(job, sizeof job, "%s", b->v[0].first->past->job);
    ps_utf8_plain(job);
    table_ms_text((int64_t)(span / PS_MS), time, sizeof time);
    fprintf(to, "job %s: ", job);
    if (b->whom)
        fprintf(to, "worker %" PRIu32 " made others wait: ", b->whom - 1);
    for (size_t i = 0; i < b->n; i++) {
        const Paramserver__V1__PastWait *past = b->v[i].first->past;
        json_t *who = caller_name(past->worker, &past->client);
        fprintf(to, "%s%s %.0f %%", i ? ", " : "", who ? json_string_value(who) : "a client",
                100 * trace_share(b->v[i].during, span));
        json_decref(who);
    }
    fprintf(to, " of %s%s\n", time, b->whom ? "" : " waited, for no worker");
}

// All waits of one job: whom one worker was waited for goes before what no worker was waited for.
static struct trace_worst worst_of_job(const trace_ref *v, size_t n)
{
    struct trace_worst worst = {0};
    for (size_t i = 0, one; i < n; i += one) {
        one = trace_run(v + i, n - i, trace_compare_awaited);
        const struct trace_worst b = worst_sum(v + i, one);
        if (!worst.n || !worst.whom || b.total > worst.total)
            worst = b;
    }
    return worst;
}

static int trace_compare_jobs(trace_ref a, trace_ref b)
{
    return strcmp(a->past->job, b->past->job);
}

void trace_sum_say(const struct trace *trace, FILE *to)
{
    trace_ref *v = trace_sorted(trace, trace_by_awaited);
    for (size_t i = 0, n; i < trace->n; i += n) {
        n = trace_run(v + i, trace->n - i, trace_compare_jobs);
        const struct trace_worst worst = worst_of_job(v + i, n);
        worst_say(trace, &worst, to);
    }
    free(v);
}

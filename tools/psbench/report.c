// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/report.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "tools/common/table.h"

#define GB 1e9

// ---- numbers ------------------------------------------------------------------------------------------------------

// Of one number of every sample, at `offset` in struct bench_sample.
static struct spread report_spread(const struct bench_case *c, size_t offset, double scale)
{
    double *v = ps_alloc((c->n_samples + 1) * sizeof *v);
    for (size_t i = 0; i < c->n_samples; i++)
        v[i] = scale * *(const double *)(const void *)((const char *)&c->samples[i] + offset);
    struct spread s = spread_of(v, c->n_samples);
    free(v);
    return s;
}

#define SPREAD(c, member, scale) report_spread(c, offsetof(struct bench_sample, member), scale)

static double report_limit_fraction(const struct bench_case *c)
{
    if (!c->limit)
        return NAN;
    size_t n = c->n_samples < c->limit->n_samples ? c->n_samples : c->limit->n_samples;
    double *v = ps_alloc((n + 1) * sizeof *v);
    for (size_t i = 0; i < n; i++)
        v[i] = c->samples[i].bytes_per_s / c->limit->samples[i].bytes_per_s;
    double median = spread_of(v, n).median;
    free(v);
    return median;
}

void report_sum_up(const struct bench_case *c, struct report_numbers *n)
{
    *n = (struct report_numbers){.gb_per_s = SPREAD(c, bytes_per_s, 1 / GB),
                                 .calls_per_s = SPREAD(c, calls_per_s, 1).median,
                                 .p50_us = histogram_quantile(&c->latency, 0.5) / 1e3,
                                 .p99_us = histogram_quantile(&c->latency, 0.99) / 1e3,
                                 .p999_us = histogram_quantile(&c->latency, 0.999) / 1e3,
                                 .client_cpu = SPREAD(c, client_cpu, GB).median,
                                 .server_cpu = SPREAD(c, server_cpu, GB).median,
                                 .client_rss = SPREAD(c, client_rss, 1).median,
                                 .server_rss = SPREAD(c, server_rss, 1).median,
                                 .share_min = SPREAD(c, share_min, 1).median,
                                 .share_max = SPREAD(c, share_max, 1).median,
                                 .limit_fraction = report_limit_fraction(c)};
}

// ---- JSON ---------------------------------------------------------------------------------------------------------

// A number that is not known is null.
static json_t *report_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *report_bytes(double value)
{
    return isfinite(value) ? json_integer((json_int_t)value) : json_null();
}

static json_t *report_spread_json(struct spread s)
{
    return json_pack("{so so so}", "median", report_real(s.median), "min", report_real(s.min), "max",
                     report_real(s.max));
}

static json_t *report_case_json(const struct bench_case *c)
{
    struct report_numbers n, limit;
    report_sum_up(c, &n);
    json_t *to =
        json_pack("{ss ss sI sI sI so ss sI so so so so so so so so so}", "command", bench_commands[c->command],
                  "target", bench_targets[c->target], "size", (json_int_t)c->size, "window", (json_int_t)c->window,
                  "workers", (json_int_t)c->workers, "ps", c->target == BENCH_PSD ? json_integer(c->ps) : json_null(),
                  "rule", bench_rules[c->rule], "repeat", (json_int_t)c->n_samples, "gb_per_s",
                  report_spread_json(n.gb_per_s), "calls_per_s", report_real(n.calls_per_s), "p50_us",
                  report_real(n.p50_us), "p99_us", report_real(n.p99_us), "p999_us", report_real(n.p999_us),
                  "client_cpu_s_per_gb", report_real(n.client_cpu), "server_cpu_s_per_gb", report_real(n.server_cpu),
                  "client_rss_bytes", report_bytes(n.client_rss), "server_rss_bytes", report_bytes(n.server_rss));
    json_object_set_new(to, "transport",
                        c->target == BENCH_MEMORY ? json_null() : json_string(bench_transports[c->transport]));
    json_object_set_new(to, "worker_share", json_pack("{sf sf}", "min", n.share_min, "max", n.share_max));
    json_object_set_new(to, "limit_fraction", report_real(n.limit_fraction));
    if (c->limit) {
        report_sum_up(c->limit, &limit);
        json_object_set_new(to, "limit_gb_per_s", report_spread_json(limit.gb_per_s));
    }
    return to;
}

static bool report_shows(const struct bench_case *c, bool with_limits)
{
    return c->target == BENCH_PSD || c->target == BENCH_RING || with_limits;
}

json_t *report_json(const struct bench_cases *cases, bool with_limits)
{
    json_t *all = json_array();
    for (size_t i = 0; i < cases->n; i++)
        if (report_shows(&cases->v[i], with_limits))
            json_array_append_new(all, report_case_json(&cases->v[i]));
    if (json_array_size(all) != 1)
        return all;
    json_t *only = json_incref(json_array_get(all, 0));
    json_decref(all);
    return only;
}

// ---- the table ----------------------------------------------------------------------------------------------------

static const struct table_column columns[] = {
    {"what", "what", TABLE_TEXT},
    {"size", "size", TABLE_BYTES},
    {"window", "window", TABLE_COUNT},
    {"workers", "workers", TABLE_COUNT},
    {"transport", "over", TABLE_TEXT},
    {"rule", "rule", TABLE_TEXT},
    {"median", "GB/s", TABLE_REAL},
    {"min", "min", TABLE_REAL},
    {"max", "max", TABLE_REAL},
    {"calls", "calls/s", TABLE_COUNT},
    {"p50", "p50 us", TABLE_REAL},
    {"p99", "p99", TABLE_REAL},
    {"p999", "p99.9", TABLE_REAL},
    {"client_cpu", "cpu client", TABLE_REAL},
    {"server_cpu", "cpu psd", TABLE_REAL},
    {"client_rss", "rss client", TABLE_BYTES},
    {"server_rss", "rss psd", TABLE_BYTES},
    {"limit", "of socket", TABLE_SHARE},
};

// A limit is named by what it is a limit of.
static bool report_names_target(const struct bench_case *c)
{
    return c->target != BENCH_PSD && c->target != BENCH_RING;
}

static void report_row(struct table *t, const struct bench_case *c)
{
    struct report_numbers n;
    char what[32];
    bool applies = c->command == BENCH_PUSH || c->command == BENCH_PUSHPULL || c->command == BENCH_APPLY;
    report_sum_up(c, &n);
    snprintf(what, sizeof what, "%s%s%s", report_names_target(c) ? bench_targets[c->target] : "",
             report_names_target(c) ? " " : "", bench_commands[c->command]);
    table_row(t);
    table_cell(t, table_text(what));
    table_cell(t, json_integer((json_int_t)c->size));
    table_cell(t, c->target == BENCH_MEMORY ? NULL : json_integer(c->window));
    table_cell(t, c->target == BENCH_MEMORY ? NULL : json_integer(c->workers));
    table_cell(t, c->target == BENCH_MEMORY ? NULL : table_text(bench_transports[c->transport]));
    table_cell(t, applies ? table_text(bench_rules[c->rule]) : NULL);
    const double reals[] = {n.gb_per_s.median, n.gb_per_s.min, n.gb_per_s.max};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        table_cell(t, json_real(reals[i]));
    table_cell(t, json_integer((json_int_t)n.calls_per_s));
    const double more[] = {n.p50_us,     n.p99_us,     n.p999_us,    n.client_cpu,
                           n.server_cpu, n.client_rss, n.server_rss, n.limit_fraction};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        table_cell(t, json_real(more[i]));
}

void report_print(const struct bench_cases *cases, bool with_limits, FILE *to)
{
    struct table t;
    table_init(&t, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < cases->n; i++)
        if (report_shows(&cases->v[i], with_limits))
            report_row(&t, &cases->v[i]);
    table_print(&t, to);
    table_fini(&t);
    fputs("\nGB/s: 10^9 bytes of the variable, once per call. cpu: seconds per GB; rss: peak memory.\n", to);
}

// SPDX-License-Identifier: Apache-2.0
//
// What was measured, as a table for people or as JSON.
#ifndef PSBENCH_REPORT_H
#define PSBENCH_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "tools/psbench/case.h"

struct report_numbers {
    struct spread gb_per_s;  // 10^9 bytes
    double calls_per_s, p50_us, p99_us, p999_us;
    double client_cpu, server_cpu;  // seconds per 10^9 bytes
    double client_rss, server_rss;  // bytes
    double share_min, share_max;    // as in struct bench_sample
    // Of the repetitions' ratios to the limit in the same repetition, the median. NaN: it has no limit.
    double limit_fraction;
};

void report_sum_up(const struct bench_case *c, struct report_numbers *n);

// One case: an object; several: an array of them. A limit of its own entry appears only where it was asked for.
json_t *report_json(const struct bench_cases *cases, bool with_limits);
void report_print(const struct bench_cases *cases, bool with_limits, FILE *to);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// What requests have waited for: the waits that the ps tasks of a cluster have kept, and what they come to.
#ifndef PSCTL_TRACE_H
#define PSCTL_TRACE_H

#include <stdio.h>

#include "proto/paramserver.pb-c.h"
#include "tools/common/table.h"

// Added to times, which may lie before this machine has started.
#define TRACE_NOW (UINT64_C(1) << 62)

// One wait of a ps task's answer, which outlives it.
struct trace_wait {
    size_t task;
    const Paramserver__V1__PastWait *past;
    uint64_t began, ended;  // ns on ps_now()'s clock, here, + TRACE_NOW
};

struct trace {
    struct trace_wait *v;  // [n], in any order
    size_t n;
};

// A row for each ps task, job, caller, method and kind of wait, those that have taken longest first. For the caller's
// table_init and table_fini.
extern const struct table_column trace_sum_columns[];
extern const size_t trace_sum_n_columns;
void trace_sum_fill(struct table *t, const struct trace *trace);

// For each job a line that says who has made others wait, and for how much of the time: of its requests at all ps tasks
// together.
void trace_sum_say(const struct trace *trace, FILE *to);

#endif

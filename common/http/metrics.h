// SPDX-License-Identifier: Apache-2.0
//
// Numbers as Prometheus reads them: its text format, version 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/).
//
// Hands to: HTTP pages. No state beside the caller's; any thread.
#ifndef PS_COMMON_HTTP_METRICS_H
#define PS_COMMON_HTTP_METRICS_H

#include <stddef.h>
#include <stdio.h>

#include "common/base/error.h"

#define PS_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct ps_metrics {
    FILE *to;  // text, which grows
    char *text;
    size_t len;
    const char *family;  // of which samples are
};

struct ps_label {
    const char *name, *value;  // value: UTF-8; what has to be is escaped
};

// RESOURCE_EXHAUSTED: no memory. Otherwise ps_metrics_close follows.
enum ps_code ps_metrics_open(struct ps_metrics *m, struct ps_error *e);
// Begins a family; its samples follow. name and help live until the next one. type: "counter", "gauge".
void ps_metrics_family(struct ps_metrics *m, const char *name, const char *type, const char *help);
void ps_metrics_sample(struct ps_metrics *m, const struct ps_label *labels, size_t n, double value);
// *text is malloc'd. RESOURCE_EXHAUSTED: no memory, now or when something was added.
enum ps_code ps_metrics_close(struct ps_metrics *m, char **text, struct ps_error *e);

#endif

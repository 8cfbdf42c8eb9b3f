// SPDX-License-Identifier: Apache-2.0
//
// workerd --http: metrics for Prometheus, and whether this worker lives and trains.
//
// Receives from: the network (common/http), job/metrics. Threads: the HTTP server's.
#ifndef WK_HTTP_H
#define WK_HTTP_H

#include <stdbool.h>

#include "common/base/error.h"
#include "workerd/job/metrics.h"

struct wk_http;

// metrics outlives it. Errors are ps_http_start's.
enum ps_code wk_http_start(struct wk_metrics *metrics, const char *address, bool insecure, struct wk_http **http,
                           struct ps_error *e);
void wk_http_stop(struct wk_http *h);  // may be NULL

#endif

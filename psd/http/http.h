// SPDX-License-Identifier: Apache-2.0
//
// psd --http: metrics for Prometheus, whether this task lives and takes jobs, and a status page for browsers, which
// shows /status.json. What is shown is what Status, Workers and Waits say. Who reaches it sees the jobs of all users.
//
// Receives from: the network (common/http). Hands to: psd_core_call. Threads: the HTTP server's.
#ifndef PSD_HTTP_H
#define PSD_HTTP_H

#include <stdbool.h>

#include "common/base/error.h"
#include "psd/service/core.h"

struct psd_http;

// Serves the core, which outlives it. Errors are ps_http_start's.
enum ps_code psd_http_start(struct psd_core *core, const char *address, bool insecure, struct psd_http **http,
                            struct ps_error *e);
void psd_http_stop(struct psd_http *h);  // may be NULL
int psd_http_port(const struct psd_http *h);

#endif

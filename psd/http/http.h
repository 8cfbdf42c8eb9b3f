// SPDX-License-Identifier: Apache-2.0
//
// psd --http: metrics for Prometheus, and whether this task lives and takes jobs. What is shown is what Status and
// Workers say, asked of the core as an admin may ask: nothing here knows its insides. Who reaches it sees the jobs of
// all users.
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

#endif

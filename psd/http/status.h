// SPDX-License-Identifier: Apache-2.0
//
// /status.json: an overview, for the status page and for programs. psd(8) says what the fields mean.
//
// Receives from: the HTTP pages. Hands to: common/http. No state; any thread.
#ifndef PSD_HTTP_STATUS_H
#define PSD_HTTP_STATUS_H

#include "psd/http/overview.h"

enum {
    PSD_STATUS_WORKERS = 256,  // of a job, at most: the dead first
    PSD_STATUS_WAITS = 32,     // of a job, at most: the longest
};

// *text is malloc'd. RESOURCE_EXHAUSTED: no memory.
enum ps_code psd_status_text(const struct ps_overview *overview, char **text, struct ps_error *e);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// Replies of Status and Workers as metrics.
//
// Receives from: the HTTP pages. Hands to: common/http. No state; any thread.
#ifndef PSD_HTTP_VIEW_H
#define PSD_HTTP_VIEW_H

#include "common/base/error.h"
#include "proto/paramserver.pb-c.h"

// workers[i]: the members of status->jobs[i]; NULL: they are not known, which is so for all at others than task 0.
// *text is malloc'd. RESOURCE_EXHAUSTED: no memory.
enum ps_code psd_view_text(const Paramserver__V1__StatusReply *status, Paramserver__V1__WorkersReply *const *workers,
                           char **text, struct ps_error *e);

#endif

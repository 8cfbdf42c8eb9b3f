// SPDX-License-Identifier: Apache-2.0
//
// What the core says of this task, its jobs and, at task 0, their workers, at one moment. It is asked as an admin may
// ask: nothing here knows its insides.
//
// Receives from: the HTTP pages. Hands to: psd_core_call. Threads: any that may wait.
#ifndef PSD_HTTP_OVERVIEW_H
#define PSD_HTTP_OVERVIEW_H

#include "common/base/error.h"
#include "common/summary/summary.h"
#include "proto/paramserver.pb-c.h"
#include "psd/service/core.h"

// Otherwise psd_overview_free follows.
enum ps_code psd_overview_take(struct psd_core *core, struct ps_overview *overview, struct ps_error *e);
enum ps_code psd_overview_take_waits(struct psd_core *core, struct ps_overview *overview, struct ps_error *e);
void psd_overview_free(struct ps_overview *overview);

// Of the task and all jobs, without workers. Freed with ps_msg_free.
enum ps_code psd_overview_status(struct psd_core *core, Paramserver__V1__StatusReply **status, struct ps_error *e);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// The state of a cluster in a few sentences for people: is it well, what can be lost, which worker is worst, what to
// type next.
//
// Receives from: psd's status page, and psctl status. No state; any thread.
#ifndef PS_COMMON_SUMMARY_H
#define PS_COMMON_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/paramserver.pb-c.h"

// What is known of a ps task, its jobs and, at task 0, their workers, at one moment. Messages as the Admin service
// answers them.
struct ps_overview {
    Paramserver__V1__StatusReply *status;
    // workers[i]: the members of status->jobs[i]. NULL: they are not known, which is so for all at others than task 0.
    Paramserver__V1__WorkersReply **workers;
    Paramserver__V1__WaitsReply *waits;  // NULL: not asked for
    bool whole;                          // status speaks for all ps tasks of the cluster
    // lost[i]: a ps task that has lost what it had of status->jobs[i], or PS_NONE_LOST. NULL: it is not known.
    const uint32_t *lost;
};

#define PS_NONE_LOST UINT32_MAX

enum ps_level { PS_LEVEL_OK, PS_LEVEL_WARNING, PS_LEVEL_BAD };

struct ps_summary {
    enum ps_level level;
    char state[640], risk[640], worst[640];  // a sentence each
    char command[256];                       // of psctl
};

void ps_summarize(const struct ps_overview *overview, struct ps_summary *summary);
const char *ps_level_name(enum ps_level level);  // "ok", "warning", "bad"

#endif

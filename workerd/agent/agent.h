// SPDX-License-Identifier: Apache-2.0
//
// A worker without a job: it waits at ps task 0 for those of the queue, and has a process train each (child.h), whose
// output and exit code it reports. A process that a signal has ended is started again, some times; one that was told to
// end because this one was is not reported: the job is this rank's still, and goes on with the agent's next start.
//
// Receives from: main. Hands to: child, rpc/ask. Threads: the main thread alone.
#ifndef WK_AGENT_H
#define WK_AGENT_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tls/munge.h"
#include "common/tls/tls.h"

struct wk_agent_options {
    char *const *args;  // of the processes that train, but for those that name the job; ends with NULL
    const char *const *ps;
    size_t n_ps;
    struct ps_tls *tls;      // NULL: none
    struct ps_munge *munge;  // likewise
    uint32_t rank;
    volatile sig_atomic_t *stop;  // a signal's number; 0: none came
    // Between two jobs (true) and before one (false): what the process that trains needs itself. NULL: nothing.
    void (*waits)(void *arg, bool waits);
    void *arg;
};

// Returns when a signal has come; or RESOURCE_EXHAUSTED: there is no thread for its connections.
enum ps_code wk_agent_run(const struct wk_agent_options *options, struct ps_error *e);

#endif

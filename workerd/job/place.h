// SPDX-License-Identifier: Apache-2.0
//
// Which worker of how many a process is, and where those are that it has to reach: as its command line says, a cluster
// file, or TF_CONFIG.
//
// Receives from: attempt.c, main. Hands to: common/cluster.
#ifndef WK_PLACE_H
#define WK_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cluster/cluster.h"
#include "common/tls/munge.h"
#include "common/tls/tls.h"

// The command line, and whom the job's workers have to reach: ps tasks, the other workers (ps_job_needs_ps,
// ps_job_needs_peers).
struct wk_place_options {
    const char *job;       // the job's file, for messages
    const char *cluster;   // a file; NULL: none
    const char *ps;        // "A,B,C"; NULL: none
    const char *tls;       // a folder of certificates; NULL: as the cluster says
    bool munge;            // in place of them; false: as the cluster says
    long rank;             // -1: not said
    long workers;          // 0: not said
    const char *strategy;  // its name, for messages
    bool needs_ps, needs_peers;
};

struct wk_place {
    struct ps_cluster cluster;
    struct ps_tls *tls;      // what it shows to ps tasks and other workers; NULL: none
    struct ps_munge *munge;  // likewise
    uint32_t rank, workers;
    bool evaluator;  // TF_CONFIG: this process does not train
};

// INVALID_ARGUMENT, FAILED_PRECONDITION: what does not fit the strategy, or is missing; ps_tls_open's and
// ps_munge_open's. Whatever it returns, wk_place_fini follows.
enum ps_code wk_place_find(struct wk_place *place, const struct wk_place_options *o, struct ps_error *e);
// What all workers of a training have in common, and no other training does: where its ps tasks and workers are; with
// Slurm the numbers of its job and step, which it keeps when it is queued again and gets other nodes. Malloc'd; NULL:
// there is one worker, which nobody reaches.
char *wk_place_training(const struct wk_place *place);
void wk_place_fini(struct wk_place *place);

#endif

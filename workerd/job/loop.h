// SPDX-License-Identifier: Apache-2.0
//
// The step loop of one worker: epochs of steps, each a batch, a forward and a backward pass, with the weights before
// and the gradients after left to the strategy; evaluation and the results by one of them.
//
// Receives from: main. Hands to: strategy, data, nn. Threads: one, which owns the replica.
#ifndef WK_LOOP_H
#define WK_LOOP_H

#include "workerd/data/data.h"
#include "workerd/job/figures.h"
#include "workerd/strategy/strategy.h"

struct wk_run {
    struct wk_env env;
    const struct wk_strategy *strategy;
    void *state;
    struct wk_data *data;
    const char *summary;  // where it is written, too; may be NULL
    bool quiet;           // no progress on stdout
    uint64_t started;     // ns, ps_now(): when whoever started this run did

    // Results.
    struct wk_history history;
    struct wk_figures figures;  // of the last epoch; those of the test split with the weights that are written
    double train_seconds;       // of all epochs, waits for examples and for the others among them; evaluations left out
    double seconds_to_first_step;
    bool drained;  // it was asked to leave, or came too late to train anything: the results are the others'
};

// CANCELLED: a signal came. Otherwise the first error, whose text names the step.
enum ps_code wk_loop(struct wk_run *run, struct ps_error *e);
void wk_run_free(struct wk_run *run);

#endif

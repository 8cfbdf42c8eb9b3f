// SPDX-License-Identifier: Apache-2.0
//
// The step loop of one worker: epochs of steps, each a batch, a forward and a backward pass, with the weights before
// and the gradients after left to the strategy; evaluation and the results by one of them.
//
// Receives from: attempt.c, replicas.c. Hands to: strategy, data, nn. Threads: one, which owns the replica.
#ifndef WK_LOOP_H
#define WK_LOOP_H

#include "workerd/data/data.h"
#include "workerd/job/figures.h"
#include "workerd/strategy/strategy.h"

struct wk_callbacks;
struct wk_folders;
struct wk_lost;
struct wk_metrics;
struct wk_timeline;

// What comes next: the example at position `first` of an epoch's order, in a step that is counted from 0.
struct wk_position {
    uint64_t epoch, first, step;
};

struct wk_run {
    struct wk_env env;
    const struct wk_strategy *strategy;
    void *state;
    struct wk_data *data;
    const char *summary;           // where it is written, too; may be NULL
    struct wk_timeline *timeline;  // the caller's
    struct wk_folders *folders;    // where it keeps checkpoints; NULL: nobody keeps others away from there
    struct wk_metrics *metrics;    // that are told of it; NULL: none
    bool quiet;                    // no progress on stdout
    const char *resume;            // the checkpoint from which it goes on; NULL: none
    // What has been read of it, the caller's, until wk_resume_forget. NULL: it is read when it is needed.
    struct wk_checkpoint *resume_read;
    struct wk_lost *lost;  // the caller's: one of which others have lost something is added; NULL: nobody wants to know
    uint64_t resumed_at;   // its step; 0: none
    uint64_t started;      // ns, ps_now(): when whoever started this run did

    // While it runs.
    struct wk_callbacks *callbacks;
    // wk_resume_save, for the callbacks, whose states it saves besides.
    enum ps_code (*save)(struct wk_run *run, const struct ps_shards_of *shards, struct wk_checkpoint *c,
                         struct ps_error *e);
    struct wk_position position;
    struct wk_meter meter;  // of the epoch
    char *configuration;    // of which job checkpoints are; NULL: not needed yet
    uint64_t seed;          // the order of examples and dropout are drawn from it
    bool late;              // it came to a job that had begun
    uint64_t saved;         // the step of the newest checkpoint that is on disk; 0: there is none
    uint64_t saved_ms;      // when it was written, since 1970

    // Results.
    struct wk_history history;
    struct wk_figures figures;  // of the last epoch; those of the test split with the weights that are written
    json_t *matrices;           // confusion matrices of the test split; NULL: it has not been looked at
    bool evaluated;             // the test split's are of the weights as they are now
    double train_seconds;       // of all epochs, waits for examples and for the others among them; evaluations left out
    double seconds_to_first_step;
    bool all_saved;  // a checkpoint has all that was trained until it was cut short
    bool data_lost;  // its own data could not be read
    bool drained;    // it was asked to leave, or came too late to train anything: the results are the others'
};

// CANCELLED: a signal came; the text says where what there is was written. Otherwise the first error, whose text names
// the step.
enum ps_code wk_loop(struct wk_run *run, struct ps_error *e);
void wk_run_free(struct wk_run *run);

#endif

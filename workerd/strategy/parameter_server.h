// SPDX-License-Identifier: Apache-2.0
//
// What the files of the strategy parameter_server share.
//
//     parameter_server.c   joining, what all have seen, the end
//     psd_home.c           the variables: weights come, gradients leave
//     examples.c           which examples this worker trains
//     history.c            what all workers have seen together
#ifndef WK_PARAMETER_SERVER_H
#define WK_PARAMETER_SERVER_H

#include "libclient/psclient.h"
#include "workerd/strategy/strategy.h"

// Variables that travel together: tensors [first, first + n).
struct wk_bucket {
    size_t first, n;
    size_t missing;      // of the step at hand: not ready yet
    psc_op *op;          // under way: a push, a pull, or both in one
    bool pushes, pulls;  // of that
    // Of the timeline's span of it. Written before it starts and read when it has ended.
    struct ps_track *track;
    char *name;  // of its first variable, and how many others there are; NULL where there is no timeline
    uint64_t bytes, start;
};

struct wk_parameter_server_state {
    const struct wk_env *env;
    double hyper[PS_RULE_MAX_HYPERS];  // of the job's rule, by PS_HYPER_*
    psc_update update;
    psc_client *client;
    size_t n;               // variables,
    size_t n_trained;       // of which so many change in a step: by gradients, or as states that follow the batches
    psc_tensor *weights;    // [n] the replica's: those that change in the order in which they become ready, the others
    bool *learns;           // [n_trained] has a gradient
    double *momentum;       // [n_trained] of a state
    psc_tensor *gradients;  // [n_trained] in the same order; of a state what the batch has
    psc_tensor *pushed;     // [n_trained] what a push sends: the gradients, or where they are added up (n_push > 1)
    size_t *tensor;         // [n] by the model's number of a variable: where it is in these arrays
    struct wk_bucket *bucket;
    size_t n_buckets;
    size_t *bucket_of;                 // [n_trained]
    size_t under_way;                  // buckets with a push
    bool early;                        // gradients leave as they become ready, not at the end of the step
    int rows;                          // of the step at hand
    uint64_t closed;                   // sync: the last round known to be closed
    uint64_t round;                    // sync: that of the step at hand
    uint64_t version;                  // the greatest met: how often weights were changed, their first values included
    double rate;                       // of the next step, as far as is known here: psctl set-lr is not heard of
    bool rate_changed;                 // and perhaps not told to the ps tasks
    uint64_t summed, summed_examples;  // gradients in `pushed` that are not pushed yet, where n_push > 1
    bool has_weights;                  // the replica's are from the ps tasks
    bool averages;                     // the training has ended, with the averages of the weights (use_ema)

    // Steps of this worker, counted.
    uint64_t handed_out, trained;  // as next gave them; those whose gradients there are
    uint64_t in_push, pushed_all;  // those up to which the last push goes; up to which all have been acknowledged

    psc_share share;
    uint64_t taken;      // batches of it, or (async) examples
    uint64_t began;      // async: the step with which it begins. Those before it are of shares given earlier
    bool nothing_ahead;  // async: there was nothing to give when it was asked for ahead
};

extern const struct wk_home wk_psd_home;        // psd_home.c
extern const struct wk_sharder wk_psd_sharder;  // examples.c

// What the home is made of, before there is a client; freed by wk_home_free once the client is closed.
// RESOURCE_EXHAUSTED: no memory.
enum ps_code wk_home_open(struct wk_parameter_server_state *s, struct ps_error *e);
void wk_home_free(struct wk_parameter_server_state *s);
// Waits for what is under way where its outcome is of no use: the client has ended, or is closed.
void wk_home_abandon(struct wk_parameter_server_state *s);
// Once the client has ended, as the chief: the weights as the ps tasks have them. NOT_FOUND: it is not the chief.
enum ps_code wk_home_salvage(void *state, struct ps_error *e);
// Is the average of the weights kept?
bool wk_home_averages(const struct wk_parameter_server_state *s);
// Sends what has been added up and not pushed yet, and waits for all that is under way. A signal ends the waiting, not
// the operations: those end with the client.
enum ps_code wk_home_settle(struct wk_parameter_server_state *s, struct ps_error *e);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// What the files of the strategy parameter_server share.
//
//     parameter_server.c   joining, weights, steps, the end
//     examples.c           which examples this worker trains
//     history.c            what all workers have seen together
#ifndef WK_PARAMETER_SERVER_H
#define WK_PARAMETER_SERVER_H

#include "libclient/psclient.h"
#include "workerd/strategy/strategy.h"

struct wk_parameter_server_state {
    const struct wk_env *env;
    psc_update update;
    psc_client *client;
    size_t n;                // variables,
    size_t n_learning;       // of which so many have a gradient,
    size_t n_trained;        // and with those so many change in a step: states follow the batches
    psc_tensor *weights;     // [n] the replica's, those that learn first, then the states
    double *momentum;        // [n_trained] of a state
    psc_tensor *gradients;   // [n_trained] in the same order; of a state what the batch has
    psc_tensor *pushed;      // [n_trained] what a push sends: the gradients, or where they are added up (n_push > 1)
    float *clip;             // [n_learning] async, ssp: what clipping by norm multiplies a gradient by
    psc_op *push, *pull;     // under way
    psc_result push_result;  // of the last push
    uint64_t closed;         // sync: the last round known to be closed
    uint64_t round;          // sync: the last push's
    uint64_t version;        // the greatest met: how often weights were changed, their first values included
    uint64_t summed, summed_examples;  // gradients in `pushed` that are not pushed yet, where n_push > 1
    bool has_weights;                  // the replica's are from the ps tasks

    // Steps of this worker, counted.
    uint64_t handed_out, trained;  // as next gave them; those whose gradients there are
    uint64_t in_push, pushed_all;  // those up to which the last push goes; up to which all have been acknowledged

    psc_share share;
    uint64_t taken;      // batches of it, or (async) examples
    uint64_t began;      // async: the step with which it begins. Those before it are of shares given earlier
    bool nothing_ahead;  // async: there was nothing to give when it was asked for ahead
};

// Waits for one of the operations under way. A signal ends the waiting, not the operation: that ends with the client.
enum ps_code wk_settle(psc_op **op, psc_result *result, struct ps_error *e);
// Likewise for the push under way, if there is one.
enum ps_code wk_settle_push(struct wk_parameter_server_state *s, struct ps_error *e);
// Sends what has been added up and not pushed yet, and waits for it.
enum ps_code wk_flush(struct wk_parameter_server_state *s, struct ps_error *e);

enum wk_next wk_examples_next(void *state, uint64_t epoch, bool idle, struct wk_work *work, struct ps_error *e);

#endif

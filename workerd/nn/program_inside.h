// SPDX-License-Identifier: Apache-2.0
//
// What a program is made of, for the files that make and run it: program.c, and program_device.c where the device has
// memory of its own.
#ifndef NN_PROGRAM_INSIDE_H
#define NN_PROGRAM_INSIDE_H

#include "common/base/clock.h"
#include "workerd/nn/program.h"

struct nn_instruction {
    const struct nn_kernel *kernel;
    struct nn_frame frame;
    void *in[NN_OP_IN], *out[NN_OP_OUT];
    int need, ready;  // how many of the program's are due before it, and after it
};

// When a tensor has its memory: from the operator that makes it to the last one that reads it.
struct nn_life {
    int first, last;
    size_t bytes, at;  // in the arena
    bool in_arena;
};

struct nn_program {
    const struct nn_device *device;
    struct nn_context *context;
    struct nn_tape tape;
    struct nn_instruction *instruction;
    struct nn_life *life;  // [tensors]; views have their roots'
    void **memory;         // [tensors]
    size_t arena;
    int *need, *ready;  // variables, in the order in which they are
    size_t n_ready;
    double *sums;  // of the operator at hand, over all replicas

    // Where the device has memory of its own: the host's copies of inputs, of variables and of what is kept. Those of
    // variables are the caller's, the others lie in the staging memory; its first bytes are for the arguments of an
    // operator that is computed by its reference.
    void **host;         // [tensors]; NULL: the device has none
    size_t *host_at;     // [tensors], in the staging memory
    size_t staging;      // bytes
    char *staged;        // the staging memory
    int *value, *slope;  // [variables]: the tensors of its value and of its gradient; -1: there is none
    uint64_t *ticket;    // [n_ready]: of the copy that brings its gradient
    size_t delivered;    // of these, in the run at hand
    bool keeps;          // values are there, gradients stay there
    // What a run is given: the step, where kernels of the device draw by it, then the columns. Bytes, and where they
    // lie in the arena and in the staging memory.
    bool draws;
    size_t given, given_at, host_given_at;
    char *given_there, *given_here;
    // Of runs that keep: what they queue, recorded at the second of them, where every one queues the same.
    void *graph;
    int kept_runs;
    bool steady;
};

// The tensor whose memory a tensor is.
int nn_program_root(const struct nn_program *p, int tensor);
// Before the next operator: these variables, until one fails.
enum ps_code nn_hooks_need(const struct nn_hooks *hooks, const int *variable, int n, struct ps_error *e);
// Does this operator add up over the replicas, and are there others? Then, with the host's memory in f:
static inline bool nn_hooks_sum(const struct nn_hooks *hooks, const struct nn_op *op)
{
    return hooks && hooks->sum && op->class->sums;
}
enum ps_code nn_program_sum(const struct nn_program *p, const struct nn_frame *f, const struct nn_hooks *hooks,
                            struct ps_error *e);
void nn_times_add_span(const struct nn_times *times, const struct nn_op *op, uint64_t start, uint64_t end);

// What a lap was for: these, or an operator by its number.
enum { NN_LAP_NEED = -1, NN_LAP_READY = -2 };

static inline uint64_t nn_times_start(const struct nn_times *times)
{
    return times ? ps_now() : 0;
}

// Adds what has passed since *at.
static inline void nn_times_lap(struct nn_times *times, const struct nn_op *op, int what, uint64_t *at)
{
    if (!times)
        return;
    const uint64_t now = ps_now(), passed = now - *at;
    if (what == NN_LAP_NEED)
        times->need += passed;
    else if (what == NN_LAP_READY)
        times->ready += passed;
    else if (times->op)
        times->op[what] += passed;
    if (what >= 0)
        nn_times_add_span(times, op, *at, now);
    *at = times->track ? ps_now() : now;
}

// ---- program_device.c ---------------------------------------------------------------------------------------------

// Finds the places of the host's copies, once the kernels are known.
void nn_program_plan_copies(struct nn_program *p);
void nn_program_free_copies(struct nn_program *p);
void nn_program_bind_copies(struct nn_program *p, const struct nn_bound *b);
// nn_program_run's and nn_program_time's.
enum ps_code nn_program_run_device(struct nn_program *p, const void *const *column, const struct nn_step *step,
                                   const struct nn_hooks *hooks, struct nn_times *times, struct ps_error *e);

#endif

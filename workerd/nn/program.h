// SPDX-License-Identifier: Apache-2.0
//
// A program: a tape made ready to run. Each operator has its kernel; each temporary tensor has its place in an arena,
// which tensors that do not live at the same time share. Nothing is allocated or looked up while it runs.
//
// Receives from: tape, device. Hands to: kernels. Threads: the replica's.
#ifndef NN_PROGRAM_H
#define NN_PROGRAM_H

#include "common/file/timeline.h"
#include "workerd/nn/device.h"
#include "workerd/nn/tape.h"

struct nn_program;

// Told of each variable that a step works with, so that values may come and gradients leave while it runs.
struct nn_hooks {
    // Before the first operator that reads the variable's value or writes its gradient. Another code than PS_OK ends
    // the step there.
    enum ps_code (*need)(void *arg, size_t variable, struct ps_error *e);
    // After the last one that reads the value or writes the gradient: the one may change, the other is final. Of
    // variables that have a gradient, or a state's value in its place. Another code than PS_OK ends the step there.
    enum ps_code (*ready)(void *arg, size_t variable, struct ps_error *e);
    // n numbers become their sums over all replicas, each of which asks for the same sums in the same order, between
    // the same variables that are ready. Another code than PS_OK ends the step there. NULL: there is one replica.
    enum ps_code (*sum)(void *arg, double *values, size_t n, struct ps_error *e);
    void *arg;
};

// Takes over the tape, also when it fails. RESOURCE_EXHAUSTED: the device has no memory for it.
enum ps_code nn_program_create(struct nn_tape *t, const struct nn_device *device, struct nn_context *context,
                               struct nn_program **program, struct ps_error *e);
void nn_program_free(struct nn_program *p);

size_t nn_program_arena(const struct nn_program *p);    // bytes, of the device
size_t nn_program_staging(const struct nn_program *p);  // bytes, of the host; 0: the device has no memory of its own

// Where a program's tensors are, all 64-byte aligned. Of variables, by index: their values and gradients.
struct nn_bound {
    char *arena;                              // at least nn_program_arena bytes
    nn_real *const *value, *const *gradient;  // where the device has them
    // Where the device has memory of its own: at least nn_program_staging bytes of the host; and the host's values,
    // which a step copies to the device when it needs them, and gradients, into which it copies them from there.
    char *staging;
    nn_real *const *host_value, *const *host_gradient;
};
// All of it outlives the program or is bound anew. Programs that do not run at the same time may share it.
void nn_program_bind(struct nn_program *p, const struct nn_bound *b);
// Of a device with memory of its own. keeps: from now on a run begins with the values that the device has, and its
// gradients stay there; else values come from the host for each run, and gradients go back to it.
void nn_program_keep(struct nn_program *p, bool keeps);
// column[i]: the memory of the input with that number, of the host. hooks may be NULL; without them it cannot fail
// where the device has no memory of its own. Where it has, all operators are queued, then variables become ready one by
// one while the device computes: an error of the device is found here, whichever operator it belongs to. A run that
// keeps its gradients calls ready as soon as what makes the gradient is queued.
enum ps_code nn_program_run(struct nn_program *p, const void *const *column, const struct nn_step *step,
                            const struct nn_hooks *hooks, struct ps_error *e);
// What hooks are told in a run, and nothing is computed: this replica gives zeros to the sums.
enum ps_code nn_program_idle(struct nn_program *p, const struct nn_hooks *hooks, struct ps_error *e);
// Where the time of runs went, in ns.
struct nn_times {
    uint64_t *op;            // [nn_program_ops]; NULL: not wanted
    uint64_t need, ready;    // in the hooks
    struct ps_track *track;  // gets each run of an operator as a span; NULL: none does
};
// As nn_program_run, with a look at the clock before and after each operator: times has what there was and this run's.
// A device with memory of its own is waited for after each operator.
enum ps_code nn_program_time(struct nn_program *p, const void *const *column, const struct nn_step *step,
                             const struct nn_hooks *hooks, struct nn_times *times, struct ps_error *e);
// Its operators, in the order in which they run, and the names of their kernels. The program's.
int nn_program_ops(const struct nn_program *p);
const struct nn_op *nn_program_op(const struct nn_program *p, int k);
const char *nn_program_kernel(const struct nn_program *p, int k);
// The variables that become ready, in that order. The program's.
size_t nn_program_order(const struct nn_program *p, const int **variable);
// A tensor of the tape that is kept, after a run: the host's copy.
const void *nn_program_tensor(const struct nn_program *p, int tensor);
// Of its operators: what their kernels say of themselves, one line each. malloc'd.
char *nn_program_info(const struct nn_program *p);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// A program: a tape made ready to run. Each operator has its kernel; each temporary tensor has its place in an arena,
// which tensors that do not live at the same time share. Nothing is allocated or looked up while it runs.
//
// Receives from: tape, device. Hands to: kernels. Threads: the replica's.
#ifndef NN_PROGRAM_H
#define NN_PROGRAM_H

#include "workerd/nn/device.h"
#include "workerd/nn/tape.h"

struct nn_program;

// Called as soon as the gradient of a variable is final, so that it may leave while the backward pass goes on.
typedef void (*nn_grad_ready)(void *arg, size_t variable);

// Takes over the tape, also when it fails. RESOURCE_EXHAUSTED: the device has no memory for it.
enum ps_code nn_program_create(struct nn_tape *t, const struct nn_device *device, struct nn_context *context,
                               struct nn_program **program, struct ps_error *e);
void nn_program_free(struct nn_program *p);

size_t nn_program_arena(const struct nn_program *p);  // bytes
// Where its tensors are: an arena of at least that size, 64-byte aligned; the values and gradients of the variables, by
// index. They outlive the program or are bound anew.
void nn_program_bind(struct nn_program *p, char *arena, nn_real *const *weight, nn_real *const *gradient);
// column[i]: the memory of the input with that number. ready may be NULL.
void nn_program_run(struct nn_program *p, const void *const *column, const struct nn_step *step, nn_grad_ready ready,
                    void *arg);
// A tensor of the tape that is kept, after a run.
const void *nn_program_tensor(const struct nn_program *p, int tensor);
// Of its operators: what their kernels say of themselves, one line each. malloc'd.
char *nn_program_info(const struct nn_program *p);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// A device: who computes operators. It picks a kernel for each operator at its shapes; what the kernel prepares for
// them (primitives, scratch memory) is its plan.
//
// A context belongs to one replica. Its kernels are called on one thread at a time, and may share their work with
// others.
#ifndef NN_DEVICE_H
#define NN_DEVICE_H

#include "workerd/nn/op.h"

struct nn_kernel {
    // Sets *plan. NULL: there is nothing to prepare.
    enum ps_code (*plan)(struct nn_context *context, const struct nn_op *op, void **plan, struct ps_error *e);
    void (*run)(const struct nn_frame *f);
    void (*free)(void *plan);
    // Which implementation of a library it uses: "brgconv:avx512_core". For tests, warnings and profiles; NULL: our
    // own.
    const char *(*info)(const void *plan);
};

struct nn_device {
    const char *name;
    void (*describe)(char *text, size_t size);  // what it is on this machine, for people
    enum ps_code (*open)(int threads, struct nn_context **context, struct ps_error *e);
    void (*close)(struct nn_context *context);
    // Around the kernels of a run, on the thread that runs them.
    void (*enter)(struct nn_context *context);
    void (*leave)(struct nn_context *context);
    const struct nn_kernel *(*pick)(const struct nn_op *op);
    // Is this operator, which does the work of several, faster than these? NULL: no such one is.
    bool (*joins)(const struct nn_op *op);
    // FLOP per second that it reaches at best, now, on the context's threads; takes some milliseconds.
    // NULL: what operators reach is not held against anything.
    double (*peak)(struct nn_context *context);
};

extern const struct nn_device nn_device_ref;  // the references, one thread
extern const struct nn_device nn_device_cpu;  // oneDNN and vector code
extern const struct nn_kernel nn_kernel_ref;  // runs an operator's reference

// The i-th device, NULL past the last.
const struct nn_device *nn_device_at(size_t i);
// INVALID_ARGUMENT: there is none of that name.
enum ps_code nn_device_find(const char *name, const struct nn_device **device, struct ps_error *e);

#endif

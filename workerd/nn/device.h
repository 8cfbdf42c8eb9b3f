// SPDX-License-Identifier: Apache-2.0
//
// A device: who computes operators. It picks a kernel for each operator at its shapes; what the kernel prepares for
// them (primitives, scratch memory) is its plan.
//
// A context belongs to one replica. Its kernels are called on one thread at a time, and may share their work with
// others.
#ifndef NN_DEVICE_H
#define NN_DEVICE_H

#include "common/math/rule.h"
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

// Memory of a device's own, which the host does not see. Copies and kernels are queued; the first error of any of them
// is kept, what is queued after it does nothing, and `wait` and `finish` return it.
struct nn_device_memory {
    // RESOURCE_EXHAUSTED says how many bytes are asked for, and how many there are.
    enum ps_code (*get)(struct nn_context *context, size_t bytes, void **memory, struct ps_error *e);
    void (*free)(struct nn_context *context, void *memory);
    size_t (*available)(struct nn_context *context);
    // Memory of the host that copies reach without a detour, 64-byte aligned.
    enum ps_code (*get_host)(struct nn_context *context, size_t bytes, void **memory, struct ps_error *e);
    void (*free_host)(struct nn_context *context, void *memory);
    // To the device, when what was queued before is done. The host does not write to `from` until then.
    void (*put)(struct nn_context *context, void *to, const void *from, size_t bytes);
    // From the device, when what was queued before is done, and while it computes what is queued after. Returns the
    // copy's ticket, greater than those before.
    uint64_t (*take)(struct nn_context *context, void *to, const void *from, size_t bytes);
    // Waits for that copy and those taken before it; for all that is queued.
    enum ps_code (*wait)(struct nn_context *context, uint64_t ticket, struct ps_error *e);
    enum ps_code (*finish)(struct nn_context *context, struct ps_error *e);
    // From record to recorded nothing is done, but recorded: all that is queued, with its arguments as they are. replay
    // queues it. record returns false: not now; recorded NULL: something in it cannot be recorded; replay false: it has
    // to be recorded anew.
    bool (*record)(struct nn_context *context);
    void *(*recorded)(struct nn_context *context);
    bool (*replay)(struct nn_context *context, void *graph);
    void (*free_graph)(struct nn_context *context, void *graph);
};

// Sums over several devices of this kind, each driven by a thread of this process or of another one. They are queued
// behind what computes the numbers, and done beside what is queued after.
enum { NN_SUMS_NAME = 128 };
// Who adds up.
struct nn_sums_ranks {
    char name[NN_SUMS_NAME];
    int rank, ranks;  // of this device; of all
    bool abroad;      // some of them are other processes', which may be lost
    // Whoever waits for others asks whether that is in vain.
    bool (*gives_up)(void *arg);
    void *arg;
};
enum nn_sums_way { NN_SUMS_AMONG_ALL, NN_SUMS_ON_FIRST, NN_SUMS_WAYS };  // on all devices; on that of rank 0
struct nn_device_sums {
    enum ps_code (*check)(struct ps_error *e);  // FAILED_PRECONDITION: why there are none here
    // A number of the device, the same in all processes and of no other device; 0: it is not known. NULL: all that join
    // are this process's.
    uint64_t (*identity)(const struct nn_context *context);
    // By one device: names them, for all that join.
    enum ps_code (*name)(char name[NN_SUMS_NAME], struct ps_error *e);
    // By each, which has left those before; waits for the others. ABORTED: it has given that up.
    enum ps_code (*join)(struct nn_context *context, const struct nn_sums_ranks *ranks, struct ps_error *e);
    // Queues: n numbers become the sum over all ranks of scale * number, the same bits on each. All ranks queue the
    // same sums in the same order.
    void (*add)(struct nn_context *context, float *values, size_t n, float scale);
    // *done: all that was queued so far is. Otherwise the first error. UNAVAILABLE: NCCL's, which may be the
    // consequence of another process's end.
    enum ps_code (*look)(struct nn_context *context, bool *done, struct ps_error *e);
    // Leaves the others: what is queued and not done ends. Afterwards the device may join anew, if it has not failed.
    void (*abort)(struct nn_context *context);
};

// An application of a rule to a variable, whose arrays are in the device's memory.
struct nn_update {
    size_t variable;  // of the model
    const struct ps_rule *rule;
    const double *hyper;
    struct ps_rule_args args;
};

// To what a device may round the factors of a matrix product; sums stay float32. tensorfloat32 has 10 bits of mantissa.
enum nn_precision { NN_FLOAT32, NN_TENSORFLOAT32, NN_BFLOAT16 };

// What computes convolutions on a device for which a library has several algorithms: one that gives the same bits in
// every run; the one that is the fastest when it is measured, as a program is planned; its own kernels.
enum nn_convolutions { NN_CONVOLUTIONS_DETERMINISTIC, NN_CONVOLUTIONS_FASTEST, NN_CONVOLUTIONS_OWN };

struct nn_device {
    const char *name;
    void (*describe)(char *text, size_t size);  // what it is on this machine, for people
    // The device of that index, of those of its kind.
    enum ps_code (*open)(int index, int threads, struct nn_context **context, struct ps_error *e);
    void (*close)(struct nn_context *context);
    // Around the kernels of a run, on the thread that runs them.
    void (*enter)(struct nn_context *context);
    void (*leave)(struct nn_context *context);
    // From the next run on; float32 until then. NULL: its products are float32's.
    void (*set_precision)(struct nn_context *context, enum nn_precision precision);
    // Of the programs that are planned from then on; deterministic until then. FAILED_PRECONDITION: it has no library
    // that can be measured. NULL: it has one kind of convolutions.
    enum ps_code (*set_convolutions)(struct nn_context *context, enum nn_convolutions which, struct ps_error *e);
    const struct nn_kernel *(*pick)(const struct nn_op *op);
    // Is this operator, which does the work of several, faster than these? NULL: no such one is.
    bool (*joins)(const struct nn_op *op);
    // FLOP per second that it reaches at best, now, on the context's threads; takes some milliseconds.
    // NULL: what operators reach is not held against anything.
    double (*peak)(struct nn_context *context);
    // NULL: its kernels work in the host's memory.
    const struct nn_device_memory *memory;
    const struct nn_device_sums *sums[NN_SUMS_WAYS];  // NULL: there are none of that way
    // Does it apply this rule to values in its own memory? NULL: none.
    bool (*applies)(const struct ps_rule *rule, const double *hyper);
    // Queues n of them, each to another array. What follows each other with the same rule and equal hyperparameters is
    // done together.
    void (*apply)(struct nn_context *context, const struct nn_update *update, size_t n);
};

extern const struct nn_device nn_device_ref;  // the references, one thread
extern const struct nn_device nn_device_cpu;  // oneDNN and vector code
extern const struct nn_kernel nn_kernel_ref;  // runs an operator's reference

// The i-th device, NULL past the last.
const struct nn_device *nn_device_at(size_t i);
// "cpu", "gpu:1". INVALID_ARGUMENT: there is none of that name; otherwise why it cannot be used here.
enum ps_code nn_device_find(const char *name, const struct nn_device **device, int *index, struct ps_error *e);

// Memory of a device, or of the host, where it has none of its own.
enum ps_code nn_memory_get(const struct nn_device *device, struct nn_context *context, size_t bytes, void **memory,
                           struct ps_error *e);
void nn_memory_free(const struct nn_device *device, struct nn_context *context, void *memory);
// Memory of the host that the device copies from and to.
enum ps_code nn_memory_get_host(const struct nn_device *device, struct nn_context *context, size_t bytes, void **memory,
                                struct ps_error *e);
void nn_memory_free_host(const struct nn_device *device, struct nn_context *context, void *memory);

#endif

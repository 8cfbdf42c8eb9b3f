// SPDX-License-Identifier: Apache-2.0
//
// The device that computes every operator by its reference.
#include "workerd/nn/device.h"

#include <stdio.h>

static enum ps_code ref_open(int index, int threads, struct nn_context **context, struct ps_error *e)
{
    (void)index;
    (void)threads;
    (void)e;
    *context = NULL;
    return PS_OK;
}

static void ref_nothing(struct nn_context *context)
{
    (void)context;
}

static void ref_run(const struct nn_frame *f)
{
    f->op->class->reference(f);
}

const struct nn_kernel nn_kernel_ref = {.run = ref_run};

static const struct nn_kernel *ref_pick(const struct nn_op *op)
{
    (void)op;
    return &nn_kernel_ref;
}

static void ref_describe(char *text, size_t size)
{
    snprintf(text, size, "plain C, one thread: what other devices are held against");
}

const struct nn_device nn_device_ref = {.name = "ref",
                                        .describe = ref_describe,
                                        .open = ref_open,
                                        .close = ref_nothing,
                                        .enter = ref_nothing,
                                        .leave = ref_nothing,
                                        .pick = ref_pick};

// SPDX-License-Identifier: Apache-2.0
//
// Convolutions whose factors a device may round (nn_precision): how far what they give is from the reference.
#ifndef TEST_NN_OPS_ROUNDED_H
#define TEST_NN_OPS_ROUNDED_H

#include "tests/unit/nn_ops/larger.h"

// Of few channels: one for each tile of cuda/implicit.cu.
static const struct op_case rounded_cases[] = {
    CONV("rounded, 12 to 16", 2, 9, 8, 12, 3, 3, 1, 1, 1, 1, 1, 1, 16, NN_LINEAR, 1),
    CONV("rounded, 20 to 28", 1, 9, 11, 20, 3, 3, 2, 1, 1, 1, 1, 1, 28, NN_LINEAR, 0),
    CONV("rounded, 36 to 40", 1, 7, 6, 36, 3, 2, 1, 1, 0, 0, 0, 0, 40, NN_LINEAR, 0),
    CONV("rounded, 72 to 68", 1, 5, 5, 72, 2, 2, 1, 1, 0, 0, 0, 0, 68, NN_LINEAR, 0),
};

static double rounded_most(double most, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

// The greatest distance, of what the convolution gives and of its gradients by x and the kernel.
static double rounded_distance(const struct op_case *c, const struct nn_device *device, enum nn_precision precision)
{
    struct op_run ref, rounded;
    op_open(&ref, c, &nn_device_ref, 1);
    op_open(&rounded, c, device, 1);
    device->set_precision(rounded.context, precision);
    op_fill(&ref, false);
    op_fill(&rounded, false);
    op_go(&ref);
    op_go(&rounded);
    double most = rounded_most(0, op_out(&ref, 0), op_out(&rounded, 0), nn_type_count(&ref.type[0]));
    for (int k = 0; k < 2; k++)
        most = rounded_most(most, ref.grad[k], rounded.grad[k], nn_type_count(&c->in[k]));
    op_close(&ref);
    op_close(&rounded);
    return most;
}

#endif

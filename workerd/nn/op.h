// SPDX-License-Identifier: Apache-2.0
//
// An operator: what one computation of a network means, whatever device does it. ops/ has one file for each, with its
// attributes, the types that it gives, its gradient, and its reference: plain C that devices are held against, and that
// serves where a device has nothing better.
//
// Layouts: images are NHWC, convolution kernels HWIO (height, width, in, out), dense kernels (in, out): Keras's own.
#ifndef NN_OP_H
#define NN_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "workerd/nn/tensor.h"

struct nn_context;
struct nn_tape;

enum { NN_OP_IN = 8, NN_OP_OUT = 8, NN_ATTR_BYTES = 128 };

// An operator at given shapes. Optional inputs and outputs are the last ones: there are n_in and n_out.
struct nn_op {
    const struct nn_op_class *class;
    _Alignas(8) unsigned char attr[NN_ATTR_BYTES];  // the class's struct
    int n_in, n_out;
    struct nn_type in_type[NN_OP_IN], out_type[NN_OP_OUT];
    int in[NN_OP_IN], out[NN_OP_OUT];  // tensors of the tape
    const char *layer;                 // its name; borrowed
    bool backward;                     // of the backward pass
};

// What differs from step to step.
struct nn_step {
    uint64_t seed;
    uint32_t number;
};

// One run of an operator.
struct nn_frame {
    const struct nn_op *op;
    struct nn_context *context;  // the device's
    void *plan;                  // the kernel's
    void *const *in, *const *out;
    const struct nn_step *step;  // for a class that draws; a device's kernels find it in its memory
};

struct nn_op_class {
    const char *name;
    // Sets op->out_type from attributes and in_type. INVALID_ARGUMENT says what does not fit.
    enum ps_code (*infer)(struct nn_op *op, struct ps_error *e);
    // Puts operators on the tape that compute dx[i], for each input i that is wanted, from the gradients of the outputs
    // (dy[k]; -1: none). NULL: it has no gradient.
    void (*differentiate)(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx);
    void (*reference)(const struct nn_frame *f);
    // Of one run at these shapes: multiplications and additions of the products that it sums. NULL: it has none worth
    // counting, and is held up by memory.
    double (*flop)(const struct nn_op *op);
    // Puts on the tape what computes out[0] once more from what the gradient reads anyway, so that it need not be kept
    // for the backward pass: cheap. The tensor that is out[0] then; -1: keep it. NULL: always.
    int (*again)(struct nn_tape *t, const struct nn_op *op);
    // Of an operator over all replicas that train together: how many sums it takes over them; what this replica gives
    // to these; what it computes from them. reference: where there are no others.
    size_t (*sums)(const struct nn_op *op);
    void (*give)(const struct nn_frame *f, double *sums);
    void (*take)(const struct nn_frame *f, const double *sums);
    int in_place;  // 1 + the input in whose memory out[0] may lie; 0: in none
    bool draws;    // what it computes depends on the step (nn_frame.step)
};

// ---- attributes ---------------------------------------------------------------------------------------------------

enum nn_activation { NN_LINEAR, NN_RELU };

// y (n, oh, ow, oc) = x (n, h, w, c) * kernel (kh, kw, c / groups, oc) + bias (oc, optional), then the activation.
// Channels are in groups: the g-th of oc are made from the g-th of c. A depthwise convolution has groups of one c each.
struct nn_conv2d {
    int image[2], kernel[2];  // (h, w) and (kh, kw), which the gradients cannot tell from their inputs
    int stride[2], pad_begin[2], pad_end[2];
    enum nn_activation act;
    bool bias;
    int dilation[2], groups;  // each 1 or more; the cells of a window are `dilation` pixels apart
};

// y (..., out) = x (..., in) kernel (in, out) + bias (out, optional), then the activation.
struct nn_dense {
    enum nn_activation act;
    bool bias;
};

// y (n, oh, ow, c): of each window of x (n, h, w, c) the greatest cell, or the mean. Cells outside the image do not
// count. at, like y: the position of the greatest in the window, ky * pw + kx; the first of equals, and a NaN is
// greater than all. It is of uint8 where a window has at most NN_POOL_BYTE cells, of int32 where it has more.
struct nn_pool2d {
    int image[2], window[2], stride[2], pad_begin[2], out[2];
};
enum { NN_POOL_BYTE = 256 };

// y = x * mask / (1 - rate). The mask is drawn from Philox(seed, PS_RANDOM_DROPOUT, layer << 32 | step, (example[row] *
// per + j) / 4), word (.. % 4), for element j of the `per` of a row; kept where uniform >= rate.
struct nn_dropout {
    float rate;
    uint32_t layer;
};

extern const struct nn_op_class nn_op_add;                      // a, b -> a + b
extern const struct nn_op_class nn_op_conv2d;                   // x, kernel[, bias] -> y
extern const struct nn_op_class nn_op_conv2d_backward_data;     // kernel, dy -> dx: a transposed convolution of dy
extern const struct nn_op_class nn_op_conv2d_backward_weights;  // x, dy -> dkernel[, dbias]
extern const struct nn_op_class nn_op_copy;                     // x -> x
extern const struct nn_op_class nn_op_dense;                    // x, kernel[, bias] -> y
extern const struct nn_op_class nn_op_dense_backward_data;      // kernel, dy -> dx
extern const struct nn_op_class nn_op_dense_backward_weights;   // x, dy -> dkernel[, dbias]
extern const struct nn_op_class nn_op_maxpool;                  // x -> y, at
extern const struct nn_op_class nn_op_maxpool_backward;         // dy, at -> dx
extern const struct nn_op_class nn_op_relu;                     // x -> max(x, 0); a NaN goes on
extern const struct nn_op_class nn_op_relu_backward;            // y, dy -> dx
extern const struct nn_op_class nn_op_softmax;                  // x -> y, over the last axis
extern const struct nn_op_class nn_op_softmax_backward;         // y, dy -> dx
extern const struct nn_op_class nn_op_dropout;                  // x, example -> y

// Losses: of each row; with `gradient` also dx, the gradient by x of sum(weight[row] * loss[row]), where
// differentiation begins. Labels are in [0, classes): the reader of the data has checked them.
struct nn_loss_outputs {
    bool gradient, probabilities;  // dx is the last output; softmax_xent: y is the second
};
// x (rows, classes), label (rows), weight (rows) -> loss (rows)[, y][, dx]
extern const struct nn_op_class nn_op_softmax_xent;
// p (rows, classes), label (rows), weight (rows) -> loss (rows)[, dx]
extern const struct nn_op_class nn_op_sparse_xent;
// x, target like x, weight (rows) -> loss (rows)[, dx]
extern const struct nn_op_class nn_op_mse;

// ---- for the files of ops/ ----------------------------------------------------------------------------------------

// The outputs of a loss of x (rows, ...): loss (rows)[, y][, dx], of which y and dx are like x.
void nn_loss_outputs_infer(struct nn_op *op, bool probabilities, bool gradient);
// INVALID_ARGUMENT "conv2d: <formatted>".
enum ps_code nn_op_fail(const struct nn_op *op, struct ps_error *e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif

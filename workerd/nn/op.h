// SPDX-License-Identifier: Apache-2.0
//
// The operators of a network, one table of functions per device. `nn_ref_ops` is the naive C that defines what each
// operator means; `nn_cpu_ops` is what trains (oneDNN for the heavy ones); both are held against each other in the
// tests. A table's functions may be called by one thread at a time per context.
//
// Layouts: images are NHWC, convolution kernels HWIO (kh, kw, in, out), dense kernels (in, out): Keras's own. All
// float32. `real` is float here and double where the reference is built a second time for gradient checks.
//
// NaN: goes on through every operator. relu of a negative number is 0, or within 1e-20 below it.
//
// Gradients: dw and db are overwritten. dx may be NULL where nothing needs it, and so may dw, with db, where the layer
// is not trained.
#ifndef NN_OP_H
#define NN_OP_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

#ifndef NN_REAL
#define NN_REAL float
#endif
typedef NN_REAL nn_real;

enum nn_activation { NN_LINEAR, NN_RELU };  // fused into conv2d and dense; softmax is an operator of its own

struct nn_conv2d {
    int n, h, w, c;      // x (n, h, w, c)
    int kh, kw, sh, sw;  // kernel (kh, kw, c, oc), strides
    int pad_top, pad_left, pad_bottom, pad_right;
    int oh, ow, oc;  // y (n, oh, ow, oc)
    enum nn_activation act;
    int bias;  // 0: b and db are NULL
};

struct nn_dense {
    int n, in, out;  // x (n, in), w (in, out), y (n, out)
    enum nn_activation act;
    int bias;
};

struct nn_maxpool {
    int n, h, w, c;
    int ph, pw, sh, sw;     // window, strides
    int pad_top, pad_left;  // 'same' padding; cells outside count as -infinity
    int oh, ow;
};

struct nn_plan;     // one operator at one shape: what the device prepared for it (primitives, packed weights, scratch)
struct nn_context;  // one replica's device state

struct nn_ops {
    const char *name;
    enum ps_code (*open)(int threads, struct nn_context **ctx, struct ps_error *e);
    void (*close)(struct nn_context *ctx);
    void (*plan_free)(struct nn_plan *plan);
    // Names of the implementations a plan uses, "fwd=brgconv:avx512_core bwd_d=... bwd_w=...", or "" where it is our
    // own C. For tests and logs.
    const char *(*plan_info)(const struct nn_plan *plan);

    enum ps_code (*conv2d_plan)(struct nn_context *ctx, const struct nn_conv2d *s, struct nn_plan **plan,
                                struct ps_error *e);
    void (*conv2d_forward)(struct nn_plan *p, const nn_real *x, const nn_real *w, const nn_real *b, nn_real *y);
    // y is the forward result (after the activation). dy is consumed: it may be overwritten.
    void (*conv2d_backward)(struct nn_plan *p, const nn_real *x, const nn_real *w, const nn_real *y, nn_real *dy,
                            nn_real *dx, nn_real *dw, nn_real *db);

    enum ps_code (*dense_plan)(struct nn_context *ctx, const struct nn_dense *s, struct nn_plan **plan,
                               struct ps_error *e);
    void (*dense_forward)(struct nn_plan *p, const nn_real *x, const nn_real *w, const nn_real *b, nn_real *y);
    void (*dense_backward)(struct nn_plan *p, const nn_real *x, const nn_real *w, const nn_real *y, nn_real *dy,
                           nn_real *dx, nn_real *dw, nn_real *db);

    enum ps_code (*maxpool_plan)(struct nn_context *ctx, const struct nn_maxpool *s, struct nn_plan **plan,
                                 struct ps_error *e);
    // at (n, oh, ow, c): position of the maximum in its window, ky * pw + kx; the first one of equals. A NaN is a
    // maximum.
    void (*maxpool_forward)(struct nn_plan *p, const nn_real *x, nn_real *y, uint8_t *at);
    void (*maxpool_backward)(struct nn_plan *p, const nn_real *dy, const uint8_t *at, nn_real *dx);

    void (*relu_forward)(size_t n, const nn_real *x, nn_real *y);                       // y may be x
    void (*relu_backward)(size_t n, const nn_real *y, const nn_real *dy, nn_real *dx);  // dx may be dy
    void (*softmax_forward)(int rows, int classes, const nn_real *x, nn_real *y);
    void (*softmax_backward)(int rows, int classes, const nn_real *y, const nn_real *dy, nn_real *dx);
    // y = x * mask / (1 - rate); the mask is drawn from Philox(seed, PS_RANDOM_DROPOUT, layer << 32 | step,
    // (example[i] * per + j) / 4), word (.. % 4); kept where uniform >= rate. Backward is the same call on dy.
    void (*dropout)(int rows, int per, const uint64_t *example, float rate, uint64_t seed, uint32_t layer,
                    uint32_t step, const nn_real *x, nn_real *y);

    // Losses: the first `valid` of `rows` count, the rest are padding and get dx = 0. loss[i] per example, valid of
    // them; dx is the gradient of the mean over `valid`. NULL dx: no gradient. Labels are in [0, classes): whoever read
    // them has looked.
    // Of logits x: y = softmax(x), of which the rows of padding are left as they are, loss = -log y[label] and
    // dx = (y - onehot(label)) / valid, which are right where y[label] is too small for a float. y may be NULL.
    void (*softmax_xent)(int rows, int valid, int classes, const nn_real *x, const int32_t *label, nn_real *y,
                         nn_real *loss, nn_real *dx);
    // Of probabilities p that come from no softmax. As in Keras q = p clipped to [1e-7, 1 - 1e-7] takes their place,
    // which need not add up to 1: loss = -log(q[label] / sum q). There is no gradient where the clip holds.
    void (*sparse_xent)(int rows, int valid, int classes, const nn_real *p, const int32_t *label, nn_real *loss,
                        nn_real *dx);
    void (*mse)(int rows, int valid, int per, const nn_real *x, const nn_real *target, nn_real *loss, nn_real *dx);
};

// Every plan of a table begins with these: INVALID_ARGUMENT says which size does not follow from the others.
enum ps_code nn_conv2d_check(const struct nn_conv2d *s, struct ps_error *e);
enum ps_code nn_dense_check(const struct nn_dense *s, struct ps_error *e);
enum ps_code nn_maxpool_check(const struct nn_maxpool *s, struct ps_error *e);

extern const struct nn_ops nn_ref_ops;
extern const struct nn_ops nn_cpu_ops;

#endif

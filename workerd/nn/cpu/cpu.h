// SPDX-License-Identifier: Apache-2.0
//
// The CPU's operators: oneDNN for the convolutions and the matrix products, plain vectorised C for what lies between.
// One file per operator; ops.c holds the table.
#ifndef NN_CPU_H
#define NN_CPU_H

#include <oneapi/dnnl/dnnl.h>

#include "common/math/cpu.h"
#include "workerd/nn/op.h"

struct nn_context {
    int threads;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

// The head of every operator's own plan.
struct nn_plan {
    const struct nn_context *ctx;
    void (*free)(struct nn_plan *plan);
    char *info;  // whole, however long its names are; owned by the operator; NULL: our own C
};

// OpenMP, on which oneDNN runs, keeps its number of threads per calling thread: every use of oneDNN begins here.
void nn_cpu_enter(const struct nn_context *ctx);
// Fills e from oneDNN's status.
enum ps_code nn_cpu_fail(struct ps_error *e, dnnl_status_t status, const char *what);
// For what the plan prepared: only want of memory inside oneDNN can stop it now, and that ends the process as in
// ps_alloc.
void nn_cpu_must(dnnl_status_t status, const char *what);

enum ps_code nn_cpu_conv2d_plan(struct nn_context *ctx, const struct nn_conv2d *s, struct nn_plan **plan,
                                struct ps_error *e);
void nn_cpu_conv2d_forward(struct nn_plan *p, const float *x, const float *w, const float *b, float *y);
void nn_cpu_conv2d_backward(struct nn_plan *p, const float *x, const float *w, const float *y, float *dy, float *dx,
                            float *dw, float *db);

enum ps_code nn_cpu_dense_plan(struct nn_context *ctx, const struct nn_dense *s, struct nn_plan **plan,
                               struct ps_error *e);
void nn_cpu_dense_forward(struct nn_plan *p, const float *x, const float *w, const float *b, float *y);
void nn_cpu_dense_backward(struct nn_plan *p, const float *x, const float *w, const float *y, float *dy, float *dx,
                           float *dw, float *db);

enum ps_code nn_cpu_maxpool_plan(struct nn_context *ctx, const struct nn_maxpool *s, struct nn_plan **plan,
                                 struct ps_error *e);
void nn_cpu_maxpool_forward(struct nn_plan *p, const float *x, float *y, uint8_t *at);
void nn_cpu_maxpool_backward(struct nn_plan *p, const float *dy, const uint8_t *at, float *dx);

void nn_cpu_relu_forward(size_t n, const float *x, float *y);
void nn_cpu_relu_backward(size_t n, const float *y, const float *dy, float *dx);
// y (rows, n) += b, which may be NULL; then the activation.
void nn_cpu_bias_activation(enum nn_activation act, size_t rows, size_t n, const float *b, float *y);
// db (n) = the sum of the rows of dy (rows, n)
void nn_cpu_bias_gradient(size_t rows, size_t n, const float *dy, float *db);

void nn_cpu_dropout(int rows, int per, const uint64_t *example, float rate, uint64_t seed, uint32_t layer,
                    uint32_t step, const float *x, float *y);

void nn_cpu_softmax_xent(int rows, int valid, int classes, const float *x, const int32_t *label, float *y, float *loss,
                         float *dx);

#endif

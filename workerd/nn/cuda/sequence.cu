// SPDX-License-Identifier: Apache-2.0
//
// Attention: scores and sums are products by cuBLAS, a warp makes the softmax of a row of scores.
#include <math.h>

#include "workerd/nn/cuda/cuda.h"
#include "workerd/nn/ops/attention.h"

// ---- products -----------------------------------------------------------------------------------------------------

// Sequences (n, steps, heads, d), scores (n, heads, i, j): the matrices of a head and an example.
struct attention_shape {
    size_t n, heads, i, j, d;
};

static struct nn_cuda_matrix attention_sequence(const struct attention_shape *s, const float *data, bool transposed)
{
    const struct nn_cuda_matrix m = {data, s->heads * s->d, transposed, 0};
    return m;
}

static struct nn_cuda_matrix attention_scores(const struct attention_shape *s, const float *data, bool transposed)
{
    const struct nn_cuda_matrix m = {data, s->j, transposed, 0};
    return m;
}

// How far apart an operand's matrices are: of one head and the next, of one example and the next.
struct attention_steps {
    size_t head, example;
};

static void attention_move(struct nn_cuda_matrix *m, const struct attention_steps *by, bool heads, size_t k)
{
    m->data += k * (heads ? by->example : by->head);
    m->stride = heads ? by->head : by->example;
}

// A product of all heads of an example, or of a head of all examples: whichever is fewer products.
static void attention_multiply(struct nn_context *c, const struct attention_shape *s, const struct nn_cuda_product *p,
                               const struct attention_steps by[3])
{
    const bool heads = s->n < s->heads;
    for (size_t k = 0; k < (heads ? s->n : s->heads); k++) {
        struct nn_cuda_product one = *p;
        attention_move(&one.a, &by[0], heads, k);
        attention_move(&one.b, &by[1], heads, k);
        one.y += k * (heads ? by[2].example : by[2].head);
        one.stride = heads ? by[2].head : by[2].example;
        one.count = heads ? s->heads : s->n;
        nn_cuda_multiply(c, &one);
    }
}

static void cuda_attention_scores_run(const struct nn_frame *f)
{
    const struct nn_type *y = &f->op->out_type[0];
    const struct attention_shape s = {(size_t)y->dim[0], (size_t)y->dim[1], (size_t)y->dim[2], (size_t)y->dim[3],
                                      (size_t)f->op->in_type[0].dim[3]};
    const struct nn_cuda_product p = {s.i,
                                      s.j,
                                      s.d,
                                      attention_sequence(&s, nn_cuda_in(f, 0), false),
                                      attention_sequence(&s, nn_cuda_in(f, 1), true),
                                      nn_cuda_attr<nn_attention>(f)->scale,
                                      nn_cuda_out(f, 0),
                                      s.j,
                                      0,
                                      1};
    const struct attention_steps by[3] = {
        {s.d, s.i * s.heads * s.d}, {s.d, s.j * s.heads * s.d}, {s.i * s.j, s.heads * s.i * s.j}};
    attention_multiply(f->context, &s, &p, by);
}

static void cuda_attention_sum_run(const struct nn_frame *f)
{
    const struct nn_attention *a = nn_cuda_attr<nn_attention>(f);
    const struct nn_type *t = &f->op->in_type[0];
    const struct attention_shape s = {(size_t)t->dim[0], (size_t)t->dim[1], (size_t)t->dim[2], (size_t)t->dim[3],
                                      (size_t)f->op->in_type[1].dim[3]};
    const size_t to = a->across ? s.j : s.i, over = a->across ? s.i : s.j;
    const struct nn_cuda_product p = {to,
                                      s.d,
                                      over,
                                      attention_scores(&s, nn_cuda_in(f, 0), a->across),
                                      attention_sequence(&s, nn_cuda_in(f, 1), false),
                                      a->scale,
                                      nn_cuda_out(f, 0),
                                      s.heads * s.d,
                                      0,
                                      1};
    const struct attention_steps by[3] = {
        {s.i * s.j, s.heads * s.i * s.j}, {s.d, over * s.heads * s.d}, {s.d, to * s.heads * s.d}};
    attention_multiply(f->context, &s, &p, by);
}

static const char *cuda_attention_info(const void *plan)
{
    (void)plan;
    return "cublas";
}

// ---- softmax ------------------------------------------------------------------------------------------------------

enum { ROWS_OF_BLOCK = 4 };  // a warp each

// Which scores count; the masks are NULL where there are none. by_both: by_j has a row for each of i.
struct attention_masks {
    size_t heads, i, j;
    const float *by_i, *by_j;
    bool by_both, causal, zero_unseen;
};

static __device__ float attention_sum_of_warp(float x)
{
    for (int by = 16; by > 0; by /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}

static __device__ float attention_max_of_warp(float x)
{
    for (int by = 16; by > 0; by /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, by));
    return x;
}

// Does score j of row k count?
static __device__ bool score_counts(const struct attention_masks &m, size_t k, size_t j)
{
    const size_t i = k % m.i, n = k / m.i / m.heads;
    const float *by_j = m.by_j ? m.by_j + (m.by_both ? n * m.i + i : n) * m.j : NULL;
    return (!m.causal || j <= i) && (!m.by_i || m.by_i[n * m.i + i] != 0) && (!by_j || by_j[j] != 0);
}

static __global__ void softmax_of_scores(size_t rows, struct attention_masks m, const float *x, float *y)
{
    const size_t k = (size_t)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x / 32, lane = threadIdx.x % 32;
    float max = -INFINITY, sum = 0, any = 0;
    if (k >= rows)
        return;
    x += k * m.j;
    y += k * m.j;
    for (size_t j = lane; j < m.j; j += 32)
        if (score_counts(m, k, j)) {
            max = fmaxf(max, x[j]);
            any = 1;
        }
    max = attention_max_of_warp(max);
    any = attention_max_of_warp(any);
    for (size_t j = lane; j < m.j; j += 32)
        sum += score_counts(m, k, j) ? expf(x[j] - max) : 0.0f;
    sum = attention_sum_of_warp(sum);
    for (size_t j = lane; j < m.j; j += 32)
        y[j] = any == 0                ? (m.zero_unseen ? 0.0f : 1.0f / (float)m.j)
               : score_counts(m, k, j) ? expf(x[j] - max) / sum
                                       : 0.0f;
}

static __global__ void softmax_of_scores_backward(size_t rows, struct attention_masks m, const float *p,
                                                  const float *dp, float *dx)
{
    const size_t k = (size_t)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x / 32, lane = threadIdx.x % 32;
    float dot = 0, any = 0;
    if (k >= rows)
        return;
    p += k * m.j;
    dp += k * m.j;
    dx += k * m.j;
    for (size_t j = lane; j < m.j; j += 32) {
        dot += p[j] * dp[j];
        any = score_counts(m, k, j) ? 1.0f : any;
    }
    dot = attention_sum_of_warp(dot);
    any = attention_max_of_warp(any);
    for (size_t j = lane; j < m.j; j += 32)
        dx[j] = any != 0 ? p[j] * (dp[j] - dot) : 0.0f;
}

// masks: the first input that is one.
static struct attention_masks attention_masks_of(const struct nn_frame *f, int masks)
{
    const struct nn_attention_softmax *a = nn_cuda_attr<nn_attention_softmax>(f);
    const struct nn_type *s = &f->op->in_type[0];
    const struct attention_masks m = {(size_t)s->dim[1],
                                      (size_t)s->dim[2],
                                      (size_t)s->dim[3],
                                      a->by_i ? nn_cuda_in(f, masks) : NULL,
                                      a->by_j || a->by_both ? nn_cuda_in(f, masks + a->by_i) : NULL,
                                      a->by_both,
                                      a->causal,
                                      a->zero_unseen};
    return m;
}

static unsigned attention_blocks(size_t rows)
{
    return (unsigned)((rows + ROWS_OF_BLOCK - 1) / ROWS_OF_BLOCK);
}

static void cuda_attention_softmax_run(const struct nn_frame *f)
{
    const size_t rows = nn_type_rows(&f->op->in_type[0]);
    NN_CUDA_RUN(f->context, softmax_of_scores, attention_blocks(rows), 32 * ROWS_OF_BLOCK, 0, rows,
                attention_masks_of(f, 1), nn_cuda_in(f, 0), nn_cuda_out(f, 0));
}

static void cuda_attention_softmax_run_backward(const struct nn_frame *f)
{
    const size_t rows = nn_type_rows(&f->op->in_type[0]);
    NN_CUDA_RUN(f->context, softmax_of_scores_backward, attention_blocks(rows), 32 * ROWS_OF_BLOCK, 0, rows,
                attention_masks_of(f, 2), nn_cuda_in(f, 0), nn_cuda_in(f, 1), nn_cuda_out(f, 0));
}

const struct nn_kernel nn_cuda_attention_scores = {NULL, cuda_attention_scores_run, NULL, cuda_attention_info};
const struct nn_kernel nn_cuda_attention_sum = {NULL, cuda_attention_sum_run, NULL, cuda_attention_info};
const struct nn_kernel nn_cuda_attention_softmax = {NULL, cuda_attention_softmax_run, NULL, NULL};
const struct nn_kernel nn_cuda_attention_softmax_backward = {NULL, cuda_attention_softmax_run_backward, NULL, NULL};

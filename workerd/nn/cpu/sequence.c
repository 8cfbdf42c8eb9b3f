// SPDX-License-Identifier: Apache-2.0
//
// Attention's products, by oneDNN's sgemm.
#include "workerd/nn/cpu/cpu.h"
#include "workerd/nn/ops/attention.h"

// One product for each head of each row, of as many numbers: the threads share them. Steps of a head lie heads * d
// elements apart.
static void attention_share(const struct nn_frame *f, const struct nn_type *s, int64_t d, nn_cpu_part *part)
{
    const size_t products = (size_t)(s->dim[2] * s->dim[3] * d);
    nn_cpu_share(f->context, (size_t)(s->dim[0] * s->dim[1]), nn_cpu_least(products / 16), part, (void *)f);
}

static void attention_part_scores(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct nn_attention *attr = (const struct nn_attention *)f->op->attr;
    const struct nn_type *s = &f->op->out_type[0];
    const dnnl_dim_t heads = s->dim[1], i = s->dim[2], j = s->dim[3], d = f->op->in_type[0].dim[3], ld = heads * d;
    for (dnnl_dim_t k = (dnnl_dim_t)first; k < (dnnl_dim_t)last; k++)
        nn_cpu_must(dnnl_sgemm('N', 'T', i, j, d, attr->scale,
                               (const float *)f->in[0] + k / heads * i * ld + k % heads * d, ld,
                               (const float *)f->in[1] + k / heads * j * ld + k % heads * d, ld, 0,
                               (float *)f->out[0] + k * i * j, j),
                    "attention scores");
}

static void attention_run_scores(const struct nn_frame *f)
{
    attention_share(f, &f->op->out_type[0], f->op->in_type[0].dim[3], attention_part_scores);
}

static void attention_part_sum(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct nn_attention *attr = (const struct nn_attention *)f->op->attr;
    const struct nn_type *s = &f->op->in_type[0], *y = &f->op->out_type[0];
    const dnnl_dim_t heads = s->dim[1], steps = y->dim[1], over = f->op->in_type[1].dim[1], d = y->dim[3];
    const dnnl_dim_t ld = heads * d;
    for (dnnl_dim_t k = (dnnl_dim_t)first; k < (dnnl_dim_t)last; k++)
        nn_cpu_must(dnnl_sgemm(attr->across ? 'T' : 'N', 'N', steps, d, over, attr->scale,
                               (const float *)f->in[0] + k * s->dim[2] * s->dim[3], s->dim[3],
                               (const float *)f->in[1] + k / heads * over * ld + k % heads * d, ld, 0,
                               (float *)f->out[0] + k / heads * steps * ld + k % heads * d, ld),
                    "attention sum");
}

static void attention_run_sum(const struct nn_frame *f)
{
    attention_share(f, &f->op->in_type[0], f->op->out_type[0].dim[3], attention_part_sum);
}

static const char *sequence_info(const void *plan)
{
    (void)plan;
    return "sgemm";
}

const struct nn_kernel nn_cpu_attention_scores = {.run = attention_run_scores, .info = sequence_info};
const struct nn_kernel nn_cpu_attention_sum = {.run = attention_run_sum, .info = sequence_info};

// SPDX-License-Identifier: Apache-2.0
//
// Dropout. Its gradient is dropout with the same mask, which is drawn again rather than kept: the counter-based random
// numbers give the same ones.
#include "common/math/philox.h"
#include "workerd/nn/tape.h"

static enum ps_code dropout_infer(struct nn_op *op, struct ps_error *e)
{
    (void)e;
    op->out_type[0] = op->in_type[0];
    return PS_OK;
}

static void dropout_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    (void)wanted;
    nn_tape_put(t, &nn_op_dropout, op->attr, sizeof(struct nn_dropout), (int[]){dy[0], op->in[1]}, 2, dx, 1);
}

static void dropout_reference(const struct nn_frame *f)
{
    const struct nn_dropout *a = (const struct nn_dropout *)f->op->attr;
    const nn_real *x = f->in[0];
    const uint64_t *example = f->in[1];
    nn_real *y = f->out[0], scale = (nn_real)(1 / (1 - a->rate));
    uint64_t rows = (uint64_t)f->op->in_type[0].dim[0], per = nn_type_count(&f->op->in_type[0]) / rows;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t j = 0; j < per; j++, x++, y++) {
            uint64_t element = example[r] * per + j;
            uint32_t draw[4];
            ps_philox(f->step->seed, PS_RANDOM_DROPOUT, (uint64_t)a->layer << 32 | f->step->number, element / 4, draw);
            *y = ps_uniform(draw[element % 4]) >= a->rate ? *x * scale : 0;
        }
}

const struct nn_op_class nn_op_dropout = {.name = "dropout",
                                          .infer = dropout_infer,
                                          .differentiate = dropout_differentiate,
                                          .reference = dropout_reference,
                                          .in_place = 1,
                                          .draws = true};

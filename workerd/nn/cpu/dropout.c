// SPDX-License-Identifier: Apache-2.0
#include "common/math/philox.h"
#include "workerd/nn/cpu/cpu.h"

enum { BLOCKS = 64 };  // of four words, drawn at a time

PS_PER_CPU static void draw_blocks(uint64_t seed, uint64_t stream, uint64_t first, uint32_t *restrict word)
{
    for (size_t i = 0; i < BLOCKS; i++)
        ps_philox(seed, PS_RANDOM_DROPOUT, stream, first + i, word + 4 * i);
}

PS_PER_CPU static void keep(size_t n, const uint32_t *word, float rate, const float *x, float *y)
{
    float scale = 1 / (1 - rate);
    for (size_t i = 0; i < n; i++) {
        float v = x[i] * scale;
        y[i] = ps_uniform(word[i]) >= rate ? v : 0;
    }
}

// The elements of one example: `first` is the number of x[0] among all examples' elements, and need not be the first of
// a block.
static void dropout_row(size_t per, uint64_t first, float rate, uint64_t seed, uint64_t stream, const float *x,
                        float *y)
{
    uint32_t word[4 * BLOCKS];
    for (size_t j = 0, n; j < per; j += n) {
        uint64_t element = first + j;
        size_t skip = element % 4;
        n = per - j < 4 * BLOCKS - skip ? per - j : 4 * BLOCKS - skip;
        draw_blocks(seed, stream, element / 4, word);
        keep(n, word + skip, rate, x + j, y + j);
    }
}

static void dropout_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct nn_dropout *a = (const struct nn_dropout *)f->op->attr;
    const uint64_t *example = f->in[1], stream = (uint64_t)a->layer << 32 | f->step->number;
    size_t rows = (size_t)f->op->in_type[0].dim[0], per = nn_type_count(&f->op->in_type[0]) / rows;
    const float *x = (const float *)f->in[0] + first * per;
    float *y = (float *)f->out[0] + first * per;
    for (size_t r = first; r < last; r++, x += per, y += per)
        dropout_row(per, example[r] * per, a->rate, f->step->seed, stream, x, y);
}

static void dropout_run(const struct nn_frame *f)
{
    const size_t rows = (size_t)f->op->in_type[0].dim[0], per = nn_type_count(&f->op->in_type[0]) / rows;
    nn_cpu_share(f->context, rows, nn_cpu_least(4 * per), dropout_part, (void *)f);
}

const struct nn_kernel nn_cpu_dropout = {.run = dropout_run};

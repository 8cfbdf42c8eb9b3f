// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/buffers.h"

#include <stdlib.h>

#include "common/base/alloc.h"

bool buffers_sends(enum bench_command command)
{
    return command != BENCH_PULL;
}

bool buffers_gets(enum bench_command command)
{
    return command == BENCH_PULL || command == BENCH_PUSHPULL;
}

// Small gradients: what is summed up stays finite, and nothing becomes denormal.
static char **buffers_make(uint64_t size, long n)
{
    char **v = ps_alloc((size_t)n * sizeof *v);
    for (long k = 0; k < n; k++) {
        float *values = ps_alloc_aligned(size);
        for (uint64_t i = 0; i < size / sizeof *values; i++)
            values[i] = 1e-6f;
        v[k] = (char *)values;
    }
    return v;
}

void buffers_init(struct buffers *b, const struct bench_case *c)
{
    b->n = c->window;
    b->sent = buffers_sends(c->command) ? buffers_make(c->size, c->window) : NULL;
    b->got = buffers_gets(c->command) ? buffers_make(c->size, c->window) : NULL;
}

static void buffers_free_all(char **v, long n)
{
    for (long k = 0; v && k < n; k++)
        free(v[k]);
    free(v);
}

void buffers_fini(struct buffers *b)
{
    buffers_free_all(b->sent, b->n);
    buffers_free_all(b->got, b->n);
}

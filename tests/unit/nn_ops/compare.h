// SPDX-License-Identifier: Apache-2.0
//
// Two runs of a case, on two devices or twice on one: the same numbers, or the same bits.
#ifndef TEST_NN_OPS_COMPARE_H
#define TEST_NN_OPS_COMPARE_H

#include "tests/unit/nn_cases.h"

static inline void assert_close(const char *name, const char *what, const float *expected, const float *got, size_t n)
{
    float scale = 0;
    for (size_t i = 0; i < n; i++)
        scale = fmaxf(scale, fabsf(expected[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(expected[i] - got[i]) <= 1e-4f * scale))
            fail_msg("%s: %s[%zu]: expected %g, got %g (the largest is %g)", name, what, i, (double)expected[i],
                     (double)got[i], (double)scale);
}

static inline void assert_runs_close(const struct op_run *a, const struct op_run *b)
{
    const struct op_case *c = a->c;
    assert_close(c->name, "y", op_out(a, 0), op_out(b, 0), nn_type_count(&a->type[0]));
    for (int k = 1; k < c->n_out; k++)
        if (a->type[k].dtype == NN_FLOAT)
            assert_close(c->name, "output", op_out(a, k), op_out(b, k), nn_type_count(&a->type[k]));
        else
            assert_memory_equal(op_out(a, k), op_out(b, k), nn_type_bytes(&a->type[k]));
    for (int i = 0; i < c->n_in; i++)
        if (c->learns[i])
            assert_close(c->name, "gradient", a->grad[i], b->grad[i], nn_type_count(&c->in[i]));
}

static inline void assert_runs_same(const struct op_run *a, const struct op_run *b)
{
    for (int k = 0; k < a->c->n_out; k++)
        assert_memory_equal(op_out(a, k), op_out(b, k), nn_type_bytes(&a->type[k]));
    for (int i = 0; i < a->c->n_in; i++)
        if (a->c->learns[i])
            assert_memory_equal(a->grad[i], b->grad[i], nn_type_bytes(&a->c->in[i]));
}

static inline void run_case(struct op_run *r, const struct op_case *c, const struct nn_device *device, int threads)
{
    op_open(r, c, device, threads);
    op_fill(r, true);
    op_go(r);
}

#endif

// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layers/normalization.h"

enum ps_code normalization_build_parameters(struct nn_building *b, const struct normalization *n,
                                            const struct nn_type *type, struct ps_error *e)
{
    if (n->scale && nn_build_variable(b, "gamma", "Ones", type, e))
        return e->code;
    return n->center ? nn_build_variable(b, "beta", "Zeros", type, e) : PS_OK;
}

int normalization_parameters(struct nn_emitter *m, const struct nn_call *call, const struct normalization *n, int *in)
{
    int count = n->scale + n->center;
    for (int i = 0; i < count; i++)
        in[i] = nn_emit_variable(m, call, i);
    return count;
}

int normalization_emit(struct nn_emitter *m, const struct nn_call *call, const struct normalization *n,
                       struct nn_normalize *attr, int *statistic)
{
    int in[3] = {nn_emit_tensor(m, call->in[0])}, out[3];
    attr->epsilon = (float)n->epsilon;
    attr->scale = n->scale;
    attr->center = n->center;
    nn_tape_put(m->tape, &nn_op_normalize, attr, sizeof *attr, in, 1 + normalization_parameters(m, call, n, in + 1),
                out, 3);
    statistic[0] = out[1];
    statistic[1] = out[2];
    return out[0];
}

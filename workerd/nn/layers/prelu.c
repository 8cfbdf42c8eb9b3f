// SPDX-License-Identifier: Apache-2.0
//
// x where it is above 0, alpha x elsewhere: relu(x) + alpha (x - relu(x)). There is an alpha for each place of an
// example, or one for all places along the shared axes.
#include "workerd/nn/layer.h"
#include "workerd/nn/ops/binary.h"

static const struct nn_key keys[] = {{"alpha_initializer", NN_KEY_INITIALIZER},
                                     {"alpha_regularizer", NN_KEY_BY_BUILD},
                                     {"alpha_constraint", NN_KEY_BY_BUILD},
                                     {"shared_axes", NN_KEY_BY_BUILD},
                                     {NULL}};

static enum ps_code prelu_share(const struct nn_json *at, struct nn_type *alpha, struct ps_error *e)
{
    size_t n = 0;
    if (nn_json_given(at) && !json_is_integer(at->value) && nn_json_array(at, &n, e))
        return e->code;
    n = json_is_integer(at->value) ? 1 : n;
    for (size_t i = 0; i < n; i++) {
        struct nn_json own = nn_json_element(at, i);
        const struct nn_json *axis = json_is_array(at->value) ? &own : at;
        int64_t v;
        if (nn_json_int(axis, 1, alpha->rank, &v, e))
            return e->code;
        alpha->dim[v - 1] = 1;
    }
    return PS_OK;
}

static enum ps_code prelu_build(struct nn_building *b, struct ps_error *e)
{
    struct nn_json shared = nn_json_member(b->config, "shared_axes");
    if (nn_build_inputs(b, 1, e))
        return e->code;
    b->out = b->in[0]->type;
    struct nn_type alpha = b->out;
    if (prelu_share(&shared, &alpha, e))
        return e->code;
    return nn_build_variable(b, "alpha", "Zeros", &alpha, e);
}

static int prelu_put(struct nn_emitter *m, enum nn_binary_kind kind, int a, int b)
{
    const struct nn_binary attr = {kind};
    int y;
    nn_tape_put(m->tape, &nn_op_binary, &attr, sizeof attr, (int[]){a, b}, 2, &y, 1);
    return y;
}

static int prelu_emit(struct nn_emitter *m, const struct nn_call *call)
{
    int x = nn_emit_tensor(m, call->in[0]), above, alpha = nn_emit_variable(m, call, 0);
    if (alpha < 0 || x < 0)
        return -1;
    struct nn_type type = m->tape->tensor[alpha].type;
    for (int i = type.rank++; i > 0; i--)
        type.dim[i] = type.dim[i - 1];
    type.dim[0] = 1;
    alpha = nn_tape_view(m->tape, alpha, &type);
    nn_tape_put(m->tape, &nn_op_relu, NULL, 0, &x, 1, &above, 1);
    int below = prelu_put(m, NN_B_MULTIPLY, prelu_put(m, NN_B_SUBTRACT, x, above), alpha);
    return prelu_put(m, NN_B_ADD, above, below);
}

const struct nn_layer_class nn_layer_prelu = {"PReLU", 0, keys, prelu_build, prelu_emit, .passes_mask = true};

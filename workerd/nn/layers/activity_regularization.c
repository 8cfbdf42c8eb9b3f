// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layer.h"

struct activity_regularization {
    double l1, l2;
};

static const struct nn_key keys[] = {{"l1", NN_KEY_REAL, NN_AT(struct activity_regularization, l1), .max = 1e30},
                                     {"l2", NN_KEY_REAL, NN_AT(struct activity_regularization, l2), .max = 1e30},
                                     {NULL}};

static enum ps_code activity_regularization_build(struct nn_building *b, struct ps_error *e)
{
    const struct activity_regularization *c = NN_CONFIG(struct activity_regularization, b->layer);
    if (nn_build_inputs(b, 1, e))
        return e->code;
    b->out = b->in[0]->type;
    b->layer->activity = (struct nn_regularizer){c->l1, c->l2};
    return PS_OK;
}

static int activity_regularization_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return nn_emit_tensor(m, call->in[0]);
}

const struct nn_layer_class nn_layer_activity_regularization = {
    "ActivityRegularization",      sizeof(struct activity_regularization), keys,
    activity_regularization_build, activity_regularization_emit,           .passes_mask = true};

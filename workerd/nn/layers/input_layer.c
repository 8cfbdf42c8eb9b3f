// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layer.h"
#include "workerd/nn/setting.h"

static const struct nn_key keys[] = {{"batch_shape", NN_KEY_NONE}, {"batch_input_shape", NN_KEY_NONE},
                                     {"sparse", NN_KEY_REFUSED},   {"ragged", NN_KEY_REFUSED},
                                     {"optional", NN_KEY_REFUSED}, {NULL}};

// A batch shape: [null, 28, 28, 1]. The batch's size is the job's, whatever stands first.
static enum ps_code input_read_shape(struct nn_building *b, const struct nn_json *at, struct ps_error *e)
{
    size_t n;
    if (nn_json_array(at, &n, e))
        return e->code;
    if (n < 2 || n > PS_MAX_RANK + 1)
        return nn_json_expected(at, e, "null for the batch and 1 to %d dimensions", PS_MAX_RANK);
    b->out = (struct nn_type){.dtype = NN_FLOAT, .rank = (int)n - 1};
    for (size_t i = 1; i < n; i++) {
        struct nn_json dimension = nn_json_element(at, i);
        int size = 0;
        if (nn_setting_size(&dimension, &size, e))
            return e->code;
        b->out.dim[i - 1] = size;
    }
    return PS_OK;
}

static enum ps_code input_build(struct nn_building *b, struct ps_error *e)
{
    struct nn_json keras3 = nn_json_member(b->config, "batch_shape");
    struct nn_json keras2 = nn_json_member(b->config, "batch_input_shape");
    enum nn_dtype dtype;
    if (b->n_in > 0)
        return nn_json_fail(b->at, e, "expected InputLayer as the first layer only");
    if (nn_setting_input_dtype(b->config, &dtype, &b->text, e) ||
        input_read_shape(b, keras2.value ? &keras2 : &keras3, e))
        return e->code;
    b->out.dtype = dtype;
    return PS_OK;
}

static int input_emit(struct nn_emitter *m, const struct nn_call *call)
{
    return nn_emit_input(m, call);
}

const struct nn_layer_class nn_layer_input = {"InputLayer", 0, keys, input_build, input_emit};

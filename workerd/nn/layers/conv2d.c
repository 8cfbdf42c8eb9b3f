// SPDX-License-Identifier: Apache-2.0
//
// Conv2D and Conv1D.
#include "workerd/nn/layers/images.h"

struct conv2d {
    struct nn_windows windows;
    int filters, groups;
    bool use_bias;
    struct nn_function function;
};

#define KEYS(IS_SEQUENCE, CAUSAL)                                                                                    \
    {                                                                                                                \
        {"filters", NN_KEY_SIZE, NN_AT(struct conv2d, filters), .required = true},                                   \
            NN_KEYS_OF_WINDOWS(struct conv2d, IS_SEQUENCE, CAUSAL),                                                  \
            {"groups", NN_KEY_SIZE, NN_AT(struct conv2d, groups), .fallback = 1}, NN_KEYS_OF_WEIGHTS(struct conv2d), \
            {NULL},                                                                                                  \
    }

static const struct nn_key conv1d_keys[] = KEYS(true, "causal");
static const struct nn_key conv2d_keys[] = KEYS(false, NULL);

static enum ps_code conv2d_check_groups(struct nn_building *b, int64_t channels, struct ps_error *e)
{
    const struct conv2d *c = NN_CONFIG(struct conv2d, b->layer);
    const struct nn_json at = nn_json_member(b->config, "groups");
    if (channels % c->groups != 0)
        return nn_json_expected(&at, e, "a divisor of the %d channels of its input", (int)channels);
    return c->filters % c->groups == 0 ? PS_OK : nn_json_expected(&at, e, "a divisor of the %d filters", c->filters);
}

static enum ps_code conv2d_build_image(struct nn_building *b, bool sequence, struct ps_error *e)
{
    const struct conv2d *c = NN_CONFIG(struct conv2d, b->layer);
    const int *k = c->windows.size;
    struct nn_type image;
    struct nn_axis axis[2];
    if (nn_image_build(b, sequence, &image, e) || conv2d_check_groups(b, image.dim[2], e) ||
        nn_image_build_windows(b, &c->windows, &image, axis, e))
        return e->code;
    const int64_t in = image.dim[2] / c->groups;
    nn_image_give(b, axis[0].out, axis[1].out, c->filters);
    return nn_build_kernel_bias(b,
                                sequence ? &(struct nn_type){NN_FLOAT, 3, {k[1], in, c->filters}}
                                         : &(struct nn_type){NN_FLOAT, 4, {k[0], k[1], in, c->filters}},
                                c->use_bias, e);
}

static enum ps_code conv1d_build(struct nn_building *b, struct ps_error *e)
{
    return conv2d_build_image(b, true, e);
}

static enum ps_code conv2d_build(struct nn_building *b, struct ps_error *e)
{
    return conv2d_build_image(b, false, e);
}

static int conv2d_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct conv2d *c = NN_CONFIG(struct conv2d, nn_emit_layer(m, call));
    const struct nn_type image = nn_image_of(nn_emit_type(m, call->in[0]));
    const struct nn_conv2d attr = nn_image_conv2d(&c->windows, &image, c->groups, c->use_bias);
    const int x = nn_image_input(m, call);
    const int kernel = nn_image_kernel(m, call, 0, &c->windows, image.dim[2] / c->groups, c->filters);
    const int y = nn_image_put_conv2d(m, call, &attr, x, kernel, 1);
    return nn_emit_function(m, nn_image_output(m, call, y), c->function);
}

const struct nn_layer_class nn_layer_conv1d = {"Conv1D", sizeof(struct conv2d), conv1d_keys, conv1d_build, conv2d_emit};
const struct nn_layer_class nn_layer_conv2d = {"Conv2D", sizeof(struct conv2d), conv2d_keys, conv2d_build, conv2d_emit};

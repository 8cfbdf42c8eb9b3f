// SPDX-License-Identifier: Apache-2.0
//
// What layers over images share. A sequence (steps, channels) is an image of height 1: a 1D layer is the 2D one whose
// windows are 1 high.
#ifndef NN_LAYERS_IMAGES_H
#define NN_LAYERS_IMAGES_H

#include "workerd/nn/layer.h"

// Windows of size[0] x size[1] cells, `dilation` apart, that move by stride.
struct nn_windows {
    int size[2], stride[2], dilation[2];
    enum nn_padding padding;
};

// The settings of a convolution's windows: T has a member windows. CAUSAL: "causal", where it has such a padding.
#define NN_KEYS_OF_WINDOWS(T, IS_SEQUENCE, CAUSAL)                                                       \
    {"kernel_size", NN_KEY_PAIR, NN_AT(T, windows.size), .required = true, .sequence = IS_SEQUENCE},     \
        {"strides", NN_KEY_PAIR, NN_AT(T, windows.stride), .fallback = 1, .sequence = IS_SEQUENCE},      \
        {"padding", NN_KEY_PADDING, NN_AT(T, windows.padding), .word = CAUSAL},                          \
        {"data_format", NN_KEY_ONLY_WORD, .word = "channels_last"},                                      \
    {                                                                                                    \
        "dilation_rate", NN_KEY_PAIR, NN_AT(T, windows.dilation), .fallback = 1, .sequence = IS_SEQUENCE \
    }

// ---- for build ----------------------------------------------------------------------------------------------------

// Expects one input of floats: (height, width, channels), or a sequence. *image: that, as an image.
enum ps_code nn_image_build(struct nn_building *b, bool sequence, struct nn_type *image, struct ps_error *e);
// What the layer gives: a sequence where it is given one.
void nn_image_give(struct nn_building *b, int64_t height, int64_t width, int64_t channels);

// A window of k cells, `dilation` apart, that moves by stride over one axis of in cells. "same" is TensorFlow's:
// ceil(in / stride) positions, the cells that lack divided between the two ends, the odd one after. "causal": all
// before, as many as the first position needs.
struct nn_axis {
    int in, k, stride, dilation;  // given
    int out, pad_begin, pad_end;  // worked out
};
// Places windows on both axes of an image. What does not fit has an error, so has a stride with a dilation.
enum ps_code nn_image_build_windows(struct nn_building *b, const struct nn_windows *w, const struct nn_type *image,
                                    struct nn_axis axis[2], struct ps_error *e);
// A stride with a dilation.
enum ps_code nn_image_check_windows(struct nn_building *b, const struct nn_windows *w, struct ps_error *e);

// ---- for emit -----------------------------------------------------------------------------------------------------

struct nn_type nn_image_of(const struct nn_type *type);
// The attributes of a convolution that is linear, and of a pooling.
struct nn_conv2d nn_image_conv2d(const struct nn_windows *w, const struct nn_type *image, int groups, bool bias);
struct nn_pool2d nn_image_pool2d(const struct nn_windows *w, const struct nn_type *image);
// The call's input as (rows, height, width, channels), and such a tensor as what the call gives.
int nn_image_input(struct nn_emitter *m, const struct nn_call *call);
int nn_image_output(struct nn_emitter *m, const struct nn_call *call, int tensor);
// The layer's variable k as a kernel (height, width, in, out).
int nn_image_kernel(struct nn_emitter *m, const struct nn_call *call, int k, const struct nn_windows *w, int64_t in,
                    int64_t out);
// conv2d of x, a kernel, and the layer's variable `bias` where the attributes have one.
int nn_image_put_conv2d(struct nn_emitter *m, const struct nn_call *call, const struct nn_conv2d *attr, int x,
                        int kernel, int bias);

#endif

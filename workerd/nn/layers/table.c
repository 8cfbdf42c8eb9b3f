// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/layer.h"

// X(what follows nn_layer_): one line for each file of this folder, or each class of it, in the order of Keras's pages.
#define LAYERS(X)               \
    X(input)                    \
    X(dense)                    \
    X(conv1d)                   \
    X(conv2d)                   \
    X(separable_conv1d)         \
    X(separable_conv2d)         \
    X(depthwise_conv1d)         \
    X(depthwise_conv2d)         \
    X(conv1d_transpose)         \
    X(conv2d_transpose)         \
    X(max_pooling1d)            \
    X(max_pooling2d)            \
    X(average_pooling1d)        \
    X(average_pooling2d)        \
    X(global_max_pooling1d)     \
    X(global_max_pooling2d)     \
    X(global_average_pooling1d) \
    X(global_average_pooling2d) \
    X(flatten)                  \
    X(reshape)                  \
    X(permute)                  \
    X(repeat_vector)            \
    X(zero_padding1d)           \
    X(zero_padding2d)           \
    X(cropping1d)               \
    X(cropping2d)               \
    X(upsampling1d)             \
    X(upsampling2d)             \
    X(batch_normalization)      \
    X(sync_batch_normalization) \
    X(group_normalization)      \
    X(layer_normalization)      \
    X(unit_normalization)       \
    X(activation)               \
    X(dropout)                  \
    X(spatial_dropout1d)        \
    X(spatial_dropout2d)        \
    X(gaussian_dropout)         \
    X(gaussian_noise)           \
    X(rescaling)                \
    X(normalization)            \
    X(discretization)           \
    X(category_encoding)        \
    X(integer_lookup)           \
    X(string_lookup)            \
    X(activity_regularization)  \
    X(random_crop)              \
    X(random_flip)              \
    X(identity)                 \
    X(relu)                     \
    X(leaky_relu)               \
    X(elu)                      \
    X(prelu)                    \
    X(softmax)                  \
    X(add)                      \
    X(subtract)                 \
    X(multiply)                 \
    X(average)                  \
    X(maximum)                  \
    X(minimum)                  \
    X(concatenate)              \
    X(dot)                      \
    X(embedding)                \
    X(masking)                  \
    X(simple_rnn)               \
    X(lstm)                     \
    X(gru)                      \
    X(bidirectional)            \
    X(time_distributed)         \
    X(multi_head_attention)     \
    X(not_equal)                \
    X(any)                      \
    X(logical_or)               \
    X(logical_and)              \
    X(zeros_like)               \
    X(ones_like)                \
    X(expand_dims)

#define X(name) extern const struct nn_layer_class nn_layer_##name;
LAYERS(X)
#undef X

const struct nn_layer_class *const nn_layer_classes[] = {
#define X(name) &nn_layer_##name,
    LAYERS(X)
#undef X
};
const size_t nn_layer_n_classes = sizeof nn_layer_classes / sizeof *nn_layer_classes;

const char *nn_layer_name(size_t i)
{
    return i < nn_layer_n_classes ? nn_layer_classes[i]->name : NULL;
}

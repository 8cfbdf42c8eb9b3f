// SPDX-License-Identifier: Apache-2.0
//
// What the normalizations share.
#ifndef NN_LAYERS_NORMALIZATION_H
#define NN_LAYERS_NORMALIZATION_H

#include "workerd/nn/layer.h"
#include "workerd/nn/ops/normalize.h"

struct normalization {
    double epsilon;
    bool center, scale;
};

// T begins with a struct normalization `n`.
#define NORMALIZATION_KEYS(T)                                                                               \
    {"epsilon", NN_KEY_REAL, NN_AT(T, n.epsilon), .fallback = 1e-3, .min = 0, .max = 1},                    \
        {"center", NN_KEY_BOOL, NN_AT(T, n.center), .fallback = 1},                                         \
        {"scale", NN_KEY_BOOL, NN_AT(T, n.scale), .fallback = 1}, {"beta_initializer", NN_KEY_INITIALIZER}, \
        {"gamma_initializer", NN_KEY_INITIALIZER}, {"beta_regularizer", NN_KEY_BY_BUILD},                   \
        {"gamma_regularizer", NN_KEY_BY_BUILD}, {"beta_constraint", NN_KEY_BY_BUILD},                       \
    {                                                                                                       \
        "gamma_constraint", NN_KEY_BY_BUILD                                                                 \
    }

// Variables "gamma" and "beta" of this type, as far as the layer has them.
enum ps_code normalization_build_parameters(struct nn_building *b, const struct normalization *n,
                                            const struct nn_type *type, struct ps_error *e);
// Puts what the layer has of gamma and beta into in[]; returns how many.
int normalization_parameters(struct nn_emitter *m, const struct nn_call *call, const struct normalization *n, int *in);
// By the statistics of the input itself; statistic[2] are the mean and the variance.
int normalization_emit(struct nn_emitter *m, const struct nn_call *call, const struct normalization *n,
                       struct nn_normalize *attr, int *statistic);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// The losses that there are, by Keras 3's names and with its settings. workerd/nn computes them.
#ifndef PS_COMMON_LOSS_H
#define PS_COMMON_LOSS_H

#include <stdbool.h>

#include "common/job/named.h"

enum ps_loss_kind {
    PS_LOSS_SPARSE_XENT,
    PS_LOSS_XENT,
    PS_LOSS_BINARY_XENT,
    PS_LOSS_FOCAL,
    PS_LOSS_BINARY_FOCAL,
    PS_LOSS_MSE,
    PS_LOSS_MAE,
    PS_LOSS_MAPE,
    PS_LOSS_MSLE,
    PS_LOSS_HUBER,
    PS_LOSS_LOG_COSH,
    PS_LOSS_HINGE,
    PS_LOSS_SQUARED_HINGE,
    PS_LOSS_CATEGORICAL_HINGE,
    PS_LOSS_KL,
    PS_LOSS_POISSON,
    PS_LOSS_COSINE,
    PS_LOSS_KINDS
};

struct ps_loss {
    int kind;  // enum ps_loss_kind
    // Settings, 0 or false where the kind does not have them.
    bool from_logits, apply_class_balancing;
    double label_smoothing, delta, alpha, gamma;
    double weight;  // of this output's loss in the sum of all
};

// An initializer: PS_LOSS(.kind = PS_LOSS_HUBER, .delta = 1).
#define PS_LOSS(...)             \
    {                            \
        .weight = 1, __VA_ARGS__ \
    }

extern const struct ps_names ps_losses;

// From a file's value, or what Keras writes; see ps_named_read.
enum ps_code ps_loss_read(const char *path, const json_t *from, struct ps_loss *to, const char **key,
                          struct ps_error *e);

// Does it compare the output with class numbers, not with numbers like the output's?
static inline bool ps_loss_has_labels(const struct ps_loss *loss)
{
    return loss->kind == PS_LOSS_SPARSE_XENT;
}

#endif

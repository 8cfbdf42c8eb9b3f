// SPDX-License-Identifier: Apache-2.0
#include "common/job/loss.h"

// Besides the name in snake case, those of the class, of the function and of older Keras.
static const struct ps_named loss_named[PS_LOSS_KINDS] = {
    [PS_LOSS_SPARSE_XENT] = {"sparse_categorical_crossentropy", "SparseCategoricalCrossentropy",
                             "cross-entropy of class numbers and the probabilities of the classes"},
    [PS_LOSS_XENT] = {"categorical_crossentropy", "CategoricalCrossentropy",
                      "cross-entropy of two distributions over classes"},
    [PS_LOSS_BINARY_XENT] = {"binary_crossentropy", "BinaryCrossentropy bce BCE",
                             "cross-entropy of yes or no and its probability"},
    [PS_LOSS_FOCAL] = {"categorical_focal_crossentropy", "CategoricalFocalCrossentropy",
                       "categorical cross-entropy in which examples that are right already count less"},
    [PS_LOSS_BINARY_FOCAL] = {"binary_focal_crossentropy", "BinaryFocalCrossentropy",
                              "binary cross-entropy in which examples that are right already count less"},
    [PS_LOSS_MSE] = {"mse", "mean_squared_error MeanSquaredError MSE", "mean of squared errors"},
    [PS_LOSS_MAE] = {"mae", "mean_absolute_error MeanAbsoluteError MAE", "mean of absolute errors"},
    [PS_LOSS_MAPE] = {"mape", "mean_absolute_percentage_error MeanAbsolutePercentageError MAPE",
                      "mean of absolute errors in percent of the target"},
    [PS_LOSS_MSLE] = {"msle", "mean_squared_logarithmic_error MeanSquaredLogarithmicError MSLE",
                      "mean of squared differences of log(1 + x)"},
    [PS_LOSS_HUBER] = {"huber", "Huber huber_loss", "squared up to an error of delta, absolute beyond it"},
    [PS_LOSS_LOG_COSH] = {"log_cosh", "LogCosh logcosh", "logarithm of the error's hyperbolic cosine"},
    [PS_LOSS_HINGE] = {"hinge", "Hinge", "max(1 - target * output, 0), targets -1 and 1"},
    [PS_LOSS_SQUARED_HINGE] = {"squared_hinge", "SquaredHinge", "hinge, squared"},
    [PS_LOSS_CATEGORICAL_HINGE] = {"categorical_hinge", "CategoricalHinge",
                                   "hinge of the right class and the greatest of the others"},
    [PS_LOSS_KL] = {"kl_divergence", "KLDivergence kld KLD kullback_leibler_divergence",
                    "Kullback-Leibler divergence of two distributions"},
    [PS_LOSS_POISSON] = {"poisson", "Poisson", "output - target * log(output)"},
    [PS_LOSS_COSINE] = {"cosine_similarity", "CosineSimilarity", "minus the cosine of target and output"},
};

#define AT(member) .offset = offsetof(struct ps_loss, member)
#define OF(kind) (1U << (kind))
#define FOCAL (OF(PS_LOSS_FOCAL) | OF(PS_LOSS_BINARY_FOCAL))
#define SMOOTHED (FOCAL | OF(PS_LOSS_XENT) | OF(PS_LOSS_BINARY_XENT))

static const char *const reductions[] = {"sum_over_batch_size", NULL};
static const char *const dtypes[] = {"float32", NULL};

static const struct ps_setting loss_settings[] = {
    {"from_logits", PS_SETTING_FLAG, AT(from_logits), .of = SMOOTHED | OF(PS_LOSS_SPARSE_XENT)},
    {"label_smoothing", PS_SETTING_REAL, AT(label_smoothing), .max = 1, .of = SMOOTHED},
    {"apply_class_balancing", PS_SETTING_FLAG, AT(apply_class_balancing), .of = OF(PS_LOSS_BINARY_FOCAL)},
    {"alpha", PS_SETTING_REAL, AT(alpha), .fallback = 0.25, .max = 1e9, .of = FOCAL},
    {"gamma", PS_SETTING_REAL, AT(gamma), .fallback = 2, .max = 100, .of = FOCAL},
    {"delta", PS_SETTING_REAL, AT(delta), .fallback = 1, .min = 1e-9, .max = 1e30, .of = OF(PS_LOSS_HUBER)},
    {"weight", PS_SETTING_REAL, AT(weight), .fallback = 1, .max = 1e30},
    {"reduction", PS_SETTING_FIXED, .words = reductions},
    {"dtype", PS_SETTING_FIXED, .words = dtypes},
    {"axis", PS_SETTING_FIXED, .fallback = -1},
};

const struct ps_names ps_losses = {"loss", loss_named, PS_LOSS_KINDS, loss_settings,
                                   sizeof loss_settings / sizeof *loss_settings};

enum ps_code ps_loss_read(const char *path, const json_t *from, struct ps_loss *to, const char **key,
                          struct ps_error *e)
{
    struct ps_loss loss = {.kind = 0};
    if (ps_named_read(&ps_losses, path, from, &loss.kind, &loss, NULL, key, e))
        return e->code;
    *to = loss;
    return PS_OK;
}

// SPDX-License-Identifier: Apache-2.0
#include "common/job/metric.h"

// Besides ours, the names of Keras's classes in both cases and its short ones.
static const struct ps_named metric_named[PS_METRIC_KINDS] = {
    [PS_METRIC_ACCURACY] = {"accuracy", "acc Accuracy", "how many are right: binary, categorical or of class numbers"},
    [PS_METRIC_BINARY_ACCURACY] = {"binary_accuracy", "BinaryAccuracy", "yes above the threshold"},
    [PS_METRIC_CATEGORICAL_ACCURACY] = {"categorical_accuracy", "CategoricalAccuracy",
                                        "the greatest output where the target is greatest"},
    [PS_METRIC_SPARSE_ACCURACY] = {"sparse_categorical_accuracy", "SparseCategoricalAccuracy",
                                   "the greatest output is that of the class"},
    [PS_METRIC_TOP_K] = {"top_k",
                         "top_k_categorical_accuracy TopKCategoricalAccuracy sparse_top_k_categorical_accuracy "
                         "SparseTopKCategoricalAccuracy",
                         "the class is among the k greatest outputs"},
    [PS_METRIC_PRECISION] = {"precision", "Precision", "of what is said to be yes, how much is"},
    [PS_METRIC_RECALL] = {"recall", "Recall", "of what is yes, how much is found"},
    [PS_METRIC_AUC] = {"auc", "AUC", "area under the ROC or precision-recall curve"},
    [PS_METRIC_F1] = {"f1", "f1_score F1Score", "harmonic mean of precision and recall, of each class or averaged"},
    [PS_METRIC_MSE] = {"mse", "mean_squared_error MeanSquaredError MSE", "mean of squared errors"},
    [PS_METRIC_RMSE] = {"rmse", "root_mean_squared_error RootMeanSquaredError RMSE", "root of the mean squared error"},
    [PS_METRIC_MAE] = {"mae", "mean_absolute_error MeanAbsoluteError MAE", "mean of absolute errors"},
    [PS_METRIC_MAPE] = {"mape", "mean_absolute_percentage_error MeanAbsolutePercentageError MAPE",
                        "mean of absolute errors in percent of the target"},
    [PS_METRIC_COSINE] = {"cosine_similarity", "CosineSimilarity", "cosine of target and output"},
    [PS_METRIC_CONFUSION] = {"confusion_matrix", "", "how many of each class are said to be of each class"},
};

#define AT(member) .offset = offsetof(struct ps_metric, member)
#define OF(kind) (1U << PS_METRIC_##kind)

static const char *const curves[] = {"ROC", "PR", NULL};
static const char *const averages[] = {"none", "micro", "macro", "weighted", NULL};
static const char *const summation[] = {"interpolation", NULL};
static const char *const dtypes[] = {"float32", NULL};

static const struct ps_setting metric_settings[] = {
    {"k", PS_SETTING_COUNT, AT(k), .fallback = 5, .min = 1, .max = 1 << 30, .of = OF(TOP_K)},
    {"threshold", PS_SETTING_REAL, AT(threshold), .fallback = 0.5, .max = 1, .of = OF(BINARY_ACCURACY)},
    {"threshold", PS_SETTING_REAL, AT(threshold), .fallback = -1, .max = 1, .of = OF(F1)},
    {"thresholds", PS_SETTING_REAL, AT(threshold), .fallback = -1, .max = 1, .of = OF(PRECISION) | OF(RECALL)},
    {"top_k", PS_SETTING_COUNT, AT(top_k), .min = 1, .max = 1 << 30, .of = OF(PRECISION) | OF(RECALL)},
    {"class_id", PS_SETTING_COUNT, AT(class_id), .fallback = -1, .max = 1 << 30, .of = OF(PRECISION) | OF(RECALL)},
    {"num_thresholds", PS_SETTING_COUNT, AT(num_thresholds), .fallback = 200, .min = 3, .max = 100000, .of = OF(AUC)},
    {"curve", PS_SETTING_WORD, AT(curve), .words = curves, .of = OF(AUC)},
    {"from_logits", PS_SETTING_FLAG, AT(from_logits), .of = OF(AUC)},
    {"average", PS_SETTING_WORD, AT(average), .words = averages, .of = OF(F1)},
    {"summation_method", PS_SETTING_FIXED, .words = summation, .of = OF(AUC)},
    {"dtype", PS_SETTING_FIXED, .words = dtypes},
};

const struct ps_names ps_metrics = {"metric", metric_named, PS_METRIC_KINDS, metric_settings,
                                    sizeof metric_settings / sizeof *metric_settings};

enum ps_code ps_metric_read(const char *path, const json_t *from, struct ps_metric *to, const char **key,
                            struct ps_error *e)
{
    struct ps_metric metric = {.class_id = -1, .threshold = -1};
    const char *label;
    if (ps_named_read(&ps_metrics, path, from, &metric.kind, &metric, &label, key, e))
        return e->code;
    snprintf(metric.label, sizeof metric.label, "%s", label);
    *to = metric;
    return PS_OK;
}

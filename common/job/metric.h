// SPDX-License-Identifier: Apache-2.0
//
// The metrics that there are, by Keras 3's names and with its settings. workerd/nn computes them.
#ifndef PS_COMMON_METRIC_H
#define PS_COMMON_METRIC_H

#include <stdbool.h>

#include "common/job/named.h"

enum ps_metric_kind {
    PS_METRIC_ACCURACY,  // one of the next three, by the shapes of output and target
    PS_METRIC_BINARY_ACCURACY,
    PS_METRIC_CATEGORICAL_ACCURACY,
    PS_METRIC_SPARSE_ACCURACY,
    PS_METRIC_TOP_K,
    PS_METRIC_PRECISION,
    PS_METRIC_RECALL,
    PS_METRIC_AUC,
    PS_METRIC_F1,
    PS_METRIC_MSE,
    PS_METRIC_RMSE,
    PS_METRIC_MAE,
    PS_METRIC_MAPE,
    PS_METRIC_COSINE,
    PS_METRIC_CONFUSION,
    PS_METRIC_KINDS
};

enum ps_curve { PS_CURVE_ROC, PS_CURVE_PR };
enum ps_average { PS_AVERAGE_NONE, PS_AVERAGE_MICRO, PS_AVERAGE_MACRO, PS_AVERAGE_WEIGHTED };

enum { PS_METRIC_LABEL = 48 };

struct ps_metric {
    int kind;  // enum ps_metric_kind
    // Settings, of those kinds that have them.
    int k, num_thresholds;
    int top_k;         // 0: not given
    int class_id;      // -1: all
    double threshold;  // -1: not given
    bool from_logits;
    int curve, average;           // enum ps_curve, ps_average
    char label[PS_METRIC_LABEL];  // its name as it is shown: as it was written
};

extern const struct ps_names ps_metrics;

// See ps_named_read.
enum ps_code ps_metric_read(const char *path, const json_t *from, struct ps_metric *to, const char **key,
                            struct ps_error *e);

#endif

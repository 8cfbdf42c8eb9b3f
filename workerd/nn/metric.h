// SPDX-License-Identifier: Apache-2.0
//
// Metrics: what common/job/metric.h names, computed on the host as Keras 3 does. A metric's state are sums, so that
// those of several batches, or of several workers, are added up, and give the figure of all their examples together.
//
// Threads: any; nothing is kept here.
#ifndef NN_METRIC_H
#define NN_METRIC_H

#include <stddef.h>
#include <stdint.h>

#include "common/job/metric.h"
#include "workerd/nn/model.h"

// An output as a matrix, whose width is its last axis, and what it is compared with. Numbers, or the class of each row:
// where a metric wants numbers, that one's is 1.
struct nn_scores {
    size_t rows, width;
    const float *output;   // (rows, width)
    const float *target;   // (rows, width); NULL:
    const int32_t *label;  // (rows)
    const float *weight;   // (rows), how much each counts; NULL: each 1
    // (rows), above 0 where one counts for those metrics that heed masks: Keras's means over rows; NULL: all do.
    const float *counts;
};

// FAILED_PRECONDITION: it cannot be computed of an output of this type with this loss.
enum ps_code nn_metric_check(const struct ps_metric *m, const struct ps_loss *loss, const struct nn_port *output,
                             struct ps_error *e);
size_t nn_metric_states(const struct ps_metric *m, size_t width);
void nn_metric_update(const struct ps_metric *m, const struct nn_scores *s, double *state);
// How many numbers it gives: one, but for those by class.
size_t nn_metric_values(const struct ps_metric *m, size_t width);
// NaN where nothing has been counted, if Keras does not say 0.
void nn_metric_result(const struct ps_metric *m, size_t width, const double *state, double *value);

#endif

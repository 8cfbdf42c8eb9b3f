// SPDX-License-Identifier: Apache-2.0
//
// What a job wants of its model's outputs: the loss of each, and the metrics.
#ifndef WK_OBJECTIVES_H
#define WK_OBJECTIVES_H

#include "common/job/job.h"
#include "workerd/nn/measure.h"

struct wk_objectives {
    struct ps_loss loss[NN_MAX_PORTS];
    struct nn_metric metric[PS_MAX_METRICS];
    size_t n_metrics;
};

// FAILED_PRECONDITION: they do not fit the model.
enum ps_code wk_objectives_bind(struct wk_objectives *o, const struct ps_job *job, const struct nn_model *model,
                                struct ps_error *e);

// How much each example of a batch counts by its class, times what the batch says, into weight (rows). The model has
// one output. The job has class weights.
void wk_class_weights(const struct ps_class_weights *w, const struct nn_model *model, const struct ps_loss *loss,
                      const struct nn_batch *b, float *weight);

#endif

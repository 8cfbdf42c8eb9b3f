// SPDX-License-Identifier: Apache-2.0
//
// What a job file says of a model's outputs: losses and metrics, and the weights of classes.
//
//     loss: mse                        # of all outputs; or {name: huber, delta: 2}
//     loss: [mse, {name: huber, weight: 2}]    # of each, in their order
//     loss: {price: mse, kind: sparse_categorical_crossentropy}    # by their names
//     metrics: [acc, {name: top_k, k: 3}]      # of the one output; of several:
//     metrics: {price: [mae], kind: [acc]}
//     class_weight: {0: 1, 1: 5}
//
// Threads: one per struct.
#ifndef PS_COMMON_OUTPUTS_H
#define PS_COMMON_OUTPUTS_H

#include <stdint.h>

#include "common/file/yaml.h"
#include "common/job/loss.h"
#include "common/job/metric.h"

enum { PS_MAX_OUTPUTS = 16, PS_MAX_METRICS = 64, PS_OUTPUT_NAME = 160 };

struct ps_job_losses {
    size_t n;
    bool listed;  // one for each output; else the one is of all
    struct {
        char output[PS_OUTPUT_NAME];  // "": by its place
        struct ps_loss loss;
    } of[PS_MAX_OUTPUTS];
};

struct ps_job_metrics {
    size_t n;
    struct {
        char output[PS_OUTPUT_NAME];  // "": of the one output
        struct ps_metric metric;
    } of[PS_MAX_METRICS];
};

struct ps_class_weights {
    size_t n;
    struct ps_class_weight {
        int32_t class;
        float weight;
    } * of;  // in the order of their numbers
};

// what: the value's path in the job file, for errors. INVALID_ARGUMENT: "FILE:LINE: ...".
enum ps_code ps_job_losses_parse(const struct ps_yaml *v, const char *what, struct ps_job_losses *to,
                                 struct ps_error *e);
enum ps_code ps_job_metrics_parse(const struct ps_yaml *v, const char *what, struct ps_job_metrics *to,
                                  struct ps_error *e);
enum ps_code ps_class_weights_parse(const struct ps_yaml *v, const char *what, struct ps_class_weights *to,
                                    struct ps_error *e);
void ps_class_weights_free(struct ps_class_weights *w);
// As they would stand in a job file. A new reference.
json_t *ps_job_losses_json(const struct ps_job_losses *losses);
json_t *ps_job_metrics_json(const struct ps_job_metrics *metrics);
json_t *ps_class_weights_json(const struct ps_class_weights *w);  // NULL: there are none

// The loss of each of a model's outputs, by their names. FAILED_PRECONDITION: one has none, or there is no such output.
enum ps_code ps_job_losses_bind(const struct ps_job_losses *losses, const char *const *outputs, size_t n,
                                struct ps_loss *to, struct ps_error *e);
// The output of each metric.
enum ps_code ps_job_metrics_bind(const struct ps_job_metrics *metrics, const char *const *outputs, size_t n,
                                 size_t *output, struct ps_error *e);

#endif

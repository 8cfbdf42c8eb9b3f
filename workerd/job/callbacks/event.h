// SPDX-License-Identifier: Apache-2.0
//
// TensorBoard's events: records of TFRecord, each a tensorflow.Event (tensorflow/core/util/event.proto), of which the
// few fields that are needed are put down here: the time, the step, and one value of a summary.
#ifndef WK_EVENT_H
#define WK_EVENT_H

#include <stdint.h>
#include <stdio.h>

#include "workerd/nn/model.h"

// The first record of a file. time: seconds since 1970.
void wk_event_version(FILE *to, double time);
void wk_event_scalar(FILE *to, double time, uint64_t step, const char *tag, double value);
// Of values[n], in 30 buckets of equal width; those that are not finite do not count.
void wk_event_histogram(FILE *to, double time, uint64_t step, const char *tag, const float *values, uint64_t n);
// An encoded picture.
void wk_event_image(FILE *to, double time, uint64_t step, const char *tag, uint32_t width, uint32_t height,
                    const void *png, size_t size);
// The model: a node for each call of a layer.
void wk_event_graph(FILE *to, double time, const struct nn_model *model);

#endif

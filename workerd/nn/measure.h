// SPDX-License-Identifier: Apache-2.0
//
// What is measured of a model while it is trained or evaluated: the mean loss, that of each output where there are
// several, and metrics. All of it are sums over examples, in one array: those of several batches, or of several
// workers, are added up, and the figures worked out from what comes of it.
//
// Threads: any, once created.
#ifndef NN_MEASURE_H
#define NN_MEASURE_H

#include "workerd/nn/metric.h"

// A metric of output `output`.
struct nn_metric {
    struct ps_metric metric;
    size_t output;
};

struct nn_measures;

enum { NN_MEASURE_NAME = 256 };  // bytes of a figure's or a matrix's name with its end

// FAILED_PRECONDITION: a metric does not fit its output. loss[k] is that of output k.
enum ps_code nn_measures_create(const struct nn_model *model, const struct ps_loss *loss,
                                const struct nn_metric *metrics, size_t n, struct nn_measures **measures,
                                struct ps_error *e);
void nn_measures_free(struct nn_measures *m);

size_t nn_measures_sums(const struct nn_measures *m);  // how many there are; the first counts the examples
// Adds those of a batch that the replica has just seen.
void nn_measures_add(const struct nn_measures *m, struct nn_replica *r, const struct nn_batch *b,
                     const struct nn_result *result, double *sums);

// Is a model better the more or the less a figure is? Of some nobody says.
enum nn_better { NN_BETTER_UNKNOWN, NN_BETTER_MORE, NN_BETTER_LESS };
// Tells the figures by Keras's names, in alphabetical order: "accuracy", "loss", "OUTPUT_accuracy", "OUTPUT_loss". A
// confusion matrix is no figure: it is told by nn_measures_matrix.
typedef void (*nn_measure_tell)(void *arg, const char *name, double value, enum nn_better better);
void nn_measures_tell(const struct nn_measures *m, const double *sums, nn_measure_tell tell, void *arg);
// The i-th confusion matrix, value (classes, classes): how many of class y are said to be of class x. false: there are
// not so many.
bool nn_measures_matrix(const struct nn_measures *m, const double *sums, size_t i, const char **name,
                        const double **value, size_t *classes);

#endif

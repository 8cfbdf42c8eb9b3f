// SPDX-License-Identifier: Apache-2.0
//
// Training and test data: read once (or drawn when first needed), kept in memory in its own small type, turned into
// float batches by a prefetching thread.
//
// wk_data is immutable once opened and may be shared by threads. wk_feed belongs to one thread at a time.
#ifndef WK_DATA_H
#define WK_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/wire/dtype.h"
#include "workerd/nn/model.h"

enum wk_data_kind { WK_IDX, WK_CSV, WK_NPY, WK_DIGITS };  // as enum ps_data_kind of common/job/job.h

struct wk_data_spec {
    enum wk_data_kind kind;
    const char *path;                        // idx: folder; csv: train file
    const char *test_path;                   // csv: test file, or NULL: none
    const char *x, *y, *x_test, *y_test;     // npy
    uint64_t train_examples, test_examples;  // synthetic-digits; 0: 20,000 and 2,000
    double scale;                            // x is multiplied by it; 0: 1
    uint64_t seed;
    bool labels;  // y are class numbers (int32), else targets (float)
};

struct wk_data;

// One split.
struct wk_split {
    uint64_t examples;
    uint64_t shape[PS_MAX_RANK];  // of one example: (28, 28) for IDX images
    size_t rank;
    size_t inputs;   // elements per example
    size_t targets;  // elements per target; 1 for labels
    uint64_t target_shape[PS_MAX_RANK];
    size_t target_rank;
    int32_t classes;  // labels: 1 + the greatest
};

// idx: the four MNIST files, each plain or .gz: uint8. csv: optional header line, last column is the label or target.
// npy: x of uint8, float32 or float64; y of any integer or float type. x is a byte's number, 0 to 255, or the float,
// times spec->scale. Errors name the file, and the line, byte or field.
enum ps_code wk_data_open(const struct wk_data_spec *spec, struct wk_data **data, struct ps_error *e);
void wk_data_free(struct wk_data *data);
const struct wk_split *wk_data_train(const struct wk_data *data);
const struct wk_split *wk_data_test(const struct wk_data *data);  // examples = 0: none
// Do examples and targets fit the model's input and output? Shapes fit if they are equal but for dimensions of 1 at the
// ends, or if one of the two is flat: (28, 28) fits (28, 28, 1) and (784,).
enum ps_code wk_data_check(const struct wk_data *data, const struct nn_model *model, const struct ps_loss *loss,
                           struct ps_error *e);

// The i-th example of an epoch: a permutation of [0, n) that is computed, not stored (a Feistel network on the
// smallest even number of bits that holds n, keyed by Philox(seed, PS_RANDOM_SHUFFLE, epoch), cycle-walking).
uint64_t wk_shuffle(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i);

// Batches, made ahead by a thread of the feed. The consumer asks for ranges of positions in an epoch; the feed
// shuffles (or not), gathers and scales.
struct wk_feed;
enum ps_code wk_feed_create(const struct wk_data *data, bool test, int rows, bool shuffle, uint64_t seed,
                            struct wk_feed **feed, struct ps_error *e);
void wk_feed_free(struct wk_feed *feed);
// Queues the batch of positions [first, first + rows) of an epoch; at most WK_FEED_AHEAD may be queued and not taken.
enum { WK_FEED_AHEAD = 4 };
void wk_feed_request(struct wk_feed *feed, uint64_t epoch, uint64_t first, int rows);
// The oldest queued batch; valid until the next call.
const struct nn_batch *wk_feed_take(struct wk_feed *feed);

#endif

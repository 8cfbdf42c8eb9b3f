// SPDX-License-Identifier: Apache-2.0
//
// Training and test data, from files to batches:
//
//     source      idx.c, csv.c, npy.c, ...: examples with named, typed columns; any example can be read at any time.
//                 Small files are read into memory, large ones read where an example lies
//     data        data.c: a training and a test source; bind.c: which columns the model's inputs and losses take
//     feed        feed.c: threads that read, convert, scale and augment examples into numbered batches
//
// What a batch is depends on the job, the seed, the epoch and its position in the epoch alone, never on how many
// threads there are: a position is all the state that a resume needs.
//
// wk_data is immutable once bound, but for what wk_data_held tells, and may be shared by threads. wk_feed belongs to
// one thread at a time.
#ifndef WK_DATA_H
#define WK_DATA_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/file/timeline.h"
#include "common/job/job.h"
#include "workerd/nn/model.h"

struct wk_data;

struct wk_split {
    uint64_t examples;
};

// The kinds of data, in the order of enum ps_data_kind, with a line of description each: what is read, what x and y
// become. A NULL name ends the list.
struct wk_data_kind {
    const char *name, *text;
};
extern const struct wk_data_kind wk_data_kinds[PS_DATA_KINDS + 1];

// The spec stays the caller's. Errors name the file, and the line, row, byte or field, the value and what was expected.
// model: for the words of its inputs of strings; it may be NULL.
enum ps_code wk_data_open(const struct ps_job_data *spec, const struct nn_model *model, uint64_t seed,
                          struct wk_data **data, struct ps_error *e);
// Not where a thread of a feed still reads them; see wk_feed_free.
void wk_data_free(struct wk_data *data);
const struct wk_split *wk_data_train(const struct wk_data *data);
const struct wk_split *wk_data_test(const struct wk_data *data);  // examples = 0: none
// A hash of what has numbers by the training data and vocabularies: categories of each column, classes, characters or
// words, in the order of their numbers. 0: nothing has.
uint64_t wk_data_numbering(const struct wk_data *data);

// Finds the columns for the model's inputs and for the targets of its outputs' losses (loss[k] is that of output k), by
// the spec and by name. Do they fit? Shapes fit if they are equal but for dimensions of 1 at the ends, or if one of the
// two is flat: (28, 28) fits (28, 28, 1) and (784,). Labels are below the output's classes: those in memory are looked
// at here, those of larger files when they are read. Before any feed.
enum ps_code wk_data_bind(struct wk_data *data, const struct nn_model *model, const struct ps_loss *loss,
                          struct ps_error *e);

// Each batch that a feed makes is a span of this track; NULL: of none. Before any feed.
void wk_data_track(struct wk_data *data, struct ps_track *track);
// While *stop is not 0, the number of a signal, feeds wait a moment and no longer for what cannot be read. Before any
// feed, and outlives them.
void wk_data_stop(struct wk_data *data, const volatile sig_atomic_t *stop);

// The i-th example of an epoch: a permutation of [0, n) that is computed, not stored (a Feistel network on the
// smallest even number of bits that holds n, keyed by Philox(seed, PS_RANDOM_SHUFFLE, epoch), cycle-walking).
uint64_t wk_shuffle(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i);

// Batches, made ahead by the feed's threads. The consumer asks for ranges of positions in an epoch; the feed shuffles
// (or not), reads, scales and, of training data, augments.
struct wk_feed;
enum ps_code wk_feed_create(struct wk_data *data, bool test, int rows, bool shuffle, uint64_t seed,
                            struct wk_feed **feed, struct ps_error *e);
// Waits for the feed's threads. Where one hangs in a read after a signal, the feed stays, and its data are held: they,
// the model and the job must stay, too, until the process ends.
void wk_feed_free(struct wk_feed *feed);
bool wk_data_held(const struct wk_data *data);
// Queues the batch of positions [first, first + rows) of an epoch; at most WK_FEED_AHEAD may be queued and not taken.
enum { WK_FEED_AHEAD = 4 };
void wk_feed_request(struct wk_feed *feed, uint64_t epoch, uint64_t first, int rows);
// The oldest queued batch; valid until the next call. NULL: an example of it cannot be read, and e says which and why.
// Or CANCELLED: a signal came while it was waited for, and it stays queued.
const struct nn_batch *wk_feed_take(struct wk_feed *feed, struct ps_error *e);

#endif

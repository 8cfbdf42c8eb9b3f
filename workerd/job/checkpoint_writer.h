// SPDX-License-Identifier: Apache-2.0
//
// Writes a callback's checkpoints beside the training: the training waits until what it has is copied, and takes its
// next steps while what others have comes, and a thread brings all of it to disk. One is written at a time. For as long
// as the training runs the copy's memory is kept: that of the checkpoint.
//
// Threads: the loop's, besides its own.
#ifndef WK_CHECKPOINT_WRITER_H
#define WK_CHECKPOINT_WRITER_H

#include <pthread.h>
#include <stdatomic.h>

#include "workerd/job/checkpoints.h"
#include "workerd/strategy/checkpoint.h"

struct wk_checkpoint_writer {
    struct wk_checkpoints to;
    uint64_t keep;  // so many stay; 0: all
    // Of shards in the ps tasks' own folders; NULL: there are none, or nobody asks the ps tasks. Any thread.
    wk_prune_shards_fn *prune_shards;
    void *arg;
    // The last one that was begun.
    struct wk_checkpoint checkpoint;
    uint64_t step;
    bool writes;
    atomic_bool done;
    pthread_t thread;
    struct ps_error error;  // why it was not written
    float *copy;            // of its arrays
    size_t room;            // elements
};

// Has the ps tasks remove the shards of checkpoints that are not there any more, or were not written to their end; what
// stays goes another time.
void wk_checkpoint_writer_prune_shards(const struct wk_checkpoint_writer *w);

// Takes the checkpoint over, copies its arrays, and begins to fetch those that are missing. The one before has been
// waited for.
void wk_checkpoint_writer_begin(struct wk_checkpoint_writer *w, struct wk_checkpoint *c, uint64_t step);
// Is the last one written, or has that failed? Also where there is none.
bool wk_checkpoint_writer_is_done(const struct wk_checkpoint_writer *w);
// Waits until the last one is on disk. Its error, once; OK where there is none.
enum ps_code wk_checkpoint_writer_wait(struct wk_checkpoint_writer *w, struct ps_error *e);
// The last one has been waited for.
void wk_checkpoint_writer_free(struct wk_checkpoint_writer *w);

#endif

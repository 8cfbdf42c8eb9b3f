// SPDX-License-Identifier: Apache-2.0
//
// Snapshots: all blocks of a read, pinned in one instant, between two updates. One that does not fit a message is kept
// until it is released, its time is over (soon after its last part was sent), or the pool needs the room.
//
// Receives from: service. Hands to: locate, store. Threads: any.
#ifndef PSD_SNAPSHOT_H
#define PSD_SNAPSHOT_H

#include "psd/job/locate.h"

// An extent's block at one moment, with a reference on its page.
struct psd_pinned {
    struct psd_page *page;
    size_t from;  // bytes of the page before what is read: of a slot, as the average is; of the value 0
    uint64_t version, round;
    uint64_t at;  // of a snapshot: bytes of the extents before this one
};

struct psd_snapshot {
    uint64_t id;
    struct psd_job *job;
    uint64_t request;            // digest of the request it was taken for
    struct psd_extents extents;  // that are not left out
    struct psd_pinned *pinned;   // [extents.n]
    uint64_t round, last_round;  // least and greatest of the partitions asked for
    size_t room;                 // taken from the pool for what is kept besides pages
    uint64_t expires;            // this and the rest: guarded by the lock of the list
    int refs;
    bool listed;
    struct psd_snapshot *older, *newer, *next_in_bucket;
};

enum { PSD_SNAPSHOT_BUCKETS = 1024 };

// Those of all jobs. One that is kept holds its job.
struct psd_snapshots {
    pthread_mutex_t lock;  // a leaf: nothing is locked under it
    struct psd_snapshot *oldest, *newest, *buckets[PSD_SNAPSHOT_BUCKETS];
    size_t n;
    size_t pinned;  // bytes of the pages that at least one snapshot holds
    struct psd_pool *pool;
};

// What a read that asks only for what is newer knows: the sum of the versions of the blocks of a tensor.
struct psd_known {
    bool (*changed)(void *arg, uint32_t tensor, uint64_t changes);
    void *arg;
};

void psd_snapshots_init(struct psd_snapshots *all, struct psd_pool *pool);
void psd_snapshots_fini(struct psd_snapshots *all);  // drops all of them

// Pins an extent's block; the job's snapshot lock is held.
struct psd_pinned psd_pin(const struct psd_extent *extent);
// Likewise, to read the average of the weights; where none is kept, or there was no gradient yet, the value.
struct psd_pinned psd_pin_average(const struct psd_extent *extent);

// Pins all extents (moved) but those of tensors that have not changed (known: NULL where that does not matter), under a
// fresh id; in no list yet. Takes over the caller's reference on the job. NULL: no memory.
struct psd_snapshot *psd_snapshot_take(struct psd_snapshots *all, struct psd_job *job, struct psd_extents *extents,
                                       const struct psd_known *known, uint64_t id);
void psd_snapshot_unref(struct psd_snapshots *all, struct psd_snapshot *s);
// Keeps it for those who go on with it, until now + the time that one may be silent. Where there are too many, or there
// is no room, the oldest are given up.
void psd_snapshot_keep(struct psd_snapshots *all, struct psd_snapshot *s, uint64_t now);
// The kept snapshot of this id, kept for another while, with a reference; or NULL.
struct psd_snapshot *psd_snapshot_find(struct psd_snapshots *all, uint64_t id, uint64_t now);
// Its last part has been sent: it is kept only as long as the answer may be asked for once more.
void psd_snapshot_sent(struct psd_snapshots *all, struct psd_snapshot *s, uint64_t now);
void psd_snapshot_release(struct psd_snapshots *all, uint64_t id);  // where it is kept
// The extent of a snapshot that begins at this byte of it, or one past the last at its end; SIZE_MAX: none does.
size_t psd_snapshot_seek(const struct psd_snapshot *s, uint64_t offset);

// Gives up the oldest one that is kept; false: there is none.
bool psd_snapshots_drop_oldest(struct psd_snapshots *all);
// Gives up those whose time is over, and those of a job (may be NULL).
void psd_snapshots_expire(struct psd_snapshots *all, uint64_t now, const struct psd_job *of);

#endif

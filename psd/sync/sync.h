// SPDX-License-Identifier: Apache-2.0
//
// The rounds of a job: when each is summed and applied, and by which thread; nobody else applies one.
//
//   COMPLETE -> held by a change that all tasks agree on? -> clipped by a norm? -> applied -> who waits is made ready
//                                                                 |
//   the norm of several partitions: due --SumSquares--> control task: parked until a group's sums are in --> totals
//                                    ^_____________________| it failed, was lost, or was only told: sent again at the
//                                                            next tick, or as soon as it may wait there
//
// The rounds of the control task itself stay due until their total is known.
//
// What is little is computed at once by the thread that has made it possible, as an async push would be; what is more
// by the workers of psd_host. Either way no lock is held meanwhile, and one thread at a time computes a round. Pulls of
// such a round are parked; pushes to it are told STALE or to come later.
//
// Receives from: service (gradients, totals), control (members, holds). Hands to: round, norm, the other tasks.
// Threads: any; no lock of psd's is held but where it says so.
#ifndef PSD_SYNC_H
#define PSD_SYNC_H

#include "psd/job/component.h"
#include "psd/job/locate.h"
#include "psd/sync/round.h"

// Goes on with a round, as far as that is possible. Calls that this makes ready are moved to *ready.
void psd_sync_advance(struct psd_job *job, struct psd_round *round, struct psd_call **ready);
// Goes on with all rounds of this task, those included that lacked memory or have been held, and with their norms. Call
// it at every tick.
void psd_sync_advance_all(struct psd_job *job, struct psd_call **ready);
// psd_round_set_members, and what becomes possible with it.
void psd_sync_set_members(struct psd_job *job, struct psd_round *round, const struct psd_view *view,
                          struct psd_call **ready);
// Goes on with what waits for its norm: sends it, or at the control task finishes it.
void psd_sync_send_norms(struct psd_job *job, struct psd_call **ready);

extern const struct psd_component psd_sync_component;  // component.c

// ---- rounds that come and go: switch.c ----------------------------------------------------------------------------
//
//     none --keep--> room is kept --begin--> in rounds --end--> none, or where the job was declared sync: room is kept
//        ^---give up---/
//
// A job that was declared sync keeps its room for good. The rounds themselves stay, from the first time that they are
// made: whoever has found one in a partition may use it, and is told there that the job has left it.

// What the rounds of a task take: once, and for their gradients, which is given back when the job leaves them.
struct psd_sync_room {
    size_t once, gradients;
};
bool psd_sync_count(const struct psd_job *job, uint32_t task, struct psd_sync_room *room);  // false: more than that
// Makes the rounds and norms that are not there; their room has been taken.
enum ps_code psd_sync_make(struct psd_job *job, uint32_t task, struct ps_error *e);
void psd_sync_destroy(struct psd_job *job);
// The job is locked:
// False: there is no room, nothing has changed; *missing: the bytes that lack.
bool psd_sync_keep(struct psd_job *job, uint64_t *missing);
void psd_sync_give_up(struct psd_job *job);                // the room, unless it is in use or was declared
void psd_sync_begin(struct psd_job *job, uint64_t first);  // with that round, for which there is room
void psd_sync_end(struct psd_job *job, struct psd_call **ready);
// Nobody pushes any more: what is open with whole gradients is complete without the others. False: a round is under
// way, which psd_sync_advance goes on with.
bool psd_sync_settle(struct psd_job *job);

// The first of the extents' rounds, from extent *at on, that has not closed round `wanted`, with its lock held: its
// list of waiters may be joined. *at moves to it: those before have, and need no second look. NULL: all have.
struct psd_round *psd_sync_lock_open(const struct psd_extents *extents, uint64_t wanted, size_t *at);
// The least round that all of the extents' have closed; 0 where none of them is in rounds.
uint64_t psd_sync_least_closed(const struct psd_extents *extents);
// The last round that any partition here has closed; 0: none. The job's lock is held.
uint64_t psd_sync_last_closed(const struct psd_job *job);
// The round's lock is held, and it has not closed what is waited for. Will it, as far as its members are concerned?
static inline bool psd_sync_is_over(const struct psd_round *round)
{
    return round->over && round->state == PSD_ROUND_OPEN;
}

#endif

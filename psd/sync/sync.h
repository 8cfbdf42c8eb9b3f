// SPDX-License-Identifier: Apache-2.0
//
// The rounds of a job: when each is summed and applied, and by which thread; nobody else applies one.
//
//   COMPLETE -> held by a change that all tasks agree on? -> clipped by a norm? -> applied -> who waits is made ready
//                                                                 |
//   the norm of several partitions: due --SumSquares--> control task: parked until the group's sums are in --> totals
//                                    ^_____________________| it failed, or was lost: sent again at the next tick
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

// The first of the extents' rounds, from extent *at on, that has not closed round `wanted`, with its lock held: its
// list of waiters may be joined. *at moves to it: those before have, and need no second look. NULL: all have.
struct psd_round *psd_sync_lock_open(const struct psd_extents *extents, uint64_t wanted, size_t *at);
// The least round that all of the extents' have closed; 0 where none of them is in rounds.
uint64_t psd_sync_least_closed(const struct psd_extents *extents);
// The round's lock is held, and it has not closed what is waited for. Will it, as far as its members are concerned?
static inline bool psd_sync_is_over(const struct psd_round *round)
{
    return round->over && round->state == PSD_ROUND_OPEN;
}

#endif

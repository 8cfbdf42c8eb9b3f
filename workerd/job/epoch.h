// SPDX-License-Identifier: Apache-2.0
//
// The end of an epoch, to which all workers come: what they have measured is added up, each of them evaluates its share
// of the test split, and what is decided then holds for all.
//
//     figures      the sums of what was measured while the epoch was trained. Nobody trains any more, and all that was
//                  trained is in the weights: everyone evaluates the same ones, under every update mode
//     validation   the sums of the shares. Where one of a worker that has died is missing, those who are left evaluate
//                  all of it again
//     decision     where callbacks steer: does the training end, at which rate does it go on; what have the leader's
//                  callbacks found until now
//
// Each is a sum over all workers (wk_group.sum) of one array, of the same size for all three: a worker that joins while
// the others are at a later one is told so by it, and goes on with them. A worker that has done all its steps comes to
// the end of each epoch of the others, until all are done.
#ifndef WK_EPOCH_H
#define WK_EPOCH_H

#include "workerd/job/loop.h"

enum { WK_FOUND = 25 };  // numbers

struct wk_epoch {
    // This worker's, before figures.
    uint64_t epoch;                // afterwards that of all
    const struct wk_meter *meter;  // what it has measured of it; NULL: nothing
    bool finished;                 // it trains no further one
    bool stop;                     // a callback of its own wants the training to end; afterwards one of anybody's
    bool stop_if_leads;            // so does one since figures, of which the leader's word alone counts
    const char *why;               // it wants that; NULL: that has been said already
    bool steers;                   // it has callbacks that steer; afterwards anybody has
    double found[WK_FOUND];        // what they have found until now; afterwards, with steers, the leader's
    bool late;                     // it came to a job that had begun, and has trained nothing yet

    // Known after figures, and again after each later sum, because workers may be gone.
    uint64_t members, index;  // how many take part, and which of them this worker is, by rank
    uint64_t leader;          // who has been there for longest, of those from the beginning the lowest rank
    bool follows;  // it joined after the others had passed figures, or all have left: it has measured nothing
    bool decided;  // the others had passed the decision already
    bool final;    // all have finished, or the training is to stop

    double *sums;  // the array
};

// Figures and validation: the run has everybody's figures then, and its replica the weights that they are of.
enum ps_code wk_epoch_look(struct wk_run *run, struct wk_epoch *p, struct ps_error *e);
// Decision, where anybody steers and the epoch is not the final one: p->stop_if_leads is what this worker's callbacks
// want, p->stop afterwards what holds. Returns when the rate that they have set is where it is needed.
enum ps_code wk_epoch_decide(struct wk_run *run, struct wk_epoch *p, struct ps_error *e);
// After these, as far as is known: is this worker who decides?
bool wk_epoch_leads(const struct wk_run *run, const struct wk_epoch *p);
void wk_epoch_free(struct wk_epoch *p);

#endif

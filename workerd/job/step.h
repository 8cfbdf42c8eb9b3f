// SPDX-License-Identifier: Apache-2.0
//
// The steps of an epoch, one by one: which examples come next is asked of the strategy some steps ahead, so that the
// feed makes their batches while others are trained.
#ifndef WK_STEP_H
#define WK_STEP_H

#include "workerd/job/loop.h"

// What a step spends its time with, in its order. NEED and READY lie within MODEL, REPORT is its caller's.
enum wk_part {
    WK_PART_NEXT,
    WK_PART_BEGIN,
    WK_PART_FEED,
    WK_PART_NEED,
    WK_PART_READY,
    WK_PART_MODEL,
    WK_PART_END,
    WK_PART_REPORT,
    WK_PARTS
};

struct wk_stepper {
    struct wk_run *run;
    struct wk_feed *feed;
    struct wk_work ahead[WK_FEED_AHEAD];  // a ring: requested from the feed, not trained yet
    int head, n_ahead;
    bool epoch_over;                            // all of this worker's share of it has been handed out
    bool drained;                               // it was asked to leave
    bool untaken;                               // the batch of the step at hand is still the feed's
    struct nn_batch weighted;                   // the feed's, with weights of classes
    float *class_weight;                        // [batch_size]; NULL: none yet
    void (*lap)(void *arg, enum wk_part part);  // told when a part is over; NULL: nobody measures
    void *lap_arg;
};

// The order of examples is drawn from seed. Whatever it returns, wk_stepper_close follows.
enum ps_code wk_stepper_open(struct wk_stepper *s, struct wk_run *run, uint64_t seed, struct ps_error *e);
void wk_stepper_close(struct wk_stepper *s);

void wk_stepper_begin_epoch(struct wk_stepper *s);
// The next step's examples. *some false: the epoch has no more for this worker, or it is drained.
enum ps_code wk_stepper_next(struct wk_stepper *s, uint64_t epoch, struct wk_work *work, bool *some,
                             struct ps_error *e);
// Trains them: weights come before they are needed, gradients leave as soon as they are ready. *result is 0 where work
// has no rows. *happened false: another worker was lost, and wk_stepper_next gives these examples again, to somebody.
enum ps_code wk_stepper_train(struct wk_stepper *s, const struct wk_work *work, struct nn_result *result,
                              bool *happened, struct ps_error *e);

#endif

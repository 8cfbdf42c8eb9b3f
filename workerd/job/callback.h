// SPDX-License-Identifier: Apache-2.0
//
// Callbacks: what is done beside a training, at its moments. One file each in callbacks/, and one line in the table of
// callback.c; their settings are in the table of common/job/callbacks.c.
//
//     open -> [load] -> begin -> [ step* -> epoch_end ]* -> end -> written | stopped -> close
//
// Those that steer run on every worker, at each moment with the same figures and the same weights, so that whoever
// takes over has all of their state; the others on the chief alone: a worker that becomes the chief later begins then,
// takes over. Those that hear epochs are told of each one's end before that, too. A worker that has come late has not
// heard all: what those that go by a figure have found until now the leader tells the others at the end of each epoch.
// Those that write checkpoints come last at each moment, so that the others' states are in them; but first where an
// epoch is cut, as the training that goes on from there ends it. At the end of an epoch all of them have looked at its
// figures before one of them writes; those that keep what is better than ever write first.
//
// Threads: the loop's.
#ifndef WK_CALLBACK_H
#define WK_CALLBACK_H

#include "workerd/job/epoch.h"

struct wk_moment {
    struct wk_run *run;  // its figures, its position: of what comes next
    uint64_t epoch;      // that which runs, or ends; from 0
    struct nn_result result;
    uint64_t step;   // its number, from 0; of a step, as the next two
    int rows;        // of it
    bool in_period;  // a period of local_steps goes on, whose beginning the position is of, and no checkpoint is
    bool cut;        // the epoch ends before it is whole, and goes on in a training that goes on
    bool leads;      // of all workers this one is the chief
    bool stop;  // set by a callback: the training ends after this moment; at the end of an epoch the leader's counts
    // Set with stop at the end of an epoch, by the first callback that ends the training; the leader of when that is
    // decided logs it.
    const char *why;
    bool changed;  // set by a callback: the weights are others than those that were evaluated
};

// After a step: has the training come to a multiple of n steps with it? A step may be the last before several numbers.
// 0: never.
static inline bool wk_moment_is_every(const struct wk_moment *m, uint64_t n)
{
    return n && m->run->position.step / n > m->step / n;
}

// What a callback tells of its state: so many numbers.
enum { WK_NUMBERS = 3 };

// Functions may be NULL.
struct wk_callback_class {
    const char *name;                  // as in the job file
    bool last;                         // after the others
    bool steers;                       // on every worker
    bool hears_epochs;                 // epoch_end on every worker
    bool (*keeps)(const void *state);  // writes a checkpoint when it is asked for one
    // numbers [WK_NUMBERS], 0 on entry. False: it has nothing to tell. take: another worker's, of the same callback.
    bool (*tell)(const void *state, double *numbers);
    void (*take)(void *state, const double *numbers);
    bool (*is_over)(const void *state);  // what was loaded is the end of a training that this callback has ended
    enum ps_code (*open)(const struct ps_callback *settings, const struct wk_run *run, void **state,
                         struct ps_error *e);
    void (*close)(void *state);
    enum ps_code (*begin)(void *state, struct wk_run *run, bool takes_over, struct ps_error *e);
    enum ps_code (*step)(void *state, struct wk_moment *m, struct ps_error *e);
    // Of those that come last: the next epoch_end is theirs, and all of them look before it.
    enum ps_code (*look)(void *state, struct wk_moment *m, struct ps_error *e);
    // Figures of the epoch are in the run; a callback may add to them.
    enum ps_code (*epoch_end)(void *state, struct wk_moment *m, struct ps_error *e);
    // All steps are taken, and the weights are about to be written.
    enum ps_code (*end)(void *state, struct wk_moment *m, struct ps_error *e);
    // They are written, as all workers know.
    enum ps_code (*written)(void *state, struct wk_moment *m, struct ps_error *e);
    // A signal ends the training before it is done.
    enum ps_code (*stopped)(void *state, struct wk_moment *m, struct ps_error *e);
    // Into and from a checkpoint: a JSON object, and arrays with this prefix.
    void (*save)(void *state, json_t *to, struct wk_checkpoint *arrays, const char *prefix);
    enum ps_code (*load)(void *state, const json_t *from, const struct wk_checkpoint *arrays, const char *prefix,
                         struct ps_error *e);
};

extern const struct wk_callback_class wk_csv_log, wk_json_lines, wk_tensorboard, wk_early_stopping,
    wk_reduce_lr_on_plateau, wk_terminate_on_nan, wk_checkpoint_callback, wk_backup;

enum wk_event { WK_STEP, WK_LOOK, WK_EPOCH_ENDS, WK_END, WK_WRITTEN, WK_STOPPED };

struct wk_callbacks;
// Those of the job.
enum ps_code wk_callbacks_open(const struct wk_run *run, struct wk_callbacks **callbacks, struct ps_error *e);
void wk_callbacks_close(struct wk_callbacks *callbacks);
// takes_over: another worker was the chief before this one.
enum ps_code wk_callbacks_begin(struct wk_callbacks *c, struct wk_run *run, bool takes_over, struct ps_error *e);
// m->leads: all of them, and those that have not begun take over; else those that steer, or hear epochs. Of an error
// the text names the callback.
enum ps_code wk_callbacks_call(struct wk_callbacks *c, enum wk_event event, struct wk_moment *m, struct ps_error *e);
// Do they decide, or tell, something at the end of an epoch?
bool wk_callbacks_steer(const struct wk_callbacks *c);
// found [WK_FOUND]: what they have found until now, for the other workers. False: nothing, or more than has room there.
// What those of another job file have told is not taken.
bool wk_callbacks_tell(const struct wk_callbacks *c, double *found);
void wk_callbacks_take(const struct wk_callbacks *c, const double *found);
// Does one of them write a checkpoint when it is asked for?
bool wk_callbacks_keep(const struct wk_callbacks *c);
// All states, as $.callbacks of the checkpoint.
void wk_callbacks_save(const struct wk_callbacks *c, struct wk_checkpoint *to);
// Had one of them ended the training, of which the checkpoint was loaded, and would with its settings now?
bool wk_callbacks_are_over(const struct wk_callbacks *c);
// Each takes the state of the callback that had its path, or its figure, whatever others there were beside it. One that
// the checkpoint does not know begins anew, which is logged.
enum ps_code wk_callbacks_load(const struct wk_callbacks *c, const struct wk_checkpoint *from, struct ps_error *e);

#endif

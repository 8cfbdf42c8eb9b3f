// SPDX-License-Identifier: Apache-2.0
//
// A strategy says how replicas train one model together. It is made of three parts:
//
//     sharder   who trains what: which examples this worker takes next
//     home      where the variables live: weights come from there before an operator needs them, gradients go there as
//               soon as they are ready
//     group     with whom: the chief, what all have seen, who writes the results
//
// The step loop (workerd/job/loop.c) does not know which strategy runs:
//
//     open -> [ [ sharder.next -> home.begin -> forward, backward (home.need, home.ready) -> home.end ]*
//               -> group.sum* ]* -> group.finish -> group.elect* -> close
//
// A worker that is asked to leave (WK_DRAINED) goes from next to close, and so does one that came when nothing was
// left. The parts of a strategy share its state, which is the first argument of every function.
//
// Receives from: the step loop. Hands to: libclient, or the rules of common/. Threads: all functions are called by the
// thread that owns the replica.
#ifndef WK_STRATEGY_H
#define WK_STRATEGY_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/cluster/tls_files.h"
#include "common/file/timeline.h"
#include "common/job/job.h"
#include "common/wire/progress.h"
#include "workerd/nn/model.h"
#include "workerd/strategy/checkpoint.h"

struct wk_collective;
struct wk_waits;

// What a strategy is made of and works on. Everything in it outlives the strategy.
struct wk_env {
    const struct ps_job *job;
    const struct nn_model *model;
    struct nn_replica *replica;
    uint64_t examples;  // in an epoch
    uint64_t test_examples;
    uint64_t numbering;     // of words and classes by the training data, a hash; 0: they number nothing
    const char *const *ps;  // addresses of the ps tasks
    size_t n_ps;
    const struct ps_tls_files *tls;       // to reach them; NULL: without
    bool munge;                           // in place of it;
    const char *munge_socket;             // munged's; NULL: libmunge's default
    bool insecure;                        // what knows no TLS may travel between workers all the same
    uint32_t rank, workers, min_workers;  // of workers
    uint32_t replica_rank, replicas;      // of replicas, over all workers: which one, of how many
    uint32_t device;                      // which replica of this worker
    struct wk_collective *collective;     // of all replicas; NULL: the strategy needs none
    // The variables that a home has, where two homes share the model's; NULL: all.
    bool (*has)(const struct nn_param *p);
    const char *checkpoint;  // from which the training goes on, in words that are of no other one; NULL: none
    const volatile sig_atomic_t *stop;                // not 0: a signal asks to stop; long waits look at it
    const volatile sig_atomic_t *checkpoint_signals;  // so many have asked for a checkpoint; NULL: none can
    // What took how long: all of it; what this replica computes and waits for; what travels. NULL: nobody asks.
    struct ps_timeline *timeline;
    struct ps_track *compute, *communication;
    struct wk_waits *waits;  // how long this replica waits (waits.h); NULL: nobody asks
};

static inline bool wk_env_has(const struct wk_env *env, size_t variable)
{
    return !env->has || env->has(nn_model_param(env->model, variable));
}

// The examples of one step: positions [first, first + rows) of an epoch's permutation. rows may be 0: nothing is left
// for this worker in a step that others still take.
struct wk_work {
    uint64_t epoch, first;
    uint64_t step;  // from 0, or a checkpoint's; in sync jobs the same for all workers, and as many apart as rounds are
    int rows;
    // local_steps: ends_period: after this step the worker exchanges weights with the others. last_period: of later
    // periods the worker does not know its examples yet.
    bool ends_period, last_period;
    // In its rounds, too: in_period: the period goes on after this step, and the position stays that of its beginning.
    // skipped: so many numbers after this one are of no step of this worker, whose period ends early.
    bool in_period;
    uint64_t skipped;
    // Where replicas take a step together: its rows of all of them, else 0; and the position after it, of all.
    uint64_t rows_of_all, end;
};

enum wk_next {
    WK_BATCH,      // *work is set
    WK_LATER,      // ask again when more of what was handed out has been trained
    WK_EPOCH_END,  // the epoch is over for everyone
    WK_DRAINED,    // this worker was asked to leave, and has nothing left to do
    WK_FAILED
};

enum wk_writer {
    WK_SELF,
    WK_ANOTHER,
    WK_NOBODY  // they are written
};

// What all workers together have seen, step by step; known after finish. wk_losses_extend makes it longer.
struct wk_history {
    double *loss;           // [steps - first], of the steps from `first` on: sums over the step's examples
    double *examples;       // [steps - first]
    uint64_t first, steps;  // steps: one past the last
    uint64_t room;          // of both, in steps
    double total_examples;  // of all workers together, all steps
    // Of steps of which nothing else is known: those before first, and of a run that goes on from a checkpoint, which
    // keeps the newest alone, others.
    double examples_before;
    bool averaged;  // the weights are the average of what they were: others than after the last step
    // sync: gradients that count for some variables alone, and the worker and round of the last one.
    uint64_t splits, split_round;
    uint32_t split_worker;
};

// Who trains what.
struct wk_sharder {
    // Where this worker begins: not at 0 where it is late, and comes to a job that has begun.
    uint64_t (*first_epoch)(void *state, bool *late);
    // What the order of examples and dropout are drawn from: the job's seed, or where the job goes on with old values
    // another one, so that it does not begin with what it began with before. The same for all workers.
    uint64_t (*seed)(void *state);
    // Which examples this worker trains next. idle: all it was given before have been trained.
    enum wk_next (*next)(void *state, uint64_t epoch, bool idle, struct wk_work *work, struct ps_error *e);
    // Has what was handed out changed, as others take a part in it, or no part any more? Said once: what has not been
    // trained is void, and asked for again. NULL: it never does.
    bool (*is_void)(void *state);
    // Of who writes what there is after a signal (home.salvage): the step that this is of. It is beyond all that others
    // have written before, though this worker has taken fewer steps. NULL, 0: its own.
    uint64_t (*count_on)(void *state);
};

// Who tells all workers to end tells one of them last, which may learn of another's end before it hears that itself: so
// long one waits for the other, and for a step that this one is in, at most.
enum { WK_SIGNAL_SECONDS = 1, WK_STEP_SECONDS = 6 };

// Where the variables live. A step calls begin; need and ready of each variable that it changes, as nn_hooks describe
// them (workerd/nn/program.h); end. A step of no rows has gradients of 0. Where one of them fails with ABORTED, and
// sharder.is_void says so, the step has not happened and is taken again. What end has taken stays, though it may go on
// in the next step: whoever looks at the values between two steps calls refresh or save first.
struct wk_home {
    enum ps_code (*begin)(void *state, const struct wk_work *work, struct ps_error *e);
    // The value is the one for this step, and nobody reads the gradient any more. Both NULL: values are always there,
    // gradients are taken at the end.
    enum ps_code (*need)(void *state, size_t variable, struct ps_error *e);
    // The gradient is the mean over the batch's rows. Between this and the variable's next need the home may read the
    // gradient and write to the value, and the replica touches neither. Another code than PS_OK ends the step there.
    enum ps_code (*ready)(void *state, size_t variable, struct ps_error *e);
    // Sums over all replicas that take the step, also one of no rows. NULL: none take it together.
    enum ps_code (*sum)(void *state, double *values, size_t n, struct ps_error *e);
    enum ps_code (*end)(void *state, const struct wk_work *work, struct ps_error *e);
    // The latest weights, all of them, for an evaluation between steps.
    enum ps_code (*refresh)(void *state, struct ps_error *e);
    // A signal has ended the training before its end: the weights as they are now, for this worker to write. NULL: the
    // replica has them. NOT_FOUND: another worker writes them. *undone, false on entry: the last step is in no weights,
    // as others have ended before theirs, and is the first that a training takes that goes on.
    enum ps_code (*salvage)(void *state, bool *undone, struct ps_error *e);
    // A training that goes on from a checkpoint. save, between two steps: *to has the replica's parameters, as the
    // first arrays in the model's order; puts what the home keeps besides, into arrays that live until the next step.
    // What others keep, parameters too, may be left to to->fetch. load: the same from one, whose parameters are in the
    // replica already; the next batch is that of the position `first` in this epoch, and its step is `step`.
    // FAILED_PRECONDITION: it is of another job. DATA_LOSS: what others keep of it is lost, as all replicas hear.
    enum ps_code (*save)(void *state, struct wk_checkpoint *to, struct ps_error *e);
    enum ps_code (*load)(void *state, const struct wk_checkpoint *from, uint64_t epoch, uint64_t first, uint64_t step,
                         struct ps_error *e);
    // A wk_prune_shards_fn, whose arg is the state: of shards that save has brought about, as *to asked for, and load
    // has the ps tasks load. NULL: what the home keeps is in the arrays alone.
    wk_prune_shards_fn *prune_shards;
    // The learning rate of the next step. Setting another one ends a schedule that says it. All workers set it alike;
    // tell_rate, by one of them, tells it to whom it concerns besides. NULL: that is nobody.
    double (*rate)(void *state);
    void (*set_rate)(void *state, double rate);
    enum ps_code (*tell_rate)(void *state, struct ps_error *e);
    // What holds for the leader of all workers holds here, too, whatever was set here: the rate that was set, and told;
    // or, where none is set, the schedule. Both NULL: there are no others.
    void (*take_rate)(void *state, bool is_set, double rate);
    bool (*follows_schedule)(const void *state);
};

// With whom.
struct wk_group {
    // At the end of an epoch: adds up n doubles of all workers, in rank order. Waits until everyone who lives is in it,
    // and all that this worker has trained has reached the weights.
    enum ps_code (*sum)(void *state, double *values, uint64_t n, struct ps_error *e);
    // After the last epoch: waits for everyone, then *history (this worker's, on entry) has the sums of all.
    enum ps_code (*finish)(void *state, struct wk_history *history, struct ps_error *e);
    // Who writes the results? Waits for everyone, those too who are writing them: whoever fails or dies at that is
    // followed by another. written: this one has done so.
    enum ps_code (*elect)(void *state, bool written, enum wk_writer *writer, struct ps_error *e);
    bool (*is_chief)(void *state);  // as far as is known at the moment: for what is shown meanwhile
    // 0: this worker was there from the beginning. Else the greater the later it came: who has been there for longest,
    // of several the lowest rank, leads. NULL: the lowest rank leads.
    uint64_t (*arrival)(void *state);
    // Do all wait for each other in each step? Then nobody can end in the middle of an epoch. NULL: no.
    bool (*in_rounds)(void *state);
    // How far this worker is, which people see. NULL: nobody is told.
    void (*report)(void *state, uint64_t step, double examples_per_second, double loss);
    // How far the training is, which people see. NULL: nobody is told.
    void (*report_progress)(void *state, const struct ps_progress *progress);
    // The last checkpoint that people have asked the job for, from 1; 0: none waits. The chief says what has become of
    // the first `number` of them: text is a file's path, or failed and why. Both NULL: nobody can ask.
    uint64_t (*asked)(void *state);
    void (*answer)(void *state, uint64_t number, bool failed, const char *text);
};

struct wk_strategy {
    bool replicates;  // a worker may have several replicas, and all that there are have wk_env.collective
    const struct wk_sharder *sharder;
    const struct wk_home *home;
    const struct wk_group *group;
    // Brings the weights into being: in the replica, or on the ps tasks (where the chief declares them). Whatever it
    // returns, close follows where *state is set.
    enum ps_code (*open)(const struct wk_env *env, void **state, struct ps_error *e);
    // why NULL: done; else why it fails, or, with CANCELLED, by which signal it is interrupted.
    void (*close)(void *state, const struct ps_error *why);
};

extern const struct wk_strategy wk_one_device, wk_parameter_server, wk_local_steps, wk_hybrid,
    wk_mirrored;  // central_storage and multi_worker_mirrored, too

// Overwrites the replica's parameters with those of a weights file of any kind (workerd/weights), which has each in one
// of Keras's spellings (weights.c) and with the model's shape; logs what it has besides. INVALID_ARGUMENT: nothing is
// overwritten.
enum ps_code wk_load_weights(const struct wk_env *env, const char *path, struct ps_error *e);

// Initial values of the replica's parameters: the job's weights file, else those of the .keras
// file that the model is from, else the initializers. Of a training that goes on from a checkpoint nothing: it has all.
enum ps_code wk_init_weights(const struct wk_env *env, struct ps_error *e);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// What the files of the strategies parameter_server, local_steps and hybrid share.
//
//     parameter_server.c   joining, what all have seen, the end
//     psd_home.c           the variables: weights come, gradients leave, step by step
//     psd_checkpoint.c     what the ps tasks keep, in checkpoints
//     psd_signal.c         what a signal leaves: the weights are read once more; leaving the job
//     psd_job.c            the job as this worker knows it, which all of these ask
//     local_steps.c        the variables: they are the replica's own, and the workers' differences are exchanged
//     hybrid.c             the variables: tables on the ps tasks, the rest in each replica
//     examples.c           which examples this worker trains
//     history.c            what all workers have seen together
#ifndef WK_PARAMETER_SERVER_H
#define WK_PARAMETER_SERVER_H

#include <stdatomic.h>

#include "libclient/psclient.h"
#include "workerd/strategy/strategy.h"

// Whoever has sent a signal kills after a while, psctl run after 20 s. How long ps tasks may take to answer; and in
// all, with what is written.
enum { WK_SALVAGE_MS = 10000, WK_SALVAGE_REFUSED_MS = 1000, WK_LAST_SHARDS_MS = 17000 };

// Variables that travel together: tensors [first, first + n).
struct wk_bucket {
    size_t first, n;
    size_t missing;      // of the step at hand: not ready yet
    psc_op *op;          // under way: a push, a pull, or both in one
    bool pushes, pulls;  // of that
    uint32_t priority;   // of its pushes; 0: none
    uint64_t closed;     // sync: the last round that all its variables are known to have closed
    // Of the timeline's span of it. Written before it starts and read when it has ended.
    struct ps_track *track;
    char *name;  // of its first variable, and how many others there are; NULL where there is no timeline
    uint64_t bytes, start;
};

struct wk_parameter_server_state {
    const struct wk_env *env;
    const struct ps_rule *rule;        // that the ps tasks apply to what learns,
    double hyper[PS_RULE_MAX_HYPERS];  // and its hyperparameters, by PS_HYPER_*: the home takes psctl's with an epoch
    bool is_outer;                     // the rule is local_steps' outer optimizer's, the job's is the workers' own
    uint64_t period;                   // batches of this worker in a round: 1, or of local_steps
    bool follows_mode;                 // trains each epoch as its shares say, in `update`: psctl set-mode
    uint32_t share_rounds;             // sync: that are asked for at once; 0: all
    const double *state_momentum;      // of states on the ps tasks; NULL: each has its layer's
    // Sends what has not been pushed yet, and waits for all that is under way. A signal ends the waiting:
    // wk_home_salvage cancels the operations, or they end with the client.
    enum ps_code (*settle)(struct wk_parameter_server_state *s, struct ps_error *e);
    psc_update update;
    psc_client *client;
    size_t n;               // variables,
    size_t n_trained;       // of which so many change in a step: by gradients, or as states that follow the batches
    psc_tensor *weights;    // [n] the replica's: those that change in the order in which they become ready, the others
    bool *learns;           // [n_trained] has a gradient
    double *momentum;       // [n_trained] of a state
    psc_tensor *gradients;  // [n_trained] in the same order; of a state what the batch has
    psc_tensor *pushed;     // [n_trained] what a push sends: the gradients, or where they are added up (n_push > 1)
    psc_tensor *pulled;     // [n_trained] where a push's answer goes: the weights, or else the home's own
    // local_steps: how gradients travel, and [n_trained] what that has lost of them; NULL: a state, which travels as it
    // is. 0 and NULL: all do.
    psc_dtype encoding;
    float **residual;
    size_t *tensor;  // by the model's number of a variable: where it is in these arrays; one that is not: past n
    struct wk_bucket *bucket;
    size_t n_buckets;
    size_t *bucket_of;                 // [n_trained]
    size_t under_way;                  // buckets with a push
    int rows;                          // of the step at hand
    uint64_t closed;                   // sync: the last round known to be closed, of some variables at least
    uint64_t round;                    // sync: that of the step at hand
    uint64_t salvaged;                 // sync: the round whose values wk_psd_salvage has found; UINT64_MAX: of several
    uint64_t counted;                  // local_steps in sync: the round of the last period that ended here
    bool undone;                       // wk_psd_salvage has taken the last step back; never of local_steps
    uint64_t version;                  // the greatest met: how often weights were changed, their first values included
    double rate;                       // of the next step, as far as is known here: psctl's is heard of as `hyper`
    bool rate_is_set;                  // and follows no schedule any more; else, where there is one, it says the rate
    bool rate_changed;                 // and perhaps not told to the ps tasks
    uint64_t summed, summed_examples;  // gradients in `pushed` that are not pushed yet, where n_push > 1
    uint64_t step_began, step_ns;      // ps_now(); how long the step before took, with its waits
    bool has_weights;                  // the replica's are from the ps tasks
    bool averages;                     // the training has ended, with the averages of the weights (use_ema)

    // Of a training that goes on from a checkpoint.
    uint64_t base;               // steps before this run of the job, whose rounds, clocks and versions begin anew
    uint64_t epochs_over;        // epochs that end at once, as nothing is left of them
    uint64_t ahead;              // the rule has been applied so many more times than there were steps (modulo 2^64)
    uint64_t loaded_version;     // with which it goes on
    uint64_t outer_steps;        // is_outer: how often the rule had been applied by then
    psc_client *_Atomic reader;  // after a signal,
    uint64_t stopped_at;         // which was noticed then, ps_now(); 0: none was
    // The training waits while a checkpoint is fetched, as beside it that has failed; while shards are written, always.
    atomic_bool reads_alone, shards_alone;

    // Steps of this worker, counted.
    uint64_t handed_out, trained;  // as next gave them; those whose gradients there are
    uint64_t trained_to;           // one past the number of the last of these, beyond base
    // A step's number beyond base is that of its round, or the count of those handed out, plus these (modulo 2^64): a
    // change of the mode moves them so that it goes on from next_step.
    uint64_t round_offset, count_offset, next_step;
    bool was_chief;                // when it asked for a share last
    bool mode_changed;             // there were two modes, as far as is known here
    uint64_t in_push, pushed_all;  // those up to which the last push goes; up to which all have been acknowledged

    psc_share share;
    uint64_t taken;      // rounds of it, or (async) examples
    uint64_t in_period;  // sync: batches of the round at hand that were handed out
    uint64_t began;      // async: the step with which it begins. Those before it are of shares given earlier
    bool nothing_ahead;  // async: there was nothing to give when it was asked for ahead
};

extern const struct wk_home wk_psd_home;        // psd_home.c
extern const struct wk_sharder wk_psd_sharder;  // examples.c
extern const struct wk_group wk_psd_group;      // parameter_server.c

// psd applies rules, and no constraints. FAILED_PRECONDITION: one of its variables has one.
enum ps_code wk_psd_refuse_constraints(const struct wk_env *env, struct ps_error *e);
// Once there is a home: joins the job, of which the chief declares the variables and puts what the replica has.
enum ps_code wk_psd_join(struct wk_parameter_server_state *s, struct ps_error *e);

// psd_job.c: the ps tasks, and how they are reached. The caller frees *cluster.
psc_code wk_psd_cluster(const struct wk_env *env, psc_cluster **cluster, psc_error *error);
// Does each round close with all workers?
bool wk_psd_awaits_all(const struct wk_parameter_server_state *s);
// Is each of its steps in a round that all workers are in?
bool wk_psd_in_rounds_of_all(const struct wk_parameter_server_state *s);
// Does each round have all workers and all variables? In local_steps with fragments these are in different rounds.
bool wk_psd_closes_whole_rounds(const struct wk_parameter_server_state *s);
// A step begins; how long the one before it took, WK_STEP_SECONDS at most.
void wk_psd_count_step(struct wk_parameter_server_state *s);
uint64_t wk_psd_step_ns(const struct wk_parameter_server_state *s);
enum ps_code wk_psd_barrier(struct wk_parameter_server_state *s, const char *name, struct ps_error *e);
// Has the job ended? What is computed from then on is for nothing. Does not wait.
enum ps_code wk_psd_health(const struct wk_parameter_server_state *s, struct ps_error *e);
// How often the ps tasks have applied the rule, as far as is known here.
uint64_t wk_psd_iterations(const struct wk_parameter_server_state *s);
// sync: the rounds that this worker has pushed to, in this run of the job.
uint64_t wk_psd_rounds_trained(const struct wk_parameter_server_state *s);

// What the home is made of, before there is a client; freed by wk_home_free once the client is closed.
// RESOURCE_EXHAUSTED: no memory.
enum ps_code wk_home_open(struct wk_parameter_server_state *s, struct ps_error *e);
void wk_home_free(struct wk_parameter_server_state *s);
// Waits for what is under way where its outcome is of no use: the client has ended or ends, or is closed.
void wk_home_abandon(struct wk_parameter_server_state *s);
// After a signal: nothing of this worker's is under way any more, then as wk_psd_salvage.
enum ps_code wk_home_salvage(void *state, bool *undone, struct ps_error *e);
// Is the average of the weights kept?
bool wk_home_averages(const struct wk_parameter_server_state *s);

// psd_signal.c: as the chief, or in the place of one that was lost, reads the weights as the ps tasks have them, and
// opens s->reader to read more. NOT_FOUND: it is neither.
enum ps_code wk_psd_salvage(struct wk_parameter_server_state *s, bool *undone, struct ps_error *e);
void wk_psd_close(struct wk_parameter_server_state *s, const struct ps_error *why);  // leaves the job

const char *wk_psd_mode_name(psc_update update);  // "sync"

// psd_checkpoint.c: what the ps tasks keep, to be fetched, and the rate or how often the outer rule has been applied;
// nothing of this worker's is under way. load: what the replica and the checkpoint have goes to the ps tasks, all have
// waited for it, and next gives the position's examples. An outer rule that the checkpoint has nothing of begins anew.
void wk_psd_save(struct wk_parameter_server_state *s, struct wk_checkpoint *to);
// Of the rule's hyperparameters; round: as psc_set_hyper's.
psc_code wk_psd_set_hyper(const struct wk_parameter_server_state *s, const char *name, double value, uint64_t round,
                          psc_error *error);
// Those that psctl had set when the checkpoint was written, but for the learning rate, are set again; by one worker.
enum ps_code wk_psd_load_changes(const struct wk_parameter_server_state *s, const struct wk_checkpoint *from,
                                 struct ps_error *e);
wk_prune_shards_fn wk_psd_prune_shards;  // arg: the state
enum ps_code wk_psd_load(struct wk_parameter_server_state *s, const struct wk_checkpoint *from, uint64_t epoch,
                         uint64_t first, uint64_t step, struct ps_error *e);

// Of which homes are made:
// The tensors: weights, gradients, learns, momentum, tensor.
void wk_home_add_tensors(struct wk_parameter_server_state *s);
// Memory as large as what is trained, which wk_home_free_tensors frees (*tensors may be NULL). RESOURCE_EXHAUSTED:
// there is none.
enum ps_code wk_home_make_tensors(const struct wk_parameter_server_state *s, psc_tensor **tensors, struct ps_error *e);
void wk_home_free_tensors(const struct wk_parameter_server_state *s, psc_tensor *tensors);
// Gradients are pushed in fewer bytes from now on. RESOURCE_EXHAUSTED: no memory for what that loses of them.
enum ps_code wk_home_encode(struct wk_parameter_server_state *s, psc_dtype encoding, struct ps_error *e);
// What the buckets are called in the timeline.
void wk_home_name_buckets(struct wk_parameter_server_state *s);
// Starts a push, or a push and a pull, of a bucket in round s->round; settle_bucket waits for it.
void wk_home_push(struct wk_parameter_server_state *s, struct wk_bucket *b, uint64_t examples, bool pulls);
enum ps_code wk_home_settle_bucket(struct wk_parameter_server_state *s, struct wk_bucket *b, struct ps_error *e);
// What steps change, whose version is the one with which a training goes on from a checkpoint. Nobody pushes before all
// know it.
enum ps_code wk_home_pull_loaded(struct wk_parameter_server_state *s, struct ps_error *e);
// Those too that no step changes, when `round` is closed.
enum ps_code wk_home_pull_all(struct wk_parameter_server_state *s, uint64_t round, struct ps_error *e);
// What psctl has set by now and the next step has: the rate that callbacks multiply, and the limits by which this
// worker clips.
enum ps_code wk_home_take_changes(struct wk_parameter_server_state *s, struct ps_error *e);
// Without rounds nobody but the worker has its whole gradient: it clips by norm before it pushes. In rounds psd clips,
// what it has added up. Of what is to be pushed: by the norm of the i-th (clipnorm), and of all together
// (global_clipnorm).
void wk_home_clip(const struct wk_parameter_server_state *s, psc_tensor *gradients, size_t i);
void wk_home_clip_all(const struct wk_parameter_server_state *s, psc_tensor *gradients);
// For tests and demonstrations: a worker that is late at random.
void wk_home_delay(const struct wk_parameter_server_state *s, uint64_t step);

#endif

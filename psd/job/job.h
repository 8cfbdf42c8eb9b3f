// SPDX-License-Identifier: Apache-2.0
//
// A job as this task sees it: its variables, who owns their partitions, and the blocks of those that lie
// here.
//
// Receives from: service. Hands to: store. Threads: any. A job is reference-counted; its declaration
// (variables, partitions, rule) does not change once `declared` is set, so it is read without a lock.
#ifndef PSD_JOB_H
#define PSD_JOB_H

#include <pthread.h>

#include "common/base/name_table.h"
#include "common/math/rule.h"
#include "common/math/schedule.h"
#include "common/wire/dtype.h"
#include "proto/paramserver.pb-c.h"
#include "psd/call/call.h"
#include "psd/job/clients.h"
#include "psd/limits.h"
#include "psd/store/block.h"

// What belongs to rooms above, as psd/job/component.h tells: only they look into it.
struct psd_agree;
struct psd_control;
struct psd_norm;
struct psd_round;
struct psd_task_view;

struct psd_host;
struct psd_staged;
struct psd_trace;

struct psd_partition {
    uint32_t variable;  // index into the job's variables
    uint32_t task;
    uint64_t first, count;  // elements of the variable
    // Of partitions on this task only:
    uint32_t n_blocks;
    uint32_t block_count;  // elements of every block but the last
    struct psd_block *blocks;
    // The variable has a rule, and the job is in rounds; else NULL. `made` is that round, which stays where it is when
    // the job leaves its rounds: who has looked it up may go on with it. NULL: the job has never had rounds.
    struct psd_round *_Atomic round;
    struct psd_round *made;
};

struct psd_variable {
    char *name;
    int dtype;
    uint64_t shape[PS_MAX_RANK];
    size_t rank;
    uint64_t count;
    bool trainable;
    const struct ps_rule *rule;  // NULL: neither trainable nor with a rule of its own; a push adds, outside of rounds
    bool own_rule;               // it names one; else it is the job's
    uint32_t own;                // bit i: hyper[i] is its own, and stays; the others follow the job's
    double hyper[PS_RULE_MAX_HYPERS];
    uint32_t first_partition, n_partitions;
    struct psd_blank blank;  // its fresh blocks
};

// A hyperparameter of the job's rule, changed by hand.
struct psd_change {
    uint64_t number;  // grows from one to the next
    uint64_t round;   // the first that uses it; async, ssp: 0
    bool any_round;   // nobody has named that round
    int hyper;        // index
    double value;
};

struct psd_job {
    char *name;
    struct psd_user *user;  // who has opened it
    size_t users_bytes;     // that count as the user's
    // Which training under this name: the control task gives it out, others know it by its declaration. It changes
    // where a new run goes on with the values of the one before.
    atomic_ullong run;
    atomic_ullong queued_run;  // of the runs at the control task the last that a job of the queue has trained
    atomic_int refs;           // the table's, one per request that uses it, one per work under way
    atomic_int keepers;        // of this struct alone: all of refs together, and one per session
    // In the job table (psd/job/table.h), guarded by its lock.
    struct psd_job *older, *newer, *next_of_name;
    struct psd_host *host;
    atomic_uint place;  // in the table; PS_NO_ITEM: it is in none
    // Looked at when a tick looks at the job: nobody who waits here is late, or has waited for long, before these (ns).
    atomic_ullong late_at, stalled_at;

    pthread_mutex_t lock;  // guards what has no remark of its own
    // Whose shard was loaded last, what it had, and by which call. Of the thread for shards alone.
    struct psd_loaded {
        uint64_t run, checkpoint, elements;  // elements: 0: none, as yet
        uint8_t by[16];                      // the client id,
        uint64_t sequence;                   // and of its call
    } loaded;
    // Applying a block holds it shared, pinning a snapshot exclusively: so a snapshot lies between two
    // updates. An atomic update holds it exclusively, pinning what goes into one message shared.
    pthread_rwlock_t snapshot_lock;

    pthread_mutex_t staging;    // guards
    struct psd_staged *staged;  // atomic updates that are not complete (psd/job/staging.h)

    // The declaration.
    atomic_bool declared;
    bool declaring;                  // guarded by the job table's lock, as is
    uint8_t declared_by[16];         // the client id of the chief that did, or resumed,
    uint64_t declared_sequence;      // and of its call
    uint64_t resumptions;            // how many declarations went on with old values, that one among them if it did
    bool resumed;                    // that declaration did
    uint64_t resumed_round;          // that was open when the run before ended, as the last such declaration said
    Paramserver__V1__Update update;  // as declared; what it is at the moment: psd_job_is_sync
    uint32_t workers, tasks;
    uint32_t replicas_to_aggregate;  // sync; 0: all members'
    uint32_t grace_ms;               // for those beyond them
    uint32_t staleness;              // ssp
    const struct ps_rule *rule;      // of trainable variables
    double hyper[PS_RULE_MAX_HYPERS];
    struct ps_schedule schedule;  // of its learning rate
    struct psd_variable *variables;
    uint32_t n_variables;
    struct ps_name_table names;  // of the variables
    struct psd_partition *partitions;
    uint32_t n_partitions;
    uint64_t digest;  // of the declaration: the same one may be sent again
    size_t room;      // taken from the pool for what is kept besides pages
    struct psd_pool *pool;

    struct psd_store store;  // what the blocks of this task share
    struct psd_clients clients;
    uint64_t *incarnations;  // [workers]: the one that is obeyed, as the control task has said
    struct psd_heard {
        atomic_ullong at;           // ns, without what the process has slept
        atomic_ullong incarnation;  // that sent it
    } * heard;                      // [workers] the last request for data; at the control task

    // What was changed by hand since, in the order in which it was: from its round on the last one holds. Written with
    // the snapshot lock held exclusively, read with it shared.
    struct psd_change changes[PSD_MAX_CHANGES];
    uint32_t n_changes;
    struct psd_agree *agree;  // psd/control/agree.h
    atomic_ullong held;       // rounds from this one on do not close; 0: none is held
    struct psd_norm *norms;   // psd/sync/norm.c; NULL: the job has never had rounds
    struct psd_trace *trace;  // psd/job/trace.h; with the declaration
    // psd/sync/switch.c: rounds that the declaration did not ask for.
    atomic_bool in_rounds;  // the job is sync at the moment
    bool keeps_rounds;      // there is room for rounds
    size_t rounds_room;     // taken from the pool for their gradients

    pthread_mutex_t ending;           // taken last; guards, beside the changes of run:
    char failure[PSD_FAILURE_MAX];    // why this run has ended; written before failed is set
    atomic_bool stopped;              // its end was asked for
    atomic_bool failed, interrupted;  // interrupted: failed, as a signal has asked for that

    // At tasks other than the control task: psd/control/watch.c.
    struct psd_watch {
        uint64_t moved, since;     // bytes_moved, and since when it is that; ns
        uint64_t asked, answered;  // when the control task was asked for the job, and last answered
        bool asking;
        bool doubted;       // another user declares it: that is asked for, too
        uint64_t heard_at;  // ns: when the control task said last whose it is; 0: it has not
        bool disowned;      // not this job's user's, it said
    } watch;

    // Membership, kept by the control task (psd/control/control.c); NULL elsewhere until the first SetMembers.
    struct psd_control *control;
    struct psd_task_view *view;  // the members, as this task was told: psd/control/view.c
    struct psd_waiters waiting;  // Describe(wait)

    // Counted since the start, and per second over the last second or so (by psd_core_tick).
    atomic_ullong updates, bytes_moved, duplicates, stale;
    atomic_ullong nonfinite;         // pushes with a NaN or an infinity, refused or not
    atomic_ullong met_staleness;     // the greatest that a push met
    atomic_bool warned_of_examples;  // psd/sync/round.c: that gradients of none were pushed
    uint64_t last_updates, last_bytes;
    double updates_per_second, bytes_per_second;
    uint64_t rates_at;  // ns: since when last_updates are; 0: nothing changes
};

// At the moment: a change of the mode goes to all tasks, and reaches them one after the other.
static inline bool psd_job_is_sync(const struct psd_job *job)
{
    return atomic_load(&job->in_rounds);
}

// Outside of rounds a task other than the control task knows no more than how the job was declared.
static inline Paramserver__V1__Update psd_job_update(const struct psd_job *job)
{
    const bool left = job->update == PARAMSERVER__V1__UPDATE__SYNC;
    return psd_job_is_sync(job) ? PARAMSERVER__V1__UPDATE__SYNC : left ? PARAMSERVER__V1__UPDATE__ASYNC : job->update;
}

// Any thread, any lock held. Has its run failed? Then its failure says why.
static inline bool psd_job_has_failed(const struct psd_job *job)
{
    return atomic_load(&job->failed);
}

static inline bool psd_job_was_interrupted(const struct psd_job *job)
{
    return psd_job_has_failed(job) && atomic_load(&job->interrupted);
}

// Any thread, any lock held.
static inline bool psd_round_is_held(const struct psd_job *job, uint64_t round)
{
    uint64_t from = atomic_load(&job->held);
    return from && round >= from;
}

// With one reference. from: who opens it, or NULL: nobody has been asked.
struct psd_job *psd_job_new(const char *name, const struct ps_identity *from, struct psd_host *host);
void psd_job_free(struct psd_job *job);  // no reference is left
// Keeps the struct, with nothing that it has: what it had goes with the last reference.
void psd_job_keep(struct psd_job *job);
void psd_job_forget(struct psd_job *job);
bool psd_job_try_ref(struct psd_job *job);  // of one that is kept. False: no reference was left

// Ends this run of the job: sets its failure text, unless it has one or goes on as another run (false). What waits in
// it is collected at the next tick at the latest.
// interrupted: as a signal has asked for that; else it has failed.
bool psd_job_end(struct psd_job *job, uint64_t run, const char *reason, bool interrupted);
bool psd_job_fail(struct psd_job *job, uint64_t run, const char *reason);
// Likewise a run that is over, which is no news.
void psd_job_let_go(struct psd_job *job, const char *why);
// Ends it as was asked for, and why: who is still in it is told that there is no such job.
void psd_job_stop(struct psd_job *job, const char *why);
// The job goes on as another run. failed: one that has failed stays so for now.
void psd_job_set_run(struct psd_job *job, uint64_t run, bool failed);

const char *psd_update_name(Paramserver__V1__Update update);  // as people write it

// NULL: it has none of that name.
static inline struct psd_variable *psd_job_variable(const struct psd_job *job, const char *name)
{
    return ps_name_table_find(&job->names, name);
}

// Bytes of an element that has not been changed yet.
static inline size_t psd_element_bytes(const struct psd_variable *v)
{
    return v->dtype == PS_STRING ? PS_STRING_LENGTH : ps_dtype_size(v->dtype);
}

#endif

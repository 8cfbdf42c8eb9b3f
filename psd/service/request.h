// SPDX-License-Identifier: Apache-2.0
//
// One run of a method, and what every method does with it: its reply, its end, and that its call is parked. Files that
// methods are in call these; nothing here calls them back.
//
// Receives from: service. Hands to: job, call. Threads: any.
#ifndef PSD_REQUEST_H
#define PSD_REQUEST_H

#include "common/base/log.h"
#include "psd/control/agree.h"
#include "psd/job/apply.h"
#include "psd/job/clients.h"
#include "psd/job/snapshot.h"
#include "psd/job/table.h"
#include "psd/job/trace.h"
#include "psd/job/users.h"
#include "psd/service/core.h"
#include "psd/sync/norm.h"
#include "psd/sync/sync.h"

struct psd_file_thread;

// Another ps task, as task 0 knows it, which has a queue.
struct psd_other_task {
    atomic_bool asked;             // and has not answered
    atomic_bool known;             // it has answered, or could not be reached
    atomic_bool drains;            // as it said last
    atomic_bool asked_to, let_go;  // of leftover: it has not answered; it has
};

// What the queue's last job has left, which is gone here, and which the other ps tasks are told to let go.
struct psd_leftover {
    char *job;  // NULL: nothing
    uint64_t run;
};

struct psd_core {
    struct psd_config config;
    struct psd_world world;
    uint64_t generation;
    uint64_t started;
    struct psd_pool pool;
    struct psd_users users;
    struct psd_host host;
    atomic_uint asking;        // host's
    atomic_bool draining;      // shuts down
    atomic_bool refuses_jobs;  // was asked to drain: takes no new ones

    struct psd_table table;
    struct psd_snapshots snapshots;
    atomic_size_t parked_bytes;  // of decoded requests that wait

    struct psd_queue *queue;  // of the thread for files alone, as is leftover; NULL: none
    struct psd_leftover leftover;
    // What others are told of it: psd_queue_count's figures.
    atomic_uint queued_jobs, running_jobs, failed_jobs, lately_failed_jobs;
    atomic_ullong oldest_job_ms;
    struct psd_other_task *others;        // [tasks], the first unused; NULL: there is no queue
    struct psd_file_thread *file_thread;  // NULL: there is no such thread; of shards, likewise:
    struct psd_file_thread *shard_thread;
    atomic_size_t shard_bytes;  // of those that wait or are written

    struct ps_log_seldom refusals;  // for want of room

    // psd_core_tick
    uint64_t logged_at;
    struct psd_job *ticking[PSD_MAX_JOBS];
    pthread_mutex_t tick_lock;
};

static inline uint64_t psd_now(const struct psd_core *core)  // ns, monotonic
{
    return core->world.now(core->world.ctx);
}

static inline uint64_t psd_wall(const struct psd_core *core)  // ms since 1970; 0: this world has no such clock
{
    return core->world.wall ? core->world.wall(core->world.ctx) : 0;
}

// One run of a method.
struct psd_request {
    struct psd_core *core;
    struct psd_call *call;
    const ProtobufCMessage *request;
    const Paramserver__V1__Caller *caller;  // NULL: the method has none
    struct psd_job *job;                    // referenced for the request; NULL: the method finds its own
    struct ps_slices payload, reply;
    struct ps_slices room;  // for a reply (psd_request_reserve), which begins at room_data
    uint8_t *room_data;
    struct psd_job *gone;    // removed from the table by this request; a reference to drop
    struct psd_call *ready;  // calls that this request made ready: they run after it
    struct ps_error error;
};

// Is the call good for a job that has failed, too? With these its last weights are saved.
static inline bool psd_request_outlives_job(const struct psd_request *q)
{
    return q->call->method == PARAMSERVER__V1__METHOD__GET || q->call->method == PARAMSERVER__V1__METHOD__PRUNE_SHARDS;
}

// What a method returns besides a ps_code: the call has been put in a list and may be running elsewhere by
// now.
enum { PSD_PARKED = -1 };
enum { PSD_REPLY_BYTES = 128 };  // of a reply's own fields, besides lists and payload, at most
// Room for a reply of so many bytes without its payload: what changes something takes it first, so that its answer
// cannot fail. Methods whose replies are small have it from the start.
enum ps_code psd_request_reserve(struct psd_request *t, size_t bytes);
// Packs the reply (and moves payload behind it; may be NULL). RESOURCE_EXHAUSTED: there was neither room nor memory.
int psd_request_reply(struct psd_request *t, const ProtobufCMessage *reply, struct ps_slices *payload);

// Who sent the request, for texts; "": nobody has been asked.
const char *psd_request_user(const struct psd_request *t);
// Is the job the user's, or who calls an admin or a ps task?
bool psd_request_owns(const struct psd_request *t, const struct psd_job *job);
// PERMISSION_DENIED: it is not.
enum ps_code psd_request_check_owner(struct psd_request *t, const struct psd_job *job);
enum ps_code psd_request_check_declared(struct psd_request *t);  // FAILED_PRECONDITION: the job is not
enum ps_code psd_request_check_rank(struct psd_request *t);      // likewise; INVALID_ARGUMENT: it has no such worker
enum ps_code psd_request_fail_no_job(struct psd_request *t, const char *name);  // NOT_FOUND
// ABORTED, with the reason for which the job has ended; NOT_FOUND where it was stopped.
int psd_request_fail_ended(struct psd_request *t);

// Sets t->job to the one of this name, referenced. NOT_FOUND: this task has none.
enum ps_code psd_request_find_job(struct psd_request *t, const char *name);

// Lists of parked calls. The lock that guards the list is held.
// Parks the request's call in a list, which lock guards. The call keeps the decoded request without its payload, the
// room for the reply, and a reference on the request's job: whoever makes it ready takes it out, and it goes on with
// these, by its method or by what psd_request_wait_with has named. Once the lock is free it may have been answered: the
// request is not looked at any more. Returns PSD_PARKED, or the error where nothing may wait any more: the task drains,
// the job has ended, the client is gone; or where too much waits (UNAVAILABLE).
int psd_park(struct psd_request *q, struct psd_waiters *list, pthread_mutex_t *lock, const struct psd_wait *wait);
// A call that is in no list has waited until now: that goes to the job's trace (psd/job/trace.h), if it is declared.
// job may be NULL.
void psd_call_end_wait(struct psd_job *job, struct psd_call *call, Paramserver__V1__WaitEnd end);
// Before psd_park: a call that waits goes on with resume, which finds state in q->call->state. Whatever comes of the
// call, state_free gets the state.
void psd_request_wait_with(struct psd_request *q, int (*resume)(struct psd_request *q), void *state,
                           void (*state_free)(void *state));
// Answers a call that is in no list, and lets go of all that it keeps. No lock is held.
void psd_call_answer(struct psd_call *call, enum ps_code code, const char *text, struct ps_slices *body);
// Answers a call that was taken out of a list at that time (ns), with what it has waited for not there.
void psd_call_give_up(struct psd_call *call, uint64_t now, enum ps_code code, const char *text);

// Forgets a job that was taken out of the table (may be NULL), whose snapshots would keep its blocks; no lock held.
void psd_drop_job(struct psd_core *core, struct psd_job *gone);
void psd_drop_gone(struct psd_request *t);  // likewise t->gone
// Lowers a time to `to`, unless it is earlier.
void psd_wait_lower(atomic_ullong *at, uint64_t to);

#endif

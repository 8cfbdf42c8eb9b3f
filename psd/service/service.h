// SPDX-License-Identifier: Apache-2.0
//
// One pipeline for every call, whichever way it came: decode -> check the caller -> find the job -> the
// method's own steps -> reply. The methods live in update.c (Put, AssignAdd, AssignSub, Push, PushPull),
// read.c (Get, Pull), declare.c (Declare, Describe), join.c (Join), membership.c (what else a job's workers ask of the
// control task), peer.c (what tasks tell each other), hyper.c (SetHyper), sums.c (SumSquares), waits.c (Waits) and
// admin.c (Status, Drain, StopJob).
//
// A method that has to wait parks its call in a list of whatever it waits for, with all that it needs to go on: nothing
// is decoded twice, and no job is looked up by its name again.
//
// Receives from: rpc, through core.h. Hands to: control, sync, job. Threads: any.
#ifndef PSD_SERVICE_H
#define PSD_SERVICE_H

#include "psd/control/agree.h"
#include "psd/job/apply.h"
#include "psd/job/clients.h"
#include "psd/job/snapshot.h"
#include "psd/job/table.h"
#include "psd/service/core.h"
#include "psd/sync/norm.h"
#include "psd/sync/sync.h"

struct psd_core {
    struct psd_config config;
    struct psd_world world;
    uint64_t generation;
    uint64_t started;
    struct psd_pool pool;
    struct psd_host host;
    atomic_bool draining;      // shuts down
    atomic_bool refuses_jobs;  // was asked to drain: takes no new ones

    struct psd_table table;
    struct psd_snapshots snapshots;
    atomic_size_t parked_bytes;  // of decoded requests that wait

    // psd_core_tick
    uint64_t logged_at;
    struct psd_job *ticking[PSD_MAX_JOBS];
    pthread_mutex_t tick_lock;
};

static inline uint64_t psd_now(const struct psd_core *core)  // ns, monotonic
{
    return core->world.now(core->world.ctx);
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

// What a method returns besides a ps_code: the call has been put in a list and may be running elsewhere by
// now.
enum { PSD_PARKED = -1 };
enum { PSD_REPLY_BYTES = 128 };  // of a reply's own fields, besides lists and payload, at most
typedef int (*psd_method_fn)(struct psd_request *t);

int psd_update_values(struct psd_request *t);  // Put, AssignAdd, AssignSub, Push, PushPull
int psd_get(struct psd_request *t);
int psd_pull(struct psd_request *t);
int psd_declare(struct psd_request *t);
int psd_describe(struct psd_request *t);
int psd_join(struct psd_request *t);
int psd_heartbeat(struct psd_request *t);
int psd_leave(struct psd_request *t);
int psd_barrier(struct psd_request *t);
int psd_lease(struct psd_request *t);
int psd_set_members(struct psd_request *t);
int psd_reduce(struct psd_request *t);
int psd_clock(struct psd_request *t);
int psd_waits(struct psd_request *t);
int psd_set_hyper(struct psd_request *t);
int psd_agree(struct psd_request *t);
int psd_sum_squares(struct psd_request *t);
int psd_drain(struct psd_request *t);
int psd_status(struct psd_request *t);
int psd_workers(struct psd_request *t);
int psd_stop_job(struct psd_request *t);
int psd_open(struct psd_request *t);

// Room for a reply of so many bytes without its payload: what changes something takes it first, so that its answer
// cannot fail. Methods whose replies are small have it from the start.
enum ps_code psd_request_reserve(struct psd_request *t, size_t bytes);
// Packs the reply (and moves payload behind it; may be NULL). RESOURCE_EXHAUSTED: there was neither room nor memory.
int psd_request_reply(struct psd_request *t, const ProtobufCMessage *reply, struct ps_slices *payload);

enum ps_code psd_check_on_existing(Paramserver__V1__OnExisting what, struct ps_error *e);

// A call that has waited may have taken effect: where there is no memory to go on with it (code RESOURCE_EXHAUSTED), it
// is to be sent again (UNAVAILABLE). Returns the code to answer.
int psd_fail_later(struct psd_request *t, int code);
int psd_request_fail_ended(struct psd_request *t);  // ABORTED, with the reason for which the job has ended

// Lists of parked calls. The lock that guards the list is held.
// Parks the request's call in a list, which lock guards. The call keeps the decoded request without its payload, the
// room for the reply, and a reference on the request's job: whoever makes it ready takes it out, and it goes on with
// these, by its method or by what psd_request_wait_with has named. Once the lock is free it may have been answered: the
// request is not looked at any more. Returns PSD_PARKED, or the error where nothing may wait any more: the task drains,
// the job has ended, the client is gone; or where too much waits (UNAVAILABLE).
int psd_park(struct psd_request *q, struct psd_waiters *list, pthread_mutex_t *lock);
// Before psd_park: a call that waits goes on with resume, which finds state in q->call->state. Whatever comes of the
// call, state_free gets the state.
void psd_request_wait_with(struct psd_request *q, int (*resume)(struct psd_request *q), void *state,
                           void (*state_free)(void *state));
// Answers a call that is in no list, and lets go of all that it keeps. No lock is held.
void psd_call_answer(struct psd_call *call, enum ps_code code, const char *text, struct ps_slices *body);

// Forgets t->gone (may be NULL), whose snapshots would keep its blocks; no lock held.
void psd_drop_gone(struct psd_request *t);
// Runs calls that were made ready outside of a request, as by a peer's answer; no lock held.
void psd_run_ready(struct psd_core *core, struct psd_call *ready);

// UNAVAILABLE where this task takes no new jobs.
enum ps_code psd_refuse_when_draining(struct psd_request *t);

#endif

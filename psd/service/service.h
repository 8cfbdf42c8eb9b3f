// SPDX-License-Identifier: Apache-2.0
//
// One pipeline for every call, whichever way it came: decode -> check the caller -> find the job -> the
// method's own steps -> reply. The methods live in update.c (Put, AssignAdd, AssignSub, Push, PushPull),
// read.c (Get, Pull), declare.c (Declare, Describe), around psd/control/state.h (what a job's workers ask of the
// control task), hyper.c (SetHyper), sums.c (SumSquares), waits.c (Waits) and admin.c (Status,
// Drain, StopJob).
//
// A method that has to wait parks its call in a list of whatever it waits for, with all that it needs to go on: nothing is
// decoded twice, and no job is looked up by its name again.
//
// Receives from: rpc, through psd/core.h. Hands to: control, sync, job. Threads: any.
#ifndef PSD_SERVICE_H
#define PSD_SERVICE_H

#include "psd/control/agree.h"
#include "psd/job/apply.h"
#include "psd/job/clients.h"
#include "psd/job/runs.h"
#include "psd/job/snapshot.h"
#include "psd/service/core.h"
#include "psd/sync/norm.h"
#include "psd/sync/sync.h"

struct psd_core {
    struct psd_config config;
    struct psd_world world;
    uint64_t generation;
    uint64_t started;
    struct psd_pool pool;
    struct psd_sync_host sync_host;
    atomic_bool draining;      // shuts down
    atomic_bool refuses_jobs;  // was asked to drain: takes no new ones

    pthread_mutex_t table;       // the job table lock
    pthread_mutex_t cancelling;  // taken before any other; while it is held no job is freed
    struct psd_job *jobs;
    struct psd_waiters joining;  // Joins that wait for their job to be opened
    struct psd_runs runs;

    struct psd_snapshots snapshots;

    uint64_t rates_at, ticked_at;  // psd_core_tick
    uint64_t slept;                // ns for which this process did not run, as the last tick found
    atomic_ullong slept_in_all;    // ns, since it started
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
    struct psd_job *job;                    // referenced for the turn; NULL: the method finds its own
    struct ps_slices payload, reply;
    struct ps_slices room;  // for a reply (psd_request_reserve), which begins at room_data
    uint8_t *room_data;
    struct psd_job *gone;    // removed from the table by this turn; a reference to drop
    struct psd_call *ready;  // calls that this turn made ready: they run after it
    struct ps_error error;
};

// What a method returns besides a ps_code: the call has been put in a list and may be running elsewhere by
// now.
enum { PSD_PARKED = -1 };
enum { PSD_REPLY_BYTES = 128 };  // of a reply's own fields, besides lists and payload, at most
typedef int (*psd_method_fn)(struct psd_request *t);

int psd_put(struct psd_request *t);
int psd_assign_add(struct psd_request *t);
int psd_push(struct psd_request *t);
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
int psd_assign_sub(struct psd_request *t);
int psd_push_pull(struct psd_request *t);
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

// Room for a reply of so many bytes without its payload: what changes something takes it first, so that its answer cannot
// fail. Methods whose replies are small have it from the start.
enum ps_code psd_request_reserve(struct psd_request *t, size_t bytes);
// Packs the reply (and moves payload behind it; may be NULL). RESOURCE_EXHAUSTED: there was neither room nor memory.
int psd_request_reply(struct psd_request *t, const ProtobufCMessage *reply, struct ps_slices *payload);

enum ps_code psd_check_on_existing(Paramserver__V1__OnExisting what, struct ps_error *e);

// A call that has waited may have taken effect: where there is no memory to go on with it (code RESOURCE_EXHAUSTED), it is
// to be sent again (UNAVAILABLE). Returns the code to answer.
int psd_fail_later(struct psd_request *t, int code);
int psd_request_fail_ended(struct psd_request *t);  // ABORTED, with the reason for which the job has ended

// Lists of parked calls. The lock that guards the list is held.
// Parks the request's call in a list, which lock guards. The call keeps the decoded request, the payload, the room for the
// reply, and a reference on the request's job: whoever makes it ready takes it out, and it goes on with these, by its
// method or by what psd_request_wait_with has named. Once the lock is free it may have been answered: the request is not
// looked at any more. Returns PSD_PARKED, or the error where nothing may wait any more: the task drains, the job has ended,
// the client is gone.
int psd_park(struct psd_request *q, struct psd_waiters *list, pthread_mutex_t *lock);
// Before psd_park: a call that waits goes on with resume, which finds state in q->call->state. Whatever comes of the call,
// state_free gets the state.
void psd_request_wait_with(struct psd_request *q, int (*resume)(struct psd_request *q), void *state,
                           void (*state_free)(void *state));
// Answers a call that is in no list, and lets go of all that it keeps. No lock is held.
void psd_call_answer(struct psd_core *core, struct psd_call *call, enum ps_code code, const char *text,
                     struct ps_slices *body);

// Jobs. A reference keeps one alive after it was removed from the table.
struct psd_job *psd_job_find(struct psd_core *core, const char *name);  // referenced, or NULL
void psd_job_ref(struct psd_core *core, struct psd_job *job);
void psd_job_unref(struct psd_core *core, struct psd_job *job);
void psd_job_install(struct psd_core *core, struct psd_job *job);         // a fresh one; table lock held
struct psd_job *psd_job_lookup(struct psd_core *core, const char *name);  // table lock held; not referenced
// Takes it out of the table, unless somebody has, drops the table's reference and ends it; what waits in it is moved to
// *ready. Table lock held, and another reference by the caller.
void psd_job_remove(struct psd_core *core, struct psd_job *job, struct psd_call **ready);
// Table lock held. Room in the table for one job more: where it is full, one that is void gives way (psd_job_drop_void).
// RESOURCE_EXHAUSTED: there is none.
enum ps_code psd_job_make_place(struct psd_request *t);
// Table lock held. Takes the oldest job out of the table that has ended and never was declared, so that there is nothing
// to resume: it becomes t->gone, which is NULL before. Its memory comes back with psd_drop_gone.
bool psd_job_drop_void(struct psd_request *t);
// Forgets t->gone (may be NULL), whose snapshots would keep its blocks; no lock held.
void psd_drop_gone(struct psd_request *t);
void psd_job_collect(struct psd_job *job, struct psd_call **ready);  // everything that waits in it
// Runs calls that were made ready outside of a turn, as by a peer's answer; no lock held.
void psd_run_ready(struct psd_core *core, struct psd_call *ready);

// All jobs of the moment, or the one of this name; each referenced. NOT_FOUND; RESOURCE_EXHAUSTED.
struct psd_jobs {
    struct psd_job **v;
    size_t n;
};
enum ps_code psd_jobs_hold(struct psd_core *core, const char *name, struct psd_jobs *jobs, struct ps_error *e);
void psd_jobs_release(struct psd_core *core, struct psd_jobs *jobs);

// UNAVAILABLE where this task takes no new jobs.
enum ps_code psd_refuse_when_draining(struct psd_request *t);

// control.c, the control task's; see psd/control.h.
void psd_control_tick(struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready);
void psd_control_free(struct psd_control *control);
void psd_view_free(struct psd_task_view *view);  // may be NULL
bool psd_control_may_declare(struct psd_job *job, const Paramserver__V1__DeclareRequest *r, struct ps_error *e);
// Has the chief of this run declared the job here, at the control task, and with that everywhere?
bool psd_control_declared(struct psd_job *job);
void psd_control_set_declared(struct psd_core *core, struct psd_job *job, struct psd_call **ready);
// A parked call has been taken out of its list, whose lock is held, because its client is gone: where that list is a
// member's, the member has entered nothing and asked for nothing.
void psd_control_forget_call(const struct psd_call *call, const pthread_mutex_t *lock);
// Job locked. Has it failed, or have all left?
bool psd_control_is_over(const struct psd_job *job);
// State, reason, live workers, epoch.
void psd_control_describe(struct psd_job *job, Paramserver__V1__JobStatus *out, char *reason, size_t size);

#endif

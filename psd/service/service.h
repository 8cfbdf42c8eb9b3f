// SPDX-License-Identifier: Apache-2.0
//
// One pipeline for every call, whichever way it came: decode -> check the caller -> find the job -> the
// method's own steps -> reply. The methods live in update.c (Put, AssignAdd, AssignSub, Push, PushPull),
// read.c (Get, Pull), declare.c (Declare, Describe), join.c (Join), membership.c (what else a job's workers ask of the
// control task), peer.c (what tasks tell each other), hyper.c (SetHyper), mode.c (SetMode), sums.c (SumSquares),
// waits.c (Waits), trace.c (Trace), admin.c (Status, Drain, Checkpoint, StopJob) and queue.c (Submit, List, Cancel,
// Logs, Next, Report).
//
// core.c calls dispatch.c, which calls the methods; what these have in common is in request.c and reply.c, which call
// none of them back.
//
// A method that has to wait parks its call in a list of whatever it waits for, with all that it needs to go on: nothing
// is decoded twice, and no job is looked up by its name again.
//
// Receives from: rpc, through core.h. Hands to: control, sync, job. Threads: any.
#ifndef PSD_SERVICE_H
#define PSD_SERVICE_H

#include "psd/service/request.h"

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
int psd_trace(struct psd_request *t);
int psd_set_hyper(struct psd_request *t);
int psd_set_mode(struct psd_request *t);
int psd_checkpoint(struct psd_request *t);
int psd_agree(struct psd_request *t);
int psd_sum_squares(struct psd_request *t);
int psd_drain(struct psd_request *t);
int psd_status(struct psd_request *t);
int psd_workers(struct psd_request *t);
int psd_stop_job(struct psd_request *t);
int psd_open(struct psd_request *t);
int psd_submit(struct psd_request *t);
int psd_list(struct psd_request *t);
int psd_cancel(struct psd_request *t);
int psd_logs(struct psd_request *t);
int psd_next(struct psd_request *t);
int psd_report(struct psd_request *t);
int psd_load_shard(struct psd_request *t);
int psd_prune_shards(struct psd_request *t);

// Get: the snapshot, whose reference it takes over, goes to a shard of a checkpoint; on the thread for them.
int psd_write_shard(struct psd_request *t, const Paramserver__V1__ReadRequest *r, struct psd_snapshot *s);

// Every second, on the thread for files (file_thread.h).
void psd_pass_time_in_queue(struct psd_core *core);
// Every second: asks the other ps tasks whether they take jobs, where this one has a queue.
void psd_ask_who_drains(struct psd_core *core);
// On that thread, or before there is one: what others are told of the queue is as it is now.
void psd_note_queue(struct psd_core *core);

enum ps_code psd_check_on_existing(Paramserver__V1__OnExisting what, struct ps_error *e);

// Runs calls that were made ready outside of a request, as by a peer's answer; no lock held.
void psd_run_ready(struct psd_core *core, struct psd_call *ready);

// FAILED_PRECONDITION where this task takes no new jobs.
enum ps_code psd_refuse_when_draining(struct psd_request *t);

#endif

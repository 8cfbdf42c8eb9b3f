// SPDX-License-Identifier: Apache-2.0
//
// A completion queue that knows how much is still going to arrive, so that it can be closed while others use it.
//
// The gRPC core forbids to start anything on a queue that is shut down. Here every operation counts: starting one
// fails, and changes nothing, once the queue is closed and empty, and only then is it shut down. Any thread.
#ifndef PS_COMMON_RPC_CQ_H
#define PS_COMMON_RPC_CQ_H

#include <grpc/grpc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What a tag points to. Embed it; fn runs on the thread that polls. ok: the operation did what it should.
struct ps_event {
    void (*fn)(struct ps_event *ev, bool ok);
};

#define PS_CONTAINER(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

struct ps_cq {
    grpc_completion_queue *queue;
    atomic_size_t ops;         // under way, and one until it is closed
    atomic_int misses, waits;  // waits that polled in vain, in a row; those for which there were too many of them
};

void ps_cq_init(struct ps_cq *cq);
void ps_cq_fini(struct ps_cq *cq);   // closed, and PS_CQ_SHUTDOWN seen by every polling thread
void ps_cq_close(struct ps_cq *cq);  // once; it shuts down when the last operation has ended

// Before an operation whose tag comes out of this queue. False: the queue is shut down.
bool ps_cq_begin(struct ps_cq *cq);
void ps_cq_end(struct ps_cq *cq);  // of one that was begun and has no tag
// A batch of operations on a call, with its ps_cq_begin. False: not started.
bool ps_cq_batch(struct ps_cq *cq, grpc_call *call, const grpc_op *ops, size_t n, struct ps_event *ev);

enum ps_cq_step { PS_CQ_EVENT, PS_CQ_TIMEOUT, PS_CQ_SHUTDOWN };
// Waits for one event until `until` (ns, ps_now's clock; UINT64_MAX: forever) and runs it.
enum ps_cq_step ps_cq_step(struct ps_cq *cq, uint64_t until);

gpr_timespec ps_timespec(uint64_t ns);  // of a time on ps_now's clock

#endif

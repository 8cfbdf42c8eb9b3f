// SPDX-License-Identifier: Apache-2.0
//
// mirrored and multi_worker_mirrored, where devices add up gradients among themselves: those of one process (NCCL, or
// on the first), or of all workers (NCCL). Variables, gradients and what the optimizer keeps of them stay on the
// devices, and the sums travel while the backward pass goes on. All that is not a gradient the collective adds up.
//
// All ranks agree in each formation of the workers, by the collective: the devices add up where those of all ranks can.
// NCCL's group is made anew then, by a name that rank 0 has made and that the collective brings to the others; who is
// lost is found by the collective, too, and ends the waiting.
//
// Receives from: mirrored.c, buckets.c. Hands to: the replica, local_rule.h, the collective. Threads: the replica's.
#ifndef WK_DEVICE_SUMS_H
#define WK_DEVICE_SUMS_H

#include "workerd/strategy/local_rule.h"

struct wk_device_sums;

// *sums is NULL where the host adds up whatever devices there are: the job says so. Close follows.
void wk_device_sums_open(struct wk_device_sums **sums, const struct wk_env *env, struct wk_local_rule *rule);
// failed: what is under way ends.
void wk_device_sums_close(struct wk_device_sums *sums, bool failed);

// By all ranks, before a step or where they begin: those who have met anew agree, and join. Where the devices add up
// they apply the rule, too (wk_local_rule_keep). FAILED_PRECONDITION: the job says nccl or reduction_to_one_device, and
// why that cannot be. INTERNAL: NCCL has failed. ABORTED, CANCELLED: as wk_collective_look.
enum ps_code wk_device_sums_meet(struct wk_device_sums *sums, struct ps_error *e);
bool wk_device_sums_are_on(const struct wk_device_sums *sums);
// By all ranks, in each step before its first sum. In the first one of an epoch, and where its rows are others than
// those of the one before, a replica has just made its program, and memory for it: all have done so when this returns.
// (A GPU whose sum waits for another one is busy, and CUDA may wait for it before it gives memory on any.) As
// wk_device_sums_meet.
enum ps_code wk_device_sums_prepare(struct wk_device_sums *sums, const struct wk_work *work, struct ps_error *e);
// After an error, before the workers meet anew: what is under way ends.
void wk_device_sums_stop(struct wk_device_sums *sums);

// Queues the sum of n numbers from the gradient of this variable on, each times weight. All ranks queue the same in the
// same order.
void wk_device_sums_add(struct wk_device_sums *sums, size_t variable, size_t n, float weight);
// Waits for those of this step. INTERNAL: one has failed, or has not ended `timeout` seconds after all ranks had come
// here. ABORTED, CANCELLED: as wk_collective_look.
enum ps_code wk_device_sums_wait(struct wk_device_sums *sums, uint64_t step, struct ps_error *e);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// mirrored, where the devices of one process add up gradients among themselves (NCCL, or on the first): variables,
// gradients and what the optimizer keeps of them stay on the devices, and the sums travel while the backward pass goes
// on.
//
// Receives from: mirrored.c. Hands to: the replica, local_rule.h. Threads: the replica's.
#ifndef WK_DEVICE_SUMS_H
#define WK_DEVICE_SUMS_H

#include "workerd/strategy/local_rule.h"

struct wk_device_sums;

// By all replicas of the process. *sums is NULL where the host adds up: the job says so, or says auto and the devices
// cannot. From then on the device applies the rule (wk_local_rule_keep). FAILED_PRECONDITION: the job says another way,
// and why that cannot be. ABORTED: another replica has failed. Whatever it returns, close follows.
enum ps_code wk_device_sums_open(struct wk_device_sums **sums, const struct wk_env *env, struct wk_local_rule *rule,
                                 struct ps_error *e);
// failed: what is under way ends.
void wk_device_sums_close(struct wk_device_sums *sums, bool failed);

// Queues the sum of n numbers from the gradient of this variable on, each times weight. All replicas queue the same in
// the same order.
void wk_device_sums_add(struct wk_device_sums *sums, size_t variable, size_t n, float weight);
// Waits for those of a step. INTERNAL: one has failed, or has not ended `timeout` seconds after all replicas had come
// here. ABORTED: another replica has failed.
enum ps_code wk_device_sums_wait(struct wk_device_sums *sums, struct ps_error *e);

#endif

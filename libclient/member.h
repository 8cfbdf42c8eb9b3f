// SPDX-License-Identifier: Apache-2.0
// This worker among the members of the job, as the control task knows them: joining and heartbeats.
#ifndef PSC_MEMBER_H
#define PSC_MEMBER_H

#include "libclient/call.h"

// Makes sure that all tasks answer and are who they should be, then joins; heartbeats follow. An observer is done at
// once: what is down shows in the calls.
void psc__join(struct psc_client *c, psc__done_fn done, void *arg);

// Locked. One more heartbeat, which done learns the end of; RESOURCE_EXHAUSTED: as psc__call.
enum ps_code psc__heartbeat(struct psc_client *c, psc__call_fn done, void *arg, bool owns_arg, struct ps_error *e);
// Locked. Takes what a heartbeat was answered with, unless what is known of the members is newer.
enum ps_code psc__heartbeat_heard(struct psc_client *c, const struct ps_slices *reply, struct ps_error *e);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// The workers of a job as each other's peers: each is a gRPC server, and a client of the others. They meet
// (rendezvous.h), which lets nobody in whose job is another one, and are a formation until one of them ends or is lost.
//
// A worker that ends says why, to all. One that is lost is noticed by its neighbours: at once where its connection
// ends, within seconds where it falls silent. Who notices tells all others, so that every worker's error names the one
// that is gone. After a loss those who are left may meet anew.
//
// Receives from: collective.c. Hands to: formation.c and ring.c; mesh.h; common/rpc. Threads: those of server and
// client, besides the caller's.
#ifndef WK_PEERS_H
#define WK_PEERS_H

#include "workerd/collective/formation.h"
#include "workerd/collective/rpc/options.h"

struct wk_peers;

// Waits for all. INVALID_ARGUMENT and the like: its own address, where it listens. DEADLINE_EXCEEDED, UNAVAILABLE: who
// has not come. FAILED_PRECONDITION, ALREADY_EXISTS: worker 0 refuses it. CANCELLED: a signal.
enum ps_code wk_peers_open(const struct wk_peers_options *options, struct wk_peers **peers, struct ps_error *e);
// Until the next call of reform.
struct wk_formation *wk_peers_formation(struct wk_peers *p);
// Had the job begun before this worker came, so that it has nothing of what the others have?
bool wk_peers_joined(const struct wk_peers *p);
// As wk_collective_leads and wk_collective_ask_leader.
bool wk_peers_leads(struct wk_peers *p, const double *arrival);
void wk_peers_ask_leader(struct wk_peers *p, const double *arrival);
// As wk_collective_has_newcomers and wk_collective_welcome.
bool wk_peers_has_newcomers(struct wk_peers *p);
void wk_peers_welcome(struct wk_peers *p, bool all_know);
// How many wait here to come back: they are let in where the workers meet anew.
uint32_t wk_peers_guests(struct wk_peers *p);
// Meets anew; admits: those, too, who want to come back, else they wait on.
// *e: on entry why the formation has ended, ABORTED. PS_OK: there is another one. Otherwise there is none, and *e says
// why: as on entry where a worker has ended by itself; ABORTED: too few are left, or the others go on without this one;
// CANCELLED: a signal.
enum ps_code wk_peers_reform(struct wk_peers *p, bool admits, struct ps_error *e);
// This worker ends, and the others are told why; returns when they know, or had their time. Once. They end, too, unless
// it is a newcomer that has not been welcomed: they go on without that.
void wk_peers_end(struct wk_peers *p, const char *reason);
// Nobody uses the formation any more.
void wk_peers_close(struct wk_peers *p);

#endif

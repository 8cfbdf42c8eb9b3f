// SPDX-License-Identifier: Apache-2.0
// libclient inside. The public functions wait; underneath nothing does: everything is started by a function that
// returns at once, and reported through a callback. tests/sim drives this layer with a world of its own.
//
// Files, from the top down; each calls only those below it (tests/lint/layers.sh).
//
//     rpc/             the world on the gRPC core; psc_connect
//     wait.c, admin.c  the public functions that wait, psctl's calls: thin, over the layer below
//     client.c         makes a client and ends it
//     control.c        barrier, lease, clock, leave        collective.c  reduce, all-gather, broadcast
//     member.c         joining, heartbeats                 declare.c     the job's variables
//     op*.c            an operation on tensors: cut into requests, results gathered
//     queue.c          requests to one task: order, bounds, resending    call.c     a single call, repeated
//     base.c           lock, time, names, Caller, the client's end
//     window.c         sequences                                         layout.c   variables, partitions, blocks
//     transport.h      the world
#ifndef PSC_CLIENT_H
#define PSC_CLIENT_H

#include "libclient/base.h"
#include "libclient/member.h"

// ---- starting things ----------------------------------------------------------------------------------------------

// The declaration is copied; *resumed (may be NULL) must live until done.
void psc__declare(struct psc_client *c, const psc_declaration *d, bool *resumed, psc__done_fn done, void *arg);
void psc__attach(struct psc_client *c, psc__done_fn done, void *arg);
void psc__barrier(struct psc_client *c, const char *name, psc__done_fn done, void *arg);
void psc__lease(struct psc_client *c, uint64_t epoch, uint64_t examples, uint64_t want, uint64_t round,
                psc_share *share, psc__done_fn done, void *arg);
void psc__lease_ahead(struct psc_client *c, uint64_t epoch, uint64_t examples, uint64_t want, psc_share *share,
                      psc__done_fn done, void *arg);
// *clock, *slowest (may be NULL) must live until done.
void psc__clock(struct psc_client *c, uint64_t step, bool wait, uint64_t *clock, uint64_t *slowest, psc__done_fn done,
                void *arg);
// data, *workers, ... must live until done; what is NULL in psclient.h may be NULL here.
void psc__reduce(struct psc_client *c, const char *name, psc_reduce_op op, psc_dtype dtype, void *data, uint64_t count,
                 uint32_t *workers, psc__done_fn done, void *arg);
void psc__all_gather(struct psc_client *c, const char *name, const void *data, uint64_t bytes, void **all,
                     uint64_t *all_bytes, uint64_t *sizes, psc__done_fn done, void *arg);
void psc__broadcast(struct psc_client *c, const char *name, uint32_t root, void *data, uint64_t bytes,
                    psc__done_fn done, void *arg);
// Ends all operations with CANCELLED, then tells the control task. Nothing may be started afterwards, but by their
// callbacks: that ends the same way.
void psc__leave(struct psc_client *c, const char *reason, psc__done_fn done, void *arg);
// Shuts the world down and frees everything. Not from a callback. Without psc__leave before: as if it had died.
void psc__client_free(struct psc_client *c);

#endif

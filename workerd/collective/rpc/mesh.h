// SPDX-License-Identifier: Apache-2.0
//
// The connections on which the numbers of a ring travel (ring.h): plain sockets between the first workers of the hosts,
// since a chunk that goes through gRPC's threads takes longer to hand over than to send. A worker listens beside its
// address: on the same host, on a port that the kernel picks; or at unix:/PATH.ring. Where that is, the workers tell
// each other when they meet. Who connects says which session it is of, a number that only its members know. Where there
// is TLS, both ends show certificates of the same user first; with munge that number alone says who may connect, which
// only those have been told whose credentials were good.
//
// Receives from: peers.c. Hands to: sockets. Threads: one opens, connects and closes.
#ifndef WK_MESH_H
#define WK_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tls/tls.h"
#include "workerd/collective/ring.h"

struct wk_mesh;

// Listens, until it is closed. address: the worker's own, HOST:PORT or unix:/PATH. tls outlives it; NULL: none.
// insecure: other hosts may be able to connect, without TLS, too. Errors
// as ps_address_admit.
enum ps_code wk_mesh_open(const char *address, struct ps_tls *tls, bool insecure, struct wk_mesh **mesh,
                          struct ps_error *e);
// Where: "10.0.0.1:40123", or several, between spaces; each a numeric address. For wk_mesh_connect.
const char *wk_mesh_places(const struct wk_mesh *m);
void wk_mesh_close(struct wk_mesh *m);  // may be NULL

// A ring that is to be connected.
struct wk_mesh_ring {
    uint64_t session;
    const char *const *places;  // [ranks] where they listen
    uint32_t rank, ranks;       // rank: this worker's
    wk_ring_look_fn look;       // as in ring.h; only its errors end the wait
    void *arg;
};

// Connects ring->rank to those that it sends to, and waits until those have connected that send to it. sockets: for
// wk_ring_join.
enum ps_code wk_mesh_connect(struct wk_mesh *m, const struct wk_mesh_ring *ring, struct wk_ring_sockets *sockets,
                             struct ps_error *e);

#endif

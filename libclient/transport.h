// SPDX-License-Identifier: Apache-2.0
//
// What libclient needs of the world: calls to ps tasks, time and timers. libclient/rpc implements it on the gRPC core,
// tests/sim on a simulated network; nothing else in libclient knows which.
#ifndef PSC_TRANSPORT_H
#define PSC_TRANSPORT_H

#include "common/base/error.h"
#include "common/wire/slice.h"

// Runs exactly once per call. reply is cleared by the caller of this function after it returns; move what is kept.
// Codes the transport makes itself: UNAVAILABLE (not connected, connection lost), DEADLINE_EXCEEDED. The text of
// UNAVAILABLE ends with one of these two where nobody listens at the task's address.
#define PSC_NOBODY_LISTENS "Connection refused"
#define PSC_NO_SOCKET "No such file or directory"
typedef void (*psc_reply_fn)(void *arg, enum ps_code code, const char *text, struct ps_slices *reply);

struct psc_world {
    void *ctx;
    // Sends request (moved) as `method` (Method of the proto) to a ps task. Calls made one after the other reach a
    // task in that order as long as the connection holds; but one with a priority (0: it has none) may go before
    // others, as ps_goes_before() says. reply may run on another thread, and never before call returns control to a
    // caller that holds its locks: it is never run from inside call. deadline: ns, as `now` tells the time; it is not
    // UINT64_MAX. The request's slices are the user's memory: the transport drops its references when it has done with
    // reading them, holding no lock, and an operation does not end before that.
    void (*call)(void *ctx, uint32_t task, int method, uint32_t priority, uint64_t deadline, struct ps_slices *request,
                 psc_reply_fn reply, void *arg);
    // From now on every connection to the task begins with this request, and the one that is there goes on with it
    // before the next call, again while it is answered with an error. Takes over the reference. NULL: a call depends on
    // no other. As call otherwise.
    void (*open)(void *ctx, uint32_t task, int method, struct ps_slice request);
    // Nobody needs the answers of the calls that are under way: those that share a connection's stream end with
    // UNAVAILABLE, soon, and what they have not sent is not sent. As call otherwise. NULL: they end by themselves.
    void (*cut)(void *ctx);
    uint64_t (*now)(void *ctx);  // ns
    // Runs fn once after delay; never from inside. May be called with locks held, as call may.
    void (*after)(void *ctx, uint64_t delay_ns, void (*fn)(void *arg), void *arg);
    uint64_t (*random)(void *ctx);
    // Ends every call with CANCELLED and every timer without running it; returns when no callback is running or will,
    // and no request's slice is in use. Timers that are made afterwards never run.
    void (*shutdown)(void *ctx);
    void (*destroy)(void *ctx);
};

// The client behind psc_connect; takes over *world on success and failure. tests/sim uses it together with the
// psc__... functions of client.h, which report through callbacks: no thread is made, nothing blocks. Not exported.
struct psc_client;
struct psc_options;
struct psc_cluster;
enum ps_code psc__client_create(const struct psc_cluster *cluster, const struct psc_options *options,
                                const struct psc_world *world, struct psc_client **client, struct ps_error *e)
    __attribute__((visibility("hidden")));

#endif

// SPDX-License-Identifier: Apache-2.0
//
// The gRPC client: calls to the ps tasks of a cluster, each as a unary call or as a record of one gathered stream per
// task.
//
// Receives from: libclient's world, psd's world. Hands to: the callbacks. Threads: a client has one of its own, which
// polls and runs all callbacks; functions may be called from any thread. Neither a callback nor a slice's owner is run
// from inside ps_client_call, ps_client_cut and ps_client_after: they may be called with locks held that those want.
//
// A stream is opened by the first call that needs one, and again by the first one after it was lost. Calls made one
// after the other over the stream reach the task in that order; when it is lost, every call that is not answered ends
// with UNAVAILABLE. Whether such a call was executed is not known.
//
// With munge a stream shows a credential for the task's address, and so do unary calls until one has been answered: the
// connection is known then. Where it is another one by now the call is made once more, with a credential. Meanwhile
// munge's thread starts what waits for a credential.
#ifndef PS_COMMON_RPC_CLIENT_H
#define PS_COMMON_RPC_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tls/munge.h"
#include "common/tls/tls.h"
#include "common/wire/slice.h"

struct ps_client;

enum { PS_CLIENT_ATTEMPT_MS = 1000 };

struct ps_client_options {
    int attempt_ms;      // what an attempt to connect may take; 0: PS_CLIENT_ATTEMPT_MS
    struct ps_tls *tls;  // outlives the client, as munge does; NULL, both: connections are neither authenticated nor
                         // encrypted
    struct ps_munge *munge;
    enum ps_role to;  // that the server's certificate must have; 0: PS_ROLE_PSD
    // Control calls have a connection of their own: for who makes unary calls that wait, of which a connection takes a
    // number, and further ones of any kind wait behind them.
    bool control_apart;
};

// Runs once per call. reply is empty unless code is PS_OK; what is not moved out of it is cleared afterwards. text: the
// server's sentence, or what became of the connection; which task it was is the caller's to say. Codes made here:
// UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED, INVALID_ARGUMENT (a request larger than a message may be).
typedef void (*ps_reply_fn)(void *arg, enum ps_code code, const char *text, struct ps_slices *reply);

// addresses[i] is ps task i's: "host:port" or "unix:/path". They are not contacted before the first call. An attempt to
// connect may take so long that a task that comes back is found within the next second, and one that falls silent is
// given up after 3 s; or options.attempt_ms, for who makes one attempt alone. options NULL: as they are where zero.
// NULL: the system gives it no thread, and errno says why.
struct ps_client *ps_client_create(const char *const *addresses, size_t n, const struct ps_client_options *options);
// Ends every call with CANCELLED and drops the timers; returns when the thread has ended and no request's slice is in
// use any more. (Some seconds later at most: with a peer that has stopped, the core keeps slices whose owners are never
// told, and the client is not freed.) Not from a callback. Calls that callbacks make meanwhile end the same way. None
// may be made afterwards.
void ps_client_stop(struct ps_client *c);
void ps_client_destroy(struct ps_client *c);  // stopped

struct ps_call_options {
    uint64_t deadline;  // ns, on the clock of ps_now; UINT64_MAX: none
    bool stream;  // as a record, where the method may be one and is no control call: those do not queue behind data
    uint32_t priority;  // of a record, as ps_goes_before() says; 0: none
};

// request is moved.
void ps_client_call(struct ps_client *c, uint32_t task, int method, const struct ps_call_options *options,
                    struct ps_slices *request, ps_reply_fn reply, void *arg);

// From now on a stream to the task begins with this request, and one that is open has it sent before whatever is called
// next; again, while it is answered with an error. Takes over the reference.
void ps_client_open(struct ps_client *c, uint32_t task, int method, struct ps_slice request);

// Ends the streams that there are: the calls on them, and those made until they have ended, end with UNAVAILABLE soon,
// whether they have been sent or not. Unary calls go on.
void ps_client_cut(struct ps_client *c);

// Runs fn after delay_ns, unless the client is stopped before.
void ps_client_after(struct ps_client *c, uint64_t delay_ns, void (*fn)(void *arg), void *arg);

#endif

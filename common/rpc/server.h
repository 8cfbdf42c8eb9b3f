// SPDX-License-Identifier: Apache-2.0
//
// The gRPC server: the services of the contract, the gathered stream, and small services beside them.
//
// Receives from: the network. Hands to: one callback, for every request of either transport; those beside the contract
// to callbacks of their own. Threads: its own poll the completion queue and run the callbacks, which must not block;
// ps_call_reply may be called from any thread, with no lock held that the release of a slice could want.
//
// Where there is TLS every client shows a certificate before a byte of it is read as HTTP/2, and may call the methods
// of its role (ps_method_roles): others are answered with PERMISSION_DENIED, and their requests are not read. Where
// there is munge, a call whose connection is not known shows a credential among its metadata; munge's thread asks
// munged while the call waits unread.
//
// Requests of one stream are handed over in order, one at a time. A stream with too much unanswered, or too many
// replies that its client does not read, is not read from until that is gone. A call whose client is gone is the
// handler's until it answers, which options.cancel asks it to do at once; the answer is dropped.
//
// What is in flight has one budget over all clients and both transports, options.bytes. Where a message does not fit it
// is not read yet: its sender waits. Unary calls beyond the bounds, and streams beyond one per PS_STREAM_OWN of the
// budget, are answered with RESOURCE_EXHAUSTED. A call that is parked counts with its own memory and that of its
// request: of a request in a large message, the handler best keeps a copy.
//
// Messages that have arrived in part are the core's. It reports nothing of them, but has a bound too, twice the budget:
// past it, it ends calls with RESOURCE_EXHAUSTED, streams among them.
#ifndef PS_COMMON_RPC_SERVER_H
#define PS_COMMON_RPC_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tls/munge.h"
#include "common/tls/tls.h"
#include "common/wire/slice.h"

enum {
    PS_STREAM_BYTES = 64 << 20,   // requests of a stream that are not answered; at most a quarter of the budget
    PS_STREAM_ANSWERS = 8 << 20,  // answers of a stream that are not sent: no request is handed over while there are
    PS_STREAM_SHARE = 256 << 10,  // of the budget: who has less is let in where others have taken all
    PS_STREAM_OWN = 16 << 10,     // of the budget: a stream with nothing under way, and its connection
    PS_STREAM_CALLS = 64,         // of a stream, whatever others have
    PS_MESSAGE_RECORDS = 4096,    // in one message
    PS_SERVER_CALLS = 64 << 10,  // not answered or not sent, of all clients; at most what a quarter of the budget holds
    PS_SERVER_BYTES = 512 << 20,    // the budget, unless said otherwise
    PS_WINDOWS_FROM = 256 << 20,    // a budget that can spare what open windows take
    PS_SERVICE_CALLS = 1024,        // open, per method beside the contract
    PS_SERVICE_REQUEST_MAX = 4096,  // bytes
    PS_WATCHED_MAX = 64,            // bytes of a reply that is watched
};

struct ps_server;

// A request. Belongs to the handler until ps_call_reply.
struct ps_call {
    int method;                // Method of the proto
    uint64_t deadline;         // ns on ps_now's clock, when to answer at the latest; UINT64_MAX: none
    struct ps_slices request;  // the message; to be moved or cleared at any time, cleared with the call at the latest
    void *user;                // options.call_bytes, zeroed, aligned for anything
    void **stream;             // the handler's own of the stream that brought it, NULL at first; NULL: it is unary
    const struct ps_identity *from;  // the caller; it is allowed to call this method
};

// A method outside of the contract, of small messages that are answered at once.
struct ps_service_method {
    const char *path;  // "/grpc.health.v1.Health/Check"
    enum ps_service_kind {
        PS_SERVICE_UNARY,  // a request, its reply
        PS_SERVICE_EACH,   // a stream: each request has its reply, in order
        PS_SERVICE_WATCH,  // a request; its reply now, and again whenever ps_server_changed finds another one
    } kind;
    // Appends the message to *reply (empty). An error ends the call. By any of the server's threads, any number at
    // once, or by that of ps_server_changed; does not block.
    enum ps_code (*answer)(void *ctx, const struct ps_slices *request, struct ps_slices *reply, struct ps_error *e);
    void *ctx;
};

struct ps_server_options {
    struct ps_tls *tls;  // outlives the server, as munge does; NULL, both: connections are neither authenticated nor
                         // encrypted
    struct ps_munge *munge;
    const char *known_as;  // with munge: the address by which clients know this server; copied
    bool insecure;         // allow addresses that other hosts can reach, without TLS and munge
    int threads;           // that poll; 0: as many as the streams are for, see server.c
    size_t bytes;          // in flight; 0: PS_SERVER_BYTES
    size_t call_bytes;     // room for the handler in each call
    void (*call)(void *ctx, struct ps_call *call);
    // The client of a call that was handed over is gone, or waits for it no longer. Once per call, after `call` has
    // returned, by any of the server's threads; the handler may answer meanwhile, or have answered: *call stays until
    // this returns. NULL: such calls stay until they are answered.
    void (*cancel)(void *ctx, struct ps_call *call);
    // A stream has ended, for which the handler has set *call->stream: it is given back. Any thread, no lock is held.
    void (*stream_ended)(void *ctx, void *stream);
    void *ctx;
    const struct ps_service_method *methods;  // beside the contract; live as long as the server
    size_t n_methods;
};

// Listens on n addresses: "host:port" (port 0: one that is free), "[ipv6]:port", "unix:/path". *server is set before
// the first call arrives; NULL where this fails.
// INVALID_ARGUMENT, FAILED_PRECONDITION, ALREADY_EXISTS, PERMISSION_DENIED, UNAVAILABLE: an address, and why.
// RESOURCE_EXHAUSTED: the system gives it no thread.
enum ps_code ps_server_start(const char *const *addresses, size_t n, const struct ps_server_options *options,
                             struct ps_server **server, struct ps_error *e);
int ps_server_port(const struct ps_server *s, size_t i);  // of the i-th address; 0: a unix socket
void ps_server_changed(struct ps_server *s);              // what is watched is looked at again

// Bytes of requests taken in and not answered, and of answers not sent.
size_t ps_server_queued(const struct ps_server *s);

// From now on new calls are refused with UNAVAILABLE, those of new connections, too; each stream ends with
// UNAVAILABLE as soon as its requests are answered.
void ps_server_drain(struct ps_server *s);
enum ps_stop {
    PS_STOP_DONE,
    PS_STOP_CUT,    // some calls were not answered, or their answers not sent, in time
    PS_STOP_STUCK,  // a client neither reads nor goes: the server lives on. Stop it again, or leave it and exit.
};

// Drains, waits up to grace_ns for the last replies to be sent, then a moment for the clients to read them, closes the
// port, waits a moment for the clients to go, cuts what is left and ends the threads; no reply's slice is in use then.
// Calls that the handler still has must be answered all the same.
enum ps_stop ps_server_stop(struct ps_server *s, uint64_t grace_ns);
void ps_server_destroy(struct ps_server *s);  // stopped, not stuck

// The handler has cleared a request that it keeps waiting: its bytes do not keep the stream from sending more, which
// may be what it waits for. Called while options.call runs, with any lock held.
void ps_call_let_go(struct ps_call *call);
// Answers. body is moved, or cleared unless code is PS_OK; may be NULL. text (may be NULL): one sentence.
void ps_call_reply(struct ps_call *call, enum ps_code code, const char *text, struct ps_slices *body);

#endif

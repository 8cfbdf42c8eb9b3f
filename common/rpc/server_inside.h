// SPDX-License-Identifier: Apache-2.0
//
// What the server's files share.
//
//     server.c         addresses, threads, start and end; what is taken up
//     server_unary.c   a unary call
//     server_stream.c  a gathered stream and its records
//     server_service.c a call beside the contract
//
// Locks: the server's, and one per stream and call of a service; never both at once, and no function of the gRPC core is called with either
// held: it may drop slices, whose owners may do anything.
#ifndef PS_COMMON_RPC_SERVER_INSIDE_H
#define PS_COMMON_RPC_SERVER_INSIDE_H

#include <grpc/grpc.h>
#include <pthread.h>
#include <sys/queue.h>

#include "common/rpc/buffer.h"
#include "common/rpc/cq.h"
#include "common/rpc/server.h"

struct ps__stream;
struct ps__served;
struct ps__record;
struct ps__message;

TAILQ_HEAD(ps__records, ps__record);
STAILQ_HEAD(ps__messages, ps__message);

// A method beside the contract.
struct ps__service {
    const struct ps_service_method *method;
    void *registered;     // with the core
    atomic_size_t calls;  // open
};

struct ps_server {
    struct ps_server_options options;
    struct ps_cq cq;
    struct ps_loans loans;
    grpc_server *grpc;
    pthread_t *threads;
    int n_threads;
    int *ports;
    struct ps_event shut;  // the core's: no call and no connection is left
    atomic_size_t refs;    // the owner's, and one per unary call, stream and call of a service
    atomic_size_t unary_calls, unary_bytes;
    struct ps__service *services;  // options.n_methods

    pthread_mutex_t lock;
    pthread_cond_t changed;  // live or is_shut
    size_t live;             // unary calls, streams and
    size_t n_served;         // calls of services
    bool draining, is_shut;
    TAILQ_HEAD(, ps__stream) streams;
    TAILQ_HEAD(, ps__served) served;
};

// A call as the server knows it: the first member of each kind of call, which the handler's part follows in memory.
struct ps__call {
    struct ps_call call;
    struct ps_server *server;
    void (*reply)(struct ps__call *call, enum ps_code code, const char *text, struct ps_rope *body);
    size_t bytes;  // of the request, as admitted
};

// A stream's life:
//
//     OPEN -> ENDING   the client has said all, or the server drains: everything is answered, then the status sent
//     any  -> FAILED   a message is malformed: the status is sent, answers are dropped
//     any  -> CUT      the connection or the call is gone, or the status has been sent
struct ps__stream {
    struct ps_server *server;
    TAILQ_ENTRY(ps__stream) link;  // in the server's, under its lock
    grpc_call *grpc;
    atomic_size_t refs;  // one per operation of the core and per record that is not answered
    struct ps_event received, sent, closed, ended;
    grpc_byte_buffer *incoming, *outgoing;
    int cancelled;

    pthread_mutex_t lock;  // all below
    enum { PS__OPEN, PS__ENDING, PS__FAILED, PS__CUT } state;
    struct ps_error status;   // what it ends with
    bool receiving, sending;  // an operation of the core is under way
    bool status_sent;
    bool handling;                  // some thread hands over requests: others leave theirs in the inbox
    bool corked;                    // that thread makes replies faster than they need to be sent
    struct ps__messages inbox;      // received, not handed over
    struct ps__records outbox;      // answered, not sent
    size_t unanswered;              // records
    size_t load_calls, load_bytes;  // inbox, unanswered and outbox
};

// Zeroed memory for a kind of call of `size` bytes and the handler's part.
void *ps__call_alloc(struct ps_server *s, size_t size);

// A call begins and ends; stream NULL: it is unary. The server lives until the last one has left. enter: true where
// the server is draining.
bool ps__server_enter(struct ps_server *s, struct ps__stream *stream);
void ps__server_leave(struct ps_server *s, struct ps__stream *stream);

// When the handler has to answer so that the answer is there before the client stops waiting.
uint64_t ps__answer_by(uint64_t now, uint64_t deadline);

// A call of the core's, just taken up, is handed over to one of these. request may be NULL.
void ps__unary_begin(struct ps_server *s, int method, grpc_call *grpc, uint64_t deadline, grpc_byte_buffer *request);
void ps__unary_refuse(struct ps_server *s, grpc_call *grpc, enum ps_code code, const char *text);
void ps__stream_begin(struct ps_server *s, grpc_call *grpc);
void ps__service_begin(struct ps_server *s, struct ps__service *service, grpc_call *grpc);

bool ps__stream_try_ref(struct ps__stream *st);  // under the server's lock; false: it is being freed
void ps__stream_unref(struct ps__stream *st);
void ps__stream_drain(struct ps__stream *st);
void ps__services_drain(struct ps_server *s);

#endif

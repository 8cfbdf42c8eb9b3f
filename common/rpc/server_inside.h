// SPDX-License-Identifier: Apache-2.0
//
// What the server's files share.
//
//     server.c         addresses, threads, start and end; what is taken up
//     server_unary.c   a unary call
//     server_stream.c  a gathered stream and its records
//     server_service.c a call beside the contract
//     server_call.c    what every kind of call needs of the server
//     server_budget.c    the budget of bytes
//
// Each calls those below it alone; the three in the middle do not know each other.
//
// Locks: the server's, the budget's, and one per stream and call of a service; never two at once, and no function of
// the gRPC core is called with any held: it may drop slices, whose owners may do anything. Under known_lock those are
// called alone that keep something with a connection.
#ifndef PS_COMMON_RPC_SERVER_INSIDE_H
#define PS_COMMON_RPC_SERVER_INSIDE_H

#include <grpc/grpc.h>
#include <pthread.h>
#include <sys/queue.h>

#include "common/base/log.h"
#include "common/rpc/buffer.h"
#include "common/rpc/cq.h"
#include "common/rpc/credentials.h"
#include "common/rpc/method.h"
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

// What receives one message at a time: a stream, a unary call.
struct ps__receiver {
    TAILQ_ENTRY(ps__receiver) link;      // waiting, or charged
    TAILQ_ENTRY(ps__receiver) also;      // on the way from waiting to charged
    void (*go)(struct ps__receiver *r);  // receive now: it had to wait
    size_t own;                          // requests that it has already
    size_t expected;                     // what it is charged
    uint64_t since;                      // receiving
    bool charged, beyond;
};

TAILQ_HEAD(ps__receivers, ps__receiver);

// What sends answers that have room.
struct ps__sender {
    TAILQ_ENTRY(ps__sender) link;
    grpc_call *call;
    uint64_t since;
    bool cut;
};

// The budget, and what is taken of it:
//
//     requests     half, for received messages, as long as anyone has a slice of them; together with what is expected
//                  of those that receive. A quarter more for those that have less than a share of their own.
//     call_bytes   a quarter, for the calls themselves: those that are parked have little else
//     answers      half as much again; most of their memory is not ours, but of those they were lent from
//     lanes        a sixteenth more for each, the calls of control and those for norms: they have room whatever the
//                  others take
struct ps__budget {
    size_t bytes;
    atomic_size_t requests, answers, calls, call_bytes, lanes[PS_LANES];
    atomic_size_t unary_bytes;  // what a unary call is expected to bring: the largest of late
    atomic_size_t n_waiting;
    pthread_mutex_t lock;                   // all below, and the receivers in it
    struct ps__receivers waiting, charged;  // the longest first
    TAILQ_HEAD(, ps__sender) sending;       // the longest first
    size_t expected;                        // of those that are charged
    int beyond;                             // that receive without room
    bool open;                              // the server ends: nobody waits any more
};

// Bytes of a call beside its request: ours and the core's.
enum { PS__RECORD_BYTES = 1 << 10, PS__UNARY_BYTES = 16 << 10 };

// Memory of records that have been answered, for those that come: a burst of them is too much for malloc's caches.
// Dropped with the last stream.
struct ps__idle {
    struct ps__idle *next;
};

void ps__budget_init(struct ps__budget *budget, size_t bytes);
void ps__budget_fini(struct ps__budget *budget);
size_t ps__budget_used(const struct ps__budget *budget);
// Calls are taken whatever it says; true: they were within the bounds. Returned with the same numbers.
bool ps__budget_take_calls(struct ps__budget *budget, size_t n, size_t bytes);
void ps__budget_return_calls(struct ps__budget *budget, size_t n, size_t bytes);
bool ps__budget_has_calls(const struct ps__budget *budget);
// One call of a lane that is not PS_LANE_NONE. False: it is full, nothing was taken.
bool ps__budget_take_lane(struct ps__budget *budget, enum ps_lane lane);
void ps__budget_return_lane(struct ps__budget *budget, enum ps_lane lane);
bool ps__budget_has_answers(const struct ps__budget *budget);
bool ps__budget_is_full(const struct ps__budget *budget);  // of requests, beyond any waiting
// Between begin and end the core sends `call` what was counted as answers. Where there is no room for others' and it
// takes long, the call is cancelled.
void ps__budget_begin_send(struct ps__budget *budget, struct ps__sender *s, grpc_call *call);
void ps__budget_end_send(struct ps__budget *budget, struct ps__sender *s);
// May r, which has `own` bytes of requests, receive a message of about `expected`? True: it begins at once; false:
// r->go follows on a thread that polls. Either way ps__budget_received follows.
bool ps__budget_ask(struct ps__budget *budget, struct ps__receiver *r, size_t own, size_t expected);
void ps__budget_received(struct ps__budget *budget, struct ps__receiver *r);
void ps__budget_work(struct ps__budget *budget);  // on a thread that polls, after each event and every now and then
void ps__budget_open(struct ps__budget *budget);  // lets everyone in

struct ps_server {
    struct ps_server_options options;
    char *known_as;  // of the options
    struct ps__budget budget;
    struct ps_cq cq;
    struct ps_loans loans;
    struct ps__port_tls *tls;  // [n_tls] of each port; none without TLS
    size_t n_tls;
    grpc_server *grpc;
    pthread_t *threads;
    int n_threads;  // at most, if the options name no number
    int n_begun;    // of them; the system may give fewer
    atomic_int n_started;
    int *ports;
    struct ps_event shut;  // the core's: no call and no connection is left
    atomic_size_t refs;    // the owner's, and one per unary call, stream, call of a service and received message
    grpc_resource_quota *quota;
    struct ps__service *services;  // options.n_methods

    struct ps_log_seldom refusals;  // of those who may not call

    pthread_mutex_t known_lock;  // who is known by munge, of all connections

    pthread_mutex_t lock;
    pthread_cond_t changed;   // live or is_shut
    pthread_cond_t called;    // threads that rest: more of them are wanted, or is_shut
    size_t live;              // unary calls, streams and
    size_t n_served;          // calls of services
    atomic_size_t n_streams;  // changed under the lock
    struct ps__idle *idle;
    size_t n_idle;
    bool draining, is_shut;
    bool had_calls;  // when it began to drain
    bool shutting;   // the core knows; belongs to who stops the server
    TAILQ_HEAD(, ps__stream) streams;
    TAILQ_HEAD(, ps__served) served;
};

#define PS__SHUTTING_DOWN "the server is shutting down"

// A call as the server knows it: the first member of each kind of call, which the handler's part follows in memory.
struct ps__call {
    struct ps_call call;
    struct ps_server *server;
    void (*reply)(struct ps__call *call, enum ps_code code, const char *text, struct ps_slices *body);
    void (*let_go)(struct ps__call *call);  // NULL: nothing counts its request's bytes
    size_t bytes;                           // of a record's request; then of the answer
};

// A stream's life:
//
//     OPEN -> ENDING   the client has said all, or the server drains: everything is answered, then the status sent
//     any  -> FAILED   a message is malformed: the status is sent, answers are dropped
//     any  -> CUT      the connection or the call is gone, or the status has been sent
struct ps__stream {
    struct ps_server *server;
    TAILQ_ENTRY(ps__stream) link;  // in the server's, under its lock
    bool drained;                  // to drain; likewise
    grpc_call *grpc;
    atomic_size_t refs;  // one per operation of the core and per record that is not answered
    struct ps_identity from;
    void *user;  // the handler's
    struct ps_event received, sent, closed, ended;
    struct ps__receiver receiver;
    struct ps__sender sender;
    grpc_byte_buffer *incoming, *outgoing;
    int cancelled;
    atomic_size_t answer_bytes;  // outbox, and being sent; changed under the lock

    pthread_mutex_t lock;  // all below
    enum { PS__OPEN, PS__ENDING, PS__FAILED, PS__CUT } state;
    struct ps_error status;   // what it ends with
    bool receiving, sending;  // an operation of the core is under way
    bool status_sent;
    bool handling;              // some thread hands over requests: others leave theirs in the inbox
    bool corked;                // that thread makes replies faster than they need to be sent
    bool has_cancelled;         // the handler was asked to end what it has: nobody waits for it
    struct ps__messages inbox;  // received
    struct ps__records parsed;  // not handed over; the handling thread's
    struct ps__records outbox;  // answered, not sent
    struct ps__records all;     // parsed, not answered
    size_t n_parsed;
    size_t unanswered;     // records, those parsed included
    size_t request_bytes;  // inbox and unanswered
    size_t sending_bytes;  // of answer_bytes
    uint64_t sending_at;   // ns
    size_t gather_limit;   // as ps_gather_next() says
    size_t last_bytes;     // of the last message
};

// Zeroed memory for a kind of call of `size` bytes and the handler's part. NULL: no memory.
void *ps__call_alloc(struct ps_server *s, size_t size);

// Memory for which that was called with the same size is a new call again.
void ps__call_renew(struct ps_server *s, void *call, size_t size);
// Some of what is idle, linked; and those that become so, or are freed where there are enough.
struct ps__idle *ps__idle_take(struct ps_server *s);
void ps__idle_give(struct ps_server *s, struct ps__idle *list);

// A call begins and ends; stream NULL: it is unary. The server lives until the last one has left. enter: true where
// the server is draining.
bool ps__server_enter(struct ps_server *s, struct ps__stream *stream);
void ps__server_leave(struct ps_server *s, struct ps__stream *stream);
void ps__server_unref(struct ps_server *s);

// A received message's slice list, which counts in the budget until the last of its slices is dropped. Takes over the
// buffer. False: no memory.
bool ps__server_received(struct ps_server *s, grpc_byte_buffer *buffer, struct ps_slices *out);
// Answers a call that was just taken up with a status; its request is not read.
void ps__call_refuse(struct ps_server *s, grpc_call *grpc, enum ps_code code, const char *text);
// Ends a call of the core's for which there is no memory, with RESOURCE_EXHAUSTED.
void ps__server_drop_call(grpc_call *grpc);

// When the handler has to answer so that the answer is there before the client stops waiting.
uint64_t ps__answer_by(uint64_t now, uint64_t deadline);

// A call of the core's, just taken up, is handed over to one of these.
void ps__unary_begin(struct ps_server *s, int method, grpc_call *grpc, uint64_t deadline,
                     const struct ps_identity *from);
void ps__stream_begin(struct ps_server *s, grpc_call *grpc, const struct ps_identity *from);
void ps__service_begin(struct ps_server *s, struct ps__service *service, grpc_call *grpc);

bool ps__stream_try_ref(struct ps__stream *st);  // under the server's lock; false: it is being freed
void ps__stream_unref(struct ps__stream *st);
void ps__stream_drain(struct ps__stream *st);
void ps__services_drain(struct ps_server *s);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// What the client's files share.
//
//     client.c         the thread, timers, start and end
//     client_unary.c   a unary call
//     client_stream.c  a task's gathered stream and its records
//     client_channel.c the channel to a peer
//     client_call.c    what every kind of call needs of the client
//
// Each calls those below it alone; the two in the middle do not know each other.
//
// One lock, the client's. No function of the gRPC core, no callback and no release of a slice under it. Calls and
// streams are freed on the client's thread alone.
#ifndef PS_COMMON_RPC_CLIENT_INSIDE_H
#define PS_COMMON_RPC_CLIENT_INSIDE_H

#include <grpc/grpc.h>
#include <pthread.h>
#include <sys/queue.h>

#include "common/rpc/buffer.h"
#include "common/rpc/client.h"
#include "common/rpc/cq.h"

struct ps__unary;
struct ps__client_stream;

// A connection to a peer, and how it is made.
struct ps__channel {
    grpc_channel *grpc;    // for ps__peer_call; another one where there are new certificates
    grpc_channel *before;  // that it was until a moment ago; NULL: none
    atomic_bool known;     // with munge: the server knows the connection
};

struct ps__peer {
    struct ps_client *client;
    char *address;
    bool is_unix;
    struct ps_loans loans;
    // The thread's: how many were back, and since when (ns) no more have come while some are out.
    unsigned back;
    uint64_t back_since;
    bool gave_up;  // since then a call has ended whose memory may be among these
    struct ps__channel channel;
    struct ps__channel control;  // for control calls, where they go apart; grpc NULL: they go with the others
    pthread_rwlock_t channel_lock;
    struct ps__client_stream *stream;  // NULL: the next call opens one
    // Under the client's lock:
    struct ps_slice opening;  // what a stream begins with; empty: nothing
    int opening_method;
    uint64_t openings;  // so many times it has been set
};

// A call until its callback has run. Unary ones are part of a struct ps__unary.
struct ps__pending {
    TAILQ_ENTRY(ps__pending) link;  // in its stream's `all`, or the client's `ended`
    ps_reply_fn reply;
    void *arg;
    int method;
    uint64_t deadline;  // ns; UINT64_MAX: none
    bool lends;         // its bytes are lent to the core
    bool tls;
    // Records:
    uint32_t priority;
    TAILQ_ENTRY(ps__pending) to_send;
    LIST_ENTRY(ps__pending) same_bucket;
    uint64_t id;
    bool queued;  // in to_send
    struct ps_slices request;
    // Where it ended without the core:
    enum ps_code code;
    char *text;
};

TAILQ_HEAD(ps__pendings, ps__pending);

struct ps__timer {
    uint64_t at;
    void (*fn)(void *arg);
    void *arg;
};

struct ps_client {
    struct ps_cq cq;
    pthread_t thread;
    bool has_thread;    // false: the system gave none
    bool stuck;         // the thread's; read after it has ended
    bool has_unix;      // some peer is reached by a unix socket: the thread looks
    uint64_t looks_at;  // (ns: then) whether something is stuck there
    struct ps__peer *peers;
    size_t n_peers;
    struct ps_client_options options;
    // The thread's: of the certificates in use; ns, ps_now: when to look for new ones, and since when these are.
    uint64_t tls_version, tls_looks, tls_renewed;
    grpc_channel *nowhere;
    grpc_call *waker;  // never started: a batch of nothing on it wakes the thread
    struct ps_event on_wake;

    pthread_mutex_t lock;  // all below
    pthread_cond_t work;   // there is something to do, for a thread that does not poll
    bool stopping, closed;
    bool cuts;                 // some streams are to end
    uint64_t wake;             // when the thread looks at the clock of its own accord
    uint64_t connects_until;   // ns: so long the thread polls all the same, for attempts to connect that are under way
    bool waking;               // the waker's event is on its way to it
    struct ps__timer *timers;  // heap, the next one first
    size_t n_timers, cap_timers;
    TAILQ_HEAD(, ps__unary) unaries;
    struct ps__pendings ended;    // wait for the thread to tell
    struct ps_releases released;  // likewise
};

// Has the thread look at the client's state, no later than `at` (0: now). Without the lock.
void ps__client_poke(struct ps_client *c, uint64_t at);

// Ends a call that the core does not know (any more); the callback runs on the thread. Without the lock. Frees p.
void ps__pending_end_later(struct ps_client *c, struct ps__pending *p, enum ps_code code, char *text);
void ps__pending_free(struct ps__pending *p);

void ps__client_keep_grpc_quiet(void);
void ps__peer_init(struct ps__peer *peer, struct ps_client *c, const char *address);
void ps__peer_stop(struct ps__peer *peer);  // after the thread
void ps__peer_fini(struct ps__peer *peer);
// On the thread: makes other channels where the process has new certificates. Without the client's lock.
void ps__channels_look(struct ps_client *c, uint64_t now);
// How a call of the core's has ended: with some, the core goes on trying to connect. The client's lock is held.
void ps__client_note_status(struct ps_client *c, grpc_status_code status);
// A call of the core's on a channel of the peer's. Without the client's lock.
grpc_call *ps__peer_call(struct ps__peer *peer, const struct ps__channel *on, const char *path, uint64_t deadline);

// The metadata of a call that shows a credential: one entry, whose value grpc_slice_unref frees.
grpc_metadata ps__munge_metadata(const char *credential);

// Both take over p and, in it, the request.
void ps__unary_call(struct ps__peer *peer, struct ps__pending *p);
void ps__stream_call(struct ps__peer *peer, struct ps__pending *p);

// On the thread, without the lock.
void ps__unary_cancel_all(struct ps_client *c);
void ps__streams_cancel(struct ps_client *c);  // those that are to end
void ps__streams_expire(struct ps_client *c, uint64_t now);

uint64_t ps__streams_soonest(const struct ps_client *c);  // locked: when to expire next

// The sentence for what the core reports: the server's, or what became of the connection. malloc'd.
char *ps__call_text(const struct ps__pending *p, enum ps_code code, const char *details);

#endif

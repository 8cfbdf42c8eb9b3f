// SPDX-License-Identifier: Apache-2.0
// The requests of tensor operations to one task. A queue knows a request as the data below and a table of functions;
// what an operation is it does not know.
//
//     updates   HELD? -> QUEUED -> FLYING -> LANDED -> done      one order per task: that in which they were started
//     reads     HELD? -> QUEUED -> FLYING -> LANDED -> done      no order of their own, but none overtakes an
//                           ^                    |               update that was started before it
//                           +---- sent again ----+
//
// Stream: what is sent in order is taken up in order (but for priorities), so several updates may fly at once (bounded
// in number and bytes), and a read may follow as soon as the updates before it are gone. Where one of these is
// refused, that is answered before the read is: what was read is dropped, and read again behind the update. Unary calls
// may overtake each other, so one update flies at a time, and a read waits until those before it are answered.
//
// A put does not commute with other updates: it flies with the rest of its own operation alone.
//
// UNAVAILABLE or RESOURCE_EXHAUSTED: the task rests (back-off), everything unanswered goes back to its place in the
// order, and nothing is sent before all updates that flew have landed. Then it goes on, until each operation's
// deadline. A repeated update is harmless: it keeps its sequence. After an update was refused with RESOURCE_EXHAUSTED
// the updates go one by one until that one has passed: else those right behind it would overtake it when it is refused
// again.
//
// Priorities: an update goes before those of a lower one that have not been sent, here and in the transport, but never
// before one that has none, and not before what a read waits for.
//
// A push whose answer waits for its round (PushPull in a sync job) is sent in its turn, and then is nobody's concern:
// it takes effect with its round, so nothing waits for its answer, which may need what is sent after it.
//
// Guarded by the client's lock.
#ifndef PSC_QUEUE_H
#define PSC_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "libclient/base.h"

enum {
    PSC__UPDATES_FLYING = 256,    // requests of one task (stream): few would keep small ones from gathering
    PSC__BYTES_FLYING = 8 << 20,  // payload of these
};

struct psc__request;
TAILQ_HEAD(psc__requests, psc__request);

// What a queue asks of whoever makes requests. All are called locked.
struct psc__request_kind {
    // Appends the message; where there is no memory for it, *to is broken.
    void (*pack)(struct psc__request *r, struct ps_slices *to);
    // Takes the answer; lets go of the lock in between, while bytes are copied. True: r goes on, and the queue puts it
    // back. Else r is gone.
    bool (*accept)(struct psc__request *r, const struct ps_slices *reply);
    void (*restart)(struct psc__request *r);  // a read begins again, and what it found is void
    // Ends all that r belongs to: its queued requests leave their queues, those that were sent become `abandoned`.
    void (*fail)(struct psc__request *r, const struct ps_error *e);
    void (*free)(struct psc__request *r);
};

// Embed it.
struct psc__request {
    TAILQ_ENTRY(psc__request) link;
    struct psc__requests *list;  // the queue's in which it stands (QUEUED; a read: FLYING); NULL: none of the queue's
    struct psc__queue *queue;
    const struct psc__request_kind *kind;
    int method;
    const char *name;            // of the operation, for errors
    uint64_t started, deadline;  // of what it belongs to; deadline UINT64_MAX: waits for others as long as they live
    uint64_t sequence;           // likewise
    size_t bytes;                // payload, here or in the reply
    uint32_t priority;           // of an update; 0: none
    bool mutates;
    bool put;         // an update that goes with no other sequence's
    bool round_trip;  // an update whose answer waits for its round
    bool goes_on;     // a read of which some has come: ABORTED starts it again
    // The queue's.
    bool abandoned;  // given up, only its landing is awaited
    bool alone;      // sent while updates went one by one
    bool overtook;   // a read that flies: an update before it was refused meanwhile
    bool again;      // its task could not be reached, or its answer was lost, at least once
    enum { PSC__HELD, PSC__QUEUED, PSC__FLYING, PSC__LANDED } state;
    uint64_t sent;    // last; 0: it waits for nobody
    uint64_t unsure;  // an update: when the first copy was sent that may have arrived, or else the last one
    // Updates: place in the task's order, which may grow while they are QUEUED; reads: of the last update before them.
    uint64_t order;
};

struct psc__queue {
    struct psc__task *task;
    // QUEUED. Updates that came back are before those that were never sent, in that order.
    struct psc__requests returned, updates, reads;
    struct psc__requests expired;  // taken from these, to be given up
    struct psc__requests reads_flying;
    uint64_t last_order;
    uint32_t updates_flying;  // no round trips, as those below
    size_t bytes_flying;
    uint64_t flying_order, flying_sequence;  // of the last update sent
    bool flying_put;
    uint64_t careful_order;  // updates go one by one until one with this order or a later one has passed; 0: freely
    bool pumping;            // somebody is at it
    bool paused;             // until a timer
    bool draining;           // until no update flies
    uint32_t attempt;        // rests since the last answer
    uint64_t down_since;     // when the first of these began, or since a request last waited; 0: none
    struct ps_error why;     // what ended the last attempt
};

bool psc__queues_create(struct psc_client *c);  // false: no memory
void psc__queues_free(struct psc_client *c);

void psc__queue_add(struct psc__request *r);     // HELD -> QUEUED; the caller pumps
void psc__queue_remove(struct psc__request *r);  // QUEUED -> out
// Locked. Has q waited for its task to be reached, or to have room, since before `since`? q->why says why.
bool psc__queue_is_down(const struct psc__queue *q, uint64_t since);
void psc__queues_pump(struct psc_client *c);  // sends what may be sent

#endif

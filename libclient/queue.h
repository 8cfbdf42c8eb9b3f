// SPDX-License-Identifier: Apache-2.0
// The requests of tensor operations to one task.
//
//     updates   HELD? -> QUEUED -> FLYING -> LANDED -> done      one order per task: that of their sequences
//     reads     HELD? -> QUEUED -> FLYING -> LANDED -> done      no order of their own, but none overtakes an
//                           ^                    |               update that was started before it
//                           +---- sent again ----+
//
// Stream: what is sent in order is taken up in order, so several updates may fly at once (bounded in number and
// bytes), and a read may follow as soon as the updates before it are gone. Unary calls may overtake each other, so one
// update flies at a time, and a read waits until those before it are answered.
//
// UNAVAILABLE or RESOURCE_EXHAUSTED: the task rests (back-off), everything unanswered goes back to its place in the
// order, and nothing is sent before all updates that flew have landed. Then it goes on, until each operation's
// deadline. A repeated update is harmless: it keeps its sequence.
//
// Guarded by the client's lock.
#ifndef PSC_QUEUE_H
#define PSC_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/error.h"

struct psc_client;
struct psc_op;
struct psc__task;

enum {
    PSC__UPDATES_FLYING = 256,    // requests of one task (stream): few would keep small ones from gathering
    PSC__BYTES_FLYING = 8 << 20,  // payload of these
};

struct psc__request {
    TAILQ_ENTRY(psc__request) link;  // in the task's queue (QUEUED), or in its share of the operation (HELD)
    TAILQ_ENTRY(psc__request) of_op;
    struct psc__task *task;
    struct psc_op *op;  // NULL: given up, only its landing is awaited
    bool mutates;
    enum { PSC__HELD, PSC__QUEUED, PSC__FLYING, PSC__LANDED } state;
    uint64_t ticket;  // updates: place in the task's order; reads: of the last update before it
    size_t bytes;     // payload, here or in the reply
    uint32_t first_piece, last_piece, n_pieces;  // a chain in the operation's pieces
    uint64_t offset, snapshot;                   // reads that go on
};

TAILQ_HEAD(psc__requests, psc__request);

struct psc__queue {
    struct psc__requests updates, reads;  // QUEUED
    uint64_t last_ticket;
    uint32_t updates_flying;
    size_t bytes_flying;
    uint64_t flying_ticket;  // unary: of the one update that flies
    bool resting;            // until a timer
    bool draining;           // until no update flies
    uint32_t attempt;        // rests since the last answer
    uint64_t down_since;     // when the first of these began; 0: none
    struct ps_error why;     // what ended the last attempt
};

void psc__queue_init(struct psc__queue *q);
void psc__queue_add(struct psc__request *r);     // HELD -> QUEUED, at the end; the caller pumps
void psc__queue_remove(struct psc__request *r);  // QUEUED -> out
void psc__queue_pump(struct psc__task *t);       // sends what may be sent

#endif

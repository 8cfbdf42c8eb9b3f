// SPDX-License-Identifier: Apache-2.0
// The sequences of one client's updates. Each takes a ticket and with it the next sequence; at most PS_WINDOW sequences
// are open at once, the rest wait in order. Reads take a ticket without a sequence, only so that none overtakes an
// update that waits.
//
// Guarded by the client's lock.
#ifndef PSC_WINDOW_H
#define PSC_WINDOW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/wire/wire.h"

struct psc__ticket {
    TAILQ_ENTRY(psc__ticket) link;
    bool mutates;
    enum { PSC__TICKET_NONE, PSC__TICKET_WAITS, PSC__TICKET_TAKEN } state;
    uint64_t sequence;                    // 0: none
    void (*start)(struct psc__ticket *);  // runs once: now, or when the window has moved
};

struct psc__window {
    TAILQ_HEAD(, psc__ticket) waiting;
    uint64_t last;         // given out
    uint64_t oldest;       // of those open; last + 1 if none is
    bool open[PS_WINDOW];  // sequence % PS_WINDOW
    bool calling;          // those who wait are being started: one that leaves at once starts nobody itself
    bool closed;           // the client has ended: nobody is started any more
};

void psc__window_init(struct psc__window *w);
void psc__window_enter(struct psc__window *w, struct psc__ticket *ticket);
// Gives the ticket back, started or not, and starts those for whom there is room now.
void psc__window_leave(struct psc__window *w, struct psc__ticket *ticket);

#endif

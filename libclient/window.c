// SPDX-License-Identifier: Apache-2.0
#include "libclient/window.h"

void psc__window_init(struct psc__window *w)
{
    TAILQ_INIT(&w->waiting);
    w->oldest = 1;
}

static bool has_room(const struct psc__window *w, const struct psc__ticket *ticket)
{
    return !ticket->mutates || w->last + 1 < w->oldest + PS_WINDOW;
}

static void window_admit(struct psc__window *w, struct psc__ticket *ticket)
{
    if (ticket->mutates) {
        ticket->sequence = ++w->last;
        w->open[ticket->sequence % PS_WINDOW] = true;
    }
    ticket->state = PSC__TICKET_TAKEN;
    ticket->start(ticket);
}

void psc__window_enter(struct psc__window *w, struct psc__ticket *ticket)
{
    if (TAILQ_EMPTY(&w->waiting) && has_room(w, ticket)) {
        window_admit(w, ticket);
        return;
    }
    ticket->state = PSC__TICKET_WAITS;
    TAILQ_INSERT_TAIL(&w->waiting, ticket, link);
}

static void call_next(struct psc__window *w)
{
    struct psc__ticket *ticket;
    if (w->calling)
        return;
    w->calling = true;
    while (!w->closed && (ticket = TAILQ_FIRST(&w->waiting)) && has_room(w, ticket)) {
        TAILQ_REMOVE(&w->waiting, ticket, link);
        window_admit(w, ticket);
    }
    w->calling = false;
}

void psc__window_leave(struct psc__window *w, struct psc__ticket *ticket)
{
    if (ticket->state == PSC__TICKET_WAITS)
        TAILQ_REMOVE(&w->waiting, ticket, link);
    if (ticket->state == PSC__TICKET_TAKEN && ticket->mutates) {
        w->open[ticket->sequence % PS_WINDOW] = false;
        while (w->oldest <= w->last && !w->open[w->oldest % PS_WINDOW])
            w->oldest++;
    }
    ticket->state = PSC__TICKET_NONE;
    call_next(w);
}

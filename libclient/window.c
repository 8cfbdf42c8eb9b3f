// SPDX-License-Identifier: Apache-2.0
#include "libclient/window.h"

void psc__window_init(struct psc__window *w)
{
    TAILQ_INIT(&w->waiting);
    w->oldest = 1;
}

static bool has_room(const struct psc__window *w, const struct psc__seat *seat)
{
    return !seat->mutates || w->last + 1 < w->oldest + PS_WINDOW;
}

static void seat_down(struct psc__window *w, struct psc__seat *seat)
{
    if (seat->mutates) {
        seat->sequence = ++w->last;
        w->open[seat->sequence % PS_WINDOW] = true;
    }
    seat->state = PSC__SEAT_TAKEN;
    seat->start(seat);
}

void psc__window_enter(struct psc__window *w, struct psc__seat *seat)
{
    if (TAILQ_EMPTY(&w->waiting) && has_room(w, seat)) {
        seat_down(w, seat);
        return;
    }
    seat->state = PSC__SEAT_WAITS;
    TAILQ_INSERT_TAIL(&w->waiting, seat, link);
}

static void call_next(struct psc__window *w)
{
    struct psc__seat *seat;
    if (w->calling)
        return;
    w->calling = true;
    while (!w->closed && (seat = TAILQ_FIRST(&w->waiting)) && has_room(w, seat)) {
        TAILQ_REMOVE(&w->waiting, seat, link);
        seat_down(w, seat);
    }
    w->calling = false;
}

void psc__window_leave(struct psc__window *w, struct psc__seat *seat)
{
    if (seat->state == PSC__SEAT_WAITS)
        TAILQ_REMOVE(&w->waiting, seat, link);
    if (seat->state == PSC__SEAT_TAKEN && seat->mutates) {
        w->open[seat->sequence % PS_WINDOW] = false;
        while (w->oldest <= w->last && !w->open[w->oldest % PS_WINDOW])
            w->oldest++;
    }
    seat->state = PSC__SEAT_NONE;
    call_next(w);
}

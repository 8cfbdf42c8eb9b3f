// SPDX-License-Identifier: Apache-2.0
#include "workerd/strategy/losses.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

// The first of so many steps that is kept. Half of them is forgotten at a time: to move the rest costs a step next to
// nothing.
static uint64_t losses_first(uint64_t steps)
{
    const uint64_t half = WK_LOSSES_KEPT / 2;
    return steps > WK_LOSSES_KEPT ? ((steps - 1) / half - 1) * half : 0;
}

static void losses_forget(struct wk_history *h, uint64_t first)
{
    const uint64_t had = wk_losses_kept(h), old = first - h->first < had ? first - h->first : had;
    for (uint64_t i = 0; i < old; i++)
        h->examples_before += h->examples[i];
    if (had > old) {
        memmove(h->loss, h->loss + old, (had - old) * sizeof *h->loss);
        memmove(h->examples, h->examples + old, (had - old) * sizeof *h->examples);
    }
    h->first = first;
}

static void losses_reserve(struct wk_history *h, uint64_t n)
{
    uint64_t room = h->room ? h->room : 1024;
    while (room < n)
        room = 2 * room < WK_LOSSES_KEPT ? 2 * room : WK_LOSSES_KEPT;
    if (room == h->room)
        return;
    h->loss = ps_realloc(h->loss, room * sizeof *h->loss);
    h->examples = ps_realloc(h->examples, room * sizeof *h->examples);
    h->room = room;
}

void wk_losses_extend(struct wk_history *h, uint64_t steps)
{
    if (steps <= h->steps)
        return;
    if (losses_first(steps) > h->first)
        losses_forget(h, losses_first(steps));
    const uint64_t had = wk_losses_kept(h), n = steps - h->first;
    losses_reserve(h, n);
    memset(h->loss + had, 0, (n - had) * sizeof *h->loss);
    memset(h->examples + had, 0, (n - had) * sizeof *h->examples);
    h->steps = steps;
}

void wk_losses_free(struct wk_history *h)
{
    free(h->loss);
    free(h->examples);
    h->loss = h->examples = NULL;
    h->room = h->first = h->steps = 0;
}

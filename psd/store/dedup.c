// SPDX-License-Identifier: Apache-2.0
#include "psd/store/dedup.h"

#include <string.h>

static uint64_t *mark_word(struct psd_mark *mark, uint64_t sequence)
{
    return &mark->bits[sequence % PS_WINDOW / 64];
}

void psd_mark_advance(struct psd_mark *mark, uint64_t oldest)
{
    if (oldest <= mark->base)
        return;
    if (oldest - mark->base >= PS_WINDOW)
        memset(mark->bits, 0, sizeof mark->bits);
    else
        for (uint64_t s = mark->base; s < oldest; s++)
            *mark_word(mark, s) &= ~(UINT64_C(1) << s % 64);
    mark->base = oldest;
}

bool psd_mark_test(const struct psd_mark *mark, uint64_t sequence)
{
    if (sequence < mark->base)
        return true;
    return sequence - mark->base < PS_WINDOW && mark->bits[sequence % PS_WINDOW / 64] >> sequence % 64 & 1;
}

void psd_mark_set(struct psd_mark *mark, uint64_t sequence)
{
    *mark_word(mark, sequence) |= UINT64_C(1) << sequence % 64;
}

// SPDX-License-Identifier: Apache-2.0
//
// How often a process that a signal has ended is started: PS_MAX_STARTS times in all, where none of its lives was long;
// each long one counts as the first. Times are of ps_now. Threads: the owner's.
#ifndef PS_STARTS_H
#define PS_STARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/clock.h"
#include "common/base/limits.h"

enum { PS_LONG_LIFE_S = 3600 };  // what a defect ends every time does not get there

struct ps_starts {
    unsigned n;   // since the last long life, that one among them
    uint64_t at;  // ns: the last one
};

static inline void ps_starts_note(struct ps_starts *s, uint64_t now)
{
    s->n++;
    s->at = now;
}

// It has ended now: may it be started again?
static inline bool ps_starts_again(struct ps_starts *s, uint64_t now)
{
    if (now - s->at >= PS_LONG_LIFE_S * PS_SECOND)
        s->n = 1;
    return s->n < PS_MAX_STARTS;
}

#endif

// SPDX-License-Identifier: Apache-2.0
//
// A call, and lists of calls that are parked until something happens.
#ifndef PSD_CALL_H
#define PSD_CALL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/base/error.h"
#include "common/wire/slice.h"

// A call that has arrived. The caller of psd_core_call allocates it (usually inside something larger) and it
// stays the core's until reply has run, exactly once, perhaps before psd_core_call returns.
struct psd_call {
    int method;                // Method of the proto
    uint64_t deadline;         // ns on psd_world.now's clock; UINT64_MAX: none
    struct ps_slices request;  // the message; cleared by the core
    // body is empty unless code is PS_OK; reply moves it or clears it.
    void (*reply)(struct psd_call *call, enum ps_code code, const char *text, struct ps_slices *body);

    // The core's own from here on.
    struct psd_call *next;
    uint64_t parked_since;  // ns; 0: it never was
    atomic_bool gone;       // psd_core_cancel: nobody waits for the answer
    bool stall_told;        // that it waits for long has been logged
    uint32_t worker;        // who waits: as in Caller
    uint8_t client[16];
};

// Parked calls that wait for one thing; whatever lock guards that guards the list. Zeroed: nobody.
struct psd_waiters {
    struct psd_call *first;
    uint32_t n;
    uint64_t earliest;  // while n: nobody's deadline is before it; 0: somebody is gone
};

// A call that is about to wait keeps a copy of its request where that is small, and there is memory for one: it may have
// come in a message of megabytes, whose memory would wait with it.
void psd_call_keep(struct psd_call *call);

void psd_waiters_add(struct psd_waiters *list, struct psd_call *call);
// Moves every call of a list to *ready, which is linked by call->next.
void psd_ready_all(struct psd_call **ready, struct psd_waiters *list);
// Moves those whose deadline has passed to *late, and those that are gone: any_gone says that there may be some.
void psd_take_late(struct psd_waiters *list, uint64_t now, bool any_gone, struct psd_call **late);
void psd_move_calls(struct psd_call **to, struct psd_call **from);  // all of them, to the front

#endif

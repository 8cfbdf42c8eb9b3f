// SPDX-License-Identifier: Apache-2.0
//
// A call, and lists of calls that are parked until something happens.
#ifndef PSD_CALL_H
#define PSD_CALL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "common/base/error.h"
#include "common/tls/identity.h"
#include "common/wire/slice.h"
#include "psd/limits.h"

struct psd_request;
struct psd_session;
struct psd_waiters;

// What a call waits for, kept as it is: the text of it is made for who asks.
struct psd_wait {
    int kind;                      // WaitKind of the proto
    uint32_t variable;             // FOR_ROUND: its index
    uint64_t number;               // of the round, the epoch or the clock; of a collective its sequence; 0: it has none
    char name[PSD_WAIT_NAME_MAX];  // of a collective, as much as fits
};

// A call that has arrived. The caller of psd_core_call allocates it (usually inside something larger) and it
// stays the core's until reply has run, exactly once, perhaps before psd_core_call returns.
struct psd_call {
    int method;                      // Method of the proto
    uint64_t deadline;               // ns on psd_world.now's clock; UINT64_MAX: none
    struct ps_slices request;        // the message; cleared by the core
    const struct ps_identity *from;  // who calls, and may call this method; NULL: nobody has been asked
    // Where the core keeps the session of the stream that brought the call; NULL: none did. At most one call of a
    // stream is being taken up at a time; looked at until psd_core_call returns.
    struct psd_session **session;
    // body is empty unless code is PS_OK; reply moves it or clears it.
    void (*reply)(struct psd_call *call, enum ps_code code, const char *text, struct ps_slices *body);
    // The call waits, and its request is cleared. While psd_core_call runs, with locks held. NULL: nobody asks.
    void (*let_go)(struct psd_call *call);

    // The core's own from here on.
    struct psd_call *next;
    uint64_t parked_since;  // ns; 0: it never was
    // One wait, which goes on where the call is parked again for the same: for a round that another partition has not
    // closed. The list's lock guards these while it is parked.
    struct psd_wait wait;
    uint64_t wait_since;  // ns; 0: it has not waited since what is recorded
    uint64_t wait_until;  // ns: when it went on last
    uint32_t awaited;     // the worker that let it go on, as in Caller; 0: none, or not known
    bool stall_logged;    // that it waits for long has been logged
    uint32_t worker;      // who waits: as in Caller
    uint8_t client[16];   // likewise; of a call in a session, from the start

    // Where it is parked: guarded by *lock, which is the list's. NULL: it is not parked.
    pthread_mutex_t *_Atomic lock;
    struct psd_waiters *list;
    struct psd_call *previous;
    atomic_bool cancelled;  // its client is gone: it is not parked any more

    // What a call that waits goes on with (psd/service/service.h, psd_park).
    void *message;              // the decoded request; NULL: it has never waited
    size_t counted;             // bytes, for the decoded request
    atomic_size_t *counted_in;  // where
    struct ps_slices room;
    uint8_t *room_data;
    struct psd_job *job;                         // referenced; may be NULL
    int (*resume)(struct psd_request *request);  // NULL: its method
    void *state;                                 // resume's
    void (*state_free)(void *state);
};

// Parked calls that wait for one thing; whatever lock guards that guards the list. Zeroed: nobody.
struct psd_waiters {
    struct psd_call *first;
    uint32_t n;
    uint64_t earliest;  // while n: nobody's deadline is before it
};

// Adds a call to a list, which lock guards and whose lock is held. False: it is cancelled, and has not been added.
bool psd_waiters_add(struct psd_waiters *list, pthread_mutex_t *lock, struct psd_call *call);
// Takes a call out of the list in which it is parked, if it is. True: it is the caller's now. No lock is held; the
// memory of that list's lock lives on meanwhile. taken runs under that lock, right after the call has gone from the
// list.
bool psd_call_take(struct psd_call *call, void (*taken)(const struct psd_call *call, const pthread_mutex_t *lock));
// Moves every call of a list to *ready, which is linked by call->next.
void psd_ready_all(struct psd_call **ready, struct psd_waiters *list);
// Likewise, and notes that they have waited for this worker, as in Caller; 0: for none, or it is not known.
void psd_ready_after(struct psd_call **ready, struct psd_waiters *list, uint32_t worker);
// Moves those whose deadline has passed to *late.
void psd_take_late(struct psd_waiters *list, uint64_t now, struct psd_call **late);
void psd_move_calls(struct psd_call **to, struct psd_call **from);  // all of them, to the front

#endif

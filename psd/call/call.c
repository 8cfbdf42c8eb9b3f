// SPDX-License-Identifier: Apache-2.0
#include "psd/call/call.h"
#include "common/base/sometimes.h"

static void waiters_unlink(struct psd_call *call)
{
    struct psd_waiters *list = call->list;
    if (call->previous)
        call->previous->next = call->next;
    else
        list->first = call->next;
    if (call->next)
        call->next->previous = call->previous;
    list->n--;
    call->list = NULL;
    atomic_store(&call->lock, NULL);
}

// Its lock is set before it looks whether it is cancelled; who cancels it does the one and then the other the other way
// round: one of them sees the other.
bool psd_waiters_add(struct psd_waiters *list, pthread_mutex_t *lock, struct psd_call *call)
{
    if (list->n++ == 0 || call->deadline < list->earliest)
        list->earliest = call->deadline;
    call->next = list->first;
    call->previous = NULL;
    if (list->first)
        list->first->previous = call;
    list->first = call;
    call->list = list;
    atomic_store(&call->lock, lock);
    if (!atomic_load(&call->cancelled))
        return true;
    waiters_unlink(call);
    return false;
}

bool psd_call_take(struct psd_call *call, void (*taken)(const struct psd_call *call, const pthread_mutex_t *lock))
{
    pthread_mutex_t *lock = atomic_load(&call->lock);
    if (!lock)
        return false;
    pthread_mutex_lock(lock);
    bool parked = atomic_load(&call->lock) == lock;
    if (parked) {
        waiters_unlink(call);
        taken(call, lock);
    }
    pthread_mutex_unlock(lock);
    return parked;
}

void psd_move_calls(struct psd_call **to, struct psd_call **from)
{
    while (*from) {
        struct psd_call *call = *from;
        *from = call->next;
        call->next = *to;
        *to = call;
    }
}

void psd_ready_after(struct psd_call **ready, struct psd_waiters *list, uint32_t worker)
{
    while (list->first) {
        struct psd_call *call = list->first;
        waiters_unlink(call);
        call->awaited = worker;
        call->next = *ready;
        *ready = call;
    }
}

void psd_ready_all(struct psd_call **ready, struct psd_waiters *list)
{
    psd_ready_after(ready, list, 0);
}

void psd_take_late(struct psd_waiters *list, uint64_t now, struct psd_call **late)
{
    if (!list->n || list->earliest > now)
        return;
    list->earliest = UINT64_MAX;
    for (struct psd_call *call = list->first, *next; call; call = next) {
        next = call->next;
        if (call->deadline > now) {
            list->earliest = call->deadline < list->earliest ? call->deadline : list->earliest;
            continue;
        }
        ps_sometimes(PS_SOMETIMES_PARKED_LATE);
        waiters_unlink(call);
        call->next = *late;
        *late = call;
    }
}

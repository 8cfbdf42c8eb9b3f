// SPDX-License-Identifier: Apache-2.0
#include "psd/call/call.h"

enum { KEEP_MAX = 64 << 10 };

void psd_call_keep(struct psd_call *call)
{
    struct ps_slices copy = PS_ROPE_EMPTY, *request = &call->request;
    uint8_t *data;
    if (request->len > KEEP_MAX)
        return;
    struct ps_slice s = ps_slice_new(request->len, &data);
    if (!data)
        return;
    ps_slices_copy_out(request, 0, request->len, data);
    ps_slices_add(&copy, s);
    if (copy.broken)
        return;
    ps_slices_clear(request);
    *request = copy;
}

void psd_waiters_add(struct psd_waiters *list, struct psd_call *call)
{
    uint64_t deadline = atomic_load(&call->gone) ? 0 : call->deadline;
    if (list->n++ == 0 || deadline < list->earliest)
        list->earliest = deadline;
    call->next = list->first;
    list->first = call;
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

void psd_ready_all(struct psd_call **ready, struct psd_waiters *list)
{
    psd_move_calls(ready, &list->first);
    list->n = 0;
}

void psd_take_late(struct psd_waiters *list, uint64_t now, bool any_gone, struct psd_call **late)
{
    if (!list->n || (!any_gone && list->earliest > now))
        return;
    struct psd_call **at = &list->first;
    list->earliest = UINT64_MAX;
    while (*at) {
        struct psd_call *call = *at;
        if (call->deadline > now && !atomic_load(&call->gone)) {
            if (call->deadline < list->earliest)
                list->earliest = call->deadline;
            at = &call->next;
            continue;
        }
        *at = call->next;
        call->next = *late;
        *late = call;
        list->n--;
    }
}

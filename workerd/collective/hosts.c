// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/hosts.h"

#include <string.h>

// The lowest worker of the host on which `worker` is.
static uint32_t hosts_first_of(const char *const *name, uint32_t worker)
{
    uint32_t first = 0;
    while (first < worker && (!name[worker][0] || strcmp(name[first], name[worker]) != 0))
        first++;
    return first;
}

struct wk_hosts wk_hosts_find(const char *const *name, uint32_t workers, uint32_t self)
{
    struct wk_hosts h = {.first = hosts_first_of(name, self)};
    for (uint32_t worker = 0; worker < workers; worker++) {
        const uint32_t first = hosts_first_of(name, worker);
        h.host += first == worker && worker < h.first;
        h.hosts += first == worker;
        h.member += first == h.first && worker < self;
        h.members += first == h.first;
    }
    return h;
}

uint32_t wk_hosts_first(const char *const *name, uint32_t host)
{
    uint32_t worker = 0;
    while (host-- > 0)
        do
            worker++;
        while (hosts_first_of(name, worker) != worker);
    return worker;
}

uint32_t wk_hosts_member(const char *const *name, uint32_t self, uint32_t member)
{
    const uint32_t first = hosts_first_of(name, self);
    uint32_t worker = first;
    while (member-- > 0)
        do
            worker++;
        while (hosts_first_of(name, worker) != first);
    return worker;
}

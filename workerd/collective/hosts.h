// SPDX-License-Identifier: Apache-2.0
//
// Which workers are on which host: those of one add up in memory that they share, the first of each are a ring.
#ifndef WK_HOSTS_H
#define WK_HOSTS_H

#include <stdint.h>

struct wk_hosts {
    uint32_t hosts, host;      // how many there are, in the order of their first workers; which one is this worker's
    uint32_t members, member;  // how many workers it has; which one of them, in the order of ranks, is this one
    uint32_t first;            // the first worker of this host
};

// name[i]: of worker i's host, alike for those of one; "": worker i is alone on its own.
struct wk_hosts wk_hosts_find(const char *const *name, uint32_t workers, uint32_t self);
// The first worker of a host.
uint32_t wk_hosts_first(const char *const *name, uint32_t host);
// The worker that is this member of self's host.
uint32_t wk_hosts_member(const char *const *name, uint32_t self, uint32_t member);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// The all-reduce of workers on one host, through memory that they share: each puts those parts of its array there that
// others add up, adds up its own part of what all have put there, and takes the sums. The array goes in pieces, which
// alternate between two sets of buffers, so that a piece needs two barriers.
//
// The ranks' values are added in the order of the ranks: the bits repeat.
//
// Receives from: formation.c; wk_shm_host: rpc/rendezvous.c, job/build.c. Hands to: the kernel's futexes. Threads: one
// of each worker.
#ifndef WK_SHM_H
#define WK_SHM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "workerd/collective/add.h"

struct wk_shm;

// Asked by who waits for a member: why it waits in vain; PS_OK: as far as is known it does not. By the thread that
// waits.
typedef enum ps_code (*wk_shm_look_fn)(void *arg, uint32_t member, struct ps_error *e);

enum { WK_SHM_HOST = 96 };  // bytes of what names a host

// Names this host and its shared memory: alike for two processes that can share. "": there is none, or too little.
void wk_shm_host(uint32_t workers, char host[WK_SHM_HOST]);

struct wk_shm_options {
    const char *name;                 // of the memory, alike for its members alone
    uint32_t member, members;         // this one of so many
    const char *const *members_name;  // [members] for errors; they stay
    wk_shm_look_fn look;              // is asked a few times per second by who waits
    void *arg;
};

// Member 0 makes the memory, the others find it; returns when all have it. RESOURCE_EXHAUSTED, INTERNAL: it cannot be
// had; else look's errors, and *shm is NULL.
enum ps_code wk_shm_open(const struct wk_shm_options *options, struct wk_shm **shm, struct ps_error *e);
void wk_shm_close(struct wk_shm *s);  // may be NULL

// By who waits, in look: has this member not come yet?
bool wk_shm_awaits(const struct wk_shm *s, uint32_t member);

// The sum of all members' arrays, in the array's place, at all; or at member 0 alone. Errors as look's;
// INVALID_ARGUMENT: another member adds up another array.
enum ps_code wk_shm_reduce(struct wk_shm *s, const struct wk_array *array, bool at_all, struct ps_error *e);
// Member 0's array, at all.
enum ps_code wk_shm_broadcast(struct wk_shm *s, const struct wk_array *array, struct ps_error *e);

#endif

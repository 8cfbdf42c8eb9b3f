// SPDX-License-Identifier: Apache-2.0
//
// Which cores the replicas of a worker compute on: the job's `bind`.
//
// Receives from: replicas.c. Threads: each function is for the calling one and those that it starts from then on.
#ifndef WK_CORES_H
#define WK_CORES_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

struct wk_cores;

// What `bind` says for so many replicas. NULL: nothing. INVALID_ARGUMENT: it is none of those words, has not a mask for
// each replica, or a mask of cores that this process may not use. FAILED_PRECONDITION: auto, without hwloc.
enum ps_code wk_cores_plan(const char *bind, uint32_t replicas, struct wk_cores **cores, struct ps_error *e);
void wk_cores_free(struct wk_cores *c);
// "replica 0 on 0-3, replica 1 on 4-7"
void wk_cores_text(const struct wk_cores *c, char *to, size_t size);
// Binds to that replica's; back to all that the process had. c NULL: does nothing.
void wk_cores_bind(const struct wk_cores *c, uint32_t replica);
void wk_cores_release(const struct wk_cores *c);

#endif

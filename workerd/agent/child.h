// SPDX-License-Identifier: Apache-2.0
//
// The process that trains a job: workerd itself, with the job in memory as its file. What it writes comes through a
// pipe. It ends with the process that started it, whatever ends that.
//
// Receives from: agent. Threads: the main thread alone.
#ifndef WK_CHILD_H
#define WK_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"

struct wk_child {
    pid_t pid;   // 0: none
    int output;  // the pipe; -1: none
    int ready;   // another one, which says that it is in the job; -1: none any more
    int status;  // as waitpid has it, once it has ended
};

// args: this program's arguments but for those that name the job; ends with NULL. job: its text, for `workers`.
enum ps_code wk_child_start(struct wk_child *c, char *const *args, const char *job, uint32_t workers,
                            struct ps_error *e);
// Reads what there is, and waits for it at most so long. 0: nothing came. The end of the output counts as nothing.
size_t wk_child_read(struct wk_child *c, void *to, size_t size, int wait_ms);
// Has it come into the job since this was asked last?
bool wk_child_came(const struct wk_child *c);
// Has it ended? c->status then says how; its output may not be read to the end.
bool wk_child_has_ended(struct wk_child *c);
void wk_child_kill(const struct wk_child *c, int signal);
void wk_child_close(struct wk_child *c);  // it has ended

#endif

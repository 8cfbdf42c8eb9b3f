// SPDX-License-Identifier: Apache-2.0
//
// A child process on a libuv loop: started, its output relayed line by line under its name, its end told
// once. Everything happens on the loop's thread.
#ifndef PSCTL_CHILD_H
#define PSCTL_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <uv.h>

#include "common/base/error.h"
#include "common/base/starts.h"

enum { CHILD_LINE_MAX = 4096, CHILD_READY_FD = 3 };

struct child;

// One of the child's descriptors, read here.
struct child_stream {
    uv_pipe_t pipe;
    struct child *child;
    void (*line)(struct child_stream *stream, char *text);
    FILE *to;  // of relayed lines
    size_t len;
    char text[CHILD_LINE_MAX];  // the beginning of a line
};

struct child {
    // The caller's, set before the start.
    char name[32];                          // "worker 1"
    bool terminal;                          // keeps our stdout and stderr; else both are relayed
    void (*on_ready)(struct child *child);  // may be NULL: no descriptor CHILD_READY_FD is given
    void (*on_end)(struct child *child);    // its output is at its end, too
    void *arg;
    FILE *held;  // what it says on stderr is kept there (child_hold); NULL: it is shown

    // To be read by the caller.
    int pid;
    bool running;  // from the start to on_end
    bool ready;
    int page_port;  // of the status page, as it has said when it was ready; 0: it has none
    bool stopped;   // child_end was called: its end is no surprise
    struct ps_starts starts;
    int64_t exit_code;
    int signal;  // that ended it; 0: none

    uv_process_t process;
    struct child_stream out, err, readiness;
    int open;    // handles that are not closed yet
    char *kept;  // what is in `held`
    size_t n_kept;
};

// argv ends with NULL, argv[0] is the program's path. On failure on_end is not called, but the loop has to
// run once more before the child's memory may go. One that has ended may be started again.
enum ps_code child_start(struct child *child, uv_loop_t *loop, char **argv, struct ps_error *e);

// Sends SIGTERM or SIGKILL where it is still running.
void child_end(struct child *child, int signum);

// What the child says on stderr from now on is kept, until it is shown or forgotten. Both may be called at any time.
void child_hold(struct child *child);
void child_let_go(struct child *child, bool show);

// "<name>: <text>" as a line of its own, also where a progress bar is under way on the terminal.
void child_say(FILE *to, const char *name, const char *text);

// "worker 1 (pid 123) was killed by signal 9 (Killed)", of a child that has ended.
void child_describe_end(const struct child *child, char *to, size_t size);

#endif

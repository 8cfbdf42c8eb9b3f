// SPDX-License-Identifier: Apache-2.0
//
// One direction of a connection that carries messages of one size: what is sent is gathered from many messages, what is
// received small is buffered, so that small messages do not cost a system call each.
#ifndef PSBENCH_FLOW_H
#define PSBENCH_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Sends message k from from[k % n].
struct flow_out {
    int fd;
    uint64_t size;
    char *const *from;
    uint64_t n;
    uint64_t sent;    // whole messages
    uint64_t offset;  // bytes of the next that are gone
};

// Sends what the socket takes of the messages below `to`. Returns bytes; 0: it takes none now; -1: the connection is
// gone.
long flow_send(struct flow_out *f, uint64_t to);

// Receives into to[k % n], whole messages at a time where they are small.
struct flow_in {
    int fd;
    uint64_t size;
    char *const *to;
    uint64_t n;
    uint64_t got;     // whole messages
    uint64_t offset;  // bytes of the next that are here
    char *buffer;     // NULL: messages are large, no detour
    size_t buffered;
};

void flow_in_init(struct flow_in *f, int fd, uint64_t size, char *const *to, uint64_t n);
// As flow_send.
long flow_receive(struct flow_in *f);

// Waits until fd can be read, or also written.
void flow_wait(int fd, bool to_write);

#endif

// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/flow.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/alloc.h"

enum { PIECES = 64, BUFFER_BYTES = 256 * 1024 };

static long flow_result(ssize_t n)
{
    if (n > 0)
        return n;
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0 : -1;
}

long flow_send(struct flow_out *f, uint64_t to)
{
    struct iovec pieces[PIECES];
    struct msghdr message = {.msg_iov = pieces};
    uint64_t offset = f->offset;
    for (uint64_t k = f->sent; k < to && message.msg_iovlen < PIECES; k++, offset = 0)
        pieces[message.msg_iovlen++] = (struct iovec){f->from[k % f->n] + offset, f->size - offset};
    if (message.msg_iovlen == 0)
        return 0;
    long n = flow_result(sendmsg(f->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
    if (n > 0) {
        f->offset += (uint64_t)n;
        f->sent += f->offset / f->size;
        f->offset %= f->size;
    }
    return n;
}

void flow_in_init(struct flow_in *f, int fd, uint64_t size, char *const *to, uint64_t n)
{
    *f = (struct flow_in){.fd = fd, .size = size, .to = to, .n = n};
    if (size < BUFFER_BYTES)
        f->buffer = ps_alloc_aligned(BUFFER_BYTES);
}

static void flow_unpack(struct flow_in *f)
{
    size_t at = 0;
    for (; f->buffered - at >= f->size; at += f->size, f->got++)
        memcpy(f->to[f->got % f->n], f->buffer + at, f->size);
    f->buffered -= at;
    memmove(f->buffer, f->buffer + at, f->buffered);
}

long flow_receive(struct flow_in *f)
{
    char *to = f->buffer ? f->buffer + f->buffered : f->to[f->got % f->n] + f->offset;
    size_t room = f->buffer ? BUFFER_BYTES - f->buffered : f->size - f->offset;
    long n = flow_result(recv(f->fd, to, room, MSG_DONTWAIT));
    if (n <= 0)
        return n;
    if (f->buffer) {
        f->buffered += (size_t)n;
        flow_unpack(f);
    } else {
        f->offset += (uint64_t)n;
        f->got += f->offset / f->size;
        f->offset %= f->size;
    }
    return n;
}

void flow_wait(int fd, bool to_write)
{
    struct pollfd p = {.fd = fd, .events = (short)(POLLIN | (to_write ? POLLOUT : 0))};
    poll(&p, 1, -1);
}

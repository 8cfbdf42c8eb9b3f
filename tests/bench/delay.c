// SPDX-License-Identifier: Apache-2.0
//
// A wire between two networks: what comes out of one TUN device goes into the other, so many microseconds later. For
// kernels without a delaying queue of their own.
//
//     delay MICROSECONDS DEVICE DEVICE      makes the devices, then forwards until it is told to end
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

// A direction holds what TCP may have under way; a packet more is lost, as on a real wire.
enum { PACKET_MAX = 65536, PACKETS = 1024 };

struct packet {
    uint64_t due;  // ns
    ssize_t len;
    char *data;  // [PACKET_MAX]
};

struct direction {
    int from, to;
    struct packet ring[PACKETS];
    size_t head, n;
};

static int tun_open(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0)
        return fd;
    fprintf(stderr, "delay: cannot make the device %s: %s\n", name, strerror(errno));
    exit(69);
}

static void wire_take(struct direction *d, uint64_t delay)
{
    static char lost[PACKET_MAX];
    for (;;) {
        struct packet *p = &d->ring[(d->head + d->n) % PACKETS];
        if (d->n < PACKETS && !p->data)
            p->data = ps_alloc(PACKET_MAX);
        ssize_t len = read(d->from, d->n < PACKETS ? p->data : lost, PACKET_MAX);
        if (len <= 0)
            return;
        if (d->n == PACKETS)
            continue;
        p->due = ps_now() + delay;
        p->len = len;
        d->n++;
    }
}

static void wire_give(struct direction *d)
{
    for (; d->n > 0 && d->ring[d->head].due <= ps_now(); d->n--) {
        const struct packet *p = &d->ring[d->head];
        if (write(d->to, p->data, (size_t)p->len) < 0 && errno == EAGAIN)
            return;
        d->head = (d->head + 1) % PACKETS;
    }
}

static void wire_wait(const struct direction d[2])
{
    struct pollfd p[2] = {{.fd = d[0].from, .events = POLLIN}, {.fd = d[1].from, .events = POLLIN}};
    uint64_t due = UINT64_MAX, now = ps_now();
    for (int i = 0; i < 2; i++)
        if (d[i].n > 0 && d[i].ring[d[i].head].due < due)
            due = d[i].ring[d[i].head].due;
    uint64_t left = due > now ? due - now : 0;
    struct timespec t = {.tv_sec = (time_t)(left / PS_SECOND), .tv_nsec = (long)(left % PS_SECOND)};
    ppoll(p, 2, due == UINT64_MAX ? NULL : &t, NULL);
}

int main(int argc, char **argv)
{
    static struct direction wire[2];
    if (argc != 4) {
        fprintf(stderr, "usage: delay MICROSECONDS DEVICE DEVICE\n");
        return 64;
    }
    uint64_t delay = strtoull(argv[1], NULL, 10) * 1000;
    int fds[] = {tun_open(argv[2]), tun_open(argv[3])};
    prctl(PR_SET_TIMERSLACK, 1);
    for (int i = 0; i < 2; i++) {
        wire[i].from = fds[i];
        wire[i].to = fds[1 - i];
    }
    puts("READY");
    fflush(stdout);
    for (;;) {
        wire_wait(wire);
        for (int i = 0; i < 2; i++) {
            wire_take(&wire[i], delay);
            wire_give(&wire[i]);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//
// Plain sockets at the addresses that psd and workers take: "127.0.0.1:7070", "unix:/path".
#ifndef PSBENCH_ENDPOINT_H
#define PSBENCH_ENDPOINT_H

#include "common/base/error.h"

// Port 0: the kernel picks one, which takes its place in the address. INVALID_ARGUMENT: no address. UNAVAILABLE: it
// cannot be had.
enum ps_code endpoint_listen(char *address, int *listener, struct ps_error *e);
// -1, and errno: nobody listens there.
int endpoint_connect(const char *address);
// What is written is sent at once.
void endpoint_no_delay(int fd);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// Where a server may listen: "host:port", "[ipv6]:port" or "unix:/path".
#ifndef PS_COMMON_RPC_ADDRESS_H
#define PS_COMMON_RPC_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "common/base/error.h"

// False: a unix socket's path that is longer than one may be, of which the core would complain on stderr in its own
// way.
bool ps_address_fits(const char *address);

// What a name stands for, once it was looked up.
enum { PS_ADDRESSES_MAX = 8 };
struct ps_addresses {
    struct sockaddr_storage at[PS_ADDRESSES_MAX];
    size_t n;  // 0: a unix socket
};

// Can a server listen here, and may it? Looks a name up, once: what is listened on has to be what was admitted. *found
// gets those of its addresses that can be bound. Removes a unix socket that nobody listens on any more.
// INVALID_ARGUMENT: not an address. FAILED_PRECONDITION: other hosts could connect, and insecure is false.
// ALREADY_EXISTS: someone listens there. PERMISSION_DENIED, UNAVAILABLE: the system refuses it.
enum ps_code ps_address_admit(const char *address, bool insecure, struct ps_addresses *found, struct ps_error *e);

// "127.0.0.1:7070", "[::1]:7070", with that port where its own is 0.
enum { PS_ADDRESS_TEXT = 80 };
void ps_address_text(const struct sockaddr_storage *at, int port, char text[PS_ADDRESS_TEXT]);
int ps_address_port(const struct sockaddr_storage *at);

#endif

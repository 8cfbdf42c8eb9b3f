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

// Between that and the bind, other processes that are about to listen in the same folder are kept waiting: else two
// could find that nobody listens, and the second would take the socket's name from the first, which would serve nobody.
// -1: a unix socket it is not, or its folder is locked by something else for seconds, or cannot be.
int ps_address_hold(const char *address);
void ps_address_let_go(int held);

// Does "host:port" have a name that stands for loopback addresses alone here, and is no name of loopback itself?
// Debian, for one, has such a line of the host's own name in /etc/hosts.
bool ps_address_is_kept_inside(const char *address, const struct ps_addresses *found);

// "127.0.0.1:7070", "[::1]:7070", with that port where its own is 0.
enum { PS_ADDRESS_TEXT = 80 };
void ps_address_text(const struct sockaddr_storage *at, int port, char text[PS_ADDRESS_TEXT]);
int ps_address_port(const struct sockaddr_storage *at);
// Breaks all connections that this process has made to a unix socket, however its path is spelt, and in which the peer
// has left something unread, which is lost; of another address: none.
void ps_address_break(const char *address);

// The other way round, for "unix:/path" too: no name is looked up. Its length; 0: the text is no such address.
socklen_t ps_address_parse(const char *address, struct sockaddr_storage *at);

#endif

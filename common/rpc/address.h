// SPDX-License-Identifier: Apache-2.0
//
// Where a server may listen: "host:port", "[ipv6]:port" or "unix:/path".
#ifndef PS_COMMON_RPC_ADDRESS_H
#define PS_COMMON_RPC_ADDRESS_H

#include <stdbool.h>

#include "common/base/error.h"

// False: a unix socket's path that is longer than one may be, of which the core would complain on stderr in its own way.
bool ps_address_fits(const char *address);

// Can a server listen here, and may it? Removes a unix socket that nobody listens on any more.
// INVALID_ARGUMENT: not an address. FAILED_PRECONDITION: other hosts could connect, and insecure is false.
// ALREADY_EXISTS: someone listens there. PERMISSION_DENIED, UNAVAILABLE: the system refuses it.
enum ps_code ps_address_admit(const char *address, bool insecure, struct ps_error *e);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// libclient's world on the gRPC core: one connection per ps task. All callbacks run on one thread, the world's.
#ifndef PSC_RPC_WORLD_H
#define PSC_RPC_WORLD_H

#include <stddef.h>

#include "common/base/error.h"
#include "libclient/psclient.h"
#include "libclient/transport.h"

// PSC_STREAM: the calls that may be records of the gathered stream are, the others are unary. Addresses are copied.
// attempt_ms: what an attempt to connect may take. INVALID_ARGUMENT: no such transport.
enum ps_code psc_world_rpc_create(const char *const *addresses, size_t n, enum psc_transport transport, int attempt_ms,
                                  struct psc_world *world, struct ps_error *e) __attribute__((visibility("hidden")));

#endif

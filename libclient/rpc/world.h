// SPDX-License-Identifier: Apache-2.0
//
// libclient's world on the gRPC core: one connection per ps task, for unary calls two. All callbacks run on one
// thread, the world's.
#ifndef PSC_RPC_WORLD_H
#define PSC_RPC_WORLD_H

#include <stddef.h>

#include "common/base/error.h"
#include "common/tls/identity.h"
#include "libclient/psclient.h"
#include "libclient/transport.h"

struct psc_world_rpc_options {
    enum psc_transport transport;  // PSC_STREAM: calls that may be records of the gathered stream are, others are unary
    int attempt_ms;                // what an attempt to connect may take
    enum ps_role role;             // which certificate it shows, where the cluster has TLS
};

// The cluster is copied. INVALID_ARGUMENT: no such transport; errors of ps_tls_open and ps_munge_open.
enum ps_code psc__world_rpc_create(const struct psc_cluster *cluster, const struct psc_world_rpc_options *options,
                                   struct psc_world *world, struct ps_error *e) __attribute__((visibility("hidden")));

#endif

// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/client.h"
#include "libclient/admin.h"
#include "libclient/client.h"
#include "libclient/cluster.h"
#include "libclient/convert.h"
#include "libclient/rpc/world.h"
#include "libclient/wait.h"

static psc_code connect_join(const psc_cluster *cluster, const psc_options *options,
                             const struct psc_world_rpc_options *rpc, psc_client **client, psc_error *error)
{
    struct psc__waiter w = PSC__WAITER;
    struct psc_world world;
    psc_client *c;
    struct ps_error e = {.code = PS_OK};
    if (psc__world_rpc_create(cluster, rpc, &world, &e) != PS_OK ||
        psc__client_create(cluster, options, &world, &c, &e) != PS_OK)
        return psc__error_out(&e, error);
    psc__join(c, psc__waiter_wake, &w);
    if (psc__waiter_wait(&w) == PS_OK)
        *client = c;
    else
        psc__client_free(c);
    return psc__error_out(&w.error, error);
}

psc_code psc_connect(const psc_cluster *cluster, const psc_options *options, psc_client **client, psc_error *error)
{
    const struct psc_world_rpc_options rpc = {options->transport, PS_CLIENT_ATTEMPT_MS, PS_ROLE_WORKER};
    return connect_join(cluster, options, &rpc, client, error);
}

// Longer than a call: it is its deadline that ends the wait for who takes the connection and does not answer.
psc_code psc__admin_connect(const psc_cluster *cluster, const psc_options *options, psc_client **client,
                            psc_error *error)
{
    const struct psc_world_rpc_options rpc = {options->transport, options->timeout_ms + PS_CLIENT_ATTEMPT_MS,
                                              PS_ROLE_ADMIN};
    return connect_join(cluster, options, &rpc, client, error);
}

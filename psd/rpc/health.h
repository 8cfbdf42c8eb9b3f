// SPDX-License-Identifier: Apache-2.0
//
// grpc.health.v1.Health: does this task serve?
//
// Receives from: common/rpc's server, whose ps_service_method.answer these are; ctx is a struct psd_health. Threads:
// any.
#ifndef PSD_RPC_HEALTH_H
#define PSD_RPC_HEALTH_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/base/error.h"
#include "common/wire/slice.h"

struct psd_health {
    atomic_bool stopping;
};

void psd_health_init(struct psd_health *h);  // serving
void psd_health_stop(struct psd_health *h);  // NOT_SERVING from now on; ps_server_changed follows

// NOT_FOUND: a service that is neither "" nor one of the contract. INVALID_ARGUMENT: not a request.
enum ps_code psd_health_check(void *ctx, const struct ps_slices *request, struct ps_slices *reply, struct ps_error *e);
// Likewise, but a service that is not known has a state too: SERVICE_UNKNOWN.
enum ps_code psd_health_watch(void *ctx, const struct ps_slices *request, struct ps_slices *reply, struct ps_error *e);

#endif

// SPDX-License-Identifier: Apache-2.0
#include "psd/rpc/health.h"

#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"
#include "common/wire/wire.h"
#include "proto/health.pb-c.h"
#include "proto/paramserver.pb-c.h"

#define STATUS(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name
typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus status_t;

void psd_health_init(struct psd_health *h)
{
    atomic_init(&h->stopping, false);
}

void psd_health_stop(struct psd_health *h)
{
    atomic_store(&h->stopping, true);
}

static status_t health_status_of(struct psd_health *h, const char *service)
{
    const char *const known[] = {
        "",  // the task
        paramserver__v1__parameter_server__descriptor.name,
        paramserver__v1__admin__descriptor.name,
        paramserver__v1__queue__descriptor.name,
        paramserver__v1__peer__descriptor.name,
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(service, known[i]) == 0)
            return atomic_load(&h->stopping) ? STATUS(NOT_SERVING) : STATUS(SERVING);
    return STATUS(SERVICE_UNKNOWN);
}

static enum ps_code health_refuse_unknown(const char *service, struct ps_error *e)
{
    char name[128];
    snprintf(name, sizeof name, "%s", service);
    ps_utf8_repair(name);
    return ps_fail(e, PS_NOT_FOUND, "no service '%s' here: expected '' or one of paramserver.v1", name);
}

static enum ps_code health_answer(struct psd_health *h, bool watch, const struct ps_slices *request,
                                  struct ps_slices *reply, struct ps_error *e)
{
    ProtobufCMessage *m;
    struct ps_slices payload = PS_SLICES_EMPTY;
    enum ps_code code = ps_msg_unpack(&grpc__health__v1__health_check_request__descriptor, request, &m, &payload, e);
    if (code)
        return code;
    const char *service = ((Grpc__Health__V1__HealthCheckRequest *)m)->service;
    Grpc__Health__V1__HealthCheckResponse out = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    out.status = health_status_of(h, service);
    if (out.status == STATUS(SERVICE_UNKNOWN) && !watch)
        code = health_refuse_unknown(service, e);
    else
        ps_msg_pack(&out.base, NULL, reply);
    ps_slices_clear(&payload);
    ps_msg_free(m);
    return code;
}

enum ps_code psd_health_check(void *ctx, const struct ps_slices *request, struct ps_slices *reply, struct ps_error *e)
{
    return health_answer(ctx, false, request, reply, e);
}

enum ps_code psd_health_watch(void *ctx, const struct ps_slices *request, struct ps_slices *reply, struct ps_error *e)
{
    return health_answer(ctx, true, request, reply, e);
}

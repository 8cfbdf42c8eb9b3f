// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/method.h"

#include <string.h>

#include "proto/paramserver.pb-c.h"

// Those of the service ParameterServer may be records of a stream.
#define DATA(name)                                    \
    {                                                 \
        "/paramserver.v1.ParameterServer/" name, true \
    }
#define ADMIN(name)                          \
    {                                        \
        "/paramserver.v1.Admin/" name, false \
    }
#define WORKER(name)                          \
    {                                         \
        "/paramserver.v1.Worker/" name, false \
    }
#define PEER(name)                          \
    {                                       \
        "/paramserver.v1.Peer/" name, false \
    }

static const struct {
    const char *path;
    bool streams;
} methods[PS_METHODS] = {
    [PARAMSERVER__V1__METHOD__JOIN] = DATA("Join"),
    [PARAMSERVER__V1__METHOD__HEARTBEAT] = DATA("Heartbeat"),
    [PARAMSERVER__V1__METHOD__LEAVE] = DATA("Leave"),
    [PARAMSERVER__V1__METHOD__BARRIER] = DATA("Barrier"),
    [PARAMSERVER__V1__METHOD__LEASE] = DATA("Lease"),
    [PARAMSERVER__V1__METHOD__DECLARE] = DATA("Declare"),
    [PARAMSERVER__V1__METHOD__DESCRIBE] = DATA("Describe"),
    [PARAMSERVER__V1__METHOD__PUT] = DATA("Put"),
    [PARAMSERVER__V1__METHOD__ASSIGN_ADD] = DATA("AssignAdd"),
    [PARAMSERVER__V1__METHOD__PUSH] = DATA("Push"),
    [PARAMSERVER__V1__METHOD__GET] = DATA("Get"),
    [PARAMSERVER__V1__METHOD__PULL] = DATA("Pull"),
    [PARAMSERVER__V1__METHOD__STATUS] = ADMIN("Status"),
    [PARAMSERVER__V1__METHOD__WORKERS] = ADMIN("Workers"),
    [PARAMSERVER__V1__METHOD__STOP_JOB] = ADMIN("StopJob"),
    [PARAMSERVER__V1__METHOD__SET_MEMBERS] = PEER("SetMembers"),
    [PARAMSERVER__V1__METHOD__ASSIGN_SUB] = DATA("AssignSub"),
    [PARAMSERVER__V1__METHOD__PUSH_PULL] = DATA("PushPull"),
    [PARAMSERVER__V1__METHOD__REDUCE] = DATA("Reduce"),
    [PARAMSERVER__V1__METHOD__CLOCK] = DATA("Clock"),
    [PARAMSERVER__V1__METHOD__WAITS] = ADMIN("Waits"),
    [PARAMSERVER__V1__METHOD__SET_HYPER] = ADMIN("SetHyper"),
    [PARAMSERVER__V1__METHOD__DRAIN] = ADMIN("Drain"),
    [PARAMSERVER__V1__METHOD__AGREE] = PEER("Agree"),
    [PARAMSERVER__V1__METHOD__SUM_SQUARES] = PEER("SumSquares"),
    [PARAMSERVER__V1__METHOD__OPEN] = DATA("Open"),
    [PARAMSERVER__V1__METHOD__RENDEZVOUS] = WORKER("Rendezvous"),
    [PARAMSERVER__V1__METHOD__ABORT] = WORKER("Abort"),
    [PARAMSERVER__V1__METHOD__WATCH] = WORKER("Watch"),
    [PARAMSERVER__V1__METHOD__SET_MODE] = ADMIN("SetMode"),
};

const char *ps_method_path(int method)
{
    return method > 0 && method < PS_METHODS ? methods[method].path : NULL;
}

const char *ps_method_name(int method)
{
    const char *path = ps_method_path(method);
    return path ? strrchr(path, '/') + 1 : "?";
}

bool ps_method_streams(int method)
{
    return method > 0 && method < PS_METHODS && methods[method].streams;
}

bool ps_method_is_control(int method)
{
    const char *path = ps_method_path(method);
    bool membership = method == PARAMSERVER__V1__METHOD__HEARTBEAT || method == PARAMSERVER__V1__METHOD__LEAVE;
    return membership || (path && !ps_method_streams(method));
}

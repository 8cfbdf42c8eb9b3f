// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/method.h"

#include <string.h>

#include "proto/paramserver.pb-c.h"

// Those of the service ParameterServer may be records of a stream.
#define METHOD(service, name, streams, roles)               \
    {                                                       \
        "/paramserver.v1." service "/" name, streams, roles \
    }
#define DATA(name) METHOD("ParameterServer", name, true, PS_STREAM_ROLES)
// Status and SetHyper aside, which a training asks of its own job, and Status a ps task of others'.
#define ADMIN(name) METHOD("Admin", name, false, PS_ROLE_ADMIN)
#define WORKER(name) METHOD("Worker", name, false, PS_ROLE_WORKER)
#define QUEUE(name, roles) METHOD("Queue", name, false, roles)
#define PEER(name) METHOD("Peer", name, false, PS_ROLE_PSD)

static const struct {
    const char *path;
    bool streams;
    unsigned roles;
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
    [PARAMSERVER__V1__METHOD__PRUNE_SHARDS] = DATA("PruneShards"),
    [PARAMSERVER__V1__METHOD__LOAD_SHARD] = DATA("LoadShard"),
    [PARAMSERVER__V1__METHOD__STATUS] = METHOD("Admin", "Status", false, PS_ROLE_ALL),
    [PARAMSERVER__V1__METHOD__WORKERS] = ADMIN("Workers"),
    [PARAMSERVER__V1__METHOD__STOP_JOB] = ADMIN("StopJob"),
    [PARAMSERVER__V1__METHOD__SET_MEMBERS] = PEER("SetMembers"),
    [PARAMSERVER__V1__METHOD__ASSIGN_SUB] = DATA("AssignSub"),
    [PARAMSERVER__V1__METHOD__PUSH_PULL] = DATA("PushPull"),
    [PARAMSERVER__V1__METHOD__REDUCE] = DATA("Reduce"),
    [PARAMSERVER__V1__METHOD__CLOCK] = DATA("Clock"),
    [PARAMSERVER__V1__METHOD__WAITS] = ADMIN("Waits"),
    [PARAMSERVER__V1__METHOD__SET_HYPER] = METHOD("Admin", "SetHyper", false, PS_STREAM_ROLES),
    [PARAMSERVER__V1__METHOD__DRAIN] = ADMIN("Drain"),
    [PARAMSERVER__V1__METHOD__AGREE] = PEER("Agree"),
    [PARAMSERVER__V1__METHOD__SUM_SQUARES] = PEER("SumSquares"),
    [PARAMSERVER__V1__METHOD__OPEN] = DATA("Open"),
    [PARAMSERVER__V1__METHOD__RENDEZVOUS] = WORKER("Rendezvous"),
    [PARAMSERVER__V1__METHOD__ABORT] = WORKER("Abort"),
    [PARAMSERVER__V1__METHOD__WATCH] = WORKER("Watch"),
    [PARAMSERVER__V1__METHOD__SET_MODE] = ADMIN("SetMode"),
    [PARAMSERVER__V1__METHOD__CHECKPOINT] = ADMIN("Checkpoint"),
    [PARAMSERVER__V1__METHOD__TRACE] = ADMIN("Trace"),
    [PARAMSERVER__V1__METHOD__SUBMIT] = QUEUE("Submit", PS_ROLE_ADMIN),
    [PARAMSERVER__V1__METHOD__LIST] = QUEUE("List", PS_ROLE_ADMIN),
    [PARAMSERVER__V1__METHOD__CANCEL] = QUEUE("Cancel", PS_ROLE_ADMIN),
    [PARAMSERVER__V1__METHOD__LOGS] = QUEUE("Logs", PS_ROLE_ADMIN),
    [PARAMSERVER__V1__METHOD__NEXT] = QUEUE("Next", PS_ROLE_WORKER),
    [PARAMSERVER__V1__METHOD__REPORT] = QUEUE("Report", PS_ROLE_WORKER),
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

unsigned ps_method_roles(int method)
{
    return method > 0 && method < PS_METHODS ? methods[method].roles : 0;
}

bool ps_method_is_control(int method)
{
    const char *path = ps_method_path(method);
    bool membership = method == PARAMSERVER__V1__METHOD__HEARTBEAT || method == PARAMSERVER__V1__METHOD__LEAVE;
    return membership || (path && !ps_method_streams(method) && method != PARAMSERVER__V1__METHOD__SUM_SQUARES);
}

enum ps_lane ps_method_lane(int method)
{
    if (method == PARAMSERVER__V1__METHOD__SUM_SQUARES)
        return PS_LANE_NORMS;
    return ps_method_is_control(method) ? PS_LANE_CONTROL : PS_LANE_NONE;
}

// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/coverage.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"

#define M(name) PARAMSERVER__V1__METHOD__##name

enum { MAX_PAIRS = 512, PAIR_MAX = 64 };

// Counted by their text: "PUSH atomic, async".
static struct {
    char text[PAIR_MAX];
    uint64_t n;
} pairs[MAX_PAIRS];
static size_t n_pairs;

static void count(const char *method, const char *option, const char *mode)
{
    char text[PAIR_MAX];
    size_t i = 0;
    snprintf(text, sizeof text, "%s%s%s, %s", method, option[0] ? " " : "", option, mode);
    while (i < n_pairs && strcmp(pairs[i].text, text) != 0)
        i++;
    if (i == MAX_PAIRS)
        return;
    if (i == n_pairs)
        memcpy(pairs[n_pairs++].text, text, sizeof text);
    pairs[i].n++;
}

// ---- the options of each call -------------------------------------------------------------------------------------

static void note_update(const char *name, const Paramserver__V1__UpdateRequest *r, const char *mode)
{
    bool part = false;
    for (size_t i = 0; i < r->n_tensors; i++)
        part |= r->tensors[i]->count != 0;
    count(name, part ? "of a range" : "of whole partitions", mode);
    if (r->caller && !r->caller->protocol)
        count(name, "in a session", mode);
    if (r->atomic_bytes)
        count(name, "atomic", mode);
    if (r->round)
        count(name, "to a round", mode);
    if (r->refuse_nonfinite)
        count(name, "refuse_nonfinite", mode);
}

static void note_read(const char *name, const Paramserver__V1__ReadRequest *r, const char *mode)
{
    static const char *const given[] = {"of a round", "continued", "if_newer", "release"};
    const bool has[] = {r->round != 0, r->offset != 0, r->if_newer, r->release};
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
        if (has[i])
            count(name, given[i], mode);
}

static void note_join(const Paramserver__V1__JoinRequest *r, const char *mode)
{
    static const char *const what[] = {"refuse", "resume", "replace"};
    if (r->on_existing >= 0 && r->on_existing <= 2)
        count("JOIN", what[r->on_existing], mode);
}

static void note_mode(const char *name, const Paramserver__V1__SetModeRequest *r, const char *mode)
{
    static const char *const to[] = {[PARAMSERVER__V1__UPDATE__ASYNC] = "to async",
                                     [PARAMSERVER__V1__UPDATE__SYNC] = "to sync",
                                     [PARAMSERVER__V1__UPDATE__SSP] = "to ssp"};
    count(name, to[r->update], mode);
}

static void note_reduce(const Paramserver__V1__ReduceRequest *r, const char *mode)
{
    static const char *const ops[] = {"none", "sum", "mean", "min", "max", "gather", "broadcast"};
    if (r->op >= 0 && r->op < (int)(sizeof ops / sizeof ops[0]))
        count("REDUCE", ops[r->op], mode);
}

static const struct {
    int method;
    const char *name;
    const ProtobufCMessageDescriptor *type;
} methods[] = {
#define METHOD(NAME, type)                                             \
    {                                                                  \
        M(NAME), #NAME, &paramserver__v1__##type##_request__descriptor \
    }
    METHOD(JOIN, join),         METHOD(HEARTBEAT, heartbeat), METHOD(LEAVE, leave),
    METHOD(BARRIER, barrier),   METHOD(LEASE, lease),         METHOD(DECLARE, declare),
    METHOD(DESCRIBE, describe), METHOD(PUT, update),          METHOD(ASSIGN_ADD, update),
    METHOD(ASSIGN_SUB, update), METHOD(PUSH, update),         METHOD(PUSH_PULL, update),
    METHOD(GET, read),          METHOD(PULL, read),           METHOD(REDUCE, reduce),
    METHOD(CLOCK, clock),       METHOD(SET_HYPER, set_hyper), METHOD(STATUS, status),
    METHOD(WAITS, waits),       METHOD(STOP_JOB, stop_job),   METHOD(OPEN, open),
    METHOD(SET_MODE, set_mode),
#undef METHOD
};

static void note_options(int method, const char *name, const ProtobufCMessage *m, const char *mode)
{
    switch (method) {
    case M(PUSH):
    case M(PUSH_PULL):
    case M(PUT):
    case M(ASSIGN_ADD):
    case M(ASSIGN_SUB):
        note_update(name, (const Paramserver__V1__UpdateRequest *)m, mode);
        break;
    case M(GET):
    case M(PULL):
        note_read(name, (const Paramserver__V1__ReadRequest *)m, mode);
        break;
    case M(JOIN):
        note_join((const Paramserver__V1__JoinRequest *)m, mode);
        break;
    case M(REDUCE):
        note_reduce((const Paramserver__V1__ReduceRequest *)m, mode);
        break;
    case M(CLOCK):
        count(name, ((const Paramserver__V1__ClockRequest *)m)->wait ? "wait" : "", mode);
        break;
    case M(DESCRIBE):
        count(name, ((const Paramserver__V1__DescribeRequest *)m)->wait ? "wait" : "", mode);
        break;
    case M(SET_HYPER):
        count(name, ((const Paramserver__V1__SetHyperRequest *)m)->round ? "from a round" : "", mode);
        break;
    case M(SET_MODE):
        note_mode(name, (const Paramserver__V1__SetModeRequest *)m, mode);
        break;
    case M(LEAVE):
        count(name, ((const Paramserver__V1__LeaveRequest *)m)->failed ? "failed" : "", mode);
        break;
    default:
        break;
    }
}

void sim_coverage_note(const struct sim_seen *seen, const char *mode)
{
    struct ps_slices payload = PS_SLICES_EMPTY;
    ProtobufCMessage *m;
    size_t i = 0, n = sizeof methods / sizeof methods[0];
    while (i < n && methods[i].method != seen->method)
        i++;
    if (i == n || seen->answer || ps_msg_unpack(methods[i].type, seen->message, &m, &payload, NULL))
        return;
    count(methods[i].name, seen->unary ? "unary" : "stream", mode);
    note_options(seen->method, methods[i].name, m, mode);
    ps_slices_clear(&payload);
    ps_msg_free(m);
}

// ---- the list -----------------------------------------------------------------------------------------------------

static bool was_seen(const char *text)
{
    for (size_t i = 0; i < n_pairs; i++)
        if (strcmp(pairs[i].text, text) == 0)
            return true;
    return false;
}

unsigned sim_coverage_print(void)
{
    static const char *const modes[] = {"async", "ssp", "sync", "sync with backup"};
    static const char *const everywhere[] = {"JOIN unary",
                                             "JOIN stream",
                                             "JOIN refuse",
                                             "HEARTBEAT unary",
                                             "HEARTBEAT stream",
                                             "LEAVE unary",
                                             "LEAVE stream",
                                             "LEAVE failed",
                                             "BARRIER unary",
                                             "BARRIER stream",
                                             "LEASE unary",
                                             "LEASE stream",
                                             "DECLARE unary",
                                             "DECLARE stream",
                                             "DESCRIBE wait",
                                             "PUSH unary",
                                             "PUSH stream",
                                             "PUSH in a session",
                                             "ASSIGN_ADD of a range",
                                             "GET stream",
                                             "PULL unary",
                                             "PULL stream",
                                             "REDUCE unary",
                                             "REDUCE sum",
                                             "PUSH of whole partitions",
                                             "OPEN stream"};
    static const char *const here[] = {"PUSH atomic, async",      "PUSH atomic, ssp",
                                       "PUSH_PULL unary, async",  "PUSH_PULL stream, sync",
                                       "PUSH_PULL unary, ssp",    "PUSH_PULL to a round, sync",
                                       "PUSH to a round, sync",   "PUSH to a round, sync with backup",
                                       "PULL of a round, sync",   "CLOCK wait, ssp",
                                       "SET_HYPER, sync",         "SET_HYPER from a round, sync",
                                       "SET_MODE to ssp, async",  "SET_MODE to async, ssp",
                                       "SET_MODE to sync, async", "SET_MODE to sync, ssp",
                                       "SET_MODE to async, sync", "SET_MODE to ssp, sync with backup",
                                       "JOIN replace, async",     "JOIN replace, sync"};
    char text[PAIR_MAX];
    unsigned missing = 0;
    for (size_t i = 0; i < n_pairs; i++)
        printf("# %8" PRIu64 "  %s\n", pairs[i].n, pairs[i].text);
    for (size_t i = 0; i < sizeof everywhere / sizeof everywhere[0]; i++)
        for (size_t k = 0; k < sizeof modes / sizeof modes[0]; k++) {
            snprintf(text, sizeof text, "%s, %s", everywhere[i], modes[k]);
            if (!was_seen(text) && ++missing)
                printf("# never seen: %s\n", text);
        }
    for (size_t i = 0; i < sizeof here / sizeof here[0]; i++)
        if (!was_seen(here[i]) && ++missing)
            printf("# never seen: %s\n", here[i]);
    return missing;
}

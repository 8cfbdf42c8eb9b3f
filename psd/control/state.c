// SPDX-License-Identifier: Apache-2.0
#include "psd/control/state.h"

#include <inttypes.h>
#include <string.h>

#define EXPECTED PARAMSERVER__V1__MEMBER_STATE__EXPECTED
#define LIVE PARAMSERVER__V1__MEMBER_STATE__LIVE
#define LEFT PARAMSERVER__V1__MEMBER_STATE__LEFT

const char *psd_state_name(Paramserver__V1__MemberState state)
{
    return state == EXPECTED ? "not joined yet" : state == LIVE ? "live" : state == LEFT ? "left" : "dead";
}

uint32_t psd_count_state(const struct psd_control *c, Paramserver__V1__MemberState state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->workers; i++)
        n += c->members[i].state == state;
    return n;
}

struct psd_member *psd_member_live(struct psd_job *job, const Paramserver__V1__Caller *caller, uint64_t now,
                                   struct ps_error *e)
{
    struct psd_control *c = job->control;
    struct psd_member *m = c && caller->worker && caller->worker <= c->workers ? &c->members[caller->worker - 1] : NULL;
    if (!m) {
        ps_fail(e, PS_FAILED_PRECONDITION, "rank + 1 = %" PRIu32 " is not a member of job '%s' at this ps task%s",
                caller->worker, job->name, c ? "" : ": members are known at ps task 0");
        return NULL;
    }
    if (m->state != LIVE || memcmp(m->client, caller->client.data, 16) != 0 || m->incarnation != caller->incarnation) {
        ps_fail(e, PS_ABORTED, "worker %" PRIu32 " of job '%s' is %s%s%s", caller->worker - 1, job->name,
                m->state == LIVE ? "another process now" : psd_state_name(m->state), m->reason[0] ? ": " : "",
                m->reason);
        return NULL;
    }
    m->last_seen = now;
    return m;
}

void psd_member_waits(struct psd_member *m, uint64_t now)
{
    if (m->waits_since == 0)
        m->waits_since = now;
}

void psd_member_goes_on(struct psd_control *c, struct psd_member *m)
{
    m->waits_since = 0;
    m->newcomer = false;
    c->begun = true;
}

int psd_fail_superseded(const Paramserver__V1__Caller *caller, const char *what, uint64_t newest, struct ps_error *e)
{
    return ps_fail(e, PS_ABORTED,
                   "%s: sequence %" PRIu64 " is superseded: worker %" PRIu32 " has asked again under %" PRIu64, what,
                   caller->sequence, caller->worker - 1, newest);
}

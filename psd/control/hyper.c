// SPDX-License-Identifier: Apache-2.0
//
// A change of a hyperparameter, as a kind of agreement. Its value: 8 bytes of a double in this machine's order, which
// is the wire's, then the name.
#include "psd/job/hyper.h"

#include <stdio.h>
#include <string.h>

#include "common/base/error.h"
#include "psd/control/agree.h"

// False: it is none.
static bool hyper_read(const struct psd_job *job, const struct psd_proposal *p, struct psd_change *change)
{
    char name[PSD_AGREE_VALUE_MAX + 1];
    *change = (struct psd_change){.number = p->number, .round = p->round, .any_round = p->any_round, .hyper = -1};
    if (p->bytes <= sizeof change->value)
        return false;
    memcpy(&change->value, p->value, sizeof change->value);
    memcpy(name, p->value + sizeof change->value, p->bytes - sizeof change->value);
    name[p->bytes - sizeof change->value] = '\0';
    change->hyper = psd_hyper_find(job->rule, name);
    return change->hyper >= 0;
}

static enum ps_code hyper_check(const struct psd_job *job, const struct psd_proposal *p, struct ps_error *e)
{
    double scratch[PS_RULE_MAX_HYPERS];
    struct psd_change change;
    if (!hyper_read(job, p, &change))
        return ps_fail(e, PS_INVALID_ARGUMENT, "rule %s has no such hyperparameter", job->rule->name);
    return ps_rule_set(job->rule, scratch, job->rule->hyper[change.hyper].name, change.value, e);
}

static enum ps_code hyper_reserve(struct psd_job *job, const struct psd_proposal *p, uint64_t least, uint64_t *missing)
{
    (void)p, (void)missing;
    return psd_hyper_reserve(job, least) ? PS_OK : PS_RESOURCE_EXHAUSTED;
}

static void hyper_take(struct psd_job *job, const struct psd_proposal *p, struct psd_call **ready)
{
    struct psd_change change;
    (void)ready;
    if (hyper_read(job, p, &change))
        psd_hyper_change(job, &change);
}

static void hyper_describe(const struct psd_job *job, const struct psd_proposal *p, char *text, size_t size)
{
    struct psd_change change;
    if (hyper_read(job, p, &change))
        snprintf(text, size, "%s becomes %g", job->rule->hyper[change.hyper].name, change.value);
    else
        snprintf(text, size, "a hyperparameter changes");
}

const struct psd_agree_kind psd_agree_hyper = {.name = "set hyper",
                                               .check = hyper_check,
                                               .reserve = hyper_reserve,
                                               .take = hyper_take,
                                               .describe = hyper_describe};

// SPDX-License-Identifier: Apache-2.0
#include "common/wire/progress.h"

#include <stdbool.h>
#include <string.h>

#include "common/base/utf8.h"

void ps_progress_add(struct ps_progress *p, const char *name, double value)
{
    if (p->n == PS_MAX_PROGRESS)
        memmove(p->metric, p->metric + 1, --p->n * sizeof *p->metric);
    struct ps_progress_metric *m = &p->metric[p->n++];
    ps_utf8_cut(name, m->name, sizeof m->name);
    m->value = value;
}

// The last one.
static bool progress_is_new(const struct ps_progress *p)
{
    const char *name = p->metric[p->n - 1].name;
    size_t i = 0;
    while (strcmp(p->metric[i].name, name) != 0)
        i++;
    return *name && i == p->n - 1;
}

void ps_progress_read(struct ps_progress *p, const Paramserver__V1__Progress *from)
{
    const uint64_t ended = from->epochs_ended < from->epochs ? from->epochs_ended : from->epochs;
    const enum ps_checkpoints said = (enum ps_checkpoints)from->checkpoints;
    if (from->n_metrics || ended != p->ended)
        p->n = 0;
    p->epochs = from->epochs;
    p->ended = ended;
    if (said == PS_CHECKPOINTS_NONE || said == PS_CHECKPOINTS_SOME)
        p->checkpoints = said;
    if (from->checkpoint_step && from->checkpoint_ms >= p->checkpoint_ms) {
        p->checkpoint = from->checkpoint_step;
        p->checkpoint_ms = from->checkpoint_ms;
    }
    for (size_t i = 0; i < from->n_metrics && p->n < PS_MAX_PROGRESS; i++) {
        ps_progress_add(p, from->metrics[i]->name, from->metrics[i]->value);
        p->n -= !progress_is_new(p);
    }
}

Paramserver__V1__Progress *ps_progress_write(const struct ps_progress *p, struct ps_progress_message *to)
{
    if (p->epochs == 0)
        return NULL;
    paramserver__v1__progress__init(&to->base);
    to->base.epochs = p->epochs;
    to->base.epochs_ended = p->ended;
    to->base.checkpoints = (Paramserver__V1__Checkpoints)p->checkpoints;
    to->base.checkpoint_step = p->checkpoint;
    to->base.checkpoint_ms = p->checkpoint_ms;
    to->base.n_metrics = p->n;
    to->base.metrics = to->pointers;
    for (size_t i = 0; i < p->n; i++) {
        paramserver__v1__metric__init(&to->metric[i]);
        to->metric[i].name = (char *)p->metric[i].name;
        to->metric[i].value = p->metric[i].value;
        to->pointers[i] = &to->metric[i];
    }
    return &to->base;
}

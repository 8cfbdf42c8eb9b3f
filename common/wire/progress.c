// SPDX-License-Identifier: Apache-2.0
#include "common/wire/progress.h"

#include "common/base/utf8.h"

void ps_progress_add(struct ps_progress *p, const char *name, double value)
{
    struct ps_progress_metric *m = &p->metric[p->n++];
    ps_utf8_cut(name, m->name, sizeof m->name);
    m->value = value;
}

void ps_progress_read(struct ps_progress *p, const Paramserver__V1__Progress *from)
{
    p->epochs = from->epochs;
    p->ended = from->epochs_ended;
    p->n = 0;
    for (size_t i = 0; i < from->n_metrics && i < PS_MAX_PROGRESS; i++)
        ps_progress_add(p, from->metrics[i]->name, from->metrics[i]->value);
}

Paramserver__V1__Progress *ps_progress_write(const struct ps_progress *p, struct ps_progress_message *to)
{
    if (p->epochs == 0)
        return NULL;
    paramserver__v1__progress__init(&to->base);
    to->base.epochs = p->epochs;
    to->base.epochs_ended = p->ended;
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

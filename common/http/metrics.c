// SPDX-License-Identifier: Apache-2.0
#include "common/http/metrics.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/alloc.h"

enum ps_code ps_metrics_open(struct ps_metrics *m, struct ps_error *e)
{
    *m = (struct ps_metrics){0};
    m->to = open_memstream(&m->text, &m->len);
    return m->to ? PS_OK : ps_no_memory(e, "a list of metrics");
}

void ps_metrics_family(struct ps_metrics *m, const char *name, const char *type, const char *help)
{
    m->family = name;
    fprintf(m->to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void metrics_put_escaped(FILE *to, const char *value)
{
    for (; *value; value++) {
        if (*value == '\n') {
            fputs("\\n", to);
            continue;
        }
        if (*value == '\\' || *value == '"')
            fputc('\\', to);
        fputc(*value, to);
    }
}

// 15 digits: every whole number below 10^15 is exact, and 0.3 stays 0.3.
static void metrics_put_value(FILE *to, double value)
{
    if (isnan(value))
        fputs("NaN", to);
    else if (isinf(value))
        fputs(value > 0 ? "+Inf" : "-Inf", to);
    else
        fprintf(to, "%.15g", value);
}

void ps_metrics_sample(struct ps_metrics *m, const struct ps_label *labels, size_t n, double value)
{
    fputs(m->family, m->to);
    for (size_t i = 0; i < n; i++) {
        fprintf(m->to, "%c%s=\"", i == 0 ? '{' : ',', labels[i].name);
        metrics_put_escaped(m->to, labels[i].value);
        fputc('"', m->to);
    }
    fputs(n > 0 ? "} " : " ", m->to);
    metrics_put_value(m->to, value);
    fputc('\n', m->to);
}

enum ps_code ps_metrics_close(struct ps_metrics *m, char **text, struct ps_error *e)
{
    const bool failed = ferror(m->to) != 0;
    if (fclose(m->to) == 0 && !failed) {
        *text = m->text;
        return PS_OK;
    }
    free(m->text);
    return ps_no_memory(e, "a list of metrics");
}

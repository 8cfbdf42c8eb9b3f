// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

enum { SUM_EXAMPLES = 0, SUM_LOSS = 1, SUM_OUTPUTS = 2 };

// An output as a matrix.
struct measured_output {
    const char *name;
    size_t rows, width;  // of an example
    bool labels;
};

struct measured_metric {
    struct nn_metric of;
    size_t first;  // of its sums
    char name[NN_MEASURE_NAME];
};

struct nn_measures {
    struct measured_output output[NN_MAX_PORTS];
    struct measured_metric *metric;
    size_t n_outputs, n_metrics, sums;
};

// ---- create -------------------------------------------------------------------------------------------------------

static struct measured_output measure_output(const struct nn_model *model, size_t k, const struct ps_loss *loss)
{
    const struct nn_port port = nn_model_output(model, k);
    const size_t width = port.type->rank ? (size_t)port.type->dim[port.type->rank - 1] : 1;
    return (struct measured_output){port.name, nn_type_count(port.type) / width, width, ps_loss_has_labels(loss)};
}

// "acc", "OUTPUT_acc"; "acc_1" where there is that one already.
static void measure_name(const struct nn_measures *m, struct measured_metric *metric)
{
    const struct measured_output *o = &m->output[metric->of.output];
    char base[NN_MEASURE_NAME - 24];
    int same = 0;
    snprintf(base, sizeof base, "%s%s%s", m->n_outputs > 1 ? o->name : "", m->n_outputs > 1 ? "_" : "",
             metric->of.metric.label);
    snprintf(metric->name, sizeof metric->name, "%s", base);
    for (const struct measured_metric *other = m->metric; other < metric; other++)
        if (strcmp(other->name, metric->name) == 0) {
            snprintf(metric->name, sizeof metric->name, "%s_%d", base, ++same);
            other = m->metric - 1;
        }
}

static enum ps_code measure_take(struct nn_measures *m, const struct nn_model *model, const struct ps_loss *loss,
                                 const struct nn_metric *metric, struct ps_error *e)
{
    const struct nn_port port = nn_model_output(model, metric->output);
    struct measured_metric *to = &m->metric[m->n_metrics];
    if (nn_metric_check(&metric->metric, &loss[metric->output], &port, e))
        return e->code;
    *to = (struct measured_metric){.of = *metric, .first = m->sums};
    measure_name(m, to);
    m->n_metrics++;
    m->sums += nn_metric_states(&metric->metric, m->output[metric->output].width);
    return PS_OK;
}

enum ps_code nn_measures_create(const struct nn_model *model, const struct ps_loss *loss,
                                const struct nn_metric *metrics, size_t n, struct nn_measures **measures,
                                struct ps_error *e)
{
    struct nn_measures *m = ps_alloc(sizeof *m);
    m->n_outputs = nn_model_outputs(model);
    m->sums = SUM_OUTPUTS + m->n_outputs;
    m->metric = ps_alloc((n + 1) * sizeof *m->metric);
    for (size_t k = 0; k < m->n_outputs; k++)
        m->output[k] = measure_output(model, k, &loss[k]);
    for (size_t i = 0; i < n; i++)
        if (measure_take(m, model, loss, &metrics[i], e)) {
            nn_measures_free(m);
            return e->code;
        }
    *measures = m;
    return PS_OK;
}

void nn_measures_free(struct nn_measures *m)
{
    if (!m)
        return;
    free(m->metric);
    free(m);
}

size_t nn_measures_sums(const struct nn_measures *m)
{
    return m->sums;
}

// ---- sums ---------------------------------------------------------------------------------------------------------

void nn_measures_add(const struct nn_measures *m, struct nn_replica *r, const struct nn_batch *b,
                     const struct nn_result *result, double *sums)
{
    sums[SUM_EXAMPLES] += b->rows;
    sums[SUM_LOSS] += result->loss;
    for (size_t k = 0; k < m->n_outputs; k++)
        sums[SUM_OUTPUTS + k] += result->output[k];
    for (const struct measured_metric *metric = m->metric; metric < m->metric + m->n_metrics; metric++) {
        const size_t k = metric->of.output;
        const struct measured_output *o = &m->output[k];
        const struct nn_scores s = {.rows = (size_t)b->rows * o->rows,
                                    .width = o->width,
                                    .output = nn_replica_output(r, k),
                                    .target = o->labels ? NULL : b->target[k],
                                    .label = o->labels ? b->target[k] : NULL,
                                    .counts = nn_replica_counts(r, k)};
        nn_metric_update(&metric->of.metric, &s, sums + metric->first);
    }
}

// ---- figures ------------------------------------------------------------------------------------------------------

struct measure_figure {
    char name[NN_MEASURE_NAME];
    double value;
    enum nn_better better;
};

static enum nn_better measure_better(const struct ps_metric *m)
{
    switch (m->kind) {
    case PS_METRIC_MSE:
    case PS_METRIC_RMSE:
    case PS_METRIC_MAE:
    case PS_METRIC_MAPE:
        return NN_BETTER_LESS;
    default:
        return NN_BETTER_MORE;
    }
}

static int measure_compare(const void *a, const void *b)
{
    return strcmp(((const struct measure_figure *)a)->name, ((const struct measure_figure *)b)->name);
}

static size_t measure_count(const struct nn_measures *m)
{
    size_t n = 1 + m->n_outputs;
    for (size_t i = 0; i < m->n_metrics; i++)
        n += nn_metric_values(&m->metric[i].of.metric, m->output[m->metric[i].of.output].width);
    return n;
}

// The metric's number, or numbers: "f1_0", "f1_1" ... of each class.
static size_t measure_results(const struct nn_measures *m, const struct measured_metric *metric, const double *sums,
                              struct measure_figure *to)
{
    const size_t width = m->output[metric->of.output].width, n = nn_metric_values(&metric->of.metric, width);
    double *value = ps_alloc(n * sizeof *value);
    nn_metric_result(&metric->of.metric, width, sums + metric->first, value);
    for (size_t i = 0; i < n; i++) {
        if (n > 1)
            snprintf(to[i].name, NN_MEASURE_NAME, "%.230s_%zu", metric->name, i);
        else
            snprintf(to[i].name, NN_MEASURE_NAME, "%s", metric->name);
        to[i].value = value[i];
        to[i].better = measure_better(&metric->of.metric);
    }
    free(value);
    return n;
}

static size_t measure_losses(const struct nn_measures *m, const double *sums, struct measure_figure *to)
{
    snprintf(to[0].name, NN_MEASURE_NAME, "loss");
    to[0].value = sums[SUM_LOSS] / sums[SUM_EXAMPLES];
    to[0].better = NN_BETTER_LESS;
    if (m->n_outputs < 2)
        return 1;
    for (size_t k = 0; k < m->n_outputs; k++) {
        snprintf(to[1 + k].name, NN_MEASURE_NAME, "%.240s_loss", m->output[k].name);
        to[1 + k].value = sums[SUM_OUTPUTS + k] / sums[SUM_EXAMPLES];
        to[1 + k].better = NN_BETTER_LESS;
    }
    return 1 + m->n_outputs;
}

void nn_measures_tell(const struct nn_measures *m, const double *sums, nn_measure_tell tell, void *arg)
{
    if (!(sums[SUM_EXAMPLES] > 0))
        return;
    struct measure_figure *figure = ps_alloc(measure_count(m) * sizeof *figure);
    size_t n = measure_losses(m, sums, figure);
    for (size_t i = 0; i < m->n_metrics; i++)
        if (m->metric[i].of.metric.kind != PS_METRIC_CONFUSION)
            n += measure_results(m, &m->metric[i], sums, figure + n);
    qsort(figure, n, sizeof *figure, measure_compare);
    for (size_t i = 0; i < n; i++)
        tell(arg, figure[i].name, figure[i].value, figure[i].better);
    free(figure);
}

bool nn_measures_matrix(const struct nn_measures *m, const double *sums, size_t i, const char **name,
                        const double **value, size_t *classes)
{
    for (const struct measured_metric *metric = m->metric; metric < m->metric + m->n_metrics; metric++) {
        const size_t width = m->output[metric->of.output].width;
        if (metric->of.metric.kind != PS_METRIC_CONFUSION || i-- > 0)
            continue;
        *name = metric->name;
        *value = sums + metric->first;
        *classes = width == 1 ? 2 : width;
        return true;
    }
    return false;
}

// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/objectives.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

_Static_assert((int)PS_MAX_OUTPUTS == (int)NN_MAX_PORTS, "a loss for each output");

// A class that the output does not have is a slip of the pen. Of one column of numbers any may be meant.
static enum ps_code objectives_check_classes(const struct ps_class_weights *w, const struct nn_port *output,
                                             const struct ps_loss *loss, struct ps_error *e)
{
    const bool binary = loss->kind == PS_LOSS_BINARY_XENT || loss->kind == PS_LOSS_BINARY_FOCAL;
    const size_t width = nn_type_count(output->type), classes = width > 1 ? width : binary ? 2 : INT32_MAX;
    const struct ps_class_weight *last = &w->of[w->n - 1];
    if ((size_t)last->class < classes)
        return PS_OK;
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "class_weight: output \"%s\" has %zu classes, 0 to %zu, and none is %" PRId32, output->name, classes,
                   classes - 1, last->class);
}

static enum ps_code objectives_check_weights(const struct ps_job *job, const struct nn_model *model,
                                             const struct ps_loss *loss, struct ps_error *e)
{
    if (!job->class_weight.n)
        return PS_OK;
    if (nn_model_outputs(model) != 1)
        return ps_fail(e, PS_FAILED_PRECONDITION, "class_weight: the model has %zu outputs: expected one of one output",
                       nn_model_outputs(model));
    if (nn_model_output(model, 0).type->rank > 1)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "class_weight: an example of output \"%s\" has more than one class: expected an output of shape "
                       "(classes,)",
                       nn_model_output(model, 0).name);
    const struct nn_port output = nn_model_output(model, 0);
    return objectives_check_classes(&job->class_weight, &output, &loss[0], e);
}

enum ps_code wk_objectives_bind(struct wk_objectives *o, const struct ps_job *job, const struct nn_model *model,
                                struct ps_error *e)
{
    const char *output[NN_MAX_PORTS];
    size_t n = nn_model_outputs(model), place[PS_MAX_METRICS];
    for (size_t k = 0; k < n; k++)
        output[k] = nn_model_output(model, k).name;
    *o = (struct wk_objectives){.n_metrics = job->metrics.n};
    if (ps_job_losses_bind(&job->loss, output, n, o->loss, e) || nn_model_check_loss(model, o->loss, e) ||
        ps_job_metrics_bind(&job->metrics, output, n, place, e) || objectives_check_weights(job, model, o->loss, e))
        return e->code;
    for (size_t i = 0; i < o->n_metrics; i++) {
        const struct nn_port port = nn_model_output(model, place[i]);
        o->metric[i] = (struct nn_metric){job->metrics.of[i].metric, place[i]};
        if (nn_metric_check(&o->metric[i].metric, &o->loss[place[i]], &port, e))
            return e->code;
    }
    return PS_OK;
}

// ---- weights of classes -------------------------------------------------------------------------------------------

static int class_weight_find(const void *key, const void *at)
{
    const int32_t class = *(const int32_t *)key, other = ((const struct ps_class_weight *)at)->class;
    return (class > other) - (class < other);
}

// Keras's: the greatest of several columns, of one the nearest whole number.
static int32_t class_weight_class(const float *target, size_t width)
{
    size_t best = 0;
    for (size_t i = 1; i < width; i++)
        best = target[i] > target[best] ? i : best;
    if (width > 1)
        return (int32_t)best;
    return target[0] >= -0.5f && target[0] < 2e9f ? (int32_t)lrintf(target[0]) : -1;
}

void wk_class_weights(const struct ps_class_weights *w, const struct nn_model *model, const struct ps_loss *loss,
                      const struct nn_batch *b, float *weight)
{
    const size_t width = nn_type_count(nn_model_output(model, 0).type);
    for (int i = 0; i < b->rows; i++) {
        const int32_t class = ps_loss_has_labels(loss)
                                  ? ((const int32_t *)b->target[0])[i]
                                  : class_weight_class((const float *)b->target[0] + (size_t)i * width, width);
        const struct ps_class_weight *found = bsearch(&class, w->of, w->n, sizeof *w->of, class_weight_find);
        weight[i] = (b->weight ? b->weight[i] : 1) * (found ? found->weight : 1);
    }
}

// SPDX-License-Identifier: Apache-2.0
//
// Where data and model meet: the only file here that calls workerd/nn.
#include <inttypes.h>

#include "workerd/data/data_internal.h"

static enum ps_code check_input(const struct wk_split *split, const struct nn_model *model, struct ps_error *e)
{
    char have[128], want[128];
    size_t rank;
    const uint64_t *shape = nn_model_input_shape(model, &rank);
    if (split->inputs == nn_model_inputs(model))
        return PS_OK;
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "an example of the data has shape %s (%zu elements), the model's input is %s (%zu elements)",
                   ps_shape_text(split->shape, split->rank, have, sizeof have), split->inputs,
                   ps_shape_text(shape, rank, want, sizeof want), nn_model_inputs(model));
}

static enum ps_code check_labels(const struct wk_part *part, size_t outputs, struct ps_error *e)
{
    if (!part->label)
        return ps_fail(e, PS_FAILED_PRECONDITION, "the loss compares class numbers, but the data was read as targets");
    if ((size_t)part->split.classes > outputs)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "the greatest label of the data is %" PRId32 ", but the model has %zu outputs: expected labels "
                       "from 0 to %zu",
                       part->split.classes - 1, outputs, outputs - 1);
    return PS_OK;
}

static enum ps_code check_targets(const struct wk_part *part, size_t outputs, struct ps_error *e)
{
    if (!part->target)
        return ps_fail(e, PS_FAILED_PRECONDITION, "the loss compares targets, but the data was read as class numbers");
    if (part->split.targets != outputs)
        return ps_fail(e, PS_FAILED_PRECONDITION, "a target of the data has %zu elements, the model %zu outputs",
                       part->split.targets, outputs);
    return PS_OK;
}

static enum ps_code check_part(const struct wk_part *part, const struct nn_model *model, const struct nn_loss *loss,
                               struct ps_error *e)
{
    size_t outputs = nn_model_outputs(model);
    enum ps_code code = check_input(&part->split, model, e);
    if (code != PS_OK)
        return code;
    return loss->kind == NN_SPARSE_XENT ? check_labels(part, outputs, e) : check_targets(part, outputs, e);
}

enum ps_code wk_data_check(const struct wk_data *data, const struct nn_model *model, const struct nn_loss *loss,
                           struct ps_error *e)
{
    enum ps_code code = check_part(&data->train, model, loss, e);
    if (code == PS_OK && data->test.split.examples && (code = check_part(&data->test, model, loss, e)) != PS_OK)
        ps_error_prefix(e, "test data");
    return code;
}

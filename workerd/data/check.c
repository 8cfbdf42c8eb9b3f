// SPDX-License-Identifier: Apache-2.0
//
// Where data and model meet: the only file here that calls workerd/nn.
#include <inttypes.h>
#include <string.h>

#include "workerd/data/data_internal.h"

struct shape {
    const uint64_t *size;
    size_t rank;
};

// Without dimensions of 1 at its ends.
static struct shape data_shape_core(struct shape s)
{
    while (s.rank > 0 && s.size[s.rank - 1] == 1)
        s.rank--;
    while (s.rank > 0 && s.size[0] == 1) {
        s.size++;
        s.rank--;
    }
    return s;
}

static uint64_t data_shape_elements(struct shape s)
{
    uint64_t n = 1;
    for (size_t i = 0; i < s.rank; i++)
        n *= s.size[i];
    return n;
}

// An equal number of elements alone could be an image with its axes in another order.
static bool data_shapes_fit(struct shape a, struct shape b)
{
    a = data_shape_core(a);
    b = data_shape_core(b);
    if (a.rank <= 1 || b.rank <= 1)
        return data_shape_elements(a) == data_shape_elements(b);
    return a.rank == b.rank && memcmp(a.size, b.size, a.rank * sizeof *a.size) == 0;
}

static enum ps_code check_shape(const char *what, struct shape data, const char *end, struct shape model,
                                struct ps_error *e)
{
    char have[128], want[128];
    if (data_shapes_fit(data, model))
        return PS_OK;
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "%s of the data has shape %s, the model's %s is %s: expected the same, but for dimensions of 1 at "
                   "the ends, or one of the two flat",
                   what, ps_shape_text(data.size, data.rank, have, sizeof have), end,
                   ps_shape_text(model.size, model.rank, want, sizeof want));
}

// Of one example; no dimension is negative.
static struct shape port_shape(struct nn_port port)
{
    return (struct shape){(const uint64_t *)port.type->dim, (size_t)port.type->rank};
}

static enum ps_code check_input(const struct wk_split *split, const struct nn_model *model, struct ps_error *e)
{
    return check_shape("an example", (struct shape){split->shape, split->rank}, "input",
                       port_shape(nn_model_input(model, 0)), e);
}

static enum ps_code check_labels(const struct wk_part *part, const struct nn_type *output, struct ps_error *e)
{
    const size_t outputs = (size_t)output->dim[output->rank - 1];
    if (!part->label)
        return ps_fail(e, PS_FAILED_PRECONDITION, "the loss compares class numbers, but the data was read as targets");
    if (nn_type_count(output) != outputs)
        return ps_fail(
            e, PS_FAILED_PRECONDITION,
            "an example of the data has 1 label, but the model has %zu outputs of %zu classes each: expected "
            "as many",
            nn_type_count(output) / outputs, outputs);
    if ((size_t)part->split.classes > outputs)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "the greatest label of the data is %" PRId32 ", but the model has %zu outputs: expected labels "
                       "from 0 to %zu",
                       part->split.classes - 1, outputs, outputs - 1);
    return PS_OK;
}

static enum ps_code check_targets(const struct wk_part *part, const struct nn_model *model, struct ps_error *e)
{
    if (!part->target)
        return ps_fail(e, PS_FAILED_PRECONDITION, "the loss compares targets, but the data was read as class numbers");
    return check_shape("a target", (struct shape){part->split.target_shape, part->split.target_rank}, "output",
                       port_shape(nn_model_output(model, 0)), e);
}

static enum ps_code check_part(const struct wk_part *part, const struct nn_model *model, const struct ps_loss *loss,
                               struct ps_error *e)
{
    enum ps_code code = check_input(&part->split, model, e);
    if (code != PS_OK)
        return code;
    return ps_loss_has_labels(loss) ? check_labels(part, nn_model_output(model, 0).type, e)
                                    : check_targets(part, model, e);
}

enum ps_code wk_data_check(const struct wk_data *data, const struct nn_model *model, const struct ps_loss *loss,
                           struct ps_error *e)
{
    if (nn_model_inputs(model) != 1 || nn_model_outputs(model) != 1)
        return ps_fail(
            e, PS_FAILED_PRECONDITION,
            "the data has one x and one y, but the model has %zu inputs and %zu outputs: expected one of each",
            nn_model_inputs(model), nn_model_outputs(model));
    enum ps_code code = check_part(&data->train, model, loss, e);
    if (code == PS_OK && data->test.split.examples && (code = check_part(&data->test, model, loss, e)) != PS_OK)
        ps_error_prefix(e, "test data");
    return code;
}

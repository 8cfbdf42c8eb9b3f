// SPDX-License-Identifier: Apache-2.0
//
// While it is trained: by the mean and the variance of the batch, which the moving ones follow. Else, and where it is
// frozen: by the moving ones.
//
// The moving variance follows the variance of all elements, divided by their number, as in Keras 3. Keras 2 divides by
// one less where the input is an image, whose channels come first or last, and the layer not synchronized.
//
// Synchronized: by the mean and the variance of what all replicas have in a step.
#include "workerd/nn/layers/normalization.h"
#include "workerd/nn/ops/binary.h"
#include "workerd/nn/ops/moments.h"
#include "workerd/nn/setting.h"

struct batch_normalization {
    struct normalization n;
    int axis, rank;  // rank: of the inputs; set by build
    double momentum;
    bool one_less, synchronized;
};

#define AT(member) NN_AT(struct batch_normalization, member)
#define KEYS                                                                                             \
    {"axis", NN_KEY_AXIS, AT(axis), .fallback = -1},                                                     \
        {"momentum", NN_KEY_REAL, AT(momentum), .fallback = 0.99, .min = 0, .max = 1},                   \
        NORMALIZATION_KEYS(struct batch_normalization), {"moving_mean_initializer", NN_KEY_INITIALIZER}, \
        {"moving_variance_initializer", NN_KEY_INITIALIZER}, {"renorm", NN_KEY_REFUSED},                 \
        {"renorm_clipping", NN_KEY_REFUSED},                                                             \
    {                                                                                                    \
        "renorm_momentum", NN_KEY_NONE /* of renorm */                                                   \
    }

static const struct nn_key keys[] = {KEYS, {"synchronized", NN_KEY_BOOL, AT(synchronized)}, {NULL}};
// Keras 2's: of its BatchNormalization it does not save whether it is.
static const struct nn_key sync_keys[] = {KEYS, {"synchronized", NN_KEY_BOOL, AT(synchronized), .fallback = 1}, {NULL}};

static enum ps_code batch_normalization_build(struct nn_building *b, struct ps_error *e)
{
    struct batch_normalization *c = b->layer->config;
    if (nn_build_inputs(b, 1, e))
        return e->code;
    if (!b->first && b->layer->trainable)
        return nn_json_fail(b->at, e, "BatchNormalization is called twice: expected one call, or trainable: false");
    if (b->inference && b->layer->trainable)
        return nn_json_fail(b->at, e, "BatchNormalization is called with training=False: expected trainable: false");
    if (b->mask[0] >= 0 && b->layer->trainable)
        return nn_json_fail(b->at, e,
                            "BatchNormalization of an input with a mask, whose statistics would leave out what is "
                            "masked, is not supported: expected it before the mask, or trainable: false");
    b->out = b->in[0]->type;
    if (!b->first && b->out.rank != c->rank)  // as in Keras
        return nn_json_fail(b->at, e,
                            "BatchNormalization is called on inputs of %d and of %d dimensions: expected one "
                            "number of them",
                            c->rank, b->out.rank);
    c->rank = b->out.rank;
    const int axis = nn_axis_of(c->axis, c->rank);
    const struct nn_type channels = {NN_FLOAT, 1, {b->out.dim[axis]}};
    c->one_less = nn_setting_is_keras2(b->at) && b->out.rank == 3 && axis != 1 && !c->synchronized;
    if (c->synchronized && b->layer->trainable && !b->model->synchronized)
        b->model->synchronized = b->layer->name;
    if (normalization_build_parameters(b, &c->n, &channels, e) ||
        nn_build_state(b, "moving_mean", "Zeros", &channels, c->momentum, e))
        return e->code;
    return nn_build_state(b, "moving_variance", "Ones", &channels, c->momentum, e);
}

// x as (rows and what comes before the axis, the axis, what comes after it).
static struct nn_normalize batch_normalization_axes(const struct nn_emitter *m, const struct nn_type *x, int axis)
{
    struct nn_normalize attr = {
        .dim = {m->rows, x->dim[axis], 1, 1}, .statistic = {[1] = true}, .parameter = {[1] = true}};
    for (int i = 0; i < x->rank; i++)
        if (i != axis)
            attr.dim[i < axis ? 0 : 2] *= x->dim[i];
    return attr;
}

static int batch_normalization_emit_by(struct nn_emitter *m, const struct nn_call *call,
                                       const struct batch_normalization *c, struct nn_normalize *attr,
                                       const int *statistic)
{
    int in[5] = {nn_emit_tensor(m, call->in[0]), statistic[0], statistic[1]}, out;
    attr->epsilon = (float)c->n.epsilon;
    attr->scale = c->n.scale;
    attr->center = c->n.center;
    nn_tape_put(m->tape, &nn_op_normalize_by, attr, sizeof *attr, in,
                3 + normalization_parameters(m, call, &c->n, in + 3), &out, 1);
    return out;
}

static int batch_normalization_emit_fixed(struct nn_emitter *m, const struct nn_call *call,
                                          const struct batch_normalization *c, struct nn_normalize *attr)
{
    const int own = c->n.scale + c->n.center;
    const int moving[] = {nn_emit_variable(m, call, own), nn_emit_variable(m, call, own + 1)};
    return batch_normalization_emit_by(m, call, c, attr, moving);
}

static int batch_normalization_emit_synchronized(struct nn_emitter *m, const struct nn_call *call,
                                                 const struct batch_normalization *c, struct nn_normalize *attr,
                                                 int *statistic)
{
    const int x = nn_emit_tensor(m, call->in[0]);
    attr->synchronized = true;
    nn_tape_put(m->tape, &nn_op_moments, attr, sizeof *attr, &x, 1, statistic, 2);
    nn_tape_put(m->tape, &nn_op_join_moments, attr, sizeof *attr, statistic, 2, statistic, 2);
    return batch_normalization_emit_by(m, call, c, attr, statistic);
}

static bool batch_normalization_is_synchronized(const struct nn_emitter *m, const struct batch_normalization *c)
{
    const enum nn_synchronize which = m->model->synchronize;
    return which == NN_SYNCHRONIZE_ALL || (which == NN_SYNCHRONIZE_MARKED && c->synchronized);
}

// The variance that the moving one follows.
static int batch_normalization_variance(struct nn_emitter *m, const struct batch_normalization *c,
                                        const struct nn_normalize *over, int variance)
{
    const int64_t n = over->dim[0] * over->dim[2];
    const struct nn_affine attr = {(float)((double)n / (double)(n - 1)), 0};
    if (c->one_less && !over->synchronized && n > 1)
        nn_tape_put(m->tape, &nn_op_affine, &attr, sizeof attr, &variance, 1, &variance, 1);
    return variance;
}

static int batch_normalization_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_layer *l = nn_emit_layer(m, call);
    const struct batch_normalization *c = NN_CONFIG(struct batch_normalization, l);
    const int own = c->n.scale + c->n.center;
    struct nn_normalize attr = batch_normalization_axes(m, nn_emit_type(m, call->in[0]), nn_axis_of(c->axis, c->rank));
    int statistic[2];
    if (!m->training || !l->trainable)
        return batch_normalization_emit_fixed(m, call, c, &attr);
    const int y = batch_normalization_is_synchronized(m, c)
                      ? batch_normalization_emit_synchronized(m, call, c, &attr, statistic)
                      : normalization_emit(m, call, &c->n, &attr, statistic);
    nn_emit_state(m, call, own, statistic[0]);
    nn_emit_state(m, call, own + 1, batch_normalization_variance(m, c, &attr, statistic[1]));
    return y;
}

const struct nn_layer_class nn_layer_batch_normalization = {
    "BatchNormalization",      sizeof(struct batch_normalization), keys,
    batch_normalization_build, batch_normalization_emit,           .passes_mask = true};
const struct nn_layer_class nn_layer_sync_batch_normalization = {
    "SyncBatchNormalization",  sizeof(struct batch_normalization), sync_keys,
    batch_normalization_build, batch_normalization_emit,           .passes_mask = true};

// SPDX-License-Identifier: Apache-2.0
//
// A replica: a model with memory and a device. Layers are lowered to nodes, one operator each; all memory is laid out
// once, at create; a step then only calls operators.
//
//   input -> node 0 -> node 1 -> ... -> node n-1 -> loss
//
// Every node owns its output y. Gradients of outputs need no such permanence: they go back and forth between two
// buffers, each as large as the largest output.
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/layer.h"

struct node;

// What a node does with its operator. x: the output below it, (rows, ...). backward may destroy dy, and dx is NULL
// where nothing below learns.
struct node_type {
    enum ps_code (*plan)(struct nn_replica *r, struct node *n, struct ps_error *e);  // NULL: nothing to prepare
    void (*forward)(struct nn_replica *r, struct node *n, const float *x);
    void (*backward)(struct nn_replica *r, struct node *n, const float *x, float *dy, float *dx);
};

struct node {
    const struct node_type *type;
    const struct nn_layer *layer;
    bool relu;  // fused
    struct nn_plan *plan;
    float *y;     // (rows, layer->count)
    uint8_t *at;  // (rows, layer->count), pooling only: where the maxima were
};

struct nn_replica {
    const struct nn_model *model;
    const struct nn_ops *ops;
    struct nn_context *ctx;
    struct nn_loss loss;
    int rows;
    uint64_t seed;

    struct node *node;
    size_t nodes;
    size_t first;  // the lowest node that learns, nodes if none: backward ends there
    bool fused;    // the loss is the cross-entropy of the softmax that is the last node, and computes it, too

    void *memory;  // everything below that points to arrays lies in it
    float **param, **grad;
    float *padded;       // (rows, inputs), for batches of fewer rows
    uint64_t *example;   // (rows)
    float *row_loss;     // (rows)
    float *gradient[2];  // (rows, the most elements of an output)

    // The batch at hand.
    uint32_t step;
    const float *input, *output;
};

// ---- operators ----------------------------------------------------------------------------------------------------

static const float *replica_weights(float **of, int index)
{
    return index >= 0 ? of[index] : NULL;
}

// Where the gradient of a layer's variable goes; NULL: it has none.
static float *replica_gradient(const struct nn_replica *r, const struct nn_layer *l, int index)
{
    return l->trainable && index >= 0 ? r->grad[index] : NULL;
}

static enum ps_code conv2d_plan(struct nn_replica *r, struct node *n, struct ps_error *e)
{
    struct nn_conv2d s = n->layer->conv;
    s.n = r->rows;
    s.act = n->relu ? NN_RELU : NN_LINEAR;
    return r->ops->conv2d_plan(r->ctx, &s, &n->plan, e);
}

static void conv2d_forward(struct nn_replica *r, struct node *n, const float *x)
{
    r->ops->conv2d_forward(n->plan, x, replica_weights(r->param, n->layer->kernel),
                           replica_weights(r->param, n->layer->bias), n->y);
}

static void conv2d_backward(struct nn_replica *r, struct node *n, const float *x, float *dy, float *dx)
{
    r->ops->conv2d_backward(n->plan, x, r->param[n->layer->kernel], n->y, dy, dx,
                            replica_gradient(r, n->layer, n->layer->kernel),
                            replica_gradient(r, n->layer, n->layer->bias));
}

static enum ps_code dense_plan(struct nn_replica *r, struct node *n, struct ps_error *e)
{
    struct nn_dense s = n->layer->dense;
    s.n *= r->rows;
    s.act = n->relu ? NN_RELU : NN_LINEAR;
    return r->ops->dense_plan(r->ctx, &s, &n->plan, e);
}

static void dense_forward(struct nn_replica *r, struct node *n, const float *x)
{
    r->ops->dense_forward(n->plan, x, replica_weights(r->param, n->layer->kernel),
                          replica_weights(r->param, n->layer->bias), n->y);
}

static void dense_backward(struct nn_replica *r, struct node *n, const float *x, float *dy, float *dx)
{
    r->ops->dense_backward(n->plan, x, r->param[n->layer->kernel], n->y, dy, dx,
                           replica_gradient(r, n->layer, n->layer->kernel),
                           replica_gradient(r, n->layer, n->layer->bias));
}

static enum ps_code maxpool_plan(struct nn_replica *r, struct node *n, struct ps_error *e)
{
    struct nn_maxpool s = n->layer->pool;
    s.n = r->rows;
    return r->ops->maxpool_plan(r->ctx, &s, &n->plan, e);
}

static void maxpool_forward(struct nn_replica *r, struct node *n, const float *x)
{
    r->ops->maxpool_forward(n->plan, x, n->y, n->at);
}

static void maxpool_backward(struct nn_replica *r, struct node *n, const float *x, float *dy, float *dx)
{
    (void)x;
    r->ops->maxpool_backward(n->plan, dy, n->at, dx);
}

static void replica_relu_forward(struct nn_replica *r, struct node *n, const float *x)
{
    r->ops->relu_forward((size_t)r->rows * n->layer->count, x, n->y);
}

static void replica_relu_backward(struct nn_replica *r, struct node *n, const float *x, float *dy, float *dx)
{
    (void)x;
    r->ops->relu_backward((size_t)r->rows * n->layer->count, n->y, dy, dx);
}

// Softmax runs over the last axis; whatever comes before it are rows.
static int softmax_classes(const struct nn_layer *l)
{
    return (int)l->shape[l->rank - 1];
}

static int softmax_rows(const struct nn_replica *r, const struct nn_layer *l)
{
    return (int)((uint64_t)r->rows * l->count / l->shape[l->rank - 1]);
}

static void softmax_forward(struct nn_replica *r, struct node *n, const float *x)
{
    r->ops->softmax_forward(softmax_rows(r, n->layer), softmax_classes(n->layer), x, n->y);
}

static void softmax_backward(struct nn_replica *r, struct node *n, const float *x, float *dy, float *dx)
{
    (void)x;
    r->ops->softmax_backward(softmax_rows(r, n->layer), softmax_classes(n->layer), n->y, dy, dx);
}

static void replica_dropout(struct nn_replica *r, struct node *n, const float *x, float *y)
{
    r->ops->dropout(r->rows, (int)n->layer->count, r->example, n->layer->rate, r->seed,
                    (uint32_t)(n->layer - r->model->layer), r->step, x, y);
}

static void dropout_forward(struct nn_replica *r, struct node *n, const float *x)
{
    replica_dropout(r, n, x, n->y);
}

static void dropout_backward(struct nn_replica *r, struct node *n, const float *x, float *dy, float *dx)
{
    (void)x;
    replica_dropout(r, n, dy, dx);
}

static const struct node_type conv2d_type = {conv2d_plan, conv2d_forward, conv2d_backward};
static const struct node_type dense_type = {dense_plan, dense_forward, dense_backward};
static const struct node_type maxpool_type = {maxpool_plan, maxpool_forward, maxpool_backward};
static const struct node_type relu_type = {NULL, replica_relu_forward, replica_relu_backward};
static const struct node_type softmax_type = {NULL, softmax_forward, softmax_backward};
static const struct node_type dropout_type = {NULL, dropout_forward, dropout_backward};

// ---- lowering -----------------------------------------------------------------------------------------------------

static void add_node(struct nn_replica *r, const struct nn_layer *l, const struct node_type *type)
{
    r->node[r->nodes++] = (struct node){.type = type, .layer = l};
}

static bool takes_relu(const struct node *n)
{
    return (n->type == &conv2d_type || n->type == &dense_type) && !n->relu;
}

// A relu right after a convolution or a dense layer is computed in it.
static void add_function(struct nn_replica *r, const struct nn_layer *l)
{
    struct node *below = r->nodes > 0 ? &r->node[r->nodes - 1] : NULL;
    if (l->function == NN_F_SOFTMAX)
        add_node(r, l, &softmax_type);
    else if (l->function == NN_F_RELU && below && takes_relu(below))
        below->relu = true;
    else if (l->function == NN_F_RELU)
        add_node(r, l, &relu_type);
}

static void lower_layer(struct nn_replica *r, const struct nn_layer *l)
{
    switch (l->kind) {
    case NN_CONV2D:
        add_node(r, l, &conv2d_type);
        add_function(r, l);
        break;
    case NN_DENSE:
        add_node(r, l, &dense_type);
        add_function(r, l);
        break;
    case NN_MAXPOOL:
        add_node(r, l, &maxpool_type);
        break;
    case NN_ACTIVATE:
        add_function(r, l);
        break;
    case NN_DROPOUT:
        if (l->rate > 0)
            add_node(r, l, &dropout_type);
        break;
    case NN_INPUT:
    case NN_FLATTEN:  // memory is the same, seen differently
        break;
    }
}

static bool node_learns(const struct node *n)
{
    return (n->type == &conv2d_type || n->type == &dense_type) && n->layer->trainable;
}

// Cross-entropy needs the logits: a probability that is too small for a float has neither loss nor gradient. Keras
// finds them only where the softmax is the model's last layer; of one below a Flatten it takes what comes out.
static bool loss_takes_softmax(const struct nn_replica *r)
{
    const struct nn_layer *last = &r->model->layer[r->model->layers - 1];
    while (last->kind == NN_ACTIVATE && last->function == NN_F_LINEAR)
        last--;
    const struct node *top = r->nodes > 0 ? &r->node[r->nodes - 1] : NULL;
    return r->loss.kind == NN_SPARSE_XENT && !r->loss.from_logits && top && top->type == &softmax_type &&
           top->layer == last;
}

static void replica_lower(struct nn_replica *r)
{
    r->node = ps_alloc(2 * r->model->layers * sizeof *r->node);  // a layer and its softmax
    for (size_t i = 0; i < r->model->layers; i++)
        lower_layer(r, &r->model->layer[i]);
    r->fused = loss_takes_softmax(r);
    while (r->first < r->nodes && !node_learns(&r->node[r->first]))
        r->first++;
}

static enum ps_code check_rows(const struct nn_model *m, int rows, struct ps_error *e)
{
    if (rows < 1)
        return ps_fail(e, PS_INVALID_ARGUMENT, "expected a batch of 1 or more rows, not %d", rows);
    for (const struct nn_layer *l = m->layer; l < m->layer + m->layers; l++)
        if (l->count > (uint64_t)(NN_MAX_ELEMENTS / rows))
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "layer \"%s\" gives more than %d elements in a batch of %d rows: expected a smaller batch",
                           l->name, NN_MAX_ELEMENTS, rows);
    return PS_OK;
}

// ---- memory -------------------------------------------------------------------------------------------------------

// Hands out 64-byte aligned parts of one block; without a block it only counts.
struct arena {
    char *base;
    size_t used;
};

static void *arena_take(struct arena *a, size_t bytes)
{
    size_t at = a->used;
    a->used += (bytes + 63) & ~(size_t)63;
    return a->base ? a->base + at : NULL;
}

static void lay_out(struct nn_replica *r, struct arena *a)
{
    const struct nn_model *m = r->model;
    size_t rows = (size_t)r->rows, most = 0;
    for (size_t i = 0; i < m->variables; i++) {
        r->param[i] = arena_take(a, m->variable[i].param.count * sizeof(float));
        r->grad[i] = arena_take(a, m->variable[i].param.count * sizeof(float));
    }
    for (struct node *n = r->node; n < r->node + r->nodes; n++) {
        n->y = arena_take(a, rows * n->layer->count * sizeof(float));
        n->at = n->type == &maxpool_type ? arena_take(a, rows * n->layer->count) : NULL;
        most = n->layer->count > most ? n->layer->count : most;
    }
    r->padded = arena_take(a, rows * m->layer[0].count * sizeof(float));
    r->example = arena_take(a, rows * sizeof *r->example);
    r->row_loss = arena_take(a, rows * sizeof *r->row_loss);
    r->gradient[0] = arena_take(a, rows * most * sizeof(float));
    r->gradient[1] = arena_take(a, rows * most * sizeof(float));
}

// Lays out twice: to count, and in the block of that size.
static enum ps_code get_memory(struct nn_replica *r, struct ps_error *e)
{
    struct arena count = {0};
    lay_out(r, &count);
    r->memory = aligned_alloc(64, count.used);
    if (!r->memory)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED,
                       "no memory for a replica with batches of %d rows: it takes %zu bytes, expected a smaller batch",
                       r->rows, count.used);
    memset(r->memory, 0, count.used);
    struct arena block = {.base = r->memory};
    lay_out(r, &block);
    return PS_OK;
}

// ---- create and free ----------------------------------------------------------------------------------------------

static enum ps_code find_ops(const char *device, const struct nn_ops **ops, struct ps_error *e)
{
    static const struct nn_ops *const known[] = {&nn_cpu_ops, &nn_ref_ops};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(device, known[i]->name) == 0) {
            *ops = known[i];
            return PS_OK;
        }
    }
    return ps_fail(e, PS_INVALID_ARGUMENT, "device \"%s\" is not known: expected \"cpu\" or \"ref\"", device);
}

static enum ps_code make_plans(struct nn_replica *r, struct ps_error *e)
{
    enum ps_code code = PS_OK;
    for (struct node *n = r->node; code == PS_OK && n < r->node + r->nodes; n++) {
        code = n->type->plan ? n->type->plan(r, n, e) : PS_OK;
        if (code != PS_OK)
            ps_error_prefix(e, "layer \"%s\"", n->layer->name);
    }
    return code;
}

enum ps_code nn_replica_create(const struct nn_model *model, const char *device, int rows, int threads, uint64_t seed,
                               const struct nn_loss *loss, struct nn_replica **replica, struct ps_error *e)
{
    const struct nn_ops *ops = NULL;
    enum ps_code code = find_ops(device, &ops, e);
    if (code == PS_OK)
        code = nn_model_check_loss(model, loss, e);
    if (code == PS_OK)
        code = check_rows(model, rows, e);
    if (code != PS_OK)
        return code;
    struct nn_replica *r = ps_alloc(sizeof *r);
    *r = (struct nn_replica){.model = model, .ops = ops, .loss = *loss, .rows = rows, .seed = seed};
    r->param = ps_alloc(model->variables * sizeof *r->param);
    r->grad = ps_alloc(model->variables * sizeof *r->grad);
    replica_lower(r);
    code = get_memory(r, e);
    if (code == PS_OK)
        code = ops->open(threads, &r->ctx, e);
    if (code == PS_OK)
        code = make_plans(r, e);
    if (code == PS_OK)
        *replica = r;
    else
        nn_replica_free(r);
    return code;
}

void nn_replica_free(struct nn_replica *r)
{
    if (!r)
        return;
    for (struct node *n = r->node; n < r->node + r->nodes; n++)
        if (n->plan)
            r->ops->plan_free(n->plan);
    if (r->ctx)
        r->ops->close(r->ctx);
    free(r->memory);
    free(r->node);
    free(r->param);
    free(r->grad);
    free(r);
}

void nn_replica_reseed(struct nn_replica *r, uint64_t seed)
{
    r->seed = seed;
}

float *nn_replica_param(struct nn_replica *r, size_t i)
{
    return r->param[i];
}

float *nn_replica_grad(struct nn_replica *r, size_t i)
{
    return r->grad[i];
}

const float *nn_replica_output(struct nn_replica *r)
{
    return r->output;
}

// ---- a step -------------------------------------------------------------------------------------------------------

// Rows that a batch lacks are zeros: they are computed like the others and count for nothing.
static void replica_take_batch(struct nn_replica *r, const struct nn_batch *b, uint64_t step)
{
    size_t inputs = r->model->layer[0].count, rows = (size_t)b->rows, lack = (size_t)r->rows - rows;
    r->step = (uint32_t)step;
    r->input = b->x;
    if (lack > 0) {
        if (rows > 0)
            memcpy(r->padded, b->x, rows * inputs * sizeof(float));
        memset(r->padded + rows * inputs, 0, lack * inputs * sizeof(float));
        r->input = r->padded;
    }
    if (b->example) {
        memcpy(r->example, b->example, rows * sizeof *r->example);
        memset(r->example + rows, 0, lack * sizeof *r->example);
    }
}

// All nodes but the softmax that the loss computes.
static size_t replica_run_nodes(const struct nn_replica *r)
{
    return r->fused ? r->nodes - 1 : r->nodes;
}

static void replica_forward(struct nn_replica *r, bool training)
{
    const float *x = r->input;
    for (struct node *n = r->node; n < r->node + replica_run_nodes(r); n++) {
        if (!training && n->type == &dropout_type)
            continue;
        n->type->forward(r, n, x);
        x = n->y;
    }
    r->output = x;
}

static long count_correct(const float *y, size_t classes, const int32_t *label, int rows)
{
    long correct = 0;
    for (int i = 0; i < rows; i++, y += classes) {
        size_t best = 0;
        for (size_t c = 1; c < classes; c++)
            best = y[c] > y[best] ? c : best;
        correct += label[i] >= 0 && best == (size_t)label[i];
    }
    return correct;
}

// Cross-entropy. Where it computes the model's softmax, too, output is the logits before and the probabilities after.
static void take_xent(struct nn_replica *r, const struct nn_batch *b, int classes, float *dx)
{
    const float *x = r->output;
    if (!r->fused && !r->loss.from_logits) {
        r->ops->sparse_xent(r->rows, b->rows, classes, x, b->label, r->row_loss, dx);
        return;
    }
    float *y = r->fused ? r->node[r->nodes - 1].y : NULL;
    r->ops->softmax_xent(r->rows, b->rows, classes, x, b->label, y, r->row_loss, dx);
    r->output = y ? y : x;
}

// The loss of the batch and, where dx is not NULL, its gradient by what the nodes that were run gave.
static void take_loss(struct nn_replica *r, const struct nn_batch *b, float *dx, struct nn_result *result)
{
    int outputs = (int)nn_model_outputs(r->model);
    *result = (struct nn_result){0};
    if (r->loss.kind == NN_SPARSE_XENT) {
        take_xent(r, b, outputs, dx);
        result->correct = count_correct(r->output, (size_t)outputs, b->label, b->rows);
    } else {
        r->ops->mse(r->rows, b->rows, outputs, r->output, b->target, r->row_loss, dx);
    }
    for (int i = 0; i < b->rows; i++)
        result->loss += (double)r->row_loss[i];
}

static void report_ready(const struct node *n, nn_grad_ready ready, void *arg)
{
    if (!ready || !node_learns(n))
        return;
    if (n->layer->bias >= 0)
        ready(arg, (size_t)n->layer->bias);
    ready(arg, (size_t)n->layer->kernel);
}

// Starts with the gradient that take_loss put into gradient[0].
static void replica_backward(struct nn_replica *r, nn_grad_ready ready, void *arg)
{
    float *dy = r->gradient[0], *dx = r->gradient[1];
    for (size_t i = replica_run_nodes(r); i-- > r->first;) {
        struct node *n = &r->node[i];
        n->type->backward(r, n, i > 0 ? r->node[i - 1].y : r->input, dy, i > r->first ? dx : NULL);
        report_ready(n, ready, arg);
        float *swap = dy;
        dy = dx;
        dx = swap;
    }
}

void nn_replica_train(struct nn_replica *r, const struct nn_batch *b, uint64_t step, nn_grad_ready ready, void *arg,
                      struct nn_result *result)
{
    replica_take_batch(r, b, step);
    replica_forward(r, true);
    take_loss(r, b, r->nodes > 0 ? r->gradient[0] : NULL, result);
    replica_backward(r, ready, arg);
}

void nn_replica_evaluate(struct nn_replica *r, const struct nn_batch *b, struct nn_result *result)
{
    replica_take_batch(r, b, 0);
    replica_forward(r, false);
    take_loss(r, b, NULL, result);
}

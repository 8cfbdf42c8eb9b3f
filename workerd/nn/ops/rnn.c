// SPDX-License-Identifier: Apache-2.0
//
// SimpleRNN, LSTM and GRU, step by step. What a step leaves for the backward pass stands in `kept`, at the number of
// the step: what each function gave (from which its slope follows), then the state.
//
//   SimpleRNN: h      LSTM: i, f, c~, o, c, h      GRU: z, r, h~, m, h    with m = r h, or h R_h + b of reset_after
//
// States that are given stand there as if a step before the first had left them.
#include "workerd/nn/ops/rnn.h"

#include <math.h>
#include <string.h>

#include "workerd/nn/tape.h"

struct rnn_dims {
    const struct nn_rnn *a;
    size_t n, t, u, gates, kept, h;  // kept: elements of a step; h: where the state is in it
    size_t steps;                    // in `kept`: t, and one before where states are given
};

static struct rnn_dims rnn_dims(const struct nn_rnn *a, const struct nn_type *kept, const struct nn_type *recurrent)
{
    static const size_t gates[] = {1, 4, 3, 3}, pieces[] = {1, 6, 5, 5};
    struct rnn_dims d = {.a = a, .u = (size_t)recurrent->dim[0], .gates = gates[a->cell]};
    d.n = (size_t)kept->dim[0];
    d.steps = (size_t)kept->dim[1];
    d.t = d.steps - a->initial;
    d.kept = pieces[a->cell] * d.u;
    d.h = d.kept - d.u;
    return d;
}

static int rnn_states(const struct nn_rnn *a)
{
    return a->cell == NN_RNN_LSTM ? 2 : 1;
}

// What step s of a row has kept; -1: the states that are given.
static nn_real *rnn_kept(const struct rnn_dims *d, nn_real *kept, size_t row, int64_t s)
{
    return kept + (row * d->steps + (size_t)(s + d->a->initial)) * d->kept;
}

// ---- types --------------------------------------------------------------------------------------------------------

static enum ps_code rnn_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_rnn *a = (const struct nn_rnn *)op->attr;
    const struct nn_type *z = &op->in_type[0], *recurrent = &op->in_type[1];
    if (z->rank != 3 || recurrent->rank != 2 || z->dim[2] != recurrent->dim[1])
        return nn_op_fail(op, e, "the recurrent kernel does not fit its input");
    const struct rnn_dims d = rnn_dims(a, z, recurrent);
    if (op->n_in != 2 + a->bias + a->mask + a->initial * rnn_states(a) || d.gates * d.u != (size_t)recurrent->dim[1])
        return nn_op_fail(op, e, "expected %zu gates, a bias, states and a mask as its attributes say", d.gates);
    op->out_type[0] = a->sequences ? (struct nn_type){NN_FLOAT, 3, {z->dim[0], z->dim[1], (int64_t)d.u}}
                                   : (struct nn_type){NN_FLOAT, 2, {z->dim[0], (int64_t)d.u}};
    op->out_type[1] = (struct nn_type){NN_FLOAT, 3, {z->dim[0], z->dim[1] + a->initial, (int64_t)d.kept}};
    for (int i = 0; i < a->states * rnn_states(a); i++)
        op->out_type[2 + i] = (struct nn_type){NN_FLOAT, 2, {z->dim[0], (int64_t)d.u}};
    return PS_OK;
}

static enum ps_code rnn_infer_backward(struct nn_op *op, struct ps_error *e)
{
    const struct nn_rnn *a = (const struct nn_rnn *)op->attr;
    const struct nn_type *recurrent = &op->in_type[0], *kept = &op->in_type[1];
    int n = 0;
    (void)e;
    op->out_type[n++] = (struct nn_type){NN_FLOAT, 3, {kept->dim[0], kept->dim[1] - a->initial, recurrent->dim[1]}};
    op->out_type[n++] = *recurrent;
    if (a->bias)
        op->out_type[n++] = (struct nn_type){NN_FLOAT, 2, {2, recurrent->dim[1]}};
    for (int i = 0; i < a->initial * rnn_states(a); i++)
        op->out_type[n++] = (struct nn_type){NN_FLOAT, 2, {kept->dim[0], recurrent->dim[0]}};
    op->out_type[n] = (struct nn_type){NN_FLOAT, 3, {4, kept->dim[0], recurrent->dim[0]}};
    return PS_OK;
}

static void rnn_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    struct nn_rnn a = *(const struct nn_rnn *)op->attr;
    int in[NN_OP_IN] = {op->in[1], op->out[1]}, out[NN_OP_OUT], n_in = 2;
    const int n_out = 2 + a.bias + a.initial * rnn_states(&a);
    (void)wanted;
    for (int i = 0; i < 1 + a.states * rnn_states(&a); i++) {
        const int given = dy[i == 0 ? 0 : i + 1];
        a.dy[i] = given >= 0;
        if (a.dy[i])
            in[n_in++] = given;
    }
    if (a.mask)
        in[n_in++] = op->in[op->n_in - 1];
    nn_tape_put(t, &nn_op_rnn_backward, &a, sizeof a, in, n_in, out, n_out + 1);
    for (int i = 0; i < n_out; i++)
        dx[i] = out[i];
}

// ---- functions ----------------------------------------------------------------------------------------------------

static nn_real rnn_function(enum nn_rnn_function f, nn_real x)
{
    const nn_real wide = f == NN_RNN_HARD_SIGMOID ? x / 6 + (nn_real)0.5 : x / 5 + (nn_real)0.5;
    switch (f) {
    case NN_RNN_LINEAR:
        return x;
    case NN_RNN_TANH:
        return (nn_real)tanh((double)x);
    case NN_RNN_SIGMOID:
        return (nn_real)(1 / (1 + exp(-(double)x)));
    case NN_RNN_RELU:
        return x < 0 ? 0 : x;
    case NN_RNN_HARD_SIGMOID:
    case NN_RNN_HARD_SIGMOID2:
        return wide < 0 ? 0 : wide > 1 ? 1 : wide;
    }
    return x;
}

// By what the function gave.
static nn_real rnn_slope(enum nn_rnn_function f, nn_real y)
{
    const nn_real hard = f == NN_RNN_HARD_SIGMOID ? (nn_real)1 / 6 : (nn_real)1 / 5;
    switch (f) {
    case NN_RNN_LINEAR:
        return 1;
    case NN_RNN_TANH:
        return 1 - y * y;
    case NN_RNN_SIGMOID:
        return y * (1 - y);
    case NN_RNN_RELU:
        return y > 0;
    case NN_RNN_HARD_SIGMOID:
    case NN_RNN_HARD_SIGMOID2:
        return y > 0 && y < 1 ? hard : 0;
    }
    return 1;
}

// ---- forward ------------------------------------------------------------------------------------------------------

static size_t rnn_time(const struct rnn_dims *d, size_t step)
{
    return d->a->backwards ? d->t - 1 - step : step;
}

// One row of one step, from its pre-activations k[0 .. gates u): what was before is h and c, which k gets anew.
static void rnn_simple_row(const struct nn_rnn *a, size_t u, nn_real *k, const nn_real *before)
{
    (void)before;
    for (size_t j = 0; j < u; j++)
        k[j] = rnn_function(a->act, k[j]);
}

static void rnn_lstm_row(const struct nn_rnn *a, size_t u, nn_real *k, const nn_real *before)
{
    for (size_t j = 0; j < u; j++) {
        const nn_real i = rnn_function(a->gate, k[j]), f = rnn_function(a->gate, k[u + j]);
        const nn_real g = rnn_function(a->act, k[2 * u + j]), o = rnn_function(a->gate, k[3 * u + j]);
        const nn_real c = f * (before ? before[4 * u + j] : 0) + i * g;
        k[j] = i;
        k[u + j] = f;
        k[2 * u + j] = g;
        k[3 * u + j] = o;
        k[4 * u + j] = c;
        k[5 * u + j] = o * rnn_function(a->act, c);
    }
}

static void rnn_gru_gates(const struct nn_rnn *a, size_t u, nn_real *k, const nn_real *before)
{
    for (size_t j = 0; j < 2 * u; j++)
        k[j] = rnn_function(a->gate, k[j]);
    for (size_t j = 0; a->cell == NN_RNN_GRU && j < u; j++)
        k[3 * u + j] = before ? k[u + j] * before[4 * u + j] : 0;
}

static void rnn_gru_state(const struct nn_rnn *a, size_t u, nn_real *k, const nn_real *before)
{
    for (size_t j = 0; j < u; j++) {
        const nn_real reset = a->cell == NN_RNN_GRU_AFTER ? k[u + j] * k[3 * u + j] : 0;
        const nn_real g = rnn_function(a->act, k[2 * u + j] + reset), z = k[j];
        k[2 * u + j] = g;
        k[4 * u + j] = z * (before ? before[4 * u + j] : 0) + (1 - z) * g;
    }
}

// The state before step s of a row, or NULL: zeros.
static nn_real *rnn_before(const struct rnn_dims *d, nn_real *kept, size_t row, size_t s)
{
    return s == 0 && !d->a->initial ? NULL : rnn_kept(d, kept, row, (int64_t)s - 1);
}

// The forward pass, and the step that it is at.
struct rnn_ahead {
    struct rnn_dims d;
    const struct nn_rnn_parts *parts;
    struct nn_context *context;
    const nn_real *z, *recurrent, *bias, *mask;
    nn_real *kept, *y;
    size_t s;
};

static nn_real *rnn_at(const struct rnn_ahead *r, size_t row)
{
    return rnn_kept(&r->d, r->kept, row, (int64_t)r->s);
}

static void rnn_share_rows(struct rnn_ahead *r, nn_rnn_rows *part)
{
    r->parts->rows(r->context, r->d.n, r->d.kept, part, r);
}

// What the input gives to a step, and bias, into `kept`.
static void rnn_take_input(void *arg, size_t first, size_t last)
{
    const struct rnn_ahead *r = arg;
    const struct rnn_dims *d = &r->d;
    const size_t width = d->gates * d->u, u = d->u;
    for (size_t row = first; row < last; row++) {
        nn_real *k = rnn_at(r, row);
        memcpy(k, r->z + (row * d->t + rnn_time(d, r->s)) * width, width * sizeof *k);
        for (size_t j = 0; d->a->cell == NN_RNN_GRU_AFTER && j < u; j++)
            k[3 * u + j] = r->bias ? r->bias[width + 2 * u + j] : 0;
        if (!r->bias)
            continue;
        r->parts->add(width, r->bias, k);
        r->parts->add(2 * u, r->bias + width, k);
    }
}

// Was each step up to this one masked, where the states before them are not 0?
static bool rnn_is_silent(const struct rnn_dims *d, const nn_real *mask, size_t row, size_t s)
{
    bool silent = mask && d->a->initial;
    for (size_t i = 0; silent && i <= s; i++)
        silent = mask[row * d->t + rnn_time(d, i)] == 0;
    return silent;
}

// A masked step: the state of the step before.
static void rnn_keep_state(const struct rnn_dims *d, nn_real *k, const nn_real *before)
{
    if (before)
        memcpy(k, before, d->kept * sizeof *k);
    else
        memset(k, 0, d->kept * sizeof *k);
}

static void rnn_put_output(const struct rnn_ahead *r, size_t row, bool masked)
{
    const struct rnn_dims *d = &r->d;
    if (!d->a->sequences && r->s + 1 < d->t)
        return;
    nn_real *to = d->a->sequences ? r->y + (row * d->t + r->s) * d->u : r->y + row * d->u;
    if (masked && (d->a->zero_masked || rnn_is_silent(d, r->mask, row, r->s)))
        memset(to, 0, d->u * sizeof *to);
    else
        memcpy(to, rnn_at(r, row) + d->h, d->u * sizeof *to);
}

static void rnn_end_rows(void *arg, size_t first, size_t last)
{
    const struct rnn_ahead *r = arg;
    const struct rnn_dims *d = &r->d;
    const struct nn_rnn_parts *p = r->parts;
    nn_rnn_row *end = d->gates == 3 ? p->gru_state : d->gates == 4 ? p->lstm : p->simple;
    for (size_t row = first; row < last; row++) {
        const bool masked = r->mask && r->mask[row * d->t + rnn_time(d, r->s)] == 0;
        nn_real *k = rnn_at(r, row), *before = rnn_before(d, r->kept, row, r->s);
        end(d->a, d->u, k, before);
        if (masked)
            rnn_keep_state(d, k, before);
        rnn_put_output(r, row, masked);
    }
}

static void rnn_gate_rows(void *arg, size_t first, size_t last)
{
    const struct rnn_ahead *r = arg;
    for (size_t row = first; row < last; row++)
        r->parts->gru_gates(r->d.a, r->d.u, rnn_at(r, row), rnn_before(&r->d, r->kept, row, r->s));
}

// Of GRU: the gates, and the product for h~.
static void rnn_gru_step(struct rnn_ahead *r, nn_real *k, const nn_real *before)
{
    const struct rnn_dims *d = &r->d;
    const size_t u = d->u, ld = d->steps * d->kept, width = 3 * u;
    const bool after = d->a->cell == NN_RNN_GRU_AFTER;
    if (before)
        r->parts->product(false, false, d->n, 2 * u, u, before + d->h, ld, r->recurrent, width, 1, k, ld);
    rnn_share_rows(r, rnn_gate_rows);
    if (before)
        r->parts->product(false, false, d->n, u, u, after ? before + d->h : k + 3 * u, ld, r->recurrent + 2 * u, width,
                          1, after ? k + 3 * u : k + 2 * u, ld);
}

static void rnn_step(struct rnn_ahead *r)
{
    const struct rnn_dims *d = &r->d;
    const size_t u = d->u, ld = d->steps * d->kept, width = d->gates * u;
    nn_real *k = rnn_at(r, 0), *before = rnn_before(d, r->kept, 0, r->s);
    rnn_share_rows(r, rnn_take_input);
    if (d->gates == 3)
        rnn_gru_step(r, k, before);
    else if (before)
        r->parts->product(false, false, d->n, width, u, before + d->h, ld, r->recurrent, width, 1, k, ld);
    rnn_share_rows(r, rnn_end_rows);
}

// The states that are given into `kept`.
static void rnn_take_states(const struct rnn_ahead *r, void *const *state)
{
    const struct rnn_dims *d = &r->d;
    for (size_t row = 0; row < d->n; row++) {
        nn_real *k = rnn_kept(d, r->kept, row, -1);
        memset(k, 0, d->kept * sizeof *k);
        for (int i = 0; i < rnn_states(d->a); i++)
            memcpy(k + d->h - (size_t)i * d->u, (const nn_real *)state[i] + row * d->u, d->u * sizeof *k);
    }
}

// What the last step has left: c stands before h.
static void rnn_put_states(const struct rnn_ahead *r, void *const *state)
{
    const struct rnn_dims *d = &r->d;
    for (int i = 0; i < rnn_states(d->a); i++)
        for (size_t row = 0; row < d->n; row++)
            memcpy((nn_real *)state[i] + row * d->u,
                   rnn_kept(d, r->kept, row, (int64_t)d->t - 1) + d->h - (size_t)i * d->u, d->u * sizeof(nn_real));
}

void nn_rnn_forward(const struct nn_frame *f, const struct nn_rnn_parts *parts)
{
    const struct nn_rnn *a = (const struct nn_rnn *)f->op->attr;
    struct rnn_ahead r = {.d = rnn_dims(a, &f->op->out_type[1], &f->op->in_type[1]),
                          .parts = parts,
                          .context = f->context,
                          .z = f->in[0],
                          .recurrent = f->in[1],
                          .bias = a->bias ? f->in[2] : NULL,
                          .mask = a->mask ? f->in[f->op->n_in - 1] : NULL,
                          .kept = f->out[1],
                          .y = f->out[0]};
    if (a->initial)
        rnn_take_states(&r, f->in + 2 + a->bias);
    for (r.s = 0; r.s < r.d.t; r.s++)
        rnn_step(&r);
    if (a->states)
        rnn_put_states(&r, f->out + 2);
}

// ---- backward -----------------------------------------------------------------------------------------------------

struct rnn_back {
    struct rnn_dims d;
    const nn_real *recurrent, *mask, *dy;
    nn_real *kept, *dz, *drecurrent, *dbias;
    nn_real *dh, *dc, *da, *dm;  // (n, u) each: of the state, so far; of GRU's h part of the product; of r h
    const struct nn_rnn_parts *parts;
    size_t s;  // the step
};

static bool rnn_masked(const struct rnn_back *b, size_t row, size_t s)
{
    return b->mask && b->mask[row * b->d.t + rnn_time(&b->d, s)] == 0;
}

static void rnn_add_dy(const struct rnn_back *b, size_t row)
{
    const struct rnn_dims *d = &b->d;
    const bool masked = rnn_masked(b, row, b->s);
    if (!b->dy || (masked && (d->a->zero_masked || rnn_is_silent(d, b->mask, row, b->s))))
        return;
    if (d->a->sequences)
        b->parts->add(d->u, b->dy + (row * d->t + b->s) * d->u, b->dh + row * d->u);
    else if (b->s + 1 == d->t)
        b->parts->add(d->u, b->dy + row * d->u, b->dh + row * d->u);
}

// Each turns dh (and dc) of the state after a step into the gradient dz of its pre-activations, and into the part of
// the state's before it that does not come through the product.
static void rnn_simple_back(const struct nn_rnn *a, size_t u, const nn_real *k, nn_real *dz, nn_real *dh)
{
    for (size_t j = 0; j < u; j++) {
        dz[j] = dh[j] * rnn_slope(a->act, k[j]);
        dh[j] = 0;
    }
}

static void rnn_lstm_back(const struct nn_rnn *a, size_t u, const nn_real *k, const nn_real *before, nn_real *dz,
                          nn_real *dh, nn_real *dc)
{
    for (size_t j = 0; j < u; j++) {
        const nn_real i = k[j], f = k[u + j], g = k[2 * u + j], o = k[3 * u + j];
        const nn_real act = rnn_function(a->act, k[4 * u + j]), c = before ? before[4 * u + j] : 0;
        const nn_real d = dc[j] + dh[j] * o * rnn_slope(a->act, act);
        dz[j] = d * g * rnn_slope(a->gate, i);
        dz[u + j] = d * c * rnn_slope(a->gate, f);
        dz[2 * u + j] = d * i * rnn_slope(a->act, g);
        dz[3 * u + j] = dh[j] * act * rnn_slope(a->gate, o);
        dc[j] = d * f;
        dh[j] = 0;
    }
}

// dz of z and h~; da is that of h~, or of its product where the reset comes after that.
static void rnn_gru_back(const struct nn_rnn *a, size_t u, const nn_real *k, const nn_real *before, nn_real *dz,
                         nn_real *dh, nn_real *da)
{
    for (size_t j = 0; j < u; j++) {
        const nn_real z = k[j], r = k[u + j], g = k[2 * u + j], h = before ? before[4 * u + j] : 0;
        const nn_real d = dh[j] * (1 - z) * rnn_slope(a->act, g);
        const bool after = a->cell == NN_RNN_GRU_AFTER;
        dz[j] = dh[j] * (h - g) * rnn_slope(a->gate, z);
        dz[u + j] = after ? d * k[3 * u + j] * rnn_slope(a->gate, r) : 0;
        dz[2 * u + j] = d;
        da[j] = after ? d * r : d;
        dh[j] *= z;
    }
}

// Of GRU, where the reset comes before the product: through r h.
static void rnn_gru_reset_back(const struct rnn_back *b, size_t s)
{
    const struct rnn_dims *d = &b->d;
    const size_t u = d->u;
    b->parts->product(false, true, d->n, u, u, b->da, u, b->recurrent + 2 * u, 3 * u, 0, b->dm, u);
    for (size_t row = 0; row < d->n; row++) {
        const nn_real *k = rnn_kept(d, b->kept, row, (int64_t)s), *before = rnn_before(d, b->kept, row, s);
        nn_real *dz = b->dz + (row * d->t + rnn_time(d, s)) * 3 * u;
        for (size_t j = 0; before && j < u && !rnn_masked(b, row, s); j++) {
            const nn_real dm = b->dm[row * u + j];
            dz[u + j] = dm * before[4 * u + j] * rnn_slope(d->a->gate, k[u + j]);
            b->dh[row * u + j] += dm * k[u + j];
        }
    }
}

static void rnn_row_back(const struct rnn_back *b, size_t row)
{
    const struct rnn_dims *d = &b->d;
    const size_t u = d->u, width = d->gates * u;
    const nn_real *k = rnn_kept(d, b->kept, row, (int64_t)b->s), *before = rnn_before(d, b->kept, row, b->s);
    nn_real *dz = b->dz + (row * d->t + rnn_time(d, b->s)) * width, *dh = b->dh + row * u;
    if (rnn_masked(b, row, b->s)) {
        memset(dz, 0, width * sizeof *dz);
        memset(b->da + row * u, 0, u * sizeof *b->da);
    } else if (d->a->cell == NN_RNN_SIMPLE) {
        b->parts->simple_back(d->a, u, k, dz, dh);
    } else if (d->a->cell == NN_RNN_LSTM) {
        b->parts->lstm_back(d->a, u, k, before, dz, dh, b->dc + row * u);
    } else {
        b->parts->gru_back(d->a, u, k, before, dz, dh, b->da + row * u);
    }
}

static void rnn_rows_back(void *arg, size_t first, size_t last)
{
    const struct rnn_back *b = arg;
    for (size_t row = first; row < last; row++) {
        rnn_add_dy(b, row);
        rnn_row_back(b, row);
    }
}

// Through the product with the state before: of the gates that dz holds as it is, then of GRU's h~.
static void rnn_product_back(const struct rnn_back *b, size_t s)
{
    const struct rnn_dims *d = &b->d;
    const size_t u = d->u, width = d->gates * u, plain = d->gates == 3 ? 2 * u : width, ld = d->steps * d->kept;
    const nn_real *dz = b->dz + rnn_time(d, s) * width, *before = rnn_before(d, b->kept, 0, s);
    const bool after = d->a->cell == NN_RNN_GRU_AFTER;
    if (!before)
        return;
    b->parts->product(false, true, d->n, u, plain, dz, d->t * width, b->recurrent, width, 1, b->dh, u);
    b->parts->product(true, false, u, plain, d->n, before + d->h, ld, dz, d->t * width, 1, b->drecurrent, width);
    if (after)
        b->parts->product(false, true, d->n, u, u, b->da, u, b->recurrent + 2 * u, width, 1, b->dh, u);
    if (d->gates == 3)
        b->parts->product(true, false, u, u, d->n, after ? before + d->h : rnn_kept(d, b->kept, 0, (int64_t)s) + 3 * u,
                          ld, b->da, u, 1, b->drecurrent + 2 * u, width);
}

static void rnn_add_dbias(const struct rnn_back *b, size_t s)
{
    const struct rnn_dims *d = &b->d;
    const size_t u = d->u, width = 3 * u;
    for (size_t row = 0; row < d->n; row++) {
        const nn_real *dz = b->dz + (row * d->t + rnn_time(d, s)) * width;
        b->parts->add(width, dz, b->dbias);
        b->parts->add(2 * u, dz, b->dbias + width);
        b->parts->add(u, b->da + row * u, b->dbias + width + 2 * u);
    }
}

// Where it begins: the gradients of what the last step has left, and of nothing.
static void rnn_begin_back(const struct nn_frame *f, struct rnn_back *b)
{
    const struct nn_rnn *a = b->d.a;
    const size_t piece = b->d.n * b->d.u;
    int n = 2;
    b->dc = b->dh + piece;
    b->da = b->dc + piece;
    b->dm = b->da + piece;
    memset(b->dh, 0, 2 * piece * sizeof *b->dh);
    memset(b->drecurrent, 0, nn_type_bytes(&f->op->out_type[1]));
    if (b->dbias)
        memset(b->dbias, 0, nn_type_bytes(&f->op->out_type[2]));
    if (a->dy[0])
        b->dy = f->in[n++];
    for (int i = 1; i < 3; i++)
        if (a->dy[i])
            memcpy(i == 1 ? b->dh : b->dc, f->in[n++], piece * sizeof *b->dh);
}

void nn_rnn_backward(const struct nn_frame *f, const struct nn_rnn_parts *parts)
{
    const struct nn_rnn *a = (const struct nn_rnn *)f->op->attr;
    struct rnn_back b = {.d = rnn_dims(a, &f->op->in_type[1], &f->op->in_type[0]),
                         .recurrent = f->in[0],
                         .kept = f->in[1],
                         .mask = a->mask ? f->in[f->op->n_in - 1] : NULL,
                         .dz = f->out[0],
                         .drecurrent = f->out[1],
                         .dbias = a->bias ? f->out[2] : NULL,
                         .dh = f->out[f->op->n_out - 1],
                         .parts = parts};
    rnn_begin_back(f, &b);
    for (b.s = b.d.t; b.s--;) {
        parts->rows(f->context, b.d.n, b.d.kept, rnn_rows_back, &b);
        if (a->cell == NN_RNN_GRU)
            rnn_gru_reset_back(&b, b.s);
        rnn_product_back(&b, b.s);
        if (b.dbias)
            rnn_add_dbias(&b, b.s);
    }
    for (int i = 0; i < a->initial * rnn_states(a); i++)
        memcpy(f->out[2 + a->bias + i], i == 0 ? b.dh : b.dc, b.d.n * b.d.u * sizeof *b.dh);
}

// ---- reference ----------------------------------------------------------------------------------------------------

static void rnn_plain_product(bool ta, bool tb, size_t m, size_t n, size_t k, const nn_real *a, size_t lda,
                              const nn_real *b, size_t ldb, nn_real beta, nn_real *c, size_t ldc)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = beta == 0 ? 0 : (double)(beta * c[i * ldc + j]);
            for (size_t l = 0; l < k; l++)
                sum += (double)(ta ? a[l * lda + i] : a[i * lda + l]) * (double)(tb ? b[j * ldb + l] : b[l * ldb + j]);
            c[i * ldc + j] = (nn_real)sum;
        }
}

static void rnn_plain_add(size_t n, const nn_real *x, nn_real *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void rnn_plain_rows(struct nn_context *context, size_t n, size_t each, nn_rnn_rows *part, void *arg)
{
    (void)context;
    (void)each;
    part(arg, 0, n);
}

static const struct nn_rnn_parts rnn_plain = {.product = rnn_plain_product,
                                              .add = rnn_plain_add,
                                              .simple = rnn_simple_row,
                                              .lstm = rnn_lstm_row,
                                              .gru_gates = rnn_gru_gates,
                                              .gru_state = rnn_gru_state,
                                              .simple_back = rnn_simple_back,
                                              .lstm_back = rnn_lstm_back,
                                              .gru_back = rnn_gru_back,
                                              .rows = rnn_plain_rows};

static void rnn_reference(const struct nn_frame *f)
{
    nn_rnn_forward(f, &rnn_plain);
}

static void rnn_reference_backward(const struct nn_frame *f)
{
    nn_rnn_backward(f, &rnn_plain);
}

// The products with the recurrent kernel, step by step; back there are two of each.
static double rnn_flop(const struct nn_op *op)
{
    const struct nn_type *z = &op->in_type[0];
    return 2.0 * (double)nn_type_count(&op->in_type[1]) * (double)(z->dim[0] * z->dim[1]);
}

static double rnn_flop_backward(const struct nn_op *op)
{
    const struct nn_type *dz = &op->out_type[0];
    return 4.0 * (double)nn_type_count(&op->in_type[0]) * (double)(dz->dim[0] * dz->dim[1]);
}

const struct nn_op_class nn_op_rnn = {.name = "rnn",
                                      .infer = rnn_infer,
                                      .differentiate = rnn_differentiate,
                                      .reference = rnn_reference,
                                      .flop = rnn_flop};
const struct nn_op_class nn_op_rnn_backward = {.name = "rnn_backward",
                                               .infer = rnn_infer_backward,
                                               .reference = rnn_reference_backward,
                                               .flop = rnn_flop_backward};

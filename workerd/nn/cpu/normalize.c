// SPDX-License-Identifier: Apache-2.0
//
// Normalization (ops/normalize.h) in two shapes. By columns: x is (rows, channels) and each channel has a mean; all
// channels of a row are worked on at once, of narrow ones several rows. By runs: neighbours have the same mean. Any
// other shape is the reference's.
//
// Sums are of blocks whose number follows from the shape alone: each has its own mean and its own squares from that,
// which are put together in double (Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing
// Sample Variances, 1979), in order. Threads share the blocks: the bits are the same whatever their number.
#include "workerd/nn/ops/normalize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/cpu/cpu.h"
#include "workerd/nn/cpu/lanes.h"

enum {
    LANES = NN_CPU_LANES,  // sums that are taken beside each other
    TILE = 64,             // floats of a row, or of several narrow ones, at least
    BLOCK = 8192,          // floats of a block, about
    BLOCK_ROWS = 64,       // rows of one, at least
    PARTS = 16,            // of the rows of a layer normalization, for the gradients of gamma and beta
};

// Of a channel: what is taken from x, and multiplied, and added; what goes back to x.
enum { MEAN, SCALE, OFFSET, LESS, SLOPE, FACTORS };

struct norm_plan {
    const struct nn_normalize *attr;
    bool columns, runs;  // neither: the reference's
    // By columns.
    size_t rows, channels, tile, block_rows, blocks;
    // By runs: where run k of statistic s begins is in norm_run.
    size_t statistics, per, length, inner, outer_step, run_step;
    bool along;      // a gamma for each element of a run; else one for each statistic
    float *partial;  // columns: [blocks][2][tile]; runs: [PARTS][2][parameters]
    float *tiled;    // columns: [FACTORS][tile]
    float *factor;   // columns: [FACTORS][channels], of which `tiled` is made
    float *zeros;    // a mean for each statistic
};

// ---- plans --------------------------------------------------------------------------------------------------------

static bool norm_is_along(const bool *axes, unsigned bits)
{
    unsigned found = 0;
    for (unsigned i = 0; i < NN_NORMALIZE_AXES; i++)
        found |= (unsigned)axes[i] << i;
    return found == bits;
}

static void norm_find_runs(struct norm_plan *p)
{
    const struct nn_normalize *a = p->attr;
    const size_t d[] = {(size_t)a->dim[0], (size_t)a->dim[1], (size_t)a->dim[2], (size_t)a->dim[3]};
    const bool last = d[2] * d[3] == 1;
    p->runs = true;
    if (norm_is_along(a->statistic, 2) && norm_is_along(a->parameter, 2)) {
        p->statistics = p->inner = d[1];
        p->per = d[0];
        p->length = d[2] * d[3];
        p->run_step = d[1] * p->length;
    } else if (norm_is_along(a->statistic, 1) && norm_is_along(a->parameter, 2) && last) {
        p->statistics = d[0];
        p->per = p->inner = 1;
        p->length = p->outer_step = d[1];
        p->along = true;
    } else if (norm_is_along(a->statistic, 5) && norm_is_along(a->parameter, 12)) {
        p->statistics = d[0] * d[2];
        p->inner = d[2];
        p->per = d[1];
        p->length = d[3];
        p->run_step = d[2] * d[3];
        p->outer_step = d[1] * p->run_step;
        p->along = true;
    } else {
        p->runs = false;
    }
}

static void norm_find_columns(struct norm_plan *p)
{
    const size_t many = (TILE + p->channels - 1) / p->channels, rows = BLOCK / p->channels;
    p->columns = true;
    p->tile = p->channels * many;
    p->block_rows = ((rows < BLOCK_ROWS ? BLOCK_ROWS : rows) + many - 1) / many * many;
    p->blocks = (p->rows + p->block_rows - 1) / p->block_rows;
    p->partial = ps_alloc_aligned(p->blocks * 2 * p->tile * sizeof(float));
    p->tiled = ps_alloc_aligned(FACTORS * p->tile * sizeof(float));
    p->factor = ps_alloc_aligned(FACTORS * p->channels * sizeof(float));
}

static enum ps_code norm_plan(struct nn_context *context, const struct nn_op *op, void **plan, struct ps_error *e)
{
    (void)context;
    (void)e;
    struct norm_plan *p = ps_alloc(sizeof *p);
    const struct nn_normalize *a = p->attr = (const struct nn_normalize *)op->attr;
    if (norm_is_along(a->statistic, 2) && norm_is_along(a->parameter, 2) && a->dim[2] * a->dim[3] == 1) {
        p->rows = (size_t)a->dim[0];
        p->channels = (size_t)a->dim[1];
        norm_find_columns(p);
    } else {
        norm_find_runs(p);
        if (p->along)
            p->partial = ps_alloc_aligned(PARTS * 2 * (size_t)nn_normalize_parameters(a) * sizeof(float));
    }
    p->zeros = ps_alloc((size_t)nn_normalize_statistics(a) * sizeof(float));
    *plan = p;
    return PS_OK;
}

static void norm_free(void *plan)
{
    struct norm_plan *p = plan;
    free(p->partial);
    free(p->tiled);
    free(p->factor);
    free(p->zeros);
    free(p);
}

static const char *norm_info(const void *plan)
{
    const struct norm_plan *p = plan;
    return p->columns || p->runs ? "own" : "reference";
}

// One run of the operator: its plan and its tensors.
struct norm {
    const struct norm_plan *p;
    const struct nn_context *context;
    const float *x, *dy, *mean, *variance, *gamma, *beta;
    float *y, *mean_to, *variance_to, *dgamma, *dbeta;
};

static float norm_inverse(const struct norm *n, size_t statistic)
{
    return (float)(1 / sqrt((double)n->variance[statistic] + (double)n->p->attr->epsilon));
}

// ---- by columns: loops --------------------------------------------------------------------------------------------

// A row of a tile, which may be the last, shorter one.
static size_t norm_left(size_t n, size_t tile)
{
    return n < tile ? n : tile;
}

// The rows of a tile, added to the first.
static inline void norm_fold_tile(size_t tile, size_t channels, float *sum)
{
    for (size_t row = channels; row < tile; row += channels)
        for (size_t c = 0; c < channels; c++)
            sum[c] += sum[row + c];
}

// to (2, tile): of n elements, the channels' means in each row of the tile, and the sums of the squares from them.
PS_PER_CPU static void norm_block_moments(size_t n, size_t tile, size_t channels, const float *restrict x,
                                          float *restrict to)
{
    float *restrict mean = to, *restrict squares = to + tile;
    memset(to, 0, 2 * tile * sizeof *to);
    for (size_t at = 0; at < n; at += tile)
        for (size_t i = 0, m = norm_left(n - at, tile); i < m; i++)
            mean[i] += x[at + i];
    norm_fold_tile(tile, channels, mean);
    for (size_t c = 0; c < channels; c++)
        mean[c] /= (float)(n / channels);
    for (size_t i = channels; i < tile; i++)
        mean[i] = mean[i - channels];
    for (size_t at = 0; at < n; at += tile)
        for (size_t i = 0, m = norm_left(n - at, tile); i < m; i++) {
            const float d = x[at + i] - mean[i];
            squares[i] += d * d;
        }
    norm_fold_tile(tile, channels, squares);
}

// The gradient by what is before an activation that is a relu or none; by: see FACTORS, [..][tile].
static inline float norm_dy(bool relu, float x, float dy, const float *by, size_t tile, size_t i)
{
    const float z = (x - by[MEAN * tile + i]) * by[SCALE * tile + i] + by[OFFSET * tile + i];
    return !relu || z > 0 ? dy : 0;
}

// to (2, tile): sums of dy, and of dy times x less its mean.
static inline void norm_products(bool relu, size_t n, size_t tile, const float *restrict x, const float *restrict dy,
                                 const float *restrict by, float *restrict to)
{
    float *restrict sum = to, *restrict product = to + tile;
    for (size_t at = 0; at < n; at += tile)
        for (size_t i = 0, m = norm_left(n - at, tile); i < m; i++) {
            const float d = norm_dy(relu, x[at + i], dy[at + i], by, tile, i);
            sum[i] += d;
            product[i] += d * (x[at + i] - by[MEAN * tile + i]);
        }
}

PS_PER_CPU static void norm_block_products(bool relu, size_t n, size_t tile, size_t channels, const float *restrict x,
                                           const float *restrict dy, const float *restrict by, float *restrict to)
{
    memset(to, 0, 2 * tile * sizeof *to);
    if (relu)
        norm_products(true, n, tile, x, dy, by, to);
    else
        norm_products(false, n, tile, x, dy, by, to);
    norm_fold_tile(tile, channels, to);
    norm_fold_tile(tile, channels, to + tile);
}

// y = (x - mean) scale + offset.
PS_PER_CPU static void norm_put_columns(size_t n, size_t tile, const float *x, const float *restrict by, float *y)
{
    const float *restrict mean = by + MEAN * tile, *restrict scale = by + SCALE * tile;
    const float *restrict offset = by + OFFSET * tile;
    for (size_t at = 0; at < n; at += tile) {
        const size_t m = norm_left(n - at, tile);
        PS_ELEMENTWISE
        for (size_t i = 0; i < m; i++)
            y[at + i] = (x[at + i] - mean[i]) * scale[i] + offset[i];
    }
}

// And what of that is above 0; a NaN goes on.
PS_PER_CPU static void norm_put_columns_relu(size_t n, size_t tile, const float *x, const float *restrict by, float *y)
{
    const float *restrict mean = by + MEAN * tile, *restrict scale = by + SCALE * tile;
    const float *restrict offset = by + OFFSET * tile;
    for (size_t at = 0; at < n; at += tile) {
        const size_t m = norm_left(n - at, tile);
        PS_ELEMENTWISE
        for (size_t i = 0; i < m; i++) {
            const float z = (x[at + i] - mean[i]) * scale[i] + offset[i];
            y[at + i] = z < 0 ? 0 : z;
        }
    }
}

// dx = scale dy - less - (x - mean) slope.
static inline void norm_put_back(bool relu, size_t n, size_t tile, const float *restrict x, const float *restrict dy,
                                 const float *restrict by, float *restrict dx)
{
    for (size_t at = 0; at < n; at += tile)
        for (size_t i = 0, m = norm_left(n - at, tile); i < m; i++) {
            const float d = norm_dy(relu, x[at + i], dy[at + i], by, tile, i);
            dx[at + i] = d * by[SCALE * tile + i] - by[LESS * tile + i] -
                         (x[at + i] - by[MEAN * tile + i]) * by[SLOPE * tile + i];
        }
}

PS_PER_CPU static void norm_put_columns_back(bool relu, size_t n, size_t tile, const float *restrict x,
                                             const float *restrict dy, const float *restrict by, float *restrict dx)
{
    if (relu)
        norm_put_back(true, n, tile, x, dy, by, dx);
    else
        norm_put_back(false, n, tile, x, dy, by, dx);
}

// ---- by columns: parts --------------------------------------------------------------------------------------------

static size_t norm_block_size(const struct norm_plan *p, size_t block)
{
    return norm_left(p->rows - block * p->block_rows, p->block_rows) * p->channels;
}

static void norm_columns_moments(void *arg, size_t first, size_t last)
{
    const struct norm *n = arg;
    const struct norm_plan *p = n->p;
    for (size_t b = first; b < last; b++)
        norm_block_moments(norm_block_size(p, b), p->tile, p->channels, n->x + b * p->block_rows * p->channels,
                           p->partial + b * 2 * p->tile);
}

static void norm_columns_join(void *arg, size_t first, size_t last)
{
    const struct norm *n = arg;
    const struct norm_plan *p = n->p;
    for (size_t c = first; c < last; c++) {
        const float *part = p->partial + c;
        double mean = 0, squares = 0;
        for (size_t b = 0; b < p->blocks; b++)
            mean += (double)part[b * 2 * p->tile] * (double)(norm_block_size(p, b) / p->channels);
        mean /= (double)p->rows;
        for (size_t b = 0; b < p->blocks; b++) {
            const double off = (double)part[b * 2 * p->tile] - mean;
            squares += (double)part[(b * 2 + 1) * p->tile] + off * off * (double)(norm_block_size(p, b) / p->channels);
        }
        n->mean_to[c] = (float)mean;
        n->variance_to[c] = (float)(squares / (double)p->rows);
    }
}

static void norm_columns_products(void *arg, size_t first, size_t last)
{
    const struct norm *n = arg;
    const struct norm_plan *p = n->p;
    for (size_t b = first; b < last; b++) {
        const size_t at = b * p->block_rows * p->channels;
        norm_block_products(p->attr->act == NN_RELU, norm_block_size(p, b), p->tile, p->channels, n->x + at, n->dy + at,
                            p->tiled, p->partial + b * 2 * p->tile);
    }
}

static void norm_columns_put(void *arg, size_t first, size_t last)
{
    const struct norm *n = arg;
    const struct norm_plan *p = n->p;
    for (size_t b = first; b < last; b++) {
        const size_t at = b * p->block_rows * p->channels;
        (p->attr->act == NN_RELU ? norm_put_columns_relu : norm_put_columns)(norm_block_size(p, b), p->tile, n->x + at,
                                                                             p->tiled, n->y + at);
    }
}

static void norm_columns_put_back(void *arg, size_t first, size_t last)
{
    const struct norm *n = arg;
    const struct norm_plan *p = n->p;
    for (size_t b = first; b < last; b++) {
        const size_t at = b * p->block_rows * p->channels;
        norm_put_columns_back(p->attr->act == NN_RELU, norm_block_size(p, b), p->tile, n->x + at, n->dy + at, p->tiled,
                              n->y + at);
    }
}

static void norm_share_blocks(struct norm *n, nn_cpu_part *part)
{
    nn_cpu_share(n->context, n->p->blocks, nn_cpu_least(n->p->block_rows * n->p->channels), part, n);
}

// The first `kinds` rows of the factors, once for each row of a tile.
static void norm_tile(const struct norm_plan *p, size_t kinds)
{
    for (size_t k = 0; k < kinds; k++)
        for (size_t i = 0; i < p->tile; i += p->channels)
            memcpy(p->tiled + k * p->tile + i, p->factor + k * p->channels, p->channels * sizeof(float));
}

// What makes y of x.
static void norm_columns_factors(const struct norm *n)
{
    const struct norm_plan *p = n->p;
    for (size_t c = 0; c < p->channels; c++) {
        p->factor[MEAN * p->channels + c] = n->mean[c];
        p->factor[SCALE * p->channels + c] = norm_inverse(n, c) * (n->gamma ? n->gamma[c] : 1);
        p->factor[OFFSET * p->channels + c] = n->beta ? n->beta[c] : 0;
    }
    norm_tile(p, OFFSET + 1);
}

static void norm_columns_scale(struct norm *n)
{
    norm_columns_factors(n);
    norm_share_blocks(n, norm_columns_put);
}

// ---- by columns: the operators ------------------------------------------------------------------------------------

static void norm_columns_find_moments(struct norm *n)
{
    norm_share_blocks(n, norm_columns_moments);
    nn_cpu_share(n->context, n->p->channels, nn_cpu_least(n->p->blocks), norm_columns_join, n);
}

static void norm_columns_forward(struct norm *n)
{
    norm_columns_find_moments(n);
    norm_columns_scale(n);
}

// The sums of a channel over all blocks.
static void norm_columns_sum(const struct norm_plan *p, size_t c, double *sum, double *product)
{
    *sum = *product = 0;
    for (size_t b = 0; b < p->blocks; b++) {
        *sum += (double)p->partial[b * 2 * p->tile + c];
        *product += (double)p->partial[(b * 2 + 1) * p->tile + c];
    }
}

static void norm_columns_backward(struct norm *n)
{
    const struct norm_plan *p = n->p;
    const size_t channels = p->channels;
    norm_columns_factors(n);
    norm_share_blocks(n, norm_columns_products);
    for (size_t c = 0; c < channels; c++) {
        const double inverse = (double)norm_inverse(n, c), scale = inverse * (n->gamma ? (double)n->gamma[c] : 1);
        double sum, product;
        norm_columns_sum(p, c, &sum, &product);
        product *= inverse;
        if (n->dgamma)
            n->dgamma[c] = (float)product;
        if (n->dbeta)
            n->dbeta[c] = (float)sum;
        p->factor[LESS * channels + c] = (float)(scale * sum / (double)p->rows);
        p->factor[SLOPE * channels + c] = (float)(scale * inverse * product / (double)p->rows);
    }
    norm_tile(p, FACTORS);
    norm_share_blocks(n, norm_columns_put_back);
}

// ---- by runs: loops -----------------------------------------------------------------------------------------------

PS_PER_CPU static double norm_run_sum(size_t n, const float *x)
{
    return nn_cpu_sum_lanes(n, x);
}

PS_PER_CPU static double norm_run_squares(size_t n, const float *x, float mean)
{
    float lane[LANES] = {0};
    size_t at = 0;
    for (; at + LANES <= n; at += LANES)
        for (size_t i = 0; i < LANES; i++) {
            const float d = x[at + i] - mean;
            lane[i] += d * d;
        }
    for (size_t i = 0; at + i < n; i++)
        lane[i] += (x[at + i] - mean) * (x[at + i] - mean);
    return nn_cpu_fold(lane);
}

// m lanes of the sums of dy gamma, and of that times x less the mean.
static inline void norm_add_lanes(size_t m, const float *restrict x, const float *restrict dy,
                                  const float *restrict gamma, float mean, float *restrict sum, float *restrict product)
{
    for (size_t i = 0; i < m; i++) {
        const float g = gamma ? dy[i] * gamma[i] : dy[i];
        sum[i] += g;
        product[i] += g * (x[i] - mean);
    }
}

// gamma: NULL counts as 1.
PS_PER_CPU static void norm_run_products(size_t n, const float *x, const float *dy, const float *gamma, float mean,
                                         double *sum, double *product)
{
    float lane[LANES] = {0}, other[LANES] = {0};
    size_t at = 0;
    if (gamma)
        for (; at + LANES <= n; at += LANES)
            norm_add_lanes(LANES, x + at, dy + at, gamma + at, mean, lane, other);
    else
        for (; at + LANES <= n; at += LANES)
            norm_add_lanes(LANES, x + at, dy + at, NULL, mean, lane, other);
    norm_add_lanes(n - at, x + at, dy + at, gamma ? gamma + at : NULL, mean, lane, other);
    *sum += nn_cpu_fold(lane);
    *product += nn_cpu_fold(other);
}

// y = (x - mean) scale + offset.
PS_PER_CPU static void norm_put_run(size_t n, const float *x, float mean, float scale, float offset, float *y)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) * scale + offset;
}

// y = y by + to: gammas and betas along the run, each of which may be NULL.
PS_PER_CPU static void norm_put_along(size_t n, const float *restrict by, const float *restrict to, float *restrict y)
{
    for (size_t i = 0; by && i < n; i++)
        y[i] *= by[i];
    for (size_t i = 0; to && i < n; i++)
        y[i] += to[i];
}

// dx = dy gamma scale - less - (x - mean) slope.
PS_PER_CPU static void norm_put_run_back(size_t n, const float *restrict x, const float *restrict dy,
                                         const float *restrict gamma, const float by[4], float *restrict dx)
{
    const float mean = by[0], scale = by[1], less = by[2], slope = by[3];
    for (size_t i = 0; i < n; i++)
        dx[i] = dy[i] * scale;
    for (size_t i = 0; gamma && i < n; i++)
        dx[i] *= gamma[i];
    for (size_t i = 0; i < n; i++)
        dx[i] -= less + (x[i] - mean) * slope;
}

// dgamma += dy (x - mean) scale, dbeta += dy.
PS_PER_CPU static void norm_add_gradients(size_t n, const float *restrict x, const float *restrict dy, float mean,
                                          float scale, float *restrict dgamma, float *restrict dbeta)
{
    for (size_t i = 0; i < n; i++) {
        dgamma[i] += dy[i] * (x[i] - mean) * scale;
        dbeta[i] += dy[i];
    }
}

// ---- by runs: parts -----------------------------------------------------------------------------------------------

// Where run k of a statistic begins; where its parameters do.
static size_t norm_run(const struct norm_plan *p, size_t s, size_t k)
{
    return s / p->inner * p->outer_step + s % p->inner * p->length + k * p->run_step;
}

static size_t norm_parameter(const struct norm_plan *p, size_t s)
{
    return p->along ? s % p->inner * p->length : s;
}

static const float *norm_along(const struct norm_plan *p, const float *parameter, size_t s)
{
    return parameter && p->along ? parameter + norm_parameter(p, s) : NULL;
}

static void norm_runs_moments(void *arg, size_t first, size_t last)
{
    const struct norm *n = arg;
    const struct norm_plan *p = n->p;
    const double count = (double)(p->per * p->length);
    for (size_t s = first; s < last; s++) {
        double mean = 0, squares = 0;
        for (size_t k = 0; k < p->per; k++)
            for (size_t at = 0; at < p->length; at += BLOCK)
                mean += norm_run_sum(norm_left(p->length - at, BLOCK), n->x + norm_run(p, s, k) + at);
        mean /= count;
        n->mean_to[s] = (float)mean;
        for (size_t k = 0; k < p->per; k++)
            for (size_t at = 0; at < p->length; at += BLOCK)
                squares +=
                    norm_run_squares(norm_left(p->length - at, BLOCK), n->x + norm_run(p, s, k) + at, n->mean_to[s]);
        n->variance_to[s] = (float)(squares / count);
    }
}

static void norm_runs_put(void *arg, size_t first, size_t last)
{
    const struct norm *n = arg;
    const struct norm_plan *p = n->p;
    for (size_t s = first; s < last; s++) {
        const float *by = norm_along(p, n->gamma, s), *to = norm_along(p, n->beta, s);
        const float scale = norm_inverse(n, s) * (n->gamma && !by ? n->gamma[s] : 1);
        for (size_t k = 0; k < p->per; k++) {
            const size_t at = norm_run(p, s, k);
            norm_put_run(p->length, n->x + at, n->mean[s], scale, n->beta && !to ? n->beta[s] : 0, n->y + at);
            if (by || to)
                norm_put_along(p->length, by, to, n->y + at);
        }
    }
}

static void norm_runs_put_back(void *arg, size_t first, size_t last)
{
    const struct norm *n = arg;
    const struct norm_plan *p = n->p;
    const double count = (double)(p->per * p->length);
    for (size_t s = first; s < last; s++) {
        const float *along = norm_along(p, n->gamma, s);
        const double inverse = (double)norm_inverse(n, s), own = n->gamma && !along ? (double)n->gamma[s] : 1;
        double sum = 0, product = 0;
        for (size_t k = 0; k < p->per; k++) {
            const size_t at = norm_run(p, s, k);
            norm_run_products(p->length, n->x + at, n->dy + at, along, n->mean[s], &sum, &product);
        }
        const float by[] = {n->mean[s], (float)(inverse * own), (float)(inverse * own * sum / count),
                            (float)(inverse * inverse * inverse * own * product / count)};
        for (size_t k = 0; k < p->per; k++) {
            const size_t at = norm_run(p, s, k);
            norm_put_run_back(p->length, n->x + at, n->dy + at, along, by, n->y + at);
        }
        if (n->dgamma && !p->along)
            n->dgamma[s] = (float)(product * inverse);
        if (n->dbeta && !p->along)
            n->dbeta[s] = (float)sum;
    }
}

// The gradients of gammas along runs: those of each part of the outer statistics apart.
static void norm_runs_gradients(void *arg, size_t first, size_t last)
{
    const struct norm *n = arg;
    const struct norm_plan *p = n->p;
    const size_t parameters = p->inner * p->length;
    for (size_t part = first; part < last; part++) {
        float *dgamma = p->partial + part * 2 * parameters, *dbeta = dgamma + parameters;
        memset(dgamma, 0, 2 * parameters * sizeof *dgamma);
        for (size_t s = p->statistics * part / PARTS; s < p->statistics * (part + 1) / PARTS; s++)
            for (size_t k = 0; k < p->per; k++) {
                const size_t at = norm_run(p, s, k), to = norm_parameter(p, s);
                norm_add_gradients(p->length, n->x + at, n->dy + at, n->mean[s], norm_inverse(n, s), dgamma + to,
                                   dbeta + to);
            }
    }
}

static void norm_share_statistics(struct norm *n, nn_cpu_part *part)
{
    nn_cpu_share(n->context, n->p->statistics, nn_cpu_least(n->p->per * n->p->length), part, n);
}

// ---- by runs: the operators ---------------------------------------------------------------------------------------

static void norm_runs_forward(struct norm *n)
{
    norm_share_statistics(n, norm_runs_moments);
    norm_share_statistics(n, norm_runs_put);
}

static void norm_runs_backward(struct norm *n)
{
    const struct norm_plan *p = n->p;
    const size_t parameters = p->inner * p->length;
    norm_share_statistics(n, norm_runs_put_back);
    if (!p->along || (!n->dgamma && !n->dbeta))
        return;
    nn_cpu_share(n->context, PARTS, nn_cpu_least(p->statistics * p->per * p->length / PARTS), norm_runs_gradients, n);
    for (size_t i = 0; i < parameters; i++) {
        double dgamma = 0, dbeta = 0;
        for (size_t part = 0; part < PARTS; part++) {
            dgamma += (double)p->partial[part * 2 * parameters + i];
            dbeta += (double)p->partial[(part * 2 + 1) * parameters + i];
        }
        if (n->dgamma)
            n->dgamma[i] = (float)dgamma;
        if (n->dbeta)
            n->dbeta[i] = (float)dbeta;
    }
}

// ---- runs ---------------------------------------------------------------------------------------------------------

static struct norm norm_of(const struct nn_frame *f)
{
    return (struct norm){.p = f->plan, .context = f->context, .y = f->out[0]};
}

static bool norm_has_shape(const struct norm *n)
{
    return n->p->columns || n->p->runs;
}

static void norm_run_forward(const struct nn_frame *f)
{
    const struct nn_normalize *a = (const struct nn_normalize *)f->op->attr;
    struct norm n = norm_of(f);
    n.x = f->in[0];
    n.gamma = a->scale ? f->in[1] : NULL;
    n.beta = a->center ? f->in[1 + a->scale] : NULL;
    n.mean = n.mean_to = f->out[1];
    n.variance = n.variance_to = f->out[2];
    if (!norm_has_shape(&n))
        f->op->class->reference(f);
    else
        (n.p->columns ? norm_columns_forward : norm_runs_forward)(&n);
}

static void norm_run_moments(const struct nn_frame *f)
{
    struct norm n = {
        .p = f->plan, .context = f->context, .x = f->in[0], .mean_to = f->out[0], .variance_to = f->out[1]};
    if (!norm_has_shape(&n))
        f->op->class->reference(f);
    else if (n.p->columns)
        norm_columns_find_moments(&n);
    else
        norm_share_statistics(&n, norm_runs_moments);
}

static void norm_run_backward(const struct nn_frame *f)
{
    const struct nn_normalize *a = (const struct nn_normalize *)f->op->attr;
    struct norm n = norm_of(f);
    n.x = f->in[0];
    n.mean = f->in[1];
    n.variance = f->in[2];
    n.dy = f->in[3];
    n.gamma = a->scale ? f->in[4] : NULL;
    n.beta = a->act == NN_RELU && a->center ? f->in[4 + a->scale] : NULL;
    n.dgamma = a->scale ? f->out[1] : NULL;
    n.dbeta = a->center ? f->out[1 + a->scale] : NULL;
    if (!norm_has_shape(&n))
        f->op->class->reference(f);
    else
        (n.p->columns ? norm_columns_backward : norm_runs_backward)(&n);
}

static void norm_scale(struct norm *n)
{
    if (n->p->columns)
        norm_columns_scale(n);
    else
        norm_share_statistics(n, norm_runs_put);
}

static void norm_run_by(const struct nn_frame *f)
{
    const struct nn_normalize *a = (const struct nn_normalize *)f->op->attr;
    struct norm n = norm_of(f);
    n.x = f->in[0];
    n.mean = f->in[1];
    n.variance = f->in[2];
    n.gamma = a->scale ? f->in[3] : NULL;
    n.beta = a->center ? f->in[3 + a->scale] : NULL;
    if (!norm_has_shape(&n))
        f->op->class->reference(f);
    else
        norm_scale(&n);
}

// dx = dy gamma / sqrt(variance + epsilon): y of a mean of 0 and no beta.
static void norm_run_by_backward(const struct nn_frame *f)
{
    const struct nn_normalize *a = (const struct nn_normalize *)f->op->attr;
    struct norm n = norm_of(f);
    n.x = f->in[1];
    n.variance = f->in[0];
    n.gamma = a->scale ? f->in[2] : NULL;
    n.mean = n.p->zeros;
    if (!norm_has_shape(&n))
        f->op->class->reference(f);
    else
        norm_scale(&n);
}

const struct nn_kernel nn_cpu_normalize = {norm_plan, norm_run_forward, norm_free, norm_info};
const struct nn_kernel nn_cpu_normalize_backward = {norm_plan, norm_run_backward, norm_free, norm_info};
const struct nn_kernel nn_cpu_moments = {norm_plan, norm_run_moments, norm_free, norm_info};
const struct nn_kernel nn_cpu_normalize_by = {norm_plan, norm_run_by, norm_free, norm_info};
const struct nn_kernel nn_cpu_normalize_by_backward = {norm_plan, norm_run_by_backward, norm_free, norm_info};

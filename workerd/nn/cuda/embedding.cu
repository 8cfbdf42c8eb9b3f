// SPDX-License-Identifier: Apache-2.0
//
// Rows of a table by their numbers. The gradient adds up what each row of the table has been read for, in the order in
// which it was read: the numbers are sorted, in passes over their bits that keep the order of equals.
#include <string.h>

#include "workerd/nn/cuda/teams.h"
#include "workerd/nn/ops/embedding.h"

// ---- embedding ----------------------------------------------------------------------------------------------------

static __global__ void read_table(size_t n, size_t width, int64_t rows, const float *table, const int32_t *id, float *y)
{
    NN_CUDA_EACH(i, n)
    {
        const size_t k = nn_cuda_quotient(i, width);
        y[i] = table[nn_embedding_row(id[k], rows) * width + (i - k * width)];
    }
}

static void cuda_embedding_run(const struct nn_frame *f)
{
    const struct nn_type *table = &f->op->in_type[0];
    NN_CUDA_RUN_EACH(f->context, read_table, nn_type_count(&f->op->out_type[0]), (size_t)table->dim[1], table->dim[0],
                     nn_cuda_in(f, 0), (const int32_t *)f->in[1], nn_cuda_out(f, 0));
}

// ---- sorting ------------------------------------------------------------------------------------------------------

enum { SORT_BITS = 4, SORT_DIGITS = 1 << SORT_BITS, SORT_BLOCK = 256, SORT_WARPS = SORT_BLOCK / NN_CUDA_WARP };

// Which row was read, and for which step.
struct reading {
    uint32_t row, step;
};

// What the scratch memory holds. first, end: of each row of the table its readings, once they are sorted.
struct sorted_readings {
    size_t n, rows, blocks;
    struct reading *from, *to;
    uint32_t *count;  // (SORT_DIGITS, blocks)
    uint32_t *first, *end;
};

static struct sorted_readings readings_at(void *scratch, size_t n, size_t rows)
{
    struct sorted_readings s = {n,    rows, (n + SORT_BLOCK - 1) / SORT_BLOCK, (struct reading *)scratch, NULL, NULL,
                                NULL, NULL};
    s.to = s.from + n;
    s.count = (uint32_t *)(s.to + n);
    s.first = s.count + SORT_DIGITS * s.blocks;
    s.end = s.first + rows;
    return s;
}

static size_t readings_bytes(size_t n, size_t rows)
{
    const size_t blocks = (n + SORT_BLOCK - 1) / SORT_BLOCK;
    return 2 * n * sizeof(struct reading) + (SORT_DIGITS * blocks + 2 * rows) * sizeof(uint32_t);
}

static __global__ void list_readings(size_t n, int64_t rows, const int32_t *id, struct reading *to)
{
    NN_CUDA_EACH(i, n)
    {
        to[i].row = (uint32_t)nn_embedding_row(id[i], rows);
        to[i].step = (uint32_t)i;
    }
}

// The threads of the warp with the same digit. Threads past the end have none, and are in no other's.
static __device__ unsigned sort_peers(bool inside, unsigned digit)
{
    unsigned peers = __ballot_sync(0xffffffffu, inside);
    for (int bit = 0; bit < SORT_BITS; bit++) {
        const unsigned set = __ballot_sync(0xffffffffu, digit >> bit & 1);
        peers &= digit >> bit & 1 ? set : ~set;
    }
    return peers;
}

// How many of each digit the block has, and where among its own kind the thread's reading is.
static __device__ unsigned sort_count(bool inside, unsigned digit, unsigned count[SORT_WARPS][SORT_DIGITS])
{
    const unsigned warp = threadIdx.x / NN_CUDA_WARP, lane = threadIdx.x % NN_CUDA_WARP;
    const unsigned peers = sort_peers(inside, digit), before = __popc(peers & ((1u << lane) - 1));
    if (lane < SORT_DIGITS)
        count[warp][lane] = 0;
    __syncwarp();
    if (inside && before == 0)
        count[warp][digit] = __popc(peers);
    __syncthreads();
    unsigned rank = before;
    for (unsigned w = 0; w < warp; w++)
        rank += count[w][digit];
    return rank;
}

static __device__ unsigned sort_digit(const struct sorted_readings &s, size_t i, int shift)
{
    return i < s.n ? s.from[i].row >> shift & (SORT_DIGITS - 1) : 0;
}

static __global__ void count_digits(struct sorted_readings s, int shift)
{
    __shared__ unsigned count[SORT_WARPS][SORT_DIGITS];
    const size_t i = (size_t)blockIdx.x * SORT_BLOCK + threadIdx.x;
    sort_count(i < s.n, sort_digit(s, i, shift), count);
    if (threadIdx.x >= SORT_DIGITS)
        return;
    unsigned all = 0;
    for (int w = 0; w < SORT_WARPS; w++)
        all += count[w][threadIdx.x];
    s.count[threadIdx.x * s.blocks + blockIdx.x] = all;
}

// count: each becomes the sum of those before it. One block.
static __global__ void sum_counts(struct sorted_readings s)
{
    __shared__ unsigned sum[SORT_BLOCK];
    unsigned before = 0;
    for (size_t first = 0; first < SORT_DIGITS * s.blocks; first += SORT_BLOCK) {
        const size_t i = first + threadIdx.x;
        const unsigned mine = i < SORT_DIGITS * s.blocks ? s.count[i] : 0;
        sum[threadIdx.x] = mine;
        for (unsigned by = 1; by < SORT_BLOCK; by *= 2) {
            __syncthreads();
            const unsigned other = threadIdx.x >= by ? sum[threadIdx.x - by] : 0;
            __syncthreads();
            sum[threadIdx.x] += other;
        }
        __syncthreads();
        if (i < SORT_DIGITS * s.blocks)
            s.count[i] = before + sum[threadIdx.x] - mine;
        before += sum[SORT_BLOCK - 1];
        __syncthreads();
    }
}

static __global__ void move_readings(struct sorted_readings s, int shift)
{
    __shared__ unsigned count[SORT_WARPS][SORT_DIGITS];
    const size_t i = (size_t)blockIdx.x * SORT_BLOCK + threadIdx.x;
    const unsigned digit = sort_digit(s, i, shift), rank = sort_count(i < s.n, digit, count);
    if (i < s.n)
        s.to[s.count[digit * s.blocks + blockIdx.x] + rank] = s.from[i];
}

static __global__ void find_rows(size_t n, const struct reading *sorted, uint32_t *first, uint32_t *end)
{
    NN_CUDA_EACH(i, n)
    {
        const uint32_t row = sorted[i].row;
        if (i == 0 || sorted[i - 1].row != row)
            first[row] = (uint32_t)i;
        if (i + 1 == n || sorted[i + 1].row != row)
            end[row] = (uint32_t)i + 1;
    }
}

static void sort_readings(struct nn_context *c, struct sorted_readings *s)
{
    for (int shift = 0; shift < 32 && (s->rows - 1) >> shift; shift += SORT_BITS) {
        NN_CUDA_RUN(c, count_digits, (unsigned)s->blocks, SORT_BLOCK, 0, *s, shift);
        NN_CUDA_RUN(c, sum_counts, 1, SORT_BLOCK, 0, *s);
        NN_CUDA_RUN(c, move_readings, (unsigned)s->blocks, SORT_BLOCK, 0, *s, shift);
        struct reading *const sorted = s->to;
        s->to = s->from;
        s->from = sorted;
    }
}

// ---- the gradient -------------------------------------------------------------------------------------------------

enum { TABLE_COLUMNS = 32, TABLE_LINES = 8 };

// A block for 32 columns of a row of the table: each of its 8 lines of threads adds up every 8th reading.
static __global__ void sum_readings(struct sorted_readings s, size_t width, const float *dy, float *table)
{
    __shared__ float part[TABLE_LINES][TABLE_COLUMNS];
    const size_t row = blockIdx.x, column = (size_t)blockIdx.y * TABLE_COLUMNS + threadIdx.x;
    float mine = 0;
    for (size_t i = s.first[row] + threadIdx.y; column < width && i < s.end[row]; i += TABLE_LINES)
        mine += dy[s.from[i].step * width + column];
    part[threadIdx.y][threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.y != 0 || column >= width)
        return;
    for (int k = 1; k < TABLE_LINES; k++)
        mine += part[k][threadIdx.x];
    table[row * width + column] = mine;
}

static enum ps_code cuda_embedding_plan_backward(struct nn_context *c, const struct nn_op *op, void **plan,
                                                 struct ps_error *e)
{
    (void)plan;
    return nn_cuda_reserve(c, readings_bytes(nn_type_count(&op->in_type[0]), (size_t)op->out_type[0].dim[0]), e);
}

static void cuda_embedding_run_backward(const struct nn_frame *f)
{
    const struct nn_type *table = &f->op->out_type[0];
    const size_t n = nn_type_count(&f->op->in_type[0]), rows = (size_t)table->dim[0], width = (size_t)table->dim[1];
    struct nn_context *c = f->context;
    struct sorted_readings s = readings_at(c->scratch, n, rows);
    if (c->error.code == PS_OK)
        nn_cuda_note(c, cudaMemsetAsync(s.first, 0, 2 * rows * sizeof *s.first, c->stream), "a gradient of a table");
    NN_CUDA_RUN_EACH(c, list_readings, n, table->dim[0], (const int32_t *)f->in[0], s.from);
    sort_readings(c, &s);
    NN_CUDA_RUN_EACH(c, find_rows, n, s.from, s.first, s.end);
    const dim3 grid((unsigned)rows, (unsigned)((width + TABLE_COLUMNS - 1) / TABLE_COLUMNS));
    NN_CUDA_RUN(c, sum_readings, grid, dim3(TABLE_COLUMNS, TABLE_LINES), 0, s, width, nn_cuda_in(f, 1),
                nn_cuda_out(f, 0));
}

// ---- numbers ------------------------------------------------------------------------------------------------------

// What no int32 can hold, a NaN among it, is outside every table.
static __global__ void truncate_numbers(size_t n, const float *x, int32_t *y)
{
    NN_CUDA_EACH(i, n)
    y[i] = x[i] > -2147483520.0f && x[i] < 2147483520.0f ? (int32_t)x[i] : -1;
}

static __global__ void spread_numbers(size_t n, uint64_t times, const uint64_t *x, uint64_t *y)
{
    NN_CUDA_EACH(i, n)
    y[i] = x[i / times] * times + i % times;
}

static void cuda_truncate_run(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, truncate_numbers, nn_type_count(&f->op->in_type[0]), nn_cuda_in(f, 0),
                     (int32_t *)f->out[0]);
}

static void cuda_spread_run(const struct nn_frame *f)
{
    int times;
    memcpy(&times, f->op->attr, sizeof times);
    NN_CUDA_RUN_EACH(f->context, spread_numbers, nn_type_count(&f->op->out_type[0]), (uint64_t)times,
                     (const uint64_t *)f->in[0], (uint64_t *)f->out[0]);
}

const struct nn_kernel nn_cuda_embedding = {NULL, cuda_embedding_run, NULL, NULL};
const struct nn_kernel nn_cuda_embedding_backward = {cuda_embedding_plan_backward, cuda_embedding_run_backward, NULL,
                                                     NULL};
const struct nn_kernel nn_cuda_truncate = {NULL, cuda_truncate_run, NULL, NULL};
const struct nn_kernel nn_cuda_spread = {NULL, cuda_spread_run, NULL, NULL};

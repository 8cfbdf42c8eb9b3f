// SPDX-License-Identifier: Apache-2.0
//
// All three ways of a convolution are one product, Y (rows, columns) = the sum over the depth of P (depth, rows) times
// Q (depth, columns):
//
//            rows               columns          depth               P                  Q
//   forward  pixels of y        channels of y    cells of a window   x, gathered        kernel
//   data     pixels of x        channels of x    cells, channels     dy, gathered       kernel, by its columns
//   weights  cells of a window  channels of y    pixels of y         x, gathered        dy
//
// A cell is a place of the window and a channel of x. The pixels of `weights` are cut into parts, a block's each, whose
// sums are added up last.
#include "workerd/nn/cuda/implicit.h"

// Numbers go in fours, which lie side by side where VECTORS is true: channels are divisible by four, and memory is
// aligned.

// ---- division by a number that does not change (Granlund and Montgomery 1994, figure 4.1) --------------------------

// Of numbers below 2^31.
struct divisor {
    unsigned by, factor, shift;
};

static struct divisor divisor_of(int by)
{
    struct divisor d = {(unsigned)by, 0, 0};
    while ((uint64_t)1 << d.shift < d.by)
        d.shift++;
    d.factor = (unsigned)((((uint64_t)1 << 32) * (((uint64_t)1 << d.shift) - d.by)) / d.by + 1);
    return d;
}

static __device__ unsigned divide(unsigned n, const struct divisor &d)
{
    return ((unsigned)(((uint64_t)n * d.factor) >> 32) + n) >> d.shift;
}

// n becomes what is left.
static __device__ unsigned divide_off(unsigned *n, const struct divisor &d)
{
    const unsigned quotient = divide(*n, d);
    *n -= quotient * d.by;
    return quotient;
}

// ---- what is the same for all ways ---------------------------------------------------------------------------------

struct window {
    struct nn_cuda_conv2d s;
    struct divisor c, oc, kw, h, w, oh, ow, stride[2];
};

static struct window window_of(const struct nn_cuda_conv2d *s)
{
    const struct window w = {*s,
                             divisor_of(s->c),
                             divisor_of(s->oc),
                             divisor_of(s->kw),
                             divisor_of(s->h),
                             divisor_of(s->w),
                             divisor_of(s->oh),
                             divisor_of(s->ow),
                             {divisor_of(s->stride[0]), divisor_of(s->stride[1])}};
    return w;
}

// A place of the window, and a channel there.
struct cell {
    int y, x;  // in pixels of the input
    unsigned tap, channel;
};

static __device__ struct cell cell_at(const struct window &w, unsigned at, const struct divisor &channels)
{
    struct cell cell;
    cell.tap = divide_off(&at, channels);
    cell.channel = at;
    unsigned kx = cell.tap;
    cell.y = (int)divide_off(&kx, w.kw) * w.s.dilation[0];
    cell.x = (int)kx * w.s.dilation[1];
    return cell;
}

// An image, and a pixel of it.
struct pixel {
    int y, x;
    unsigned image;
};

static __device__ struct pixel pixel_at(unsigned at, const struct divisor &h, const struct divisor &w)
{
    struct pixel p;
    unsigned line = divide_off(&at, w);
    p.x = (int)at;
    p.image = divide_off(&line, h);
    p.y = (int)line;
    return p;
}

// Four numbers of which the k-th is of(k).
template <class Of> static __device__ float4 each_of_four(Of of)
{
    return make_float4(of(0), of(1), of(2), of(3));
}

static __device__ float4 four_at(const float *from)
{
    return *(const float4 *)(const void *)from;
}

static __device__ float4 no_four(void)
{
    return make_float4(0, 0, 0, 0);
}

// From a line of `columns` numbers of a matrix: those from `column` on.
template <bool VECTORS>
static __device__ float4 four_of_line(const float *matrix, unsigned line, unsigned column, unsigned columns)
{
    const float *from = matrix + (size_t)line * columns;
    if (VECTORS)
        return column < columns ? four_at(from + column) : no_four();
    return each_of_four([=](unsigned k) { return column + k < columns ? from[column + k] : 0; });
}

template <bool VECTORS>
static __device__ void put_four(float *matrix, unsigned line, unsigned column, unsigned columns, float4 four)
{
    float *to = matrix + (size_t)line * columns + column;
    const float each[4] = {four.x, four.y, four.z, four.w};
    if (VECTORS && column < columns)
        *(float4 *)(void *)to = four;
    for (unsigned k = 0; !VECTORS && k < 4 && column + k < columns; k++)
        to[k] = each[k];
}

// ---- forward -------------------------------------------------------------------------------------------------------
//
// A way has: what a thread keeps of a row that it gathers (place), four numbers of P and of Q, and where four of Y go.
// P_DEEP, Q_DEEP: the four follow each other along the depth, not along the row or column.

struct forward_way {
    static constexpr bool P_DEEP = true, Q_DEEP = false;
    struct window w;
    const float *x, *kernel, *bias;
    enum nn_activation act;
    float *y;
    unsigned rows, columns, depth;

    // The window's first pixel, which may be outside.
    struct place {
        int y, x;
        const float *image;  // NULL: there is no such row
    };

    __device__ struct place place_of(unsigned row) const
    {
        const struct pixel p = pixel_at(row, w.oh, w.ow);
        const struct place at = {p.y * w.s.stride[0] - w.s.pad[0], p.x * w.s.stride[1] - w.s.pad[1],
                                 row < rows ? x + (size_t)p.image * w.s.h * w.s.w * w.s.c : NULL};
        return at;
    }

    __device__ const float *cell_of(const struct place &at, unsigned deep) const
    {
        const struct cell cell = cell_at(w, deep, w.c);
        const int iy = at.y + cell.y, ix = at.x + cell.x;
        const bool inside = (unsigned)iy < (unsigned)w.s.h && (unsigned)ix < (unsigned)w.s.w;
        return at.image && deep < depth && inside ? at.image + (iy * w.s.w + ix) * w.s.c + cell.channel : NULL;
    }

    template <bool VECTORS> __device__ float4 p(const struct place &at, unsigned, unsigned deep) const
    {
        if (!VECTORS)
            return each_of_four([&](unsigned k) {
                const float *cell = cell_of(at, deep + k);
                return cell ? *cell : 0;
            });
        const float *cell = cell_of(at, deep);
        return cell ? four_at(cell) : no_four();
    }

    template <bool VECTORS> __device__ float4 q(unsigned column, unsigned deep) const
    {
        return deep < depth ? four_of_line<VECTORS>(kernel, deep, column, columns) : no_four();
    }

    __device__ float finished(float sum, float b) const
    {
        sum += b;
        return act == NN_RELU && sum < 0 ? 0 : sum;  // a NaN goes on
    }

    template <bool VECTORS> __device__ void put(unsigned row, unsigned column, float4 sum, unsigned) const
    {
        const float4 b = bias ? four_of_line<VECTORS>(bias, 0, column, columns) : no_four();
        const float4 out =
            make_float4(finished(sum.x, b.x), finished(sum.y, b.y), finished(sum.z, b.z), finished(sum.w, b.w));
        put_four<VECTORS>(y, row, column, columns, out);
    }
};

// ---- data ----------------------------------------------------------------------------------------------------------

struct data_way {
    static constexpr bool P_DEEP = true, Q_DEEP = true;
    struct window w;
    const float *kernel, *dy;
    float *dx;
    unsigned rows, columns, depth;

    // The pixel, counted from where the padding begins.
    struct place {
        int y, x;
        const float *image;
    };

    __device__ struct place place_of(unsigned row) const
    {
        const struct pixel p = pixel_at(row, w.h, w.w);
        const struct place at = {p.y + w.s.pad[0], p.x + w.s.pad[1],
                                 row < rows ? dy + (size_t)p.image * w.s.oh * w.s.ow * w.s.oc : NULL};
        return at;
    }

    // The output row or column whose window has this pixel at that place; -1: none has.
    __device__ int output_of(int axis, int at, int places) const
    {
        if (at < 0)
            return -1;
        unsigned rest = (unsigned)at;
        const int output = (int)divide_off(&rest, w.stride[axis]);
        return rest == 0 && output < places ? output : -1;
    }

    __device__ const float *cell_of(const struct place &at, unsigned deep) const
    {
        const struct cell cell = cell_at(w, deep, w.oc);
        const int oy = output_of(0, at.y - cell.y, w.s.oh), ox = output_of(1, at.x - cell.x, w.s.ow);
        return at.image && deep < depth && oy >= 0 && ox >= 0 ? at.image + (oy * w.s.ow + ox) * w.s.oc + cell.channel
                                                              : NULL;
    }

    template <bool VECTORS> __device__ float4 p(const struct place &at, unsigned, unsigned deep) const
    {
        if (!VECTORS)
            return each_of_four([&](unsigned k) {
                const float *cell = cell_of(at, deep + k);
                return cell ? *cell : 0;
            });
        const float *cell = cell_of(at, deep);
        return cell ? four_at(cell) : no_four();
    }

    __device__ const float *weight_of(unsigned column, unsigned deep) const
    {
        const unsigned tap = divide_off(&deep, w.oc);
        return kernel + ((size_t)tap * columns + column) * w.s.oc + deep;
    }

    template <bool VECTORS> __device__ float4 q(unsigned column, unsigned deep) const
    {
        if (VECTORS)
            return column < columns && deep < depth ? four_at(weight_of(column, deep)) : no_four();
        return each_of_four(
            [&](unsigned k) { return column < columns && deep + k < depth ? *weight_of(column, deep + k) : 0; });
    }

    template <bool VECTORS> __device__ void put(unsigned row, unsigned column, float4 sum, unsigned) const
    {
        put_four<VECTORS>(dx, row, column, columns, sum);
    }
};

// ---- weights -------------------------------------------------------------------------------------------------------

struct weights_way {
    static constexpr bool P_DEEP = false, Q_DEEP = false;
    struct window w;
    const float *x, *dy;
    float *parts;
    unsigned rows, columns, depth;

    struct place {
        struct cell cell;
    };

    __device__ struct place place_of(unsigned row) const
    {
        const struct place at = {cell_at(w, row, w.c)};
        return at;
    }

    __device__ const float *cell_of(const struct cell &cell, unsigned row, unsigned deep) const
    {
        const struct pixel p = pixel_at(deep, w.oh, w.ow);
        const int iy = p.y * w.s.stride[0] - w.s.pad[0] + cell.y, ix = p.x * w.s.stride[1] - w.s.pad[1] + cell.x;
        const bool inside = (unsigned)iy < (unsigned)w.s.h && (unsigned)ix < (unsigned)w.s.w;
        return row < rows && deep < depth && inside
                   ? x + (((size_t)p.image * w.s.h + iy) * w.s.w + ix) * w.s.c + cell.channel
                   : NULL;
    }

    template <bool VECTORS> __device__ float4 p(const struct place &at, unsigned row, unsigned deep) const
    {
        if (!VECTORS)
            return each_of_four([&](unsigned k) {
                const float *cell = cell_of(cell_at(w, row + k, w.c), row + k, deep);
                return cell ? *cell : 0;
            });
        const float *cell = cell_of(at.cell, row, deep);
        return cell ? four_at(cell) : no_four();
    }

    template <bool VECTORS> __device__ float4 q(unsigned column, unsigned deep) const
    {
        return deep < depth ? four_of_line<VECTORS>(dy, deep, column, columns) : no_four();
    }

    template <bool VECTORS> __device__ void put(unsigned row, unsigned column, float4 sum, unsigned part) const
    {
        put_four<VECTORS>(parts + (size_t)part * rows * columns, row, column, columns, sum);
    }
};

// ---- the product ---------------------------------------------------------------------------------------------------

// A block's part of Y, and a thread's part of that. Where there are too few blocks to keep a GPU busy, GROUPS of THREADS
// share out the depth. A group multiplies DEEP of it at a time, while the next are on their way.
template <int ROWS_, int COLUMNS_, int THREAD_ROWS_, int THREAD_COLUMNS_, int GROUPS_> struct tile {
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, THREAD_ROWS = THREAD_ROWS_;
    static constexpr int THREAD_COLUMNS = THREAD_COLUMNS_, ACROSS = COLUMNS / THREAD_COLUMNS;
    static constexpr int THREADS = ROWS / THREAD_ROWS * ACROSS, GROUPS = GROUPS_;
};

enum { DEEP = 16 };

// Of its group.
template <class Tile> static __device__ unsigned thread_of(void)
{
    return Tile::GROUPS == 1 ? threadIdx.x : threadIdx.x % Tile::THREADS;
}

template <class Tile> static __device__ unsigned group_of(void)
{
    return Tile::GROUPS == 1 ? 0 : threadIdx.x / Tile::THREADS;
}

// Fours of DEEP lines of LENGTH numbers in shared memory, shared out to a group's threads.
template <class Tile, int LENGTH, int PADDING, bool ALONG_DEPTH> struct fours {
    static constexpr int THREADS = Tile::THREADS;
    static constexpr int ALL = LENGTH * DEEP / 4, EACH = (ALL + THREADS - 1) / THREADS;
    static constexpr bool EVEN = ALL % THREADS == 0;

    static __device__ unsigned number(int k)
    {
        return (unsigned)k * THREADS + thread_of<Tile>();
    }
    static __device__ bool is_there(int k)
    {
        return EVEN || number(k) < ALL;
    }
    static __device__ unsigned deep(int k)
    {
        return ALONG_DEPTH ? number(k) % (DEEP / 4) * 4 : number(k) / (LENGTH / 4);
    }
    static __device__ unsigned along(int k)
    {
        return ALONG_DEPTH ? number(k) / (DEEP / 4) : number(k) % (LENGTH / 4) * 4;
    }
    static __device__ void put(float (*to)[LENGTH + PADDING], int k, float4 four)
    {
        float *at = &to[deep(k)][along(k)];
        if (!ALONG_DEPTH) {
            *(float4 *)(void *)at = four;
            return;
        }
        at[0] = four.x;
        at[LENGTH + PADDING] = four.y;
        at[2 * (LENGTH + PADDING)] = four.z;
        at[3 * (LENGTH + PADDING)] = four.w;
    }
};

// What a block multiplies in this turn, and what it gathers for the next. Shared memory of a size that the launch gives:
// a template's own is not shared where the GPU is emulated.
template <class Tile, int PADDING> struct tiles {
    float p[2][DEEP][Tile::ROWS + PADDING], q[2][DEEP][Tile::COLUMNS + PADDING];
};

// ---- a thread's sums, of whole numbers -----------------------------------------------------------------------------

// N numbers of a line that a thread multiplies: fours, as far apart as all threads' fours are wide.
template <int N, int LENGTH> static __device__ void take_numbers(const float *line, unsigned thread, float *to)
{
#pragma unroll
    for (int k = 0; k < N; k += 4)
        *(float4 *)(void *)(to + k) = four_at(line + k * (LENGTH / N) + thread * 4);
}

template <class Tile> struct plain_sums {
    static constexpr int PADDING = 4, TM = Tile::THREAD_ROWS, TN = Tile::THREAD_COLUMNS, ALL = TM * TN;
    unsigned down, across;
    float sum[TM][TN];

    __device__ plain_sums() : down(thread_of<Tile>() / Tile::ACROSS), across(thread_of<Tile>() % Tile::ACROSS), sum()
    {
    }

    static __device__ float4 factors(float4 four)
    {
        return four;
    }

    __device__ void multiply(const struct tiles<Tile, PADDING> *from, unsigned turn)
    {
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            float p[TM], q[TN];
            take_numbers<TM, Tile::ROWS>(from->p[turn][d], down, p);
            take_numbers<TN, Tile::COLUMNS>(from->q[turn][d], across, q);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++)
                    sum[i][j] += p[i] * q[j];
        }
    }

    __device__ float &at(int k)
    {
        return sum[k / TN][k % TN];
    }

    // put(row, column, four), within the tile
    template <class Put> __device__ void each(Put put) const
    {
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j += 4)
                put(i / 4 * 4 * (Tile::ROWS / TM) + down * 4 + i % 4, j * (Tile::COLUMNS / TN) + across * 4,
                    make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]));
    }
};

// ---- a warp's sums, of factors rounded to TF32, by tensor cores ----------------------------------------------------
//
// A warp multiplies 16 rows by 8 columns, 8 deep, at once. Lane 4 g + t has of these factors and sums (PTX ISA,
// "Matrix Fragments for mma.m16n8k8" of .tf32):
//
//   a    rows g, g + 8 at depth t, then both at depth t + 4
//   b    column g at depths t, t + 4
//   sum  row g at columns 2 t, 2 t + 1, then row g + 8 at both

enum { MMA_ROWS = 16, MMA_COLUMNS = 8, MMA_DEEP = 8 };

#ifdef CUDA_EMULATED

static float round_to_tf32(float x)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    bits = x == x ? (bits + 0x1000) & 0xffffe000 : bits;
    __builtin_memcpy(&x, &bits, sizeof bits);
    return x;
}

static void multiply_by_warp(const float a[4], const float b[2], float sum[4])
{
    const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (unsigned k = 0; k < MMA_DEEP; k++)
        for (unsigned i = 0; i < 4; i++)
            sum[i] += __shfl_sync(0xffffffffu, a[k / 4 * 2 + i / 2], g * 4 + k % 4) *
                      __shfl_sync(0xffffffffu, b[k / 4], (2 * t + i % 2) * 4 + k % 4);
}

#else

// Ties away from 0. Before sm_80 there is none, and no such kernel is launched.
static __device__ float round_to_tf32(float x)
{
#if __CUDA_ARCH__ >= 800
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    x = __uint_as_float(bits);
#endif
    return x;
}

static __device__ void multiply_by_warp(const float a[4], const float b[2], float sum[4])
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
          "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#endif
}

#endif

// A warp has 32 rows and 16 columns of a tile, or with fewer warps than these are, several of them side by side.
template <class Tile> struct tensor_sums {
    static constexpr int PADDING = 8, WARPS = Tile::THREADS / 32, DOWN = Tile::ROWS / 32;
    static constexpr int COLUMNS = Tile::COLUMNS * DOWN / WARPS;  // of a warp
    static constexpr int M = 32 / MMA_ROWS, N = COLUMNS / MMA_COLUMNS, ALL = M * N * 4;
    unsigned g, t, top, left;
    float sum[M][N][4];

    __device__ tensor_sums()
        : g(threadIdx.x % 32 / 4), t(threadIdx.x % 4), top(thread_of<Tile>() / 32 % DOWN * 32),
          left(thread_of<Tile>() / 32 / DOWN * COLUMNS), sum()
    {
    }

    static __device__ float4 factors(float4 four)
    {
        return make_float4(round_to_tf32(four.x), round_to_tf32(four.y), round_to_tf32(four.z), round_to_tf32(four.w));
    }

    __device__ void multiply(const struct tiles<Tile, PADDING> *from, unsigned turn)
    {
#pragma unroll
        for (int d = 0; d < DEEP; d += MMA_DEEP) {
            const auto *p = &from->p[turn][d + t];
            const auto *q = &from->q[turn][d + t];
            float a[M][4], b[N][2];
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    a[i][k] = p[k / 2 * 4][top + i * MMA_ROWS + k % 2 * 8 + g];
#pragma unroll
            for (int j = 0; j < N; j++)
#pragma unroll
                for (int k = 0; k < 2; k++)
                    b[j][k] = q[k * 4][left + j * MMA_COLUMNS + g];
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int j = 0; j < N; j++)
                    multiply_by_warp(a[i], b[j], sum[i][j]);
        }
    }

    __device__ float &at(int k)
    {
        return sum[k / 4 / N][k / 4 % N][k % 4];
    }

    // Of two neighbours, one gives up its half of the lower row for the other's of the upper: each has four of one row.
    template <class Put> __device__ void each(Put put) const
    {
        const bool lower = t % 2;
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float *s = sum[i][j];
                const float x = __shfl_xor_sync(0xffffffffu, lower ? s[0] : s[2], 1);
                const float y = __shfl_xor_sync(0xffffffffu, lower ? s[1] : s[3], 1);
                put(top + i * MMA_ROWS + lower * 8 + g, left + j * MMA_COLUMNS + t / 2 * 4,
                    lower ? make_float4(x, y, s[2], s[3]) : make_float4(s[0], s[1], x, y));
            }
    }
};

// ---- the product of a tile -----------------------------------------------------------------------------------------

// One thread's part of what is gathered.
template <class Way, class Tile, class Sums, bool VECTORS> struct gatherer {
    typedef fours<Tile, Tile::ROWS, Sums::PADDING, Way::P_DEEP> of_p;
    typedef fours<Tile, Tile::COLUMNS, Sums::PADDING, Way::Q_DEEP> of_q;
    unsigned top, left;
    typename Way::place place[of_p::EACH];
    float4 p[of_p::EACH], q[of_q::EACH];

    __device__ gatherer(const Way &way) : top(blockIdx.x * Tile::ROWS), left(blockIdx.y * Tile::COLUMNS)
    {
#pragma unroll
        for (int k = 0; k < of_p::EACH; k++)
            place[k] = way.place_of(top + of_p::along(k));
    }

    // From the device's memory, at this place of the depth.
    __device__ void gather(const Way &way, unsigned at)
    {
#pragma unroll
        for (int k = 0; k < of_p::EACH; k++)
            if (of_p::is_there(k))
                p[k] = way.template p<VECTORS>(place[k], top + of_p::along(k), at + of_p::deep(k));
#pragma unroll
        for (int k = 0; k < of_q::EACH; k++)
            if (of_q::is_there(k))
                q[k] = way.template q<VECTORS>(left + of_q::along(k), at + of_q::deep(k));
    }

    __device__ void share(struct tiles<Tile, Sums::PADDING> *to, unsigned turn) const
    {
#pragma unroll
        for (int k = 0; k < of_p::EACH; k++)
            if (of_p::is_there(k))
                of_p::put(to->p[turn], k, Sums::factors(p[k]));
#pragma unroll
        for (int k = 0; k < of_q::EACH; k++)
            if (of_q::is_there(k))
                of_q::put(to->q[turn], k, Sums::factors(q[k]));
    }
};

// To the first group: the sums of all, in their order.
template <class Tile, class Sums> static __device__ void add_groups(Sums *sums, float *shared)
{
    float *mine = shared + thread_of<Tile>();
    __syncthreads();
#pragma unroll
    for (int k = 0; k < Sums::ALL; k++)
        if (group_of<Tile>() > 0)
            mine[((group_of<Tile>() - 1) * Sums::ALL + k) * Tile::THREADS] = sums->at(k);
    __syncthreads();
    for (int from = 0; group_of<Tile>() == 0 && from < Tile::GROUPS - 1; from++)
#pragma unroll
        for (int k = 0; k < Sums::ALL; k++)
            sums->at(k) += mine[(from * Sums::ALL + k) * Tile::THREADS];
}

// A part of the depth is the block's, a share of that a group's. Each turn gathers for the next while it multiplies.
template <class Way, class Tile, class Sums, bool VECTORS>
static __global__ void __launch_bounds__(Tile::THREADS *Tile::GROUPS)
    multiply_tile(Way way, unsigned per_part, unsigned per_group)
{
    typedef struct tiles<Tile, Sums::PADDING> shared_tiles;
    NN_CUDA_SHARED(shared_tiles, shared);
    struct tiles<Tile, Sums::PADDING> *mine = &shared[group_of<Tile>()];
    const unsigned part = blockIdx.z * per_part, first = part + group_of<Tile>() * per_group;
    const unsigned depth = way.depth - part < per_part ? way.depth : part + per_part;
    way.depth = first + per_group < depth ? first + per_group : depth;  // zeros are behind it
    gatherer<Way, Tile, Sums, VECTORS> from(way);
    Sums sums;
    unsigned turn = 0;
    from.gather(way, first);
    for (unsigned at = DEEP; at < per_group; at += DEEP, turn ^= 1) {
        from.share(mine, turn);
        __syncthreads();
        from.gather(way, first + at);
        sums.multiply(mine, turn);
    }
    from.share(mine, turn);
    __syncthreads();
    sums.multiply(mine, turn);
    if (Tile::GROUPS > 1)
        add_groups<Tile>(&sums, &shared->p[0][0][0]);
    if (group_of<Tile>() == 0)
        sums.each([&](unsigned row, unsigned column, float4 four) {
            if (from.top + row < way.rows)
                way.template put<VECTORS>(from.top + row, from.left + column, four, blockIdx.z);
        });
}

// ---- runs ----------------------------------------------------------------------------------------------------------

static size_t implicit_cells(const struct nn_cuda_conv2d *s)
{
    return (size_t)s->kh * (size_t)s->kw * (size_t)s->c;
}

static size_t implicit_pixels(const struct nn_cuda_conv2d *s)
{
    return (size_t)s->n * (size_t)s->oh * (size_t)s->ow;
}

static size_t implicit_pixels_of_x(const struct nn_cuda_conv2d *s)
{
    return (size_t)s->n * (size_t)s->h * (size_t)s->w;
}

int nn_cuda_implicit_most = 128;

bool nn_cuda_implicit_fits(const struct nn_cuda_conv2d *s)
{
    const size_t most = (size_t)1 << 30;
    return s->groups == 1 && s->c <= nn_cuda_implicit_most && s->oc <= nn_cuda_implicit_most &&
           implicit_pixels(s) * (size_t)s->oc < most && implicit_pixels_of_x(s) * (size_t)s->c < most &&
           implicit_cells(s) * (size_t)s->oc < most;
}

static bool implicit_is_aligned(const void *a, const void *b, const void *c, const void *d)
{
    return (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d) & 15) == 0;
}

template <class Tile, class Sums, bool VECTORS, class Way>
static void implicit_launch(struct nn_context *c, const Way &way, unsigned parts, unsigned per_part)
{
    const dim3 grid((way.rows + Tile::ROWS - 1) / Tile::ROWS, (way.columns + Tile::COLUMNS - 1) / Tile::COLUMNS, parts);
    const unsigned per_group = (per_part + Tile::GROUPS * DEEP - 1) / (Tile::GROUPS * DEEP) * DEEP;
    NN_CUDA_RUN(c, (multiply_tile<Way, Tile, Sums, VECTORS>), grid, Tile::THREADS * Tile::GROUPS,
                Tile::GROUPS * sizeof(struct tiles<Tile, Sums::PADDING>), way, per_part, per_group);
}

template <class Tile, class Way>
static void implicit_run(struct nn_context *c, const Way &way, bool vectors, unsigned parts, unsigned per_part)
{
    if (!vectors)
        implicit_launch<Tile, plain_sums<Tile>, false>(c, way, parts, per_part);
    else if (c->precision == NN_FLOAT32 || !c->tensor_cores)
        implicit_launch<Tile, plain_sums<Tile>, true>(c, way, parts, per_part);
    else
        implicit_launch<Tile, tensor_sums<Tile>, true>(c, way, parts, per_part);
}

// Of pixels: tall where there are few channels.
template <class Way> static void implicit_run_pixels(struct nn_context *c, const Way &way, bool vectors)
{
    if (way.columns <= 16)
        implicit_run<tile<128, 16, 4, 4, 1>>(c, way, vectors, 1, way.depth);
    else if (way.columns <= 32)
        implicit_run<tile<64, 32, 4, 4, 3>>(c, way, vectors, 1, way.depth);
    else if (way.columns <= 64)
        implicit_run<tile<32, 64, 4, 4, 3>>(c, way, vectors, 1, way.depth);
    else
        implicit_run<tile<64, 64, 8, 4, 1>>(c, way, vectors, 1, way.depth);
}

static bool implicit_in_fours(const struct nn_cuda_conv2d *s)
{
    return s->c % 4 == 0 && s->oc % 4 == 0;
}

void nn_cuda_implicit_forward(struct nn_context *c, const struct nn_cuda_conv2d *s, const float *x, const float *kernel,
                              const float *bias, enum nn_activation act, float *y)
{
    const struct forward_way way = {window_of(s),
                                    x,
                                    kernel,
                                    bias,
                                    act,
                                    y,
                                    (unsigned)implicit_pixels(s),
                                    (unsigned)s->oc,
                                    (unsigned)implicit_cells(s)};
    implicit_run_pixels(c, way, implicit_in_fours(s) && implicit_is_aligned(x, kernel, bias, y));
}

void nn_cuda_implicit_data(struct nn_context *c, const struct nn_cuda_conv2d *s, const float *kernel, const float *dy,
                           float *dx)
{
    const struct data_way way = {window_of(s),
                                 kernel,
                                 dy,
                                 dx,
                                 (unsigned)implicit_pixels_of_x(s),
                                 (unsigned)s->c,
                                 (unsigned)(s->kh * s->kw * s->oc)};
    implicit_run_pixels(c, way, implicit_in_fours(s) && implicit_is_aligned(kernel, dy, dx, NULL));
}

// ---- the kernel's gradient, in parts -------------------------------------------------------------------------------

// As many parts as keep a GPU busy, none of them too short for the tile's own work.
static unsigned implicit_per_part(const struct nn_cuda_conv2d *s)
{
    enum { TILE = 64, SHORTEST = 64, MOST_PARTS = 256 };
    const size_t blocks = s->oc <= 32 ? 768 : 256;  // of tiles with fewer threads, and more
    const size_t tiles = (implicit_cells(s) + TILE - 1) / TILE * (((size_t)s->oc + TILE - 1) / TILE);
    const size_t pixels = implicit_pixels(s);
    size_t parts = (blocks + tiles - 1) / tiles;
    parts = parts < pixels / SHORTEST ? parts : pixels / SHORTEST;
    parts = parts > MOST_PARTS ? (size_t)MOST_PARTS : parts;
    const size_t per = parts > 1 ? (pixels + parts - 1) / parts : pixels;
    return (unsigned)((per + DEEP - 1) / DEEP * DEEP);
}

static unsigned implicit_parts(const struct nn_cuda_conv2d *s)
{
    const size_t per = implicit_per_part(s);
    return (unsigned)((implicit_pixels(s) + per - 1) / per);
}

enum ps_code nn_cuda_implicit_reserve(struct nn_context *c, const struct nn_cuda_conv2d *s, struct ps_error *e)
{
    const size_t parts = implicit_parts(s);
    return parts > 1 ? nn_cuda_reserve(c, parts * implicit_cells(s) * (size_t)s->oc * sizeof(float), e) : PS_OK;
}

void nn_cuda_implicit_weights(struct nn_context *c, const struct nn_cuda_conv2d *s, const float *x, const float *dy,
                              float *dw)
{
    const unsigned parts = implicit_parts(s), per = implicit_per_part(s);
    float *sums = parts > 1 ? (float *)c->scratch : dw;
    const struct weights_way way = {
        window_of(s), x, dy, sums, (unsigned)implicit_cells(s), (unsigned)s->oc, (unsigned)implicit_pixels(s)};
    const bool vectors = implicit_in_fours(s) && implicit_is_aligned(x, dy, sums, NULL);
    if (s->oc <= 16)
        implicit_run<tile<64, 16, 4, 4, 2>>(c, way, vectors, parts, per);
    else if (s->oc <= 32)
        implicit_run<tile<64, 32, 4, 4, 1>>(c, way, vectors, parts, per);
    else
        implicit_run<tile<64, 64, 8, 4, 2>>(c, way, vectors, parts, per);
    if (parts > 1)
        nn_cuda_sum_rows(c, parts, way.rows * (size_t)way.columns, sums, dw);
}

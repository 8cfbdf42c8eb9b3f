// SPDX-License-Identifier: Apache-2.0
//
// The product of a tile of implicit.cu: a block of threads gathers factors into shared memory, and multiplies them
// there, as they are or, rounded to TF32, by tensor cores.
#ifndef NN_CUDA_IMPLICIT_TILE_H
#define NN_CUDA_IMPLICIT_TILE_H

#include "workerd/nn/cuda/implicit_ways.h"

// ---- tiles ---------------------------------------------------------------------------------------------------------

// A block's part of Y, and a thread's part of that. Where there are too few blocks to keep a GPU busy, GROUPS of
// THREADS share out the depth. A group multiplies DEEP of it at a time, while the next are on their way.
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

// Two buffers: what is multiplied, and what comes next. Shared memory of a size that the launch gives: a template's own
// is not shared where the GPU is emulated.
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

    __device__ void multiply(const struct tiles<Tile, PADDING> *from, unsigned buffer)
    {
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            float p[TM], q[TN];
            take_numbers<TM, Tile::ROWS>(from->p[buffer][d], down, p);
            take_numbers<TN, Tile::COLUMNS>(from->q[buffer][d], across, q);
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

// Ties away from 0. Code for GPUs before sm_80 has none of it, and is not launched (nn_cuda_implicit_has_tensor_cores).
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
#else
    __trap();
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

    __device__ void multiply(const struct tiles<Tile, PADDING> *from, unsigned buffer)
    {
#pragma unroll
        for (int d = 0; d < DEEP; d += MMA_DEEP) {
            const auto *p = &from->p[buffer][d + t];
            const auto *q = &from->q[buffer][d + t];
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

    __device__ void share(struct tiles<Tile, Sums::PADDING> *to, unsigned buffer) const
    {
#pragma unroll
        for (int k = 0; k < of_p::EACH; k++)
            if (of_p::is_there(k))
                of_p::put(to->p[buffer], k, Sums::factors(p[k]));
#pragma unroll
        for (int k = 0; k < of_q::EACH; k++)
            if (of_q::is_there(k))
                of_q::put(to->q[buffer], k, Sums::factors(q[k]));
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

// A part of the depth is the block's, a share of that a group's. While one buffer is multiplied, what comes next is
// gathered for the other.
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
    unsigned buffer = 0;
    from.gather(way, first);
    for (unsigned at = DEEP; at < per_group; at += DEEP, buffer ^= 1) {
        from.share(mine, buffer);
        __syncthreads();
        from.gather(way, first + at);
        sums.multiply(mine, buffer);
    }
    from.share(mine, buffer);
    __syncthreads();
    sums.multiply(mine, buffer);
    if (Tile::GROUPS > 1)
        add_groups<Tile>(&sums, &shared->p[0][0][0]);
    if (group_of<Tile>() == 0)
        sums.each([&](unsigned row, unsigned column, float4 four) {
            if (from.top + row < way.rows)
                way.template put<VECTORS>(from.top + row, from.left + column, four, blockIdx.z);
        });
}

#endif

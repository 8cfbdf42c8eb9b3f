// SPDX-License-Identifier: Apache-2.0
//
// The vector code of conv2d_pool, ISA, for vectors of V floats: included once for each V, by a file that says for which
// processors. CELLS * 4 * WIDE sums of the forward pass fit the processor's registers.
#include <stdbool.h>
#include <string.h>

#if V == 16 && defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "workerd/nn/cpu/conv2d_pool.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")  // its sums stay in registers then

typedef float vector __attribute__((vector_size(V * 4), aligned(4), may_alias));
typedef int32_t mask __attribute__((vector_size(V * 4), aligned(4), may_alias));
typedef uint8_t bytes __attribute__((vector_size(V), aligned(1), may_alias));

INLINE vector pool_load(const float *from)
{
    return *(const vector *)from;
}

// The first n floats; the rest is 0.
INLINE vector pool_load_some(const float *from, int n)
{
    vector v = {0};
    if (n >= V)
        return pool_load(from);
    memcpy(&v, from, (size_t)n * sizeof *from);
    return v;
}

INLINE void pool_store_some(float *to, vector v, int n)
{
    if (n >= V)
        *(vector *)to = v;
    else
        memcpy(to, &v, (size_t)n * sizeof *to);
}

INLINE vector pool_select(mask m, vector yes, vector no)
{
    return (vector)((m & (mask)yes) | (~m & (mask)no));
}

// ---- forward ------------------------------------------------------------------------------------------------------

// A block of `wide` vectors of channels after the other; in it, all taps, and of each the block's channels.
static void pool_pack(const struct conv2d_pool *s, const float *kernel, float *packed)
{
    const int taps = s->kh * s->run;
    for (int from = 0; from < s->oc;) {
        const int wide = s->oc - from > V ? WIDE : 1, n = wide * V, have = s->oc - from < n ? s->oc - from : n;
        for (int t = 0; t < taps; t++, packed += n) {
            memset(packed, 0, (size_t)n * sizeof *packed);
            memcpy(packed, kernel + (size_t)t * (size_t)s->oc + from, (size_t)have * sizeof *packed);
        }
        from += n;
    }
}

// Of four sums the greatest, and which; a NaN is greater than all.
INLINE vector pool_greatest(const vector sum[4], mask *at)
{
    vector y = sum[0];
    *at = (mask){0};
    for (int k = 1; k < 4; k++) {
        mask greater = (sum[k] > y) | ((sum[k] != sum[k]) & (y == y));
        y = pool_select(greater, sum[k], y);
        *at = (greater & k) | (~greater & *at);
    }
    return y;
}

INLINE void pool_put(const struct conv2d_pool *s, const vector sum[4], int n, float *y, uint8_t *at)
{
    const vector zero = {0};
    mask which;
    vector greatest = pool_greatest(sum, &which);
    if (s->relu) {
        const mask cut = greatest <= zero;  // all four are 0 then, and the first is taken
        greatest = pool_select(cut, zero, greatest);
        which &= ~cut;
    }
    const bytes position = __builtin_convertvector(which, bytes);
    pool_store_some(y, greatest, n);
    if (n >= V)
        *(bytes *)at = position;
    else
        memcpy(at, &position, (size_t)n);
}

// `cells` cells, whose first pixels are x[], of `wide` vectors of channels, of which there are n.
INLINE void pool_cells(const struct conv2d_pool *s, int cells, int wide, const float *const *x, const float *packed,
                       const float *bias, int n, float *const *y, uint8_t *const *at)
{
    vector sum[CELLS * 2][WIDE][4];
    UNROLL
    for (int i = 0; i < cells; i++)
        UNROLL
    for (int v = 0; v < wide; v++)
        UNROLL
    for (int k = 0; k < 4; k++)
        sum[i][v][k] = bias ? pool_load_some(bias + v * V, n - v * V) : (vector){0};
    for (int ky = 0; ky < s->kh; ky++) {
        const size_t row = (size_t)ky * (size_t)s->width;
        for (int t = 0; t < s->run; t++, packed += wide * V) {
            vector w[WIDE];
            UNROLL
            for (int v = 0; v < wide; v++)
                w[v] = pool_load(packed + v * V);
            UNROLL
            for (int i = 0; i < cells; i++)
                UNROLL
            for (int k = 0; k < 4; k++) {
                const float one = x[i][row + (size_t)((k >> 1) * s->width + (k & 1) * s->c + t)];
                UNROLL
                for (int v = 0; v < wide; v++)
                    sum[i][v][k] += w[v] * one;
            }
        }
    }
    UNROLL
    for (int i = 0; i < cells; i++)
        UNROLL
    for (int v = 0; v < wide; v++)
        if (v * V < n)
            pool_put(s, sum[i][v], n - v * V, y[i] + v * V, at[i] + v * V);
}

// `wide` vectors of channels of all cells of an image.
INLINE void pool_channels(const struct conv2d_pool *s, int cells, int wide, const float *x, const float *packed,
                          const float *bias, int n, float *y, uint8_t *at)
{
    const int all = s->cells_y * s->cells_x;
    const float *from[CELLS * 2];
    float *to[CELLS * 2];
    uint8_t *to_at[CELLS * 2];
    for (int first = 0; first < all; first += cells) {
        const int have = all - first < cells ? all - first : cells;
        for (int i = 0; i < have; i++) {
            const int cy = (first + i) / s->cells_x, cx = (first + i) % s->cells_x;
            from[i] = x + (size_t)(2 * cy) * (size_t)s->width + (size_t)(2 * cx) * (size_t)s->c;
            to[i] = y + (size_t)(first + i) * (size_t)s->oc;
            to_at[i] = at + (size_t)(first + i) * (size_t)s->oc;
        }
        if (have == cells)
            pool_cells(s, cells, wide, from, packed, bias, n, to, to_at);
        else
            for (int i = 0; i < have; i++)
                pool_cells(s, 1, wide, from + i, packed, bias, n, to + i, to_at + i);
    }
}

static void pool_forward(const struct conv2d_pool *s, const float *x, const float *packed, const float *bias, float *y,
                         uint8_t *at)
{
    const size_t taps = (size_t)(s->kh * s->run);
    for (int from = 0; from < s->oc;) {
        const float *b = bias ? bias + from : NULL;
        const int n = s->oc - from;
        if (n > V) {
            pool_channels(s, CELLS, WIDE, x, packed, b, n, y + from, at + from);
            packed += taps * WIDE * V;
            from += WIDE * V;
        } else {
            pool_channels(s, 2 * CELLS, 1, x, packed, b, n, y + from, at + from);
            packed += taps * V;
            from += V;
        }
    }
}

// ---- forward by Winograd's tiles ----------------------------------------------------------------------------------

// F(2x2, 3x3) of Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016, section 4.1: a cell's
// four sums take 16 products of each channel instead of 36. For a tile d of 4x4 pixels and a kernel g of 3x3:
// A' ((G g G') * (B' d B)) A, where * is element by element, and is what is summed over the channels.

// G g G' of one row or column.
INLINE void pool_tile_kernel(const vector g[3], vector u[4])
{
    const vector even = (g[0] + g[2]) * 0.5f, odd = g[1] * 0.5f;
    u[0] = g[0];
    u[1] = even + odd;
    u[2] = even - odd;
    u[3] = g[2];
}

// B' d B of one.
INLINE void pool_tile_image(const vector d[4], vector v[4])
{
    v[0] = d[0] - d[2];
    v[1] = d[1] + d[2];
    v[2] = d[2] - d[1];
    v[3] = d[1] - d[3];
}

// n channels of one block: (16, c, n), from kernels (9, c, oc).
static void pool_pack_block(const struct conv2d_pool *s, const float *kernel, int n, int have, float *packed)
{
    for (int c = 0; c < s->c; c++)
        for (int v = 0; v < n; v += V) {
            vector g[3][3], half[4][3], u[4][4];
            for (int i = 0; i < 9; i++)
                g[i / 3][i % 3] = have > v
                                      ? pool_load_some(kernel + (size_t)(i * s->c + c) * (size_t)s->oc + v, have - v)
                                      : (vector){0};
            for (int x = 0; x < 3; x++) {
                vector row[4];
                pool_tile_kernel((const vector[3]){g[0][x], g[1][x], g[2][x]}, row);
                for (int y = 0; y < 4; y++)
                    half[y][x] = row[y];
            }
            for (int y = 0; y < 4; y++)
                pool_tile_kernel(half[y], u[y]);
            for (int k = 0; k < 16; k++)
                *(vector *)(packed + (size_t)(k * s->c + c) * (size_t)n + v) = u[k / 4][k % 4];
        }
}

static void pool_pack_tiles(const struct conv2d_pool *s, const float *kernel, float *packed)
{
    for (int from = 0; from < s->oc;) {
        const int n = (s->oc - from > V ? WIDE : 1) * V;
        pool_pack_block(s, kernel + from, n, s->oc - from, packed);
        packed += (size_t)(16 * s->c) * (size_t)n;
        from += n;
    }
}

// The tiles of cells [first, first + TILES), of which there may be fewer: those that are left over are the last one's.
// To (16, TILES, c).
static void pool_read_tiles(const struct conv2d_pool *s, const float *x, int first, float *to)
{
    const int all = s->cells_y * s->cells_x;
    const size_t step = (size_t)TILES * (size_t)s->c;
    for (int t = 0; t < TILES; t++) {
        const int cell = first + t < all ? first + t : all - 1;
        const float *from =
            x + 2 * ((size_t)(cell / s->cells_x) * (size_t)s->width + (size_t)(cell % s->cells_x * s->c));
        for (int c = 0; c < s->c; c += V) {
            vector half[4][4];
            const int n = s->c - c;
            for (int i = 0; i < 4; i++) {
                vector d[4], column[4];
                for (int y = 0; y < 4; y++)
                    d[y] = pool_load_some(from + (size_t)(y * s->width + i * s->c + c), n);
                pool_tile_image(d, column);
                for (int y = 0; y < 4; y++)
                    half[y][i] = column[y];
            }
            for (int y = 0; y < 4; y++) {
                vector v[4];
                pool_tile_image(half[y], v);
                for (int i = 0; i < 4; i++)
                    pool_store_some(to + (size_t)(4 * y + i) * step + (size_t)(t * s->c + c), v[i], n);
            }
        }
    }
}

// One of the 16 products of a block: TILES sums of `wide` vectors over the channels. To (TILES, wide * V).
INLINE void pool_multiply_tiles(int wide, int channels, const float *tiles, const float *packed, float *to)
{
    vector sum[TILES][WIDE];
    UNROLL
    for (int t = 0; t < TILES; t++)
        UNROLL
    for (int v = 0; v < wide; v++)
        sum[t][v] = (vector){0};
    for (int c = 0; c < channels; c++, packed += wide * V) {
        vector w[WIDE];
        UNROLL
        for (int v = 0; v < wide; v++)
            w[v] = pool_load(packed + v * V);
        UNROLL
        for (int t = 0; t < TILES; t++)
            UNROLL
        for (int v = 0; v < wide; v++)
            sum[t][v] += w[v] * tiles[t * channels + c];
    }
    UNROLL
    for (int t = 0; t < TILES; t++)
        UNROLL
    for (int v = 0; v < wide; v++)
        *(vector *)(to + (t * wide + v) * V) = sum[t][v];
}

// A' m A and the greatest: one vector of channels of one tile, of which there are n. products: (16, TILES, wide * V).
INLINE void pool_end_tile(const struct conv2d_pool *s, const float *products, size_t step, const float *bias, int n,
                          float *y, uint8_t *at)
{
    const vector b = bias ? pool_load_some(bias, n) : (vector){0};
    vector half[2][4], sum[4];
    for (int i = 0; i < 4; i++) {
        const vector m0 = pool_load(products + (size_t)i * step), m1 = pool_load(products + (size_t)(4 + i) * step);
        const vector m2 = pool_load(products + (size_t)(8 + i) * step),
                     m3 = pool_load(products + (size_t)(12 + i) * step);
        half[0][i] = m0 + m1 + m2;
        half[1][i] = m1 - m2 - m3;
    }
    for (int k = 0; k < 2; k++) {
        sum[2 * k] = half[k][0] + half[k][1] + half[k][2] + b;
        sum[2 * k + 1] = half[k][1] - half[k][2] - half[k][3] + b;
    }
    pool_put(s, sum, n, y, at);
}

INLINE void pool_tiles(const struct conv2d_pool *s, int wide, const float *tiles, const float *packed,
                       const float *bias, int have, int n, float *products, float *y, uint8_t *at)
{
    const size_t step = (size_t)(TILES * wide * V);
    for (int k = 0; k < 16; k++)
        pool_multiply_tiles(wide, s->c, tiles + (size_t)k * (size_t)TILES * (size_t)s->c,
                            packed + (size_t)(k * s->c) * (size_t)(wide * V), products + (size_t)k * step);
    for (int t = 0; t < have; t++)
        for (int v = 0; v < wide; v++)
            if (v * V < n)
                pool_end_tile(s, products + (t * wide + v) * V, step, bias ? bias + v * V : NULL, n - v * V,
                              y + (size_t)t * (size_t)s->oc + v * V, at + (size_t)t * (size_t)s->oc + v * V);
}

// scratch: (16, TILES, c + WIDE * V).
static void pool_forward_tiles(const struct conv2d_pool *s, const float *x, const float *packed, const float *bias,
                               float *y, uint8_t *at, float *scratch)
{
    const int all = s->cells_y * s->cells_x;
    float *products = scratch + (size_t)(16 * TILES) * (size_t)s->c;
    for (int first = 0; first < all; first += TILES) {
        const int have = all - first < TILES ? all - first : TILES;
        const float *block = packed;
        const size_t to = (size_t)first * (size_t)s->oc;
        pool_read_tiles(s, x, first, scratch);
        for (int from = 0; from < s->oc;) {
            const int n = s->oc - from;
            const float *b = bias ? bias + from : NULL;
            if (n > V)
                pool_tiles(s, WIDE, scratch, block, b, have, n, products, y + to + from, at + to + from);
            else
                pool_tiles(s, 1, scratch, block, b, have, n, products, y + to + from, at + to + from);
            block += (size_t)(16 * s->c) * (size_t)((n > V ? WIDE : 1) * V);
            from += (n > V ? WIDE : 1) * V;
        }
    }
}

// ---- backward, the cells that have a gradient ---------------------------------------------------------------------

static const int32_t pool_lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// V vectors of V: rows become columns, halves, then quarters and so on at a time.
INLINE void pool_transpose(vector row[V])
{
    const mask lane = *(const mask *)pool_lanes;
    UNROLL
    for (int half = V / 2; half > 0; half /= 2) {
        const mask upper = (lane & half) != 0;
        const mask first = (upper & (V + lane - half)) | (~upper & lane);
        const mask second = (upper & (V + lane)) | (~upper & (lane + half));
        UNROLL
        for (int i = 0; i < V; i++)
            if (!(i & half)) {
                const vector a = row[i], b = row[i + half];
                row[i] = __builtin_shuffle(a, b, first);
                row[i + half] = __builtin_shuffle(a, b, second);
            }
    }
}

// Which of four positions n channels of a cell have.
INLINE mask pool_positions(const uint8_t *at, int n)
{
    bytes position = {0};
    if (n >= V)
        position = *(const bytes *)at;
    else
        memcpy(&position, at, (size_t)n);
    return __builtin_convertvector(position, mask);
}

// Appends what is not 0; what is written behind the list's end does not matter.
INLINE int pool_append(mask at, vector g, int32_t *to_at, float *to)
{
#if V == 16 && defined(__AVX512F__)
    const __mmask16 has = _mm512_cmp_ps_mask((__m512)g, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    _mm512_storeu_si512(to_at, _mm512_maskz_compress_epi32(has, (__m512i)at));
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(has, (__m512)g));
    return __builtin_popcount(has);
#else
    int n = 0;
    for (int i = 0; i < V; i++) {
        to_at[n] = at[i];
        to[n] = g[i];
        n += !(g[i] == 0);
    }
    return n;
#endif
}

// n channels of V cells from `first` on, of which there may be fewer: all gradients, and where they belong.
INLINE vector pool_read_gives(const struct conv2d_pool *s, int first, int n, const float *y, const uint8_t *at,
                              const float *dy, vector g[V], vector to[V])
{
    const int all = s->cells_y * s->cells_x;
    const vector zero = {0};
    vector sum = zero;
    for (int k = 0; k < V; k++) {
        g[k] = to[k] = zero;
        if (first + k >= all)
            continue;
        const int cell = first + k;
        const size_t i = (size_t)cell * (size_t)s->oc;
        const mask which = pool_positions(at + i, n);
        const int begin = 2 * (cell / s->cells_x * s->width + cell % s->cells_x * s->c);
        g[k] = pool_load_some(dy + i, n);
        if (s->relu)
            g[k] = pool_select(pool_load_some(y + i, n) > zero, g[k], zero);
        to[k] = (vector)(begin + (-(which & 1) & s->c) + (-(which >> 1) & s->width));
        sum += g[k];
    }
    return sum;
}

static void pool_make_lists(const struct conv2d_pool *s, int from, int to, const float *y, const uint8_t *at,
                            const float *dy, const struct conv2d_pool_gives *gives, float *db)
{
    for (int c = from; c < to; c += V) {
        const int have = to - c < V ? to - c : V;
        vector sum = {0};
        for (int i = 0; i < have; i++)
            gives->n[c + i] = 0;
        for (int first = 0; first < s->cells_y * s->cells_x; first += V) {
            vector g[V], place[V];
            sum += pool_read_gives(s, first, have, y + c, at + c, dy + c, g, place);
            pool_transpose(g);
            pool_transpose(place);
            for (int i = 0; i < have; i++) {
                const size_t end = (size_t)(c + i) * gives->step + (size_t)gives->n[c + i];
                gives->n[c + i] += pool_append((mask)place[i], g[i], gives->at + end, gives->g + end);
            }
        }
        if (db)
            pool_store_some(db + c, pool_load_some(db + c, have) + sum, have);
    }
}

// ---- backward, runs of a vector or more ---------------------------------------------------------------------------

// `height` rows of `wide` vectors, kept in registers while all gives are added.
INLINE void pool_add_rows(int height, int wide, size_t width, size_t padded, const float *x,
                          const struct conv2d_pool_gives *gives, int channel, float *sum)
{
    const size_t begin = (size_t)channel * gives->step;
    const int32_t *at = gives->at + begin;
    const float *gradient = gives->g + begin;
    const int n = gives->n[channel];
    vector v[3 * 6];
    UNROLL
    for (int r = 0; r < height; r++)
        UNROLL
    for (int i = 0; i < wide; i++)
        v[r * wide + i] = pool_load(sum + (size_t)r * padded + (size_t)(i * V));
    for (int k = 0; k < n; k++) {
        const float *from = x + at[k], g = gradient[k];
        UNROLL
        for (int r = 0; r < height; r++)
            UNROLL
        for (int i = 0; i < wide; i++)
            v[r * wide + i] += pool_load(from + (size_t)r * width + (size_t)(i * V)) * g;
    }
    UNROLL
    for (int r = 0; r < height; r++)
        UNROLL
    for (int i = 0; i < wide; i++)
        *(vector *)(sum + (size_t)r * padded + (size_t)(i * V)) = v[r * wide + i];
}

INLINE void pool_give_rows(int height, int wide, size_t width, size_t padded, const float *rows,
                           const struct conv2d_pool_gives *gives, int channel, float *dx)
{
    const size_t begin = (size_t)channel * gives->step;
    const int32_t *at = gives->at + begin;
    const float *gradient = gives->g + begin;
    const int n = gives->n[channel];
    vector v[3 * 6];
    UNROLL
    for (int r = 0; r < height; r++)
        UNROLL
    for (int i = 0; i < wide; i++)
        v[r * wide + i] = pool_load(rows + (size_t)r * padded + (size_t)(i * V));
    for (int k = 0; k < n; k++) {
        const float g = gradient[k];
        float *to = dx + at[k];
        UNROLL
        for (int r = 0; r < height; r++)
            UNROLL
        for (int i = 0; i < wide; i++)
            *(vector *)(to + (size_t)r * width + (size_t)(i * V)) += v[r * wide + i] * g;
    }
}

// Both, in pieces that fit the registers: three rows of six vectors, which a 3x3 kernel of 32 channels has with vectors
// of 16, else as many vectors of one row as are left, up to four.
#define IN_PIECES(piece, width, padded, from, gives, channel, to)                               \
    do {                                                                                        \
        const int vectors = (int)(padded) / V;                                                  \
        if (s->kh == 3 && vectors == 6 && V == 16) {                                            \
            piece(3, 6, width, padded, from, gives, channel, to);                               \
            break;                                                                              \
        }                                                                                       \
        for (int ky = 0; ky < s->kh; ky++)                                                      \
            for (int i = 0, wide; i < vectors; i += wide) {                                     \
                const size_t x_at = (size_t)ky * (width) + (size_t)(i * V);                     \
                const size_t row_at = (size_t)ky * (padded) + (size_t)(i * V);                  \
                wide = vectors - i >= 4 ? 4 : 1;                                                \
                if (wide == 4)                                                                  \
                    piece(1, 4, width, padded, (from) + FROM_AT, gives, channel, (to) + TO_AT); \
                else                                                                            \
                    piece(1, 1, width, padded, (from) + FROM_AT, gives, channel, (to) + TO_AT); \
            }                                                                                   \
    } while (0)

static void pool_weights(const struct conv2d_pool *s, const float *x, const struct conv2d_pool_gives *gives,
                         int channel, float *sum)
{
#define FROM_AT x_at
#define TO_AT row_at
    IN_PIECES(pool_add_rows, (size_t)s->width, (size_t)s->run_padded, x, gives, channel, sum);
#undef FROM_AT
#undef TO_AT
}

static void pool_data(const struct conv2d_pool *s, const float *rows, const struct conv2d_pool_gives *gives,
                      int channel, float *dx)
{
#define FROM_AT row_at
#define TO_AT x_at
    IN_PIECES(pool_give_rows, (size_t)s->width, (size_t)s->run_padded, rows, gives, channel, dx);
#undef FROM_AT
#undef TO_AT
}

// ---- backward, shorter runs ---------------------------------------------------------------------------------------

// The gradient of each of a cell's four positions: one of them has it. Returns it.
INLINE vector pool_part(const struct conv2d_pool *s, const float *y, const uint8_t *at, const float *dy, int n,
                        vector g[4])
{
    const vector zero = {0};
    const mask which = pool_positions(at, n);
    vector all = pool_load_some(dy, n);
    if (s->relu)
        all = pool_select(pool_load_some(y, n) > zero, all, zero);
    for (int k = 0; k < 4; k++)
        g[k] = pool_select(which == k, all, zero);
    return all;
}

// Returns the sum of the gradients.
INLINE vector pool_dense_taps(const struct conv2d_pool *s, const float *x, const int *taps, const float *y,
                              const uint8_t *at, const float *dy, int n, vector sum[CONV2D_POOL_TAPS])
{
    vector all = {0};
    for (int cy = 0; cy < s->cells_y; cy++)
        for (int cx = 0; cx < s->cells_x; cx++, y += s->oc, at += s->oc, dy += s->oc) {
            const float *from = x + (size_t)(2 * cy) * (size_t)s->width + (size_t)(2 * cx) * (size_t)s->c;
            vector g[4];
            all += pool_part(s, y, at, dy, n, g);
            for (int t = 0; t < CONV2D_POOL_TAPS; t++) {
                const float *tap = from + taps[t];
                sum[t] += g[0] * tap[0] + g[1] * tap[s->c] + g[2] * tap[s->width] + g[3] * tap[s->width + s->c];
            }
        }
    return all;
}

static void pool_weights_dense(const struct conv2d_pool *s, const float *x, const int *taps, const float *y,
                               const uint8_t *at, const float *dy, float *dkernel, float *db)
{
    const int count = s->kh * s->run;
    for (int first = 0; first < count; first += CONV2D_POOL_TAPS)
        for (int from = 0; from < s->oc; from += V) {
            const int n = s->oc - from, have = count - first < CONV2D_POOL_TAPS ? count - first : CONV2D_POOL_TAPS;
            vector sum[CONV2D_POOL_TAPS] = {{0}};
            const vector all = pool_dense_taps(s, x, taps + first, y + from, at + from, dy + from, n, sum);
            if (db && first == 0)
                pool_store_some(db + from, pool_load_some(db + from, n) + all, n);
            for (int t = 0; t < have; t++) {
                float *to = dkernel + (size_t)(first + t) * (size_t)s->oc + from;
                pool_store_some(to, pool_load_some(to, n) + sum[t], n);
            }
        }
}

const struct conv2d_pool_isa ISA = {.vector = V,
                                    .pack = pool_pack,
                                    .forward = pool_forward,
                                    .tiles = TILES,
                                    .pack_tiles = pool_pack_tiles,
                                    .forward_tiles = pool_forward_tiles,
                                    .list = pool_make_lists,
                                    .weights = pool_weights,
                                    .weights_dense = pool_weights_dense,
                                    .data = pool_data};

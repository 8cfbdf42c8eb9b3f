// SPDX-License-Identifier: Apache-2.0
//
// The three ways of a convolution as one product (implicit.cu): what each has of P and Q, and where its sums go.
#ifndef NN_CUDA_IMPLICIT_WAYS_H
#define NN_CUDA_IMPLICIT_WAYS_H

#include "workerd/nn/cuda/implicit.h"
#include "workerd/nn/cuda/vectors.h"

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

static __device__ unsigned quotient_of(unsigned n, const struct divisor &d)
{
    return ((unsigned)(((uint64_t)n * d.factor) >> 32) + n) >> d.shift;
}

// n becomes what is left.
static __device__ unsigned divide_off(unsigned *n, const struct divisor &d)
{
    const unsigned quotient = quotient_of(*n, d);
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

static __device__ float4 four_at(const float *from)
{
    return *(const float4 *)(const void *)from;
}

static __device__ float4 no_four(void)
{
    return make_float4(0, 0, 0, 0);
}

static __device__ float number_at(const float *from)
{
    return from ? *from : 0;
}

// Four numbers, of which the k-th is at place(k), or 0 where that is NULL; where VECTORS is true, side by side from
// place(0) on.
template <bool VECTORS, class Place> static __device__ float4 four_of(Place place)
{
    if (!VECTORS)
        return make_float4(number_at(place(0)), number_at(place(1)), number_at(place(2)), number_at(place(3)));
    const float *from = place(0);
    return from ? four_at(from) : no_four();
}

// From a line of `columns` numbers of a matrix: those from `column` on.
template <bool VECTORS>
static __device__ float4 four_of_line(const float *matrix, unsigned line, unsigned column, unsigned columns)
{
    const float *from = matrix + (size_t)line * columns + column;
    return four_of<VECTORS>([=](unsigned k) { return column + k < columns ? from + k : NULL; });
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
        return four_of<VECTORS>([&](unsigned k) { return cell_of(at, deep + k); });
    }

    template <bool VECTORS> __device__ float4 q(unsigned column, unsigned deep) const
    {
        return deep < depth ? four_of_line<VECTORS>(kernel, deep, column, columns) : no_four();
    }

    __device__ float finished(float sum, float b) const
    {
        return nn_cuda_activate(act, sum + b);
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
        return four_of<VECTORS>([&](unsigned k) { return cell_of(at, deep + k); });
    }

    __device__ const float *weight_of(unsigned column, unsigned deep) const
    {
        const unsigned tap = divide_off(&deep, w.oc);
        return kernel + ((size_t)tap * columns + column) * w.s.oc + deep;
    }

    template <bool VECTORS> __device__ float4 q(unsigned column, unsigned deep) const
    {
        return four_of<VECTORS>(
            [&](unsigned k) { return column < columns && deep + k < depth ? weight_of(column, deep + k) : NULL; });
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
        return four_of<VECTORS>(
            [&](unsigned k) { return cell_of(k == 0 ? at.cell : cell_at(w, row + k, w.c), row + k, deep); });
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

#endif

// SPDX-License-Identifier: Apache-2.0
//
// Images put into a frame of another size, and images made larger or smaller.
#include "workerd/nn/cuda/teams.h"
#include "workerd/nn/ops/pad2d.h"
#include "workerd/nn/ops/resize2d.h"

// An element of an array (n, h, w, c).
struct image_place {
    int64_t n;
    int y, x, c;
};

struct image_size {
    int h, w, c;
};

static __device__ struct image_place image_place_of(const struct image_size &s, size_t i)
{
    const size_t pixel = nn_cuda_quotient(i, (size_t)s.c), row = nn_cuda_quotient(pixel, (size_t)s.w);
    const size_t image = nn_cuda_quotient(row, (size_t)s.h);
    const struct image_place p = {(int64_t)image, (int)(row - image * (size_t)s.h), (int)(pixel - row * (size_t)s.w),
                                  (int)(i - pixel * (size_t)s.c)};
    return p;
}

static __device__ size_t image_at(const struct image_size &s, int64_t n, int y, int x, int c)
{
    return (size_t)(((n * s.h + y) * s.w + x) * s.c + c);
}

static struct image_size image_size_of(const struct nn_type *type)
{
    const struct image_size s = {(int)type->dim[1], (int)type->dim[2], (int)type->dim[3]};
    return s;
}

// ---- frames -------------------------------------------------------------------------------------------------------

static __global__ void put_into_frame(size_t n, struct image_size from, struct image_size to, struct nn_pad2d a,
                                      const float *x, float *y)
{
    NN_CUDA_EACH(i, n)
    {
        const struct image_place p = image_place_of(to, i);
        const int iy = p.y - a.begin[0], ix = p.x - a.begin[1];
        const bool inside = iy >= 0 && iy < from.h && ix >= 0 && ix < from.w;
        y[i] = inside ? x[image_at(from, p.n, iy, ix, p.c)] : 0;
    }
}

static void cuda_pad2d_run(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, put_into_frame, nn_type_count(&f->op->out_type[0]), image_size_of(&f->op->in_type[0]),
                     image_size_of(&f->op->out_type[0]), *nn_cuda_attr<nn_pad2d>(f), nn_cuda_in(f, 0),
                     nn_cuda_out(f, 0));
}

// ---- sizes --------------------------------------------------------------------------------------------------------

static __global__ void resize_images(size_t n, struct image_size from, struct image_size to, struct nn_resize2d a,
                                     const float *x, float *y)
{
    NN_CUDA_EACH(i, n)
    {
        const struct image_place p = image_place_of(to, i);
        const struct nn_resize_tap v = nn_resize_tap_of(&a, 0, p.y), h = nn_resize_tap_of(&a, 1, p.x);
        float sum = (1 - v.part) * (1 - h.part) * x[image_at(from, p.n, v.at, h.at, p.c)];
        // What counts 0 is not read: it may be a NaN.
        if (h.part != 0)
            sum += (1 - v.part) * h.part * x[image_at(from, p.n, v.at, h.next, p.c)];
        if (v.part != 0)
            sum += v.part * (1 - h.part) * x[image_at(from, p.n, v.next, h.at, p.c)];
        if (v.part != 0 && h.part != 0)
            sum += v.part * h.part * x[image_at(from, p.n, v.next, h.next, p.c)];
        y[i] = sum;
    }
}

// The pixels of y that pixel i of x may have a part in, along an axis.
struct resize_range {
    int first, last;
};

static __device__ struct resize_range resize_range_of(const struct nn_resize2d &a, int axis, int i)
{
    const int64_t from = a.from[axis], to = a.to[axis];
    const int64_t first = (2 * (int64_t)i - 1) * to / (2 * from) - 1, last = (2 * (int64_t)i + 3) * to / (2 * from) + 1;
    const struct resize_range r = {(int)(first < 0 ? 0 : first), (int)(last < to ? last : to - 1)};
    return r;
}

static __device__ float resize_part(const struct nn_resize2d &a, int axis, int o, int i)
{
    const struct nn_resize_tap tap = nn_resize_tap_of(&a, axis, o);
    return (tap.at == i ? 1 - tap.part : 0) + (tap.next == i ? tap.part : 0);
}

static __global__ void resize_images_backward(size_t n, struct image_size from, struct image_size to,
                                              struct nn_resize2d a, const float *dy, float *dx)
{
    NN_CUDA_EACH(i, n)
    {
        const struct image_place p = image_place_of(from, i);
        const struct resize_range v = resize_range_of(a, 0, p.y), h = resize_range_of(a, 1, p.x);
        float sum = 0;
        for (int oy = v.first; oy <= v.last; oy++) {
            const float by = resize_part(a, 0, oy, p.y);
            for (int ox = h.first; by != 0 && ox <= h.last; ox++) {
                const float part = by * resize_part(a, 1, ox, p.x);
                if (part != 0)
                    sum += part * dy[image_at(to, p.n, oy, ox, p.c)];
            }
        }
        dx[i] = sum;
    }
}

static void cuda_resize2d_run(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, resize_images, nn_type_count(&f->op->out_type[0]), image_size_of(&f->op->in_type[0]),
                     image_size_of(&f->op->out_type[0]), *nn_cuda_attr<nn_resize2d>(f), nn_cuda_in(f, 0),
                     nn_cuda_out(f, 0));
}

static void cuda_resize2d_run_backward(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, resize_images_backward, nn_type_count(&f->op->out_type[0]),
                     image_size_of(&f->op->out_type[0]), image_size_of(&f->op->in_type[0]),
                     *nn_cuda_attr<nn_resize2d>(f), nn_cuda_in(f, 0), nn_cuda_out(f, 0));
}

const struct nn_kernel nn_cuda_pad2d = {NULL, cuda_pad2d_run, NULL, NULL};
const struct nn_kernel nn_cuda_resize2d = {NULL, cuda_resize2d_run, NULL, NULL};
const struct nn_kernel nn_cuda_resize2d_backward = {NULL, cuda_resize2d_run_backward, NULL, NULL};

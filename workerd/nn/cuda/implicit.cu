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
#include "workerd/nn/cuda/implicit_tile.h"

// ---- what is launched ----------------------------------------------------------------------------------------------

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

// What is compiled for older GPUs runs on newer ones, too.
bool nn_cuda_implicit_has_tensor_cores(void)
{
#ifdef CUDA_EMULATED
    return true;
#else
    typedef tile<32, 64, 4, 4, 3> some;
    struct cudaFuncAttributes code;
    return cudaFuncGetAttributes(&code, multiply_tile<data_way, some, tensor_sums<some>, true>) == cudaSuccess &&
           code.ptxVersion >= 80;
#endif
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

template <class... P> static bool implicit_in_fours(const struct nn_cuda_conv2d *s, P... arrays)
{
    return nn_cuda_has_vectors((size_t)s->c, arrays...) && nn_cuda_has_vectors((size_t)s->oc, arrays...);
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
    implicit_run_pixels(c, way, implicit_in_fours(s, x, kernel, bias, y));
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
    implicit_run_pixels(c, way, implicit_in_fours(s, kernel, dy, dx));
}

// ---- the kernel's gradient, in parts -------------------------------------------------------------------------------

// As many parts as keep a GPU busy, none of them too short for the tile's own work.
static unsigned implicit_per_part(const struct nn_cuda_conv2d *s)
{
    enum { TILE = 64, SHORTEST = 64, MOST_PARTS = 256 };
    static_assert((int)MOST_PARTS <= (int)NN_CUDA_SUM_IN_ONE, "their sums lie in the scratch memory");
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
    const bool vectors = implicit_in_fours(s, x, dy, sums);
    if (s->oc <= 16)
        implicit_run<tile<64, 16, 4, 4, 2>>(c, way, vectors, parts, per);
    else if (s->oc <= 32)
        implicit_run<tile<64, 32, 4, 4, 1>>(c, way, vectors, parts, per);
    else
        implicit_run<tile<64, 64, 8, 4, 2>>(c, way, vectors, parts, per);
    if (parts > 1)
        nn_cuda_sum_rows(c, parts, way.rows * (size_t)way.columns, sums, dw);
}

// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/op.h"

static enum ps_code check_positive(const char *op, const int *v, int n, struct ps_error *e)
{
    for (int i = 0; i < n; i++)
        if (v[i] <= 0)
            return ps_fail(e, PS_INVALID_ARGUMENT, "%s: a size is %d, expected at least 1", op, v[i]);
    return PS_OK;
}

// How many places a window has along one axis of a padded image.
static int op_window_places(int size, int window, int stride, int pad)
{
    return size + pad < window ? 0 : (size + pad - window) / stride + 1;
}

enum ps_code nn_conv2d_check(const struct nn_conv2d *s, struct ps_error *e)
{
    const int sizes[] = {s->n, s->h, s->w, s->c, s->kh, s->kw, s->sh, s->sw, s->oh, s->ow, s->oc};
    enum ps_code code = check_positive("conv2d", sizes, sizeof sizes / sizeof *sizes, e);
    if (code)
        return code;
    int oh = op_window_places(s->h, s->kh, s->sh, s->pad_top + s->pad_bottom);
    int ow = op_window_places(s->w, s->kw, s->sw, s->pad_left + s->pad_right);
    if (s->oh != oh || s->ow != ow)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "conv2d: output is %dx%d, expected %dx%d from input %dx%d, kernel %dx%d, strides %dx%d", s->oh,
                       s->ow, oh, ow, s->h, s->w, s->kh, s->kw, s->sh, s->sw);
    return PS_OK;
}

enum ps_code nn_dense_check(const struct nn_dense *s, struct ps_error *e)
{
    const int sizes[] = {s->n, s->in, s->out};
    return check_positive("dense", sizes, sizeof sizes / sizeof *sizes, e);
}

enum ps_code nn_maxpool_check(const struct nn_maxpool *s, struct ps_error *e)
{
    const int sizes[] = {s->n, s->h, s->w, s->c, s->ph, s->pw, s->sh, s->sw, s->oh, s->ow};
    enum ps_code code = check_positive("maxpool", sizes, sizeof sizes / sizeof *sizes, e);
    if (code)
        return code;
    if ((long)s->ph * s->pw > 256)
        return ps_fail(e, PS_UNIMPLEMENTED, "maxpool: a window of %dx%d, expected at most 256 cells", s->ph, s->pw);
    // Every window needs a cell inside the image, or it has no maximum.
    if (s->pad_top >= s->ph || s->pad_left >= s->pw || (long)(s->oh - 1) * s->sh - s->pad_top >= s->h ||
        (long)(s->ow - 1) * s->sw - s->pad_left >= s->w)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "maxpool: a window of %dx%d lies outside the image of %dx%d (output %dx%d, padding %d, %d)",
                       s->ph, s->pw, s->h, s->w, s->oh, s->ow, s->pad_top, s->pad_left);
    return PS_OK;
}

// SPDX-License-Identifier: Apache-2.0
//
// The loops of maxpool.c for one type of positions: it defines POSITION, and MAXPOOL_NAME(name), the functions' names.

// Takes cell k's pixel x (c) into the maximum so far, of which a NaN is one.
static inline void MAXPOOL_NAME(take_greater)(int c, const float *restrict x, POSITION k, float *restrict y,
                                              POSITION *restrict at)
{
    for (int i = 0; i < c; i++) {
        POSITION was = at[i];
        bool greater = !(x[i] <= y[i]) & (y[i] == y[i]);
        at[i] = greater ? k : was;
        y[i] = greater ? x[i] : y[i];
    }
}

PS_PER_CPU static void MAXPOOL_NAME(pool_row)(const struct maxpool *s, int n, int oy, const float *x, float *y,
                                              POSITION *at)
{
    for (int ox = 0; ox < s->ow; ox++, y += s->c, at += s->c) {
        struct window w = window_at(s, n, oy, ox);
        ptrdiff_t first = w.origin + ((ptrdiff_t)w.y0 * s->w + w.x0) * s->c;
        memcpy(y, x + first, (size_t)s->c * sizeof *y);
        for (int i = 0; i < s->c; i++)
            at[i] = (POSITION)(w.y0 * s->pw + w.x0);
        for (int ky = w.y0; ky < w.y1; ky++)
            for (int kx = w.x0; kx < w.x1; kx++)
                MAXPOOL_NAME(take_greater)
        (s->c, x + w.origin + ((ptrdiff_t)ky * s->w + kx) * s->c, (POSITION)(ky * s->pw + kx), y, at);
    }
}

static void MAXPOOL_NAME(pool)(const struct maxpool *s, const float *x, float *y, POSITION *at)
{
    size_t row = (size_t)s->ow * (size_t)s->c;
    for (int n = 0; n < s->n; n++)
        for (int oy = 0; oy < s->oh; oy++, y += row, at += row)
            MAXPOOL_NAME(pool_row)(s, n, oy, x, y, at);
}

// Gives cell k's pixel dx (c) the gradient of the channels whose maximum it was.
static inline void MAXPOOL_NAME(give_back)(int c, const float *restrict dy, const POSITION *restrict at, POSITION k,
                                           float *restrict dx)
{
    for (int i = 0; i < c; i++)
        dx[i] += at[i] == k ? dy[i] : 0;
}

PS_PER_CPU static void MAXPOOL_NAME(unpool_row)(const struct maxpool *s, int n, int oy, const float *dy,
                                                const POSITION *at, float *dx)
{
    for (int ox = 0; ox < s->ow; ox++, dy += s->c, at += s->c) {
        struct window w = window_at(s, n, oy, ox);
        for (int ky = w.y0; ky < w.y1; ky++)
            for (int kx = w.x0; kx < w.x1; kx++)
                MAXPOOL_NAME(give_back)
        (s->c, dy, at, (POSITION)(ky * s->pw + kx), dx + w.origin + ((ptrdiff_t)ky * s->w + kx) * s->c);
    }
}

static void MAXPOOL_NAME(unpool)(const struct maxpool *s, const float *dy, const POSITION *at, float *dx)
{
    size_t row = (size_t)s->ow * (size_t)s->c;
    for (int n = 0; n < s->n; n++)
        for (int oy = 0; oy < s->oh; oy++, dy += row, at += row)
            MAXPOOL_NAME(unpool_row)(s, n, oy, dy, at, dx);
}

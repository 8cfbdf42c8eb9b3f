// SPDX-License-Identifier: Apache-2.0
//
// Digits without a download: strokes of a pen that each example bends, turns, scales and thickens in its own
// way, then noise. Everything comes from Philox(seed, PS_RANDOM_DIGITS, example, draw), and only operations
// that IEEE 754 rounds correctly are used (+ - * / sqrt; this directory is built without contraction to fused
// multiply-add), so that a seed gives the same bytes on every machine.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/math/philox.h"
#include "workerd/data/data_internal.h"

enum { SIDE = WK_DIGIT_SIDE, PIXELS = WK_DIGIT_PIXELS };
enum { TRAIN_EXAMPLES = 20000, TEST_EXAMPLES = 2000 };
#define FIRST_TEST (UINT64_C(1) << 32)  // number of the first test example; training examples are below

// A pen stroke through its points, in hundredths of a square, x to the right and y down: straight lines from
// point to point, or a smooth curve.
enum { MOST_POINTS = 11, MOST_STROKES = 3, MOST_GLYPHS = 3 };
enum bend { STRAIGHT, SMOOTH };
struct stroke {
    enum bend bend;
    int points;
    int at[MOST_POINTS][2];
};
struct glyph {
    int strokes;
    struct stroke stroke[MOST_STROKES];
};
// The ways to write one digit.
struct digit {
    int glyphs;
    struct glyph glyph[MOST_GLYPHS];
};

// clang-format off
static const struct digit alphabet[10] = {
    // 0: round; narrow and open at the top
    {2, {{1, {{SMOOTH, 9, {{50,5}, {28,16}, {19,50}, {28,84}, {50,95}, {72,84}, {81,50}, {72,16}, {50,5}}}}},
         {1, {{SMOOTH, 9, {{56,6}, {38,14}, {28,46}, {33,82}, {50,94}, {66,84}, {73,50}, {64,14}, {46,10}}}}}}},
    // 1: a bar; with a flag; with a flag and a foot
    {3, {{1, {{STRAIGHT, 2, {{50,5}, {50,95}}}}},
         {1, {{STRAIGHT, 3, {{33,27}, {53,5}, {53,95}}}}},
         {2, {{STRAIGHT, 3, {{34,22}, {52,5}, {52,94}}}, {STRAIGHT, 2, {{33,94}, {71,94}}}}}}},
    // 2: with a corner; with a loop at the foot
    {2, {{2, {{SMOOTH, 7, {{22,28}, {34,9}, {58,6}, {74,24}, {65,46}, {42,71}, {22,94}}}, {STRAIGHT, 2, {{22,94}, {80,94}}}}},
         {1, {{SMOOTH, 9, {{24,26}, {44,6}, {70,17}, {66,44}, {40,78}, {23,88}, {28,74}, {50,85}, {80,91}}}}}}},
    // 3: two bellies; flat top
    {2, {{2, {{SMOOTH, 5, {{24,15}, {48,5}, {70,18}, {64,38}, {42,47}}}, {SMOOTH, 5, {{42,47}, {68,54}, {76,74}, {56,94}, {22,85}}}}},
         {2, {{STRAIGHT, 3, {{23,7}, {73,7}, {45,41}}}, {SMOOTH, 5, {{45,41}, {70,51}, {76,73}, {55,94}, {22,86}}}}}}},
    // 4: closed; open
    {2, {{1, {{STRAIGHT, 4, {{62,95}, {62,5}, {18,66}, {84,66}}}}},
         {2, {{STRAIGHT, 3, {{27,8}, {22,52}, {78,52}}}, {STRAIGHT, 2, {{72,8}, {70,95}}}}}}},
    // 5: angular; slanted bar drawn last
    {2, {{2, {{STRAIGHT, 3, {{75,6}, {32,6}, {28,44}}}, {SMOOTH, 6, {{28,44}, {52,38}, {74,54}, {72,80}, {48,95}, {22,86}}}}},
         {3, {{STRAIGHT, 2, {{35,8}, {31,46}}}, {SMOOTH, 5, {{31,46}, {60,44}, {74,66}, {56,92}, {24,92}}}, {STRAIGHT, 2, {{35,8}, {80,4}}}}}}},
    // 6: curved; with a straight stem
    {2, {{1, {{SMOOTH, 9, {{68,7}, {42,24}, {25,56}, {30,85}, {53,95}, {74,80}, {68,58}, {46,53}, {27,68}}}}},
         {1, {{SMOOTH, 8, {{56,4}, {34,40}, {25,70}, {38,93}, {62,91}, {71,71}, {54,57}, {29,69}}}}}}},
    // 7: plain; crossed; with a curved stem
    {3, {{1, {{STRAIGHT, 3, {{20,8}, {78,8}, {42,95}}}}},
         {2, {{STRAIGHT, 3, {{20,8}, {78,8}, {44,95}}}, {STRAIGHT, 2, {{34,50}, {76,50}}}}},
         {2, {{STRAIGHT, 2, {{20,10}, {78,8}}}, {SMOOTH, 3, {{78,8}, {55,45}, {47,95}}}}}}},
    // 8: one stroke; two circles
    {2, {{1, {{SMOOTH, 11, {{68,18}, {48,5}, {28,18}, {35,38}, {54,50}, {75,72}, {52,95}, {25,76}, {44,51}, {66,34}, {68,18}}}}},
         {2, {{SMOOTH, 7, {{50,47}, {31,37}, {31,14}, {50,5}, {69,14}, {69,37}, {50,47}}},
              {SMOOTH, 7, {{50,47}, {25,61}, {25,86}, {50,95}, {75,86}, {75,61}, {50,47}}}}}}},
    // 9: straight stem; curved tail
    {2, {{2, {{SMOOTH, 8, {{71,24}, {54,6}, {32,12}, {25,34}, {40,51}, {62,44}, {71,24}, {72,20}}}, {STRAIGHT, 2, {{72,16}, {67,95}}}}},
         {2, {{SMOOTH, 7, {{72,22}, {52,6}, {30,16}, {27,40}, {46,50}, {66,40}, {72,22}}}, {SMOOTH, 4, {{72,22}, {74,56}, {62,84}, {34,95}}}}}}},
};
// clang-format on

struct point {
    float x, y;
};

// The draws of one example, in order.
struct stream {
    uint64_t seed, example, draw;
    uint32_t word[4];
    int left;
};

static uint32_t next_word(struct stream *s)
{
    if (s->left == 0) {
        ps_philox(s->seed, PS_RANDOM_DIGITS, s->example, s->draw++, s->word);
        s->left = 4;
    }
    return s->word[--s->left];
}

static float digits_draw_between(struct stream *s, float low, float high)
{
    return low + (high - low) * ps_uniform(next_word(s));
}

static int digits_draw_index(struct stream *s, int n)
{
    return (int)((uint64_t)next_word(s) * (uint32_t)n >> 32);
}

// How one example is written, and the square of each pixel's distance to the pen's path so far.
struct sheet {
    float xx, xy, yx, yy;  // hundredths, centred, to pixels
    struct point centre;   // pixels
    float jitter;          // of a point, hundredths
    float radius;          // of the pen, pixels
    float ink;             // grey of a full stroke
    float noise;           // greatest change of a pixel
    float distance[PIXELS];
};

// Scale, shear and rotation in one matrix. The angle is given by t = tan(angle / 2): sine and cosine are
// rational in t.
static void choose_style(struct stream *s, struct sheet *sheet)
{
    float width = digits_draw_between(s, 0.13f, 0.21f),
          height = digits_draw_between(s, 0.16f, 0.22f);  // pixels per hundredth
    float shear = digits_draw_between(s, -0.35f, 0.2f), t = digits_draw_between(s, -0.14f, 0.14f);
    float cosine = (1 - t * t) / (1 + t * t), sine = 2 * t / (1 + t * t);
    sheet->xx = cosine * width;
    sheet->xy = cosine * shear * width - sine * height;
    sheet->yx = sine * width;
    sheet->yy = sine * shear * width + cosine * height;
    sheet->centre.x = SIDE / 2.0f + digits_draw_between(s, -2.5f, 2.5f);
    sheet->centre.y = SIDE / 2.0f + digits_draw_between(s, -2.5f, 2.5f);
    sheet->jitter = digits_draw_between(s, 1, 6);
    sheet->radius = digits_draw_between(s, 0.5f, 1.5f);
    sheet->ink = digits_draw_between(s, 170, 255);
    sheet->noise = digits_draw_between(s, 10, 60);
    for (int i = 0; i < PIXELS; i++)
        sheet->distance[i] = SIDE * SIDE;
}

static struct point digits_place(struct stream *s, const struct sheet *sheet, const int at[2])
{
    float x = (float)at[0] - 50 + digits_draw_between(s, -sheet->jitter, sheet->jitter);
    float y = (float)at[1] - 50 + digits_draw_between(s, -sheet->jitter, sheet->jitter);
    return (struct point){sheet->centre.x + sheet->xx * x + sheet->xy * y,
                          sheet->centre.y + sheet->yx * x + sheet->yy * y};
}

// First pixel of a row or column whose ink may touch what begins at low, and the one after the last.
static int digits_first_pixel(float at)
{
    return at < 0 ? 0 : at > SIDE ? SIDE : (int)at;
}

// A line from a to b, over the pixels of its bounding box that the pen can reach. Pixel (i, j) has its centre
// at (j + 0.5, i + 0.5).
static void draw_line(struct sheet *sheet, struct point a, struct point b)
{
    float reach = sheet->radius + 1;
    int left = digits_first_pixel((a.x < b.x ? a.x : b.x) - reach),
        right = digits_first_pixel((a.x < b.x ? b.x : a.x) + reach + 1);
    int top = digits_first_pixel((a.y < b.y ? a.y : b.y) - reach),
        bottom = digits_first_pixel((a.y < b.y ? b.y : a.y) + reach + 1);
    float dx = b.x - a.x, dy = b.y - a.y, square = dx * dx + dy * dy;
    float inverse = square > 0 ? 1 / square : 0;
    for (int i = top; i < bottom; i++)
        for (int j = left; j < right; j++) {
            float px = (float)j + 0.5f - a.x, py = (float)i + 0.5f - a.y;
            float t = (px * dx + py * dy) * inverse;
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            float ex = px - t * dx, ey = py - t * dy, d = ex * ex + ey * ey;
            float *best = &sheet->distance[i * SIDE + j];
            *best = d < *best ? d : *best;
        }
}

// Catmull and Rom's spline (1974) between p[1] and p[2], whose tangent in p[i] is (p[i + 1] - p[i - 1]) / 2.
static float digits_spline(float p0, float p1, float p2, float p3, float t)
{
    return p1 + 0.5f * t * (p2 - p0 + t * (2 * p0 - 5 * p1 + 4 * p2 - p3 + t * (3 * (p1 - p2) + p3 - p0)));
}

static void draw_curve(struct sheet *sheet, const struct point *p, int points)
{
    enum { PIECES = 4 };
    for (int i = 0; i + 1 < points; i++) {
        struct point before = p[i ? i - 1 : 0], after = p[i + 2 < points ? i + 2 : i + 1], from = p[i];
        for (int k = 1; k <= PIECES; k++) {
            float t = (float)k / PIECES;
            struct point to = {digits_spline(before.x, p[i].x, p[i + 1].x, after.x, t),
                               digits_spline(before.y, p[i].y, p[i + 1].y, after.y, t)};
            draw_line(sheet, from, to);
            from = to;
        }
    }
}

static void draw_stroke(struct stream *s, struct sheet *sheet, const struct stroke *stroke)
{
    struct point p[MOST_POINTS];
    for (int i = 0; i < stroke->points; i++)
        p[i] = digits_place(s, sheet, stroke->at[i]);
    if (stroke->bend == SMOOTH) {
        draw_curve(sheet, p, stroke->points);
        return;
    }
    for (int i = 0; i + 1 < stroke->points; i++)
        draw_line(sheet, p[i], p[i + 1]);
}

// Ink falls from full to none over the one pixel around the pen's edge; noise adds the difference of two
// random bytes.
static void digits_develop(struct stream *s, const struct sheet *sheet, uint8_t pixels[PIXELS])
{
    for (int i = 0; i < PIXELS; i += 2) {
        uint32_t word = next_word(s);
        for (int k = i; k < i + 2; k++, word >>= 16) {
            float cover = sheet->radius + 0.5f - sqrtf(sheet->distance[k]);
            cover = cover < 0 ? 0 : cover > 1 ? 1 : cover;
            int difference = (int)(word & 255) - (int)(word >> 8 & 255);
            float grey = cover * sheet->ink + (float)difference * (1 / 256.0f) * sheet->noise;
            pixels[k] = (uint8_t)(grey < 0 ? 0 : grey > 255 ? 255 : grey + 0.5f);
        }
    }
}

int32_t wk_digit_draw(uint64_t seed, uint64_t example, uint8_t pixels[PIXELS])
{
    struct stream s = {.seed = seed, .example = example};
    struct sheet sheet;
    int label = digits_draw_index(&s, 10);
    const struct glyph *glyph = &alphabet[label].glyph[digits_draw_index(&s, alphabet[label].glyphs)];
    choose_style(&s, &sheet);
    for (int i = 0; i < glyph->strokes; i++)
        draw_stroke(&s, &sheet, &glyph->stroke[i]);
    digits_develop(&s, &sheet, pixels);
    return label;
}

// ---- the source ---------------------------------------------------------------------------------------------------

struct digits {
    struct wk_source base;
    uint64_t seed, first;  // number of the source's example 0
};

static enum ps_code digits_read(const struct wk_source *s, uint64_t example, size_t column, void *to,
                                struct ps_error *e)
{
    const struct digits *d = (const struct digits *)s;
    uint8_t pixels[PIXELS];
    (void)e;
    int32_t label = wk_digit_draw(d->seed, d->first + example, column ? pixels : to);
    if (column)
        *(int32_t *)to = label;
    return PS_OK;
}

static void digits_where(const struct wk_source *s, uint64_t example, size_t column, char *to, size_t size)
{
    (void)s;
    (void)column;
    snprintf(to, size, "synthetic-digits: example %" PRIu64, example);
}

static void digits_free(struct wk_source *s)
{
    wk_source_fini(s);
    free(s);
}

static const struct wk_source_class digits_class = {.read = digits_read, .where = digits_where, .free = digits_free};

static enum ps_code digits_open_part(uint64_t seed, uint64_t first, uint64_t examples, struct wk_part *part,
                                     struct ps_error *e)
{
    if (examples > FIRST_TEST)
        return ps_fail(e, PS_INVALID_ARGUMENT, "synthetic-digits: %" PRIu64 " examples, expected at most %" PRIu64,
                       examples, FIRST_TEST);
    struct digits *d = ps_alloc(sizeof *d);
    *d = (struct digits){.base = {.class = &digits_class, .examples = examples}, .seed = seed, .first = first};
    wk_source_add(&d->base, "x", NN_UINT8, (uint64_t[]){SIDE, SIDE}, 2);
    struct wk_column *y = wk_source_add(&d->base, "y", NN_INT32, NULL, 0);
    y->y = true;
    y->classes = 10;
    return wk_cache_create(&d->base, &part->source, e);
}

enum ps_code wk_digits_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e)
{
    uint64_t train = spec->train_examples ? spec->train_examples : TRAIN_EXAMPLES;
    uint64_t test = spec->test_examples ? spec->test_examples : TEST_EXAMPLES;
    if (digits_open_part(seed, 0, train, &data->train, e))
        return e->code;
    return digits_open_part(seed, FIRST_TEST, test, &data->test, e);
}

// SPDX-License-Identifier: Apache-2.0
#include "config.h"
#include "workerd/data/image.h"

#ifdef HAVE_LIBPNG

#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "workerd/data/source.h"

// What outlives a longjmp lies here.
struct png_job {
    png_struct *png;
    png_info *info;
    const uint8_t *bytes;
    size_t left;
    png_byte **row;
    uint8_t *rgb;  // (height, width, 3), of a colour image that becomes gray
    struct wk_image *image;
    struct ps_error *e;
};

static void png_take(png_struct *png, png_byte *to, size_t n)
{
    struct png_job *job = png_get_io_ptr(png);
    if (n > job->left)
        png_error(png, "it is cut short");
    memcpy(to, job->bytes, n);
    job->bytes += n;
    job->left -= n;
}

static void png_fail(png_struct *png, const char *text)
{
    struct png_job *job = png_get_error_ptr(png);
    ps_fail(job->e, PS_DATA_LOSS, "PNG: %s", text);
    longjmp(png_jmpbuf(png), 1);
}

static void png_ignore(png_struct *png, const char *text)
{
    (void)png;
    (void)text;
}

// Every kind of PNG becomes 8 bits per channel, of one or three channels. No gamma is applied.
static void png_set_transforms(struct png_job *job, enum ps_color color)
{
    int type = png_get_color_type(job->png, job->info);
    png_set_expand(job->png);
    png_set_strip_16(job->png);
    png_set_strip_alpha(job->png);
    if (color == PS_COLOR_RGB && !(type & PNG_COLOR_MASK_COLOR))
        png_set_gray_to_rgb(job->png);
    png_set_interlace_handling(job->png);
    png_read_update_info(job->png, job->info);
}

// libpng's weights depend on the file's gAMA, cHRM and sRGB.
static void png_make_gray(const uint8_t *rgb, size_t pixels, uint8_t *gray)
{
    for (size_t i = 0; i < pixels; i++, rgb += 3)
        gray[i] = wk_image_gray(rgb);
}

static void png_read(struct png_job *job, enum ps_color color, bool size_only)
{
    png_set_read_fn(job->png, job, png_take);
    png_set_user_limits(job->png, WK_IMAGE_SIDE, WK_IMAGE_SIDE);
    png_set_chunk_malloc_max(job->png, 1 << 24);
    png_read_info(job->png, job->info);
    size_t height = png_get_image_height(job->png, job->info), width = png_get_image_width(job->png, job->info);
    if (wk_image_alloc(job->image, height, width, color, size_only, job->e) || size_only)
        return;
    bool to_gray = color == PS_COLOR_GRAYSCALE && png_get_color_type(job->png, job->info) & PNG_COLOR_MASK_COLOR;
    if (to_gray && !(job->rgb = wk_array(height, width, 3, job->e)))
        return;
    png_set_transforms(job, color);
    size_t stride = width * (to_gray ? 3 : job->image->channels);
    if (png_get_rowbytes(job->png, job->info) != stride)
        png_error(job->png, "its rows have another size than its header says");
    job->row = wk_array(height, 1, sizeof *job->row, job->e);
    if (!job->row)
        return;
    for (size_t i = 0; i < height; i++)
        job->row[i] = (to_gray ? job->rgb : job->image->pixels) + i * stride;
    png_read_image(job->png, job->row);
    if (to_gray)
        png_make_gray(job->rgb, height * width, job->image->pixels);
}

enum ps_code wk_png_decode(const uint8_t *bytes, size_t n, enum ps_color color, bool size_only, struct wk_image *image,
                           struct ps_error *e)
{
    struct png_job job = {.bytes = bytes, .left = n, .image = image, .e = e};
    struct png_job *volatile kept = &job;
    e->code = PS_OK;
    job.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &job, png_fail, png_ignore);
    job.info = job.png ? png_create_info_struct(job.png) : NULL;
    if (!job.info)
        ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for a PNG image");
    else if (setjmp(png_jmpbuf(job.png)) == 0)
        png_read(&job, color, size_only);
    png_destroy_read_struct(&kept->png, &kept->info, NULL);
    free(kept->row);
    free(kept->rgb);
    if (e->code != PS_OK) {
        free(image->pixels);
        image->pixels = NULL;
    }
    return e->code;
}

#else

enum ps_code wk_png_decode(const uint8_t *bytes, size_t n, enum ps_color color, bool size_only, struct wk_image *image,
                           struct ps_error *e)
{
    (void)bytes, (void)n, (void)color, (void)size_only, (void)image;
    return ps_fail(e, PS_UNIMPLEMENTED, "it is a PNG image, and this workerd was built without libpng");
}

#endif

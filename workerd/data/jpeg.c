// SPDX-License-Identifier: Apache-2.0
#include "config.h"
#include "workerd/data/image.h"

#ifdef HAVE_LIBJPEG

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
// After it.
#include <jerror.h>

// What outlives a longjmp lies here.
struct jpeg_job {
    struct jpeg_error_mgr errors;  // first: libjpeg hands it back
    struct jpeg_decompress_struct jpeg;
    jmp_buf out;
    struct wk_image *image;
    struct ps_error *e;
};

static void jpeg_fail(j_common_ptr jpeg)
{
    struct jpeg_job *job = (struct jpeg_job *)jpeg->err;
    char text[JMSG_LENGTH_MAX];
    job->errors.format_message(jpeg, text);
    ps_fail(job->e, PS_DATA_LOSS, "JPEG: %s", text);
    longjmp(job->out, 1);
}

// Does a warning leave the pixels as they are? Stray bytes before a marker do, which other decoders skip too, and what
// old programs write as the version of JFIF or as Adobe's colour transform.
static bool jpeg_is_harmless(int warning)
{
    return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_JFIF_MAJOR || warning == JWRN_ADOBE_XFORM;
}

// The other warnings are of damage that libjpeg fills with grey: no example to train on.
static void jpeg_warn(j_common_ptr jpeg, int level)
{
    if (level < 0 && !jpeg_is_harmless(jpeg->err->msg_code))
        jpeg_fail(jpeg);
}

static bool jpeg_has_four_inks(const struct jpeg_decompress_struct *jpeg)
{
    return jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
}

// libjpeg makes CMYK of them at most. As TensorFlow's decoder does it: files with Adobe's marker have it inverted.
static void jpeg_mix_inks(const uint8_t *cmyk, const struct wk_image *image, bool inverted, uint8_t *to)
{
    for (size_t i = 0; i < image->width; i++, cmyk += 4, to += image->channels) {
        uint8_t rgb[3];
        for (int k = 0; k < 3; k++)
            rgb[k] = (uint8_t)((inverted ? cmyk[k] * cmyk[3] : (255 - cmyk[k]) * (255 - cmyk[3])) / 255);
        if (image->channels == 1)
            *to = wk_image_gray(rgb);
        else
            memcpy(to, rgb, sizeof rgb);
    }
}

static void jpeg_read(struct jpeg_job *job, const uint8_t *bytes, size_t n, enum ps_color color, bool size_only)
{
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    jpeg_create_decompress(jpeg);
    jpeg->mem->max_memory_to_use = 1 << 28;
    jpeg_mem_src(jpeg, (uint8_t *)bytes, (unsigned long)n);
    jpeg_read_header(jpeg, TRUE);
    if (wk_image_alloc(job->image, jpeg->image_height, jpeg->image_width, color, size_only, job->e) || size_only)
        return;
    const bool inks = jpeg_has_four_inks(jpeg);
    jpeg->out_color_space = inks ? JCS_CMYK : color == PS_COLOR_GRAYSCALE ? JCS_GRAYSCALE : JCS_RGB;
    jpeg->dct_method = JDCT_ISLOW;
    jpeg_start_decompress(jpeg);
    size_t stride = job->image->width * job->image->channels;
    uint8_t *cmyk = inks ? jpeg->mem->alloc_large((j_common_ptr)jpeg, JPOOL_IMAGE, 4 * job->image->width) : NULL;
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *to = job->image->pixels + jpeg->output_scanline * stride, *row = inks ? cmyk : to;
        jpeg_read_scanlines(jpeg, &row, 1);
        if (inks)
            jpeg_mix_inks(cmyk, job->image, jpeg->saw_Adobe_marker, to);
    }
    jpeg_finish_decompress(jpeg);
}

enum ps_code wk_jpeg_decode(const uint8_t *bytes, size_t n, enum ps_color color, bool size_only, struct wk_image *image,
                            struct ps_error *e)
{
    struct jpeg_job job = {.image = image, .e = e};
    e->code = PS_OK;
    job.jpeg.err = jpeg_std_error(&job.errors);
    job.errors.error_exit = jpeg_fail;
    job.errors.emit_message = jpeg_warn;
    if (setjmp(job.out) == 0)
        jpeg_read(&job, bytes, n, color, size_only);
    jpeg_destroy_decompress(&job.jpeg);
    if (e->code != PS_OK) {
        free(image->pixels);
        image->pixels = NULL;
    }
    return e->code;
}

#else

enum ps_code wk_jpeg_decode(const uint8_t *bytes, size_t n, enum ps_color color, bool size_only, struct wk_image *image,
                            struct ps_error *e)
{
    (void)bytes, (void)n, (void)color, (void)size_only, (void)image;
    return ps_fail(e, PS_UNIMPLEMENTED, "it is a JPEG image, and this workerd was built without libjpeg");
}

#endif

// SPDX-License-Identifier: Apache-2.0
//
// Event files as TensorBoard reads them: framing by its own test vectors, and the bytes of three events, which
// TensorFlow's reader has read.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "common/base/crc32c.h"
#include "common/file/tfrecord.h"
#include "workerd/job/callbacks/event.h"
#include "workerd/job/callbacks/picture.h"

// RFC 3720, B.4.
static void crcs(void **state)
{
    uint8_t bytes[32];
    (void)state;
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(ps_crc32c(0, bytes, sizeof bytes), 0x8A9136AA);
    memset(bytes, 0xFF, sizeof bytes);
    assert_int_equal(ps_crc32c(0, bytes, sizeof bytes), 0x62A8AB43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(ps_crc32c(0, bytes, sizeof bytes), 0x46DD794E);
    assert_int_equal(ps_crc32c(0, "123456789", 9), 0xE3069283);
    assert_int_equal(ps_crc32c(ps_crc32c(0, "1", 1), "23456789", 8), 0xE3069283);
    assert_int_equal(ps_masked_crc32c("123456789", 9), (0xE3069283u >> 15 | 0xE3069283u << 17) + 0xA282EAD8u);
}

// Whatever the size, where it begins and what came before, with the processor's instruction and without.
static void crcs_of_all_sizes(void **state)
{
    static uint8_t bytes[30000];  // three lanes, twice
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 11);
    uint32_t one_by_one = 0;
    for (size_t n = 0, from = n % 9; n + 9 < sizeof bytes; n++, from = n % 9) {
        assert_int_equal(ps_crc32c(0, bytes, n), one_by_one);
        assert_int_equal(ps_crc32c((uint32_t)n, bytes + from, n), ps_crc32c_portable((uint32_t)n, bytes + from, n));
        one_by_one = ps_crc32c_portable(one_by_one, bytes + n, 1);
    }
}

struct file {
    char *text;
    size_t size;
    FILE *stream;
};

static void open_file(struct file *f)
{
    f->stream = open_memstream(&f->text, &f->size);
    assert_non_null(f->stream);
}

// Takes a record off the file's start: its CRCs are right.
static size_t record(const uint8_t *at, size_t left)
{
    uint64_t n;
    uint8_t head[PS_TFRECORD_HEAD], tail[PS_TFRECORD_TAIL];
    assert_true(left > PS_TFRECORD_HEAD + PS_TFRECORD_TAIL);
    memcpy(&n, at, sizeof n);
    assert_true(n <= left - PS_TFRECORD_HEAD - PS_TFRECORD_TAIL);
    ps_tfrecord_frame(at + PS_TFRECORD_HEAD, n, head, tail);
    assert_memory_equal(at, head, sizeof head);
    assert_memory_equal(at + PS_TFRECORD_HEAD + n, tail, sizeof tail);
    return PS_TFRECORD_HEAD + n + PS_TFRECORD_TAIL;
}

static void scalars(void **state)
{
    // time (1) 1.5, version (3); time, step (2) 300, summary (5) of one value (1): tag (1), 0.25 (2).
    static const uint8_t first[] = "\x09\0\0\0\0\0\0\xF8\x3F\x1A\x0D"
                                   "brain.Event:2";
    static const uint8_t second[] = "\x09\0\0\0\0\0\0\xF8\x3F\x10\xAC\x02\x2A\x0F\x0A\x0D\x0A\x06"
                                    "a/loss"
                                    "\x15\0\0\x80\x3E";
    struct file f;
    (void)state;
    open_file(&f);
    wk_event_version(f.stream, 1.5);
    wk_event_scalar(f.stream, 1.5, 300, "a/loss", 0.25);
    fclose(f.stream);
    const uint8_t *at = (const uint8_t *)f.text;
    size_t n = record(at, f.size);
    assert_int_equal(n, 16 + sizeof first - 1);
    assert_memory_equal(at + PS_TFRECORD_HEAD, first, sizeof first - 1);
    assert_int_equal(n + record(at + n, f.size - n), f.size);
    assert_int_equal(f.size - n, 16 + sizeof second - 1);
    assert_memory_equal(at + n + PS_TFRECORD_HEAD, second, sizeof second - 1);
    free(f.text);
}

// The doubles of a histogram, which are the record's last: 5 with a key each, then limits and buckets.
struct drawn {
    double min, max, num, sum, sum_squares, limit[30], bucket[30];
};

static struct drawn histogram(const float *values, uint64_t n)
{
    struct file f;
    struct drawn d;
    enum { HEADS = 5 * 9, LIST = 3 + 240 };
    open_file(&f);
    wk_event_histogram(f.stream, 0, 1, "h", values, n);
    fclose(f.stream);
    assert_int_equal(record((const uint8_t *)f.text, f.size), f.size);
    const char *at = f.text + f.size - PS_TFRECORD_TAIL - 2 * LIST - HEADS;
    double *const to[] = {&d.min, &d.max, &d.num, &d.sum, &d.sum_squares};
    for (int i = 0; i < 5; i++)
        memcpy(to[i], at + 9 * i + 1, sizeof(double));
    memcpy(d.limit, at + HEADS + 3, sizeof d.limit);
    memcpy(d.bucket, at + HEADS + LIST + 3, sizeof d.bucket);
    free(f.text);
    return d;
}

static void histograms(void **state)
{
    const float values[] = {0, 1, 2, 30, NAN, 30, INFINITY, 15.5F};
    (void)state;
    struct drawn d = histogram(values, 8);
    assert_true(d.min == 0 && d.max == 30 && d.num == 6 && d.sum == 78.5 && d.sum_squares == 2045.25);
    double all = 0;
    for (int i = 0; i < 30; i++) {
        assert_true(d.limit[i] == i + 1);
        all += d.bucket[i];
    }
    assert_true(all == 6 && d.bucket[0] == 1 && d.bucket[1] == 1 && d.bucket[15] == 1 && d.bucket[29] == 2);
    d = histogram((const float[]){7, 7}, 2);
    assert_true(d.min == 7 && d.max == 7 && d.bucket[0] == 2 && d.limit[29] == 7);
    d = histogram((const float[]){NAN}, 1);
    assert_true(d.num == 0 && d.min == 0 && d.max == 0);
}

// ---- pictures -----------------------------------------------------------------------------------------------------

static uint32_t number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

// The chunk at *at, which moves behind it: its CRC is right.
static const uint8_t *chunk(const uint8_t **at, const char *type, uint32_t *n)
{
    const uint8_t *data = *at + 8;
    *n = number_at(*at);
    assert_memory_equal(*at + 4, type, 4);
    assert_int_equal(number_at(data + *n), crc32(0, *at + 4, *n + 4));
    *at = data + *n + 4;
    return data;
}

// Reads the PNG as its standard says, and compares: a digit is a ninth of white.
static void expect_picture(size_t rank, const uint64_t *shape, const float *value, uint32_t width, uint32_t height,
                           const char *want)
{
    struct nn_param p = {.rank = rank, .count = 1};
    struct wk_picture picture;
    uint8_t rows[256];
    size_t size;
    uint32_t n;
    uLongf got = sizeof rows;
    for (size_t i = 0; i < rank; i++)
        p.count *= p.shape[i] = shape[i];
    assert_true(wk_picture_of(&p, value, &picture));
    uint8_t *png = wk_picture_png(&picture, &size);
    const uint8_t *at = png + 8;
    assert_memory_equal(png, "\x89PNG\r\n\x1A\n", 8);
    const uint8_t *header = chunk(&at, "IHDR", &n);
    assert_int_equal(n, 13);
    assert_int_equal(number_at(header), width);
    assert_int_equal(number_at(header + 4), height);
    assert_memory_equal(header + 8, "\x08\0\0\0\0", 5);
    const uint8_t *data = chunk(&at, "IDAT", &n);
    assert_int_equal(uncompress(rows, &got, data, n), Z_OK);
    assert_int_equal(got, height * (width + 1));
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            assert_int_equal(rows[y * (width + 1) + 1 + x], lrint((want[y * width + x] - '0') * 255 / 9.0));
    chunk(&at, "IEND", &n);
    assert_ptr_equal(at, png + size);
    free(png);
    wk_picture_free(&picture);
}

static void pictures(void **state)
{
    static const float upward[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    (void)state;
    expect_picture(1, (const uint64_t[]){10}, upward, 10, 1, "0123456789");
    expect_picture(2, (const uint64_t[]){2, 5}, upward, 5, 2, "0123456789");
    expect_picture(2, (const uint64_t[]){5, 2}, upward, 5, 2, "0246813579");
    expect_picture(3, (const uint64_t[]){1, 5, 2}, upward, 11, 1, "02468013579");
    expect_picture(4, (const uint64_t[]){1, 5, 1, 2}, upward, 11, 1, "02468013579");
    expect_picture(4, (const uint64_t[]){5, 1, 2, 1}, upward, 1, 11, "02468013579");
    expect_picture(1, (const uint64_t[]){3}, (const float[]){NAN, 1, 10}, 3, 1, "009");
    expect_picture(1, (const uint64_t[]){2}, (const float[]){7, 7}, 2, 1, "00");
    struct wk_picture none;
    assert_false(wk_picture_of(&(struct nn_param){.rank = 5, .count = 1, .shape = {1, 1, 1, 1, 1}}, upward, &none));
    assert_false(wk_picture_of(&(struct nn_param){.rank = 1, .count = (1 << 20) + 1}, upward, &none));
}

// image (4) of a value: height, width, colours, what is encoded.
static void images(void **state)
{
    static const uint8_t end[] = "\x0A\x01t\x22\x0A\x08\x02\x10\x03\x18\x01\x22\x02xy";
    struct file f;
    (void)state;
    open_file(&f);
    wk_event_image(f.stream, 0, 1, "t", 3, 2, "xy", 2);
    fclose(f.stream);
    assert_int_equal(record((const uint8_t *)f.text, f.size), f.size);
    assert_memory_equal(f.text + f.size - PS_TFRECORD_TAIL - (sizeof end - 1), end, sizeof end - 1);
    free(f.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(crcs),     cmocka_unit_test(crcs_of_all_sizes),
                                       cmocka_unit_test(scalars),  cmocka_unit_test(histograms),
                                       cmocka_unit_test(pictures), cmocka_unit_test(images)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

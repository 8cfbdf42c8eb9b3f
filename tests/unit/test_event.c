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

#include "common/file/tfrecord.h"
#include "workerd/job/callbacks/event.h"

// RFC 3720, B.4.
static void crcs(void **state)
{
    uint8_t bytes[32];
    (void)state;
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(ps_crc32c(bytes, sizeof bytes), 0x8A9136AA);
    memset(bytes, 0xFF, sizeof bytes);
    assert_int_equal(ps_crc32c(bytes, sizeof bytes), 0x62A8AB43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(ps_crc32c(bytes, sizeof bytes), 0x46DD794E);
    assert_int_equal(ps_crc32c("123456789", 9), 0xE3069283);
    assert_int_equal(ps_masked_crc32c("123456789", 9), (0xE3069283u >> 15 | 0xE3069283u << 17) + 0xA282EAD8u);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(crcs), cmocka_unit_test(scalars), cmocka_unit_test(histograms)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

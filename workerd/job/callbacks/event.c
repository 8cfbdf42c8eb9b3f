// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/callbacks/event.h"

#include <math.h>
#include <string.h>

#include "common/file/tfrecord.h"

// ---- protocol buffers: https://protobuf.dev/programming-guides/encoding -------------------------------------------

enum { WIRE_VARINT = 0, WIRE_8_BYTES = 1, WIRE_BYTES = 2, WIRE_4_BYTES = 5 };
enum { HISTOGRAM_BUCKETS = 30, MESSAGE_SIZE = 1024 };

// A message that is being put together: a tag is cut to 200 bytes, so that everything fits.
struct message {
    uint8_t bytes[MESSAGE_SIZE];
    size_t n;
};

static void event_put_varint(struct message *m, uint64_t x)
{
    for (; x > 127; x >>= 7)
        m->bytes[m->n++] = (uint8_t)(x | 128);
    m->bytes[m->n++] = (uint8_t)x;
}

static void event_put_key(struct message *m, unsigned field, unsigned type)
{
    event_put_varint(m, field << 3 | type);
}

static void event_put_raw(struct message *m, const void *data, size_t size)
{
    memcpy(m->bytes + m->n, data, size);
    m->n += size;
}

static void event_put_double(struct message *m, unsigned field, double x)
{
    event_put_key(m, field, WIRE_8_BYTES);
    event_put_raw(m, &x, sizeof x);
}

static void event_put_doubles(struct message *m, unsigned field, const double *x, size_t n)
{
    event_put_key(m, field, WIRE_BYTES);
    event_put_varint(m, n * sizeof *x);
    event_put_raw(m, x, n * sizeof *x);
}

static void event_put_bytes(struct message *m, unsigned field, const void *data, size_t size)
{
    event_put_key(m, field, WIRE_BYTES);
    event_put_varint(m, size);
    event_put_raw(m, data, size);
}

static void event_write(FILE *to, const struct message *m)
{
    uint8_t head[PS_TFRECORD_HEAD], tail[PS_TFRECORD_TAIL];
    ps_tfrecord_frame(m->bytes, m->n, head, tail);
    fwrite(head, 1, sizeof head, to);
    fwrite(m->bytes, 1, m->n, to);
    fwrite(tail, 1, sizeof tail, to);
}

// ---- events -------------------------------------------------------------------------------------------------------

enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_HISTOGRAM = 5 };
enum { HISTO_MIN = 1, HISTO_MAX, HISTO_NUM, HISTO_SUM, HISTO_SUM_SQUARES, HISTO_LIMIT, HISTO_BUCKET };

void wk_event_version(FILE *to, double time)
{
    static const char version[] = "brain.Event:2";
    struct message event = {.n = 0};
    event_put_double(&event, EVENT_TIME, time);
    event_put_bytes(&event, EVENT_VERSION, version, strlen(version));
    event_write(to, &event);
}

static void event_put_tag(struct message *value, const char *tag)
{
    event_put_bytes(value, VALUE_TAG, tag, strnlen(tag, 200));
}

static void event_write_value(FILE *to, double time, uint64_t step, const struct message *value)
{
    struct message summary = {.n = 0}, event = {.n = 0};
    event_put_bytes(&summary, SUMMARY_VALUE, value->bytes, value->n);
    event_put_double(&event, EVENT_TIME, time);
    event_put_key(&event, EVENT_STEP, WIRE_VARINT);
    event_put_varint(&event, step);
    event_put_bytes(&event, EVENT_SUMMARY, summary.bytes, summary.n);
    event_write(to, &event);
}

void wk_event_scalar(FILE *to, double time, uint64_t step, const char *tag, double value)
{
    struct message message = {.n = 0};
    float x = (float)value;
    event_put_tag(&message, tag);
    event_put_key(&message, VALUE_SIMPLE, WIRE_4_BYTES);
    event_put_raw(&message, &x, sizeof x);
    event_write_value(to, time, step, &message);
}

struct histogram {
    double min, max, num, sum, sum_squares;
    double limit[HISTOGRAM_BUCKETS], bucket[HISTOGRAM_BUCKETS];
};

static void histogram_make(struct histogram *h, const float *values, uint64_t n)
{
    *h = (struct histogram){.min = INFINITY, .max = -INFINITY};
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(values[i]))
            continue;
        double x = (double)values[i];
        h->min = fmin(h->min, x);
        h->max = fmax(h->max, x);
        h->num++;
        h->sum += x;
        h->sum_squares += x * x;
    }
    if (h->num == 0)
        h->min = h->max = 0;
    double width = (h->max - h->min) / HISTOGRAM_BUCKETS;
    for (int k = 0; k < HISTOGRAM_BUCKETS; k++)
        h->limit[k] = k + 1 < HISTOGRAM_BUCKETS ? h->min + (k + 1) * width : h->max;
    for (uint64_t i = 0; i < n; i++) {
        double at = isfinite(values[i]) && width > 0 ? ((double)values[i] - h->min) / width : 0;
        if (isfinite(values[i]))
            h->bucket[at < HISTOGRAM_BUCKETS - 1 ? (int)at : HISTOGRAM_BUCKETS - 1]++;
    }
}

void wk_event_histogram(FILE *to, double time, uint64_t step, const char *tag, const float *values, uint64_t n)
{
    struct histogram h;
    struct message proto = {.n = 0}, message = {.n = 0};
    histogram_make(&h, values, n);
    event_put_double(&proto, HISTO_MIN, h.min);
    event_put_double(&proto, HISTO_MAX, h.max);
    event_put_double(&proto, HISTO_NUM, h.num);
    event_put_double(&proto, HISTO_SUM, h.sum);
    event_put_double(&proto, HISTO_SUM_SQUARES, h.sum_squares);
    event_put_doubles(&proto, HISTO_LIMIT, h.limit, HISTOGRAM_BUCKETS);
    event_put_doubles(&proto, HISTO_BUCKET, h.bucket, HISTOGRAM_BUCKETS);
    event_put_tag(&message, tag);
    event_put_bytes(&message, VALUE_HISTOGRAM, proto.bytes, proto.n);
    event_write_value(to, time, step, &message);
}

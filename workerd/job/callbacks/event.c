// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/callbacks/event.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/file/tfrecord.h"

// ---- protocol buffers: https://protobuf.dev/programming-guides/encoding -------------------------------------------

enum { WIRE_VARINT = 0, WIRE_8_BYTES = 1, WIRE_BYTES = 2, WIRE_4_BYTES = 5 };
enum { HISTOGRAM_BUCKETS = 30 };

// A message that is being put together.
struct message {
    uint8_t *bytes;  // malloc'd
    size_t n, cap;
};

static void event_put_raw(struct message *m, const void *data, size_t size)
{
    if (m->n + size > m->cap) {
        m->cap = 2 * (m->n + size) + 256;
        m->bytes = ps_realloc(m->bytes, m->cap);
    }
    if (size)
        memcpy(m->bytes + m->n, data, size);
    m->n += size;
}

static void event_put_varint(struct message *m, uint64_t x)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; x > 127; x >>= 7)
        bytes[n++] = (uint8_t)(x | 128);
    bytes[n++] = (uint8_t)x;
    event_put_raw(m, bytes, n);
}

static void event_put_key(struct message *m, unsigned field, unsigned type)
{
    event_put_varint(m, field << 3 | type);
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

static void event_put_text(struct message *m, unsigned field, const char *text)
{
    event_put_bytes(m, field, text, strlen(text));
}

static void event_put_number(struct message *m, unsigned field, uint64_t x)
{
    event_put_key(m, field, WIRE_VARINT);
    event_put_varint(m, x);
}

// Puts a message into another, and frees it.
static void event_put_message(struct message *m, unsigned field, struct message *inner)
{
    event_put_bytes(m, field, inner->bytes, inner->n);
    free(inner->bytes);
}

// Frees it.
static void event_write(FILE *to, struct message *m)
{
    uint8_t head[PS_TFRECORD_HEAD], tail[PS_TFRECORD_TAIL];
    ps_tfrecord_frame(m->bytes, m->n, head, tail);
    fwrite(head, 1, sizeof head, to);
    fwrite(m->bytes, 1, m->n, to);
    fwrite(tail, 1, sizeof tail, to);
    free(m->bytes);
}

// ---- events -------------------------------------------------------------------------------------------------------

enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_GRAPH = 4, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_IMAGE = 4, VALUE_HISTOGRAM = 5 };
enum { IMAGE_HEIGHT = 1, IMAGE_WIDTH, IMAGE_COLORSPACE, IMAGE_ENCODED };
enum { HISTO_MIN = 1, HISTO_MAX, HISTO_NUM, HISTO_SUM, HISTO_SUM_SQUARES, HISTO_LIMIT, HISTO_BUCKET };

void wk_event_version(FILE *to, double time)
{
    struct message event = {.n = 0};
    event_put_double(&event, EVENT_TIME, time);
    event_put_text(&event, EVENT_VERSION, "brain.Event:2");
    event_write(to, &event);
}

static void event_put_tag(struct message *value, const char *tag)
{
    event_put_text(value, VALUE_TAG, tag);
}

static void event_write_value(FILE *to, double time, uint64_t step, struct message *value)
{
    struct message summary = {.n = 0}, event = {.n = 0};
    event_put_message(&summary, SUMMARY_VALUE, value);
    event_put_double(&event, EVENT_TIME, time);
    event_put_number(&event, EVENT_STEP, step);
    event_put_message(&event, EVENT_SUMMARY, &summary);
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
    event_put_message(&message, VALUE_HISTOGRAM, &proto);
    event_write_value(to, time, step, &message);
}

void wk_event_image(FILE *to, double time, uint64_t step, const char *tag, uint32_t width, uint32_t height,
                    const void *png, size_t size)
{
    enum { GRAY = 1 };
    struct message image = {.n = 0}, message = {.n = 0};
    event_put_number(&image, IMAGE_HEIGHT, height);
    event_put_number(&image, IMAGE_WIDTH, width);
    event_put_number(&image, IMAGE_COLORSPACE, GRAY);
    event_put_bytes(&image, IMAGE_ENCODED, png, size);
    event_put_tag(&message, tag);
    event_put_message(&message, VALUE_IMAGE, &image);
    event_write_value(to, time, step, &message);
}

// ---- the graph: tensorflow/core/framework/{graph,node_def,attr_value,tensor_shape,versions}.proto ------------------

enum { GRAPH_NODE = 1, GRAPH_VERSIONS = 4, VERSIONS_PRODUCER = 1 };
enum { NODE_NAME = 1, NODE_OP, NODE_INPUT, NODE_ATTR = 5, ATTR_KEY = 1, ATTR_VALUE = 2 };
enum { ATTR_LIST = 1, LIST_SHAPE = 7, SHAPE_DIM = 2, DIM_SIZE = 1 };

// The first dimension counts the rows of a batch, which are not known.
static void event_put_shape(struct message *node, const struct nn_type *type)
{
    struct message shape = {.n = 0}, list = {.n = 0}, value = {.n = 0}, attr = {.n = 0};
    for (int i = -1; i < type->rank; i++) {
        struct message dim = {.n = 0};
        event_put_number(&dim, DIM_SIZE, i < 0 ? UINT64_MAX : (uint64_t)type->dim[i]);
        event_put_message(&shape, SHAPE_DIM, &dim);
    }
    event_put_message(&list, LIST_SHAPE, &shape);
    event_put_message(&value, ATTR_LIST, &list);
    event_put_text(&attr, ATTR_KEY, "_output_shapes");
    event_put_message(&attr, ATTR_VALUE, &value);
    event_put_message(node, NODE_ATTR, &attr);
}

void wk_event_graph(FILE *to, double time, const struct nn_model *model)
{
    enum { PRODUCER = 22 };  // the first whose nodes may have any operator
    struct message graph = {.n = 0}, versions = {.n = 0}, event = {.n = 0};
    for (size_t i = 0; i < nn_model_nodes(model); i++) {
        const struct nn_node node = nn_model_node(model, i);
        struct message one = {.n = 0};
        event_put_text(&one, NODE_NAME, node.name);
        event_put_text(&one, NODE_OP, node.kind);
        for (int k = 0; k < node.n_in; k++)
            event_put_text(&one, NODE_INPUT, nn_model_node(model, (size_t)node.in[k]).name);
        event_put_shape(&one, node.type);
        event_put_message(&graph, GRAPH_NODE, &one);
    }
    event_put_number(&versions, VERSIONS_PRODUCER, PRODUCER);
    event_put_message(&graph, GRAPH_VERSIONS, &versions);
    event_put_double(&event, EVENT_TIME, time);
    event_put_message(&event, EVENT_GRAPH, &graph);
    event_write(to, &event);
}

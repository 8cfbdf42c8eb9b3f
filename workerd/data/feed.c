// SPDX-License-Identifier: Apache-2.0
//
// Requests and batches are numbered from 0 and live in rings. With at most WK_FEED_AHEAD requests not taken,
// the batch that the consumer holds and those that are made or wait fill WK_FEED_AHEAD + 1 different buffers:
//
//     requested >= made >= taken,    requested - taken <= WK_FEED_AHEAD
//
// The mutex guards these three numbers, the requests and stop; a buffer belongs to the thread while its
// number is `made`, to the consumer afterwards.
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/data/data_internal.h"

struct request {
    uint64_t epoch, first;
    int rows;
};

struct buffer {
    struct nn_batch batch;  // its pointers are those below
    float *x;               // (rows, inputs)
    int32_t *label;         // (rows,); or NULL
    float *target;          // (rows, targets); or NULL
    uint64_t *example;      // (rows,)
};

enum { BUFFERS = WK_FEED_AHEAD + 1 };

struct wk_feed {
    const struct wk_part *part;  // borrowed
    int rows;                    // most per batch
    bool shuffle;
    uint64_t seed;
    float value[256];  // a byte's

    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t work;   // requested grew, or stop
    pthread_cond_t ready;  // made grew
    uint64_t requested, made, taken;
    bool stop;
    struct request request[WK_FEED_AHEAD];
    struct buffer buffer[BUFFERS];
};

static void gather_x(const struct wk_feed *feed, uint64_t example, float *to)
{
    size_t n = feed->part->split.inputs;
    if (!feed->part->bytes) {
        memcpy(to, feed->part->floats + example * n, n * sizeof *to);
        return;
    }
    const uint8_t *from = feed->part->bytes + example * n;
    for (size_t j = 0; j < n; j++)
        to[j] = feed->value[from[j]];
}

static void gather_y(const struct wk_part *part, uint64_t example, struct buffer *b, int row)
{
    size_t n = part->split.targets;
    if (part->label)
        b->label[row] = part->label[example];
    else
        memcpy(b->target + (size_t)row * n, part->target + example * n, n * sizeof *b->target);
}

static void feed_fill(const struct wk_feed *feed, struct request request, struct buffer *b)
{
    const struct wk_split *split = &feed->part->split;
    for (int row = 0; row < request.rows; row++) {
        uint64_t at = request.first + (uint64_t)row;
        uint64_t example = feed->shuffle ? wk_shuffle(feed->seed, request.epoch, split->examples, at) : at;
        b->example[row] = example;
        wk_part_need(feed->part, example);
        gather_x(feed, example, b->x + (size_t)row * split->inputs);
        gather_y(feed->part, example, b, row);
    }
    b->batch = (struct nn_batch){.rows = request.rows,
                                 .input = {b->x},
                                 .target = {b->label ? (void *)b->label : b->target},
                                 .example = b->example};
}

static void *feed_run(void *arg)
{
    struct wk_feed *feed = arg;
    pthread_mutex_lock(&feed->mutex);
    for (;;) {
        while (!feed->stop && feed->made == feed->requested)
            pthread_cond_wait(&feed->work, &feed->mutex);
        if (feed->stop)
            break;
        struct request request = feed->request[feed->made % WK_FEED_AHEAD];
        struct buffer *b = &feed->buffer[feed->made % BUFFERS];
        pthread_mutex_unlock(&feed->mutex);
        feed_fill(feed, request, b);
        pthread_mutex_lock(&feed->mutex);
        feed->made++;
        pthread_cond_signal(&feed->ready);
    }
    pthread_mutex_unlock(&feed->mutex);
    return NULL;
}

static enum ps_code buffer_init(struct buffer *b, const struct wk_part *part, uint64_t rows, struct ps_error *e)
{
    b->x = wk_array(rows, part->split.inputs, sizeof *b->x, e);
    b->example = wk_array(rows, 1, sizeof *b->example, e);
    if (part->label)
        b->label = wk_array(rows, 1, sizeof *b->label, e);
    else
        b->target = wk_array(rows, part->split.targets, sizeof *b->target, e);
    return b->x && b->example && (b->label || b->target) ? PS_OK : PS_RESOURCE_EXHAUSTED;
}

// All but the thread.
static void feed_destroy(struct wk_feed *feed)
{
    for (int i = 0; i < BUFFERS; i++) {
        free(feed->buffer[i].x);
        free(feed->buffer[i].label);
        free(feed->buffer[i].target);
        free(feed->buffer[i].example);
    }
    pthread_cond_destroy(&feed->ready);
    pthread_cond_destroy(&feed->work);
    pthread_mutex_destroy(&feed->mutex);
    free(feed);
}

enum ps_code wk_feed_create(const struct wk_data *data, bool test, int rows, bool shuffle, uint64_t seed,
                            struct wk_feed **feed, struct ps_error *e)
{
    const struct wk_part *part = test ? &data->test : &data->train;
    enum ps_code code = PS_OK;
    assert(rows > 0);
    if (part->split.examples == 0)
        return ps_fail(e, PS_FAILED_PRECONDITION, "there is no test data to make batches of");
    struct wk_feed *f = ps_alloc(sizeof *f);
    f->part = part;
    f->rows = rows;
    f->shuffle = shuffle;
    f->seed = seed;
    for (int i = 0; i < 256; i++)
        f->value[i] = (float)(i * data->scale);
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->work, NULL);
    pthread_cond_init(&f->ready, NULL);
    for (int i = 0; i < BUFFERS && code == PS_OK; i++)
        code = buffer_init(&f->buffer[i], part, (uint64_t)rows, e);
    if (code == PS_OK && pthread_create(&f->thread, NULL, feed_run, f) != 0)
        code = ps_fail(e, PS_RESOURCE_EXHAUSTED, "no thread for a data feed");
    if (code != PS_OK) {
        feed_destroy(f);
        return code;
    }
    *feed = f;
    return PS_OK;
}

// Requests that the thread has not begun are dropped.
void wk_feed_free(struct wk_feed *feed)
{
    if (!feed)
        return;
    pthread_mutex_lock(&feed->mutex);
    feed->stop = true;
    pthread_cond_signal(&feed->work);
    pthread_mutex_unlock(&feed->mutex);
    pthread_join(feed->thread, NULL);
    feed_destroy(feed);
}

void wk_feed_request(struct wk_feed *feed, uint64_t epoch, uint64_t first, int rows)
{
    uint64_t examples = feed->part->split.examples;
    assert(rows > 0 && rows <= feed->rows);
    assert(first < examples && (uint64_t)rows <= examples - first);
    pthread_mutex_lock(&feed->mutex);
    assert(feed->requested - feed->taken < WK_FEED_AHEAD);
    feed->request[feed->requested++ % WK_FEED_AHEAD] = (struct request){epoch, first, rows};
    pthread_cond_signal(&feed->work);
    pthread_mutex_unlock(&feed->mutex);
}

const struct nn_batch *wk_feed_take(struct wk_feed *feed)
{
    pthread_mutex_lock(&feed->mutex);
    assert(feed->taken < feed->requested);
    while (feed->taken == feed->made)
        pthread_cond_wait(&feed->ready, &feed->mutex);
    struct buffer *b = &feed->buffer[feed->taken++ % BUFFERS];
    pthread_mutex_unlock(&feed->mutex);
    return &b->batch;
}

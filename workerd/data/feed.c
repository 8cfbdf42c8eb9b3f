// SPDX-License-Identifier: Apache-2.0
//
// Requests and batches are numbered from 0 and live in rings. With at most WK_FEED_AHEAD requests not taken, the batch
// that the consumer holds and those that are made or wait fill WK_FEED_AHEAD + 1 different buffers:
//
//     requested >= claimed >= taken,    requested - taken <= WK_FEED_AHEAD
//
// A thread claims the next number and makes that batch; the consumer takes them in order. The mutex guards the numbers,
// the requests, done and stop; a buffer belongs to the thread that has claimed it until it is done, to the consumer
// afterwards.
//
// A thread may hang in a read, of a network file system, say. After a signal nobody waits for it longer than
// FEED_GRACE: the consumer gets no batch, and a feed whose threads do not end stays where it is, with the data.
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/signals.h"
#include "workerd/data/data_internal.h"

struct request {
    uint64_t epoch, first;
    int rows;
};

struct buffer {
    struct nn_batch batch;                             // its pointers are those below
    void *input[NN_MAX_PORTS], *target[NN_MAX_PORTS];  // (rows, count)
    float *weight;                                     // (rows,); or NULL
    uint64_t *example;                                 // (rows,)
    bool done;
    struct ps_error error;  // code PS_OK: none
};

enum { BUFFERS = WK_FEED_AHEAD + 1 };
#define FEED_GRACE PS_SECOND     // after a signal
#define FEED_LOOK (100 * PS_MS)  // how often one is looked for

struct wk_feed {
    struct wk_data *data;        // borrowed, as
    const struct wk_part *part;  // of it
    struct wk_augment augment;
    struct ps_track *track;  // of the batches that are made; NULL: none
    int rows;                // most per batch
    bool shuffle;
    uint64_t seed;

    pthread_t *thread;
    int threads, running;
    pthread_mutex_t mutex;
    pthread_cond_t work;   // requested grew, or stop
    pthread_cond_t ready;  // a batch is done, or a thread
    uint64_t requested, claimed, taken;
    atomic_bool stop;
    struct request request[WK_FEED_AHEAD];
    struct buffer buffer[BUFFERS];
};

static void *feed_row(void *array, const struct wk_port *port, int row)
{
    return (float *)array + (size_t)row * port->count;
}

// One row. raw: room for what is read before it is converted.
static enum ps_code feed_read(const struct wk_feed *feed, uint64_t epoch, uint64_t example, void *raw, struct buffer *b,
                              int row, struct ps_error *e)
{
    const struct wk_part *part = feed->part;
    uint64_t at = part->first + example;
    for (size_t k = 0; k < part->inputs; k++) {
        const struct wk_port *port = &part->input[k];
        void *to = feed_row(b->input[k], port, row);
        if (wk_port_read(part, port, at, raw, to, e))
            return e->code;
        if (port->image[0])
            wk_augment(&feed->augment, port, (uint32_t)k, feed->seed, epoch, example, raw, to);
    }
    for (size_t k = 0; k < part->targets; k++)
        if (wk_port_read(part, &part->target[k], at, raw, feed_row(b->target[k], &part->target[k], row), e))
            return e->code;
    return b->weight ? wk_port_read(part, &part->weight, at, raw, b->weight + row, e) : PS_OK;
}

static void feed_fill(const struct wk_feed *feed, struct request request, void *raw, struct buffer *b)
{
    enum ps_code code = PS_OK;
    b->error.code = PS_OK;
    for (int row = 0; row < request.rows && code == PS_OK && !feed->stop; row++) {
        uint64_t at = request.first + (uint64_t)row;
        uint64_t n = feed->part->split.examples;
        uint64_t example = feed->shuffle ? wk_shuffle(feed->seed, request.epoch, n, at) : at;
        b->example[row] = feed->part->first + example;
        code = feed_read(feed, request.epoch, example, raw, b, row, &b->error);
    }
    b->batch = (struct nn_batch){.rows = request.rows, .weight = b->weight, .example = b->example};
    for (size_t k = 0; k < feed->part->inputs; k++)
        b->batch.input[k] = b->input[k];
    for (size_t k = 0; k < feed->part->targets; k++)
        b->batch.target[k] = b->target[k];
}

static void *feed_run(void *arg)
{
    struct wk_feed *feed = arg;
    void *raw = ps_alloc(wk_part_raw(feed->part));
    pthread_mutex_lock(&feed->mutex);
    for (;;) {
        while (!feed->stop && feed->claimed == feed->requested)
            pthread_cond_wait(&feed->work, &feed->mutex);
        if (feed->stop)
            break;
        uint64_t number = feed->claimed++;
        struct request request = feed->request[number % WK_FEED_AHEAD];
        struct buffer *b = &feed->buffer[number % BUFFERS];
        pthread_mutex_unlock(&feed->mutex);
        const uint64_t start = ps_track_now(feed->track);
        feed_fill(feed, request, raw, b);
        if (!feed->stop)
            ps_track_end(feed->track, &(struct ps_span){PS_SPAN_FEED, "batch", start, "first", request.first});
        pthread_mutex_lock(&feed->mutex);
        b->done = true;
        pthread_cond_signal(&feed->ready);
    }
    feed->running--;
    pthread_cond_signal(&feed->ready);
    pthread_mutex_unlock(&feed->mutex);
    free(raw);
    return NULL;
}

static int feed_signal(const struct wk_feed *feed)
{
    return feed->data->stop ? ps_signal_number(feed->data->stop) : 0;
}

// locked. Waits for what a thread has to tell. False: a signal is there, and *until is over, FEED_GRACE after it came.
static bool feed_wait(struct wk_feed *feed, uint64_t *until)
{
    const uint64_t now = ps_now();
    if (!feed_signal(feed))
        *until = now + FEED_GRACE;
    else if (now >= *until)
        return false;
    ps_cond_wait_until(&feed->ready, &feed->mutex, now + FEED_LOOK);
    return true;
}

static enum ps_code feed_init_buffer(struct buffer *b, const struct wk_part *part, uint64_t rows, struct ps_error *e)
{
    bool ok = (b->example = wk_array(rows, 1, sizeof *b->example, e)) != NULL;
    for (size_t k = 0; k < part->inputs && ok; k++)
        ok = (b->input[k] = wk_array(rows, part->input[k].count, sizeof(float), e)) != NULL;
    for (size_t k = 0; k < part->targets && ok; k++)
        ok = (b->target[k] = wk_array(rows, part->target[k].count, sizeof(float), e)) != NULL;
    if (ok && part->weight.n)
        ok = (b->weight = wk_array(rows, 1, sizeof *b->weight, e)) != NULL;
    return ok ? PS_OK : PS_RESOURCE_EXHAUSTED;
}

// Its threads have ended, or there are none.
static void feed_destroy(struct wk_feed *feed)
{
    for (int i = 0; i < BUFFERS; i++) {
        for (size_t k = 0; k < NN_MAX_PORTS; k++) {
            free(feed->buffer[i].input[k]);
            free(feed->buffer[i].target[k]);
        }
        free(feed->buffer[i].weight);
        free(feed->buffer[i].example);
    }
    pthread_cond_destroy(&feed->ready);
    pthread_cond_destroy(&feed->work);
    pthread_mutex_destroy(&feed->mutex);
    free(feed->thread);
    free(feed);
}

static int feed_start_thread(struct wk_feed *feed)
{
    pthread_mutex_lock(&feed->mutex);
    const int failed = pthread_create(&feed->thread[feed->threads], NULL, feed_run, feed);
    feed->running += failed == 0;
    pthread_mutex_unlock(&feed->mutex);
    return failed;
}

static enum ps_code feed_start(struct wk_feed *feed, int threads, struct ps_error *e)
{
    feed->thread = ps_alloc((size_t)threads * sizeof *feed->thread);
    for (; feed->threads < threads; feed->threads++)
        if (feed_start_thread(feed) != 0)
            return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no thread for a data feed");
    return PS_OK;
}

enum ps_code wk_feed_create(struct wk_data *data, bool test, int rows, bool shuffle, uint64_t seed,
                            struct wk_feed **feed, struct ps_error *e)
{
    const struct wk_part *part = test ? &data->test : &data->train;
    enum ps_code code = PS_OK;
    assert(rows > 0);
    if (part->split.examples == 0)
        return ps_fail(e, PS_FAILED_PRECONDITION, "there is no test data to make batches of");
    assert(part->inputs);
    struct wk_feed *f = ps_alloc(sizeof *f);
    f->data = data;
    f->part = part;
    f->augment = data->augment;
    f->track = data->track;
    f->rows = rows;
    f->shuffle = shuffle;
    f->seed = seed;
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->work, NULL);
    ps_cond_init(&f->ready);
    for (int i = 0; i < BUFFERS && code == PS_OK; i++)
        code = feed_init_buffer(&f->buffer[i], part, (uint64_t)rows, e);
    if (code == PS_OK)
        code = feed_start(f, data->threads, e);
    if (code != PS_OK) {
        wk_feed_free(f);
        return code;
    }
    *feed = f;
    return PS_OK;
}

// locked. Have all threads ended? After a signal not those that hang.
static bool feed_ends(struct wk_feed *feed)
{
    uint64_t until = ps_now() + FEED_GRACE;
    while (feed->running && feed_wait(feed, &until))
        continue;
    return feed->running == 0;
}

// Requests that no thread has claimed are dropped.
void wk_feed_free(struct wk_feed *feed)
{
    if (!feed)
        return;
    pthread_mutex_lock(&feed->mutex);
    feed->stop = true;
    pthread_cond_broadcast(&feed->work);
    const bool ended = feed_ends(feed);
    feed->data->held |= !ended;
    pthread_mutex_unlock(&feed->mutex);
    for (int i = 0; i < feed->threads; i++)
        ended ? pthread_join(feed->thread[i], NULL) : pthread_detach(feed->thread[i]);
    if (ended)
        feed_destroy(feed);
}

void wk_feed_request(struct wk_feed *feed, uint64_t epoch, uint64_t first, int rows)
{
    uint64_t examples = feed->part->split.examples;
    assert(rows > 0 && rows <= feed->rows);
    assert(first < examples && (uint64_t)rows <= examples - first);
    pthread_mutex_lock(&feed->mutex);
    assert(feed->requested - feed->taken < WK_FEED_AHEAD);
    uint64_t number = feed->requested++;
    feed->request[number % WK_FEED_AHEAD] = (struct request){epoch, first, rows};
    feed->buffer[number % BUFFERS].done = false;
    pthread_cond_signal(&feed->work);
    pthread_mutex_unlock(&feed->mutex);
}

const struct nn_batch *wk_feed_take(struct wk_feed *feed, struct ps_error *e)
{
    pthread_mutex_lock(&feed->mutex);
    assert(feed->taken < feed->requested);
    struct buffer *b = &feed->buffer[feed->taken % BUFFERS];
    uint64_t until = ps_now() + FEED_GRACE;
    while (!b->done && feed_wait(feed, &until))
        continue;
    const bool done = b->done;
    feed->taken += done;
    pthread_mutex_unlock(&feed->mutex);
    if (!done) {
        ps_fail(e, PS_CANCELLED, "stopped by %s while it waited for a batch", ps_signal_name(feed_signal(feed)));
        return NULL;
    }
    if (b->error.code == PS_OK)
        return &b->batch;
    *e = b->error;
    return NULL;
}

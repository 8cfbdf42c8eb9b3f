// SPDX-License-Identifier: Apache-2.0
//
// What TensorBoard shows, as Keras's callback writes it: PATH/train and PATH/validation have one event file each, with
// "epoch_loss" and its like by epochs; train has the graph of the
// model, "batch_loss" by steps, histograms and pictures of the weights, too.
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/machine.h"
#include "common/file/output.h"
#include "workerd/job/callbacks/event.h"
#include "workerd/job/callbacks/log_file.h"
#include "workerd/job/callbacks/picture.h"

enum { TRAIN, VALIDATION, SPLITS };

static const char *const tensorboard_splits[SPLITS] = {"train", "validation"};

struct tensorboard {
    const char *folder;
    uint64_t histogram_freq;  // in epochs; 0: none
    bool images;              // of the weights, with the histograms
    uint64_t update_steps;    // 0: none
    char *path[SPLITS];       // NULL: not known yet
    struct wk_log_file file[SPLITS];
};

static double tensorboard_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static enum ps_code tensorboard_open(const struct ps_callback *settings, const struct wk_run *run, void **state,
                                     struct ps_error *e)
{
    struct tensorboard *t = ps_alloc(sizeof *t);
    (void)run;
    (void)e;
    t->folder = ps_callback_text(settings, "path");
    t->histogram_freq = ps_callback_count(settings, "histogram_freq");
    t->images = ps_callback_flag(settings, "write_images");
    t->update_steps = ps_callback_count(settings, "update_steps");
    *state = t;
    return PS_OK;
}

static void tensorboard_close(void *state)
{
    struct tensorboard *t = state;
    for (int i = 0; i < SPLITS; i++) {
        wk_log_file_close(&t->file[i]);
        free(t->path[i]);
    }
    free(t);
}

// A name that no other run has, as TensorBoard looks for it. A training that goes on has it from the checkpoint; but a
// worker that takes over has a file of its own, as the lost chief's may end within a record, which hides all behind it.
static void tensorboard_name(struct tensorboard *t, int split, bool takes_over)
{
    char host[PS_HOST_NAME];
    if (takes_over) {
        free(t->path[split]);
        t->path[split] = NULL;
    }
    if (!t->path[split])
        t->path[split] = ps_printf("%s/%s/events.out.tfevents.%010lld.%s.%ld", t->folder, tensorboard_splits[split],
                                   (long long)tensorboard_now(), ps_host_name(host), (long)getpid());
}

static void tensorboard_head(const struct tensorboard *t, int split, const struct nn_model *model)
{
    wk_event_version(t->file[split].stream, tensorboard_now());
    if (split == TRAIN)
        wk_event_graph(t->file[split].stream, tensorboard_now(), model);
}

static enum ps_code tensorboard_begin_split(struct tensorboard *t, int split, struct wk_run *run, bool takes_over,
                                            struct ps_error *e)
{
    char *folder = ps_printf("%s/%s", t->folder, tensorboard_splits[split]);
    enum ps_code code = ps_make_folder(folder, e);
    free(folder);
    if (code && !takes_over)
        return code;
    if (code) {
        ps_error_log("%s; the training goes on without it", e->text);
        return PS_OK;
    }
    tensorboard_name(t, split, takes_over);
    t->file[split].path = t->path[split];
    if (wk_log_file_open(&t->file[split], run, takes_over, e))
        return e->code;
    if (t->file[split].stream && wk_log_file_is_empty(&t->file[split]))
        tensorboard_head(t, split, run->env.model);
    wk_log_file_flush(&t->file[split]);
    return PS_OK;
}

static enum ps_code tensorboard_begin(void *state, struct wk_run *run, bool takes_over, struct ps_error *e)
{
    for (int i = 0; i < SPLITS; i++)
        if ((i == TRAIN || wk_data_test(run->data)->examples > 0) &&
            tensorboard_begin_split(state, i, run, takes_over, e))
            return e->code;
    return PS_OK;
}

static enum ps_code tensorboard_step(void *state, struct wk_moment *m, struct ps_error *e)
{
    struct tensorboard *t = state;
    const uint64_t step = m->run->position.step;
    (void)e;
    if (!t->file[TRAIN].stream || m->rows == 0 || !wk_moment_is_every(m, t->update_steps))
        return PS_OK;
    wk_event_scalar(t->file[TRAIN].stream, tensorboard_now(), step, "batch_loss", m->result.loss / m->rows);
    wk_log_file_flush(&t->file[TRAIN]);
    return PS_OK;
}

static void tensorboard_put_image(FILE *to, uint64_t epoch, const struct nn_param *p, const float *value)
{
    struct wk_picture picture;
    char tag[200];
    size_t size;
    snprintf(tag, sizeof tag, "%.180s/image", p->name);
    if (!wk_picture_of(p, value, &picture))
        return;
    uint8_t *png = wk_picture_png(&picture, &size);
    if (png)
        wk_event_image(to, tensorboard_now(), epoch, tag, picture.width, picture.height, png, size);
    free(png);
    wk_picture_free(&picture);
}

static void tensorboard_put_weights(const struct tensorboard *t, const struct wk_moment *m)
{
    const struct nn_model *model = m->run->env.model;
    FILE *to = t->file[TRAIN].stream;
    for (size_t i = 0; i < nn_model_params(model); i++) {
        const struct nn_param *p = nn_model_param(model, i);
        const float *value = nn_replica_param(m->run->env.replica, i);
        char tag[200];
        snprintf(tag, sizeof tag, "%.180s/histogram", p->name);
        wk_event_histogram(to, tensorboard_now(), m->epoch, tag, value, p->count);
        if (t->images)
            tensorboard_put_image(to, m->epoch, p, value);
    }
}

static enum ps_code tensorboard_epoch_end(void *state, struct wk_moment *m, struct ps_error *e)
{
    struct tensorboard *t = state;
    (void)e;
    for (size_t i = 0; i < m->run->figures.n; i++) {
        const struct wk_figure *v = &m->run->figures.v[i];
        const int split = v->validation ? VALIDATION : TRAIN;
        char tag[WK_FIGURE_NAME + 8];
        snprintf(tag, sizeof tag, "epoch_%s", v->validation ? v->name + strlen("val_") : v->name);
        if (t->file[split].stream)
            wk_event_scalar(t->file[split].stream, tensorboard_now(), m->epoch, tag, v->value);
    }
    if (t->file[TRAIN].stream && t->histogram_freq && m->epoch % t->histogram_freq == 0)
        tensorboard_put_weights(t, m);
    for (int i = 0; i < SPLITS; i++)
        wk_log_file_flush(&t->file[i]);
    return PS_OK;
}

static void tensorboard_save(void *state, json_t *to, struct wk_checkpoint *arrays, const char *prefix)
{
    struct tensorboard *t = state;
    (void)arrays;
    (void)prefix;
    for (int i = 0; i < SPLITS; i++) {
        json_t *one = t->path[i] ? json_pack("{s:s}", "path", ps_file_name(t->path[i])) : NULL;
        if (!one)
            continue;
        wk_log_file_save(&t->file[i], one);
        json_object_set_new(to, tensorboard_splits[i], one);
    }
}

// Where the folder has no such file, the training begins another one. An older version has saved its whole path.
static enum ps_code tensorboard_load_split(struct tensorboard *t, int split, const json_t *from, struct ps_error *e)
{
    const char *name = json_string_value(json_object_get(from, "path"));
    if (!name)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s.path: expected a file's name", tensorboard_splits[split]);
    char *path = ps_printf("%s/%s/%s", t->folder, tensorboard_splits[split], ps_file_name(name));
    if (access(path, F_OK) != 0) {
        free(path);
        return PS_OK;
    }
    free(t->path[split]);
    t->path[split] = path;
    return wk_log_file_load(&t->file[split], from, e);
}

static enum ps_code tensorboard_load(void *state, const json_t *from, const struct wk_checkpoint *arrays,
                                     const char *prefix, struct ps_error *e)
{
    struct tensorboard *t = state;
    (void)arrays;
    (void)prefix;
    for (int i = 0; i < SPLITS; i++) {
        const json_t *one = json_object_get(from, tensorboard_splits[i]);
        if (one && tensorboard_load_split(t, i, one, e))
            return e->code;
    }
    return PS_OK;
}

const struct wk_callback_class wk_tensorboard = {
    .name = "tensorboard",
    .open = tensorboard_open,
    .close = tensorboard_close,
    .begin = tensorboard_begin,
    .step = tensorboard_step,
    .epoch_end = tensorboard_epoch_end,
    .save = tensorboard_save,
    .load = tensorboard_load,
};

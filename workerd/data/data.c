// SPDX-License-Identifier: Apache-2.0
#include "workerd/data/data.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/data/data_internal.h"

// Three lists in the order of enum ps_data_kind.
const struct wk_data_kind wk_data_kinds[PS_DATA_KINDS + 1] = {
    [PS_DATA_IDX] = {"idx", "MNIST's four files, plain or gzip; x: images of bytes, y: their labels"},
    [PS_DATA_CSV] = {"csv", "a table, RFC 4180; x: the fields, numbers or categories, y: the last field or data.label"},
    [PS_DATA_NPY] = {"npy", "NumPy arrays, a file each for x and y"},
    [PS_DATA_NPZ] = {"npz", "numpy.savez: a column for each array, in a file per split or as NAME_train and NAME_test"},
    [PS_DATA_CIFAR] = {"cifar", "CIFAR-10's or CIFAR-100's binary files; x: (32, 32, 3) bytes, y: their labels"},
    [PS_DATA_IMAGES] = {"images", "PNG and JPEG files in a folder per class; x: bytes, y: the folder's number"},
    [PS_DATA_TFRECORD] = {"tfrecord", "tf.train.Example records; a column for each feature, images decoded"},
    [PS_DATA_TEXT] = {"text", "text; x: windows of characters or words as numbers, y: those that follow each"},
    [PS_DATA_DIGITS] = {"synthetic-digits", "digits drawn by the program; x: (28, 28) bytes, y: 0 to 9"},
};

typedef enum ps_code (*wk_open)(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data,
                                struct ps_error *e);
static const wk_open data_open[PS_DATA_KINDS] = {
    [PS_DATA_IDX] = wk_idx_open,           [PS_DATA_CSV] = wk_csv_open,     [PS_DATA_NPY] = wk_npy_open,
    [PS_DATA_NPZ] = wk_npz_open,           [PS_DATA_CIFAR] = wk_cifar_open, [PS_DATA_IMAGES] = wk_images_open,
    [PS_DATA_TFRECORD] = wk_tfrecord_open, [PS_DATA_TEXT] = wk_text_open,   [PS_DATA_DIGITS] = wk_digits_open,
};

// Keras's rule: the last examples, before any shuffling but that of images.
static enum ps_code data_split(struct wk_data *d, double split, struct ps_error *e)
{
    uint64_t n = d->train.split.examples, kept = (uint64_t)((double)n * (1 - split));
    if (split <= 0)
        return PS_OK;
    if (d->test.source)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "data.validation_split takes a part of the training data, but there are "
                       "test data");
    if (kept == 0 || kept == n)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "data.validation_split %g leaves %" PRIu64 " of %" PRIu64 " examples to train, expected some to "
                       "train and some to test",
                       split, kept, n);
    d->test.source = d->train.source;
    d->shared = true;
    d->train.split.examples = d->test.first = kept;
    d->test.split.examples = n - kept;
    return PS_OK;
}

enum ps_code wk_data_open(const struct ps_job_data *spec, const struct nn_model *model, uint64_t seed,
                          struct wk_data **data, struct ps_error *e)
{
    struct wk_data *d = ps_alloc(sizeof *d);
    d->spec = spec;
    d->model = model;
    d->words = wk_bind_words;
    d->augment = (struct wk_augment){spec->flip, spec->crop, spec->noise};
    d->threads = spec->threads ? spec->threads : 1;
    enum ps_code code = data_open[spec->kind](spec, seed, d, e);
    if (code == PS_OK) {
        d->train.split.examples = d->train.source->examples;
        d->test.split.examples = d->test.source ? d->test.source->examples : 0;
        code = data_split(d, spec->validation_split, e);
    }
    if (code != PS_OK) {
        wk_data_free(d);
        return code;
    }
    *data = d;
    return PS_OK;
}

static void data_part_fini(struct wk_part *part)
{
    for (size_t k = 0; k < NN_MAX_PORTS; k++) {
        free(part->input[k].column);
        free(part->target[k].column);
    }
    free(part->weight.column);
}

void wk_data_free(struct wk_data *data)
{
    if (!data || data->held)
        return;
    data_part_fini(&data->train);
    data_part_fini(&data->test);
    wk_source_free(data->train.source);
    if (!data->shared)
        wk_source_free(data->test.source);
    free(data);
}

void wk_data_track(struct wk_data *data, struct ps_track *track)
{
    data->track = track;
}

void wk_data_stop(struct wk_data *data, const volatile sig_atomic_t *stop)
{
    data->stop = stop;
}

bool wk_data_held(const struct wk_data *data)
{
    return data->held;
}

const struct wk_split *wk_data_train(const struct wk_data *data)
{
    return &data->train.split;
}

const struct wk_split *wk_data_test(const struct wk_data *data)
{
    return &data->test.split;
}

uint64_t wk_data_numbering(const struct wk_data *data)
{
    return data->numbering;
}

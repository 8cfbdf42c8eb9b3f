// SPDX-License-Identifier: Apache-2.0
//
// Examples in TFRecord files. Where the records lie is found once, when the file is opened; what columns there are, and
// their types and shapes, is what the first record has.
#include "workerd/data/tfrecord.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/data/data_internal.h"
#include "workerd/data/image.h"

struct tfrecord {
    struct wk_source base;
    struct wk_block *block;
    uint64_t *at;      // (examples) of each record's data
    uint64_t *length;  // (examples)
    bool *image;       // of a column: its bytes are an image to be decoded
    enum ps_color color;
    bool resize;  // images to the column's shape
};

// ---- records ------------------------------------------------------------------------------------------------------

static enum ps_code tfrecord_find_records(struct tfrecord *t, struct ps_error *e)
{
    uint8_t header[PS_TFRECORD_HEAD];
    uint64_t capacity = 0, length;
    for (uint64_t at = 0; at < t->block->size; at += PS_TFRECORD_HEAD + length + PS_TFRECORD_TAIL) {
        if (t->block->size - at < PS_TFRECORD_HEAD)
            return ps_fail(e, PS_DATA_LOSS,
                           "%" PRIu64 " bytes are left at byte %" PRIu64 ", expected a record of %d or more",
                           t->block->size - at, at, PS_TFRECORD_HEAD + PS_TFRECORD_TAIL);
        if (wk_block_read(t->block, at, sizeof header, header, e) ||
            wk_record_header(header, at, t->block->size, &length, e))
            return e->code;
        if (t->base.examples == capacity) {
            capacity = capacity ? 2 * capacity : 1024;
            t->at = ps_realloc(t->at, capacity * sizeof *t->at);
            t->length = ps_realloc(t->length, capacity * sizeof *t->length);
        }
        t->at[t->base.examples] = at + PS_TFRECORD_HEAD;
        t->length[t->base.examples++] = length;
    }
    return t->base.examples ? PS_OK : ps_fail(e, PS_DATA_LOSS, "the file is empty, expected records");
}

// A record's data, its CRC checked; in the block, or in *own, which is to be freed.
static enum ps_code tfrecord_load(const struct tfrecord *t, uint64_t example, const uint8_t **bytes, uint8_t **own,
                                  struct ps_error *e)
{
    size_t n = (size_t)t->length[example] + PS_TFRECORD_TAIL;
    *own = NULL;
    *bytes = t->block->bytes ? t->block->bytes + t->at[example] : NULL;
    if (!*bytes) {
        *bytes = *own = wk_array(n, 1, 1, e);
        if (!*own || wk_block_read(t->block, t->at[example], n, *own, e))
            return e->code;
    }
    return wk_record_check(*bytes, t->length[example], e);
}

// ---- one value ----------------------------------------------------------------------------------------------------

static enum ps_code tfrecord_take_bytes(const struct tfrecord *t, size_t column, struct wk_feature *f, void *to,
                                        struct ps_error *e)
{
    const struct wk_column *c = &t->base.column[column];
    struct wk_bytes value, another;
    if (!wk_feature_next_bytes(f, &value) || wk_feature_next_bytes(f, &another))
        return ps_fail(e, PS_INVALID_ARGUMENT, "feature \"%.60s\" is not one string of bytes", c->name);
    if (t->image[column])
        return wk_image_read(value.at, value.n, t->color, c->shape, t->resize, to, e);
    if (value.n != c->count)
        return ps_fail(e, PS_INVALID_ARGUMENT, "feature \"%.60s\" has %zu bytes, expected %zu", c->name, value.n,
                       c->count);
    if (value.n)
        memcpy(to, value.at, value.n);
    return PS_OK;
}

static enum ps_code tfrecord_take_numbers(const struct wk_column *c, struct wk_feature *f, void *to, struct ps_error *e)
{
    const enum wk_feature_kind kind = c->dtype == NN_INT32 ? WK_FEATURE_INT : WK_FEATURE_FLOAT;
    double value;
    size_t n = 0;
    if (f->kind != kind && (f->kind == WK_FEATURE_INT || f->kind == WK_FEATURE_FLOAT))
        return ps_fail(e, PS_INVALID_ARGUMENT, "feature \"%.60s\" has %s, expected %s as in the first record", c->name,
                       f->kind == WK_FEATURE_INT ? "integers" : "floats",
                       kind == WK_FEATURE_INT ? "integers" : "floats");
    for (; wk_feature_next_number(f, &value); n++) {
        if (n >= c->count)
            continue;
        bool fits = c->dtype == NN_INT32 ? value >= INT32_MIN && value <= INT32_MAX : fabs(value) <= FLT_MAX;
        if (!fits)
            return ps_fail(e, PS_INVALID_ARGUMENT, "element %zu of feature \"%.60s\" is %.15g, expected %s", n, c->name,
                           value, c->dtype == NN_INT32 ? "an integer of 32 bits" : "a finite float32");
        if (c->dtype == NN_INT32)
            ((int32_t *)to)[n] = (int32_t)value;
        else
            ((float *)to)[n] = (float)value;
    }
    if (n != c->count)
        return ps_fail(e, PS_INVALID_ARGUMENT, "feature \"%.60s\" has %zu numbers, expected %zu", c->name, n, c->count);
    return PS_OK;
}

static enum ps_code tfrecord_find(struct wk_example x, const char *name, struct wk_feature *f, struct ps_error *e)
{
    size_t n = strlen(name);
    for (bool more;;) {
        if (wk_example_next(&x, f, &more, e))
            return e->code;
        if (!more)
            return ps_fail(e, PS_INVALID_ARGUMENT, "the record has no feature \"%.60s\"", name);
        if (f->name.n == n && memcmp(f->name.at, name, n) == 0)
            return PS_OK;
    }
}

static enum ps_code tfrecord_read(const struct wk_source *s, uint64_t example, size_t column, void *to,
                                  struct ps_error *e)
{
    const struct tfrecord *t = (const struct tfrecord *)s;
    const struct wk_column *c = &s->column[column];
    const uint8_t *bytes;
    uint8_t *own;
    struct wk_feature f;
    enum ps_code code = tfrecord_load(t, example, &bytes, &own, e);
    if (code == PS_OK)
        code = tfrecord_find((struct wk_example){.rest = {bytes, (size_t)t->length[example]}}, c->name, &f, e);
    if (code == PS_OK)
        code = c->dtype == NN_UINT8 ? tfrecord_take_bytes(t, column, &f, to, e) : tfrecord_take_numbers(c, &f, to, e);
    free(own);
    return code;
}

static void tfrecord_where(const struct wk_source *s, uint64_t example, size_t column, char *to, size_t size)
{
    const struct tfrecord *t = (const struct tfrecord *)s;
    (void)column;
    snprintf(to, size, "%s: record %" PRIu64, t->block->path, example);
}

static void tfrecord_free(struct wk_source *s)
{
    struct tfrecord *t = (struct tfrecord *)s;
    wk_block_free(t->block);
    free(t->at);
    free(t->length);
    free(t->image);
    wk_source_fini(s);
    free(t);
}

static const struct wk_source_class tfrecord_class = {
    .read = tfrecord_read, .where = tfrecord_where, .free = tfrecord_free};

// ---- the columns --------------------------------------------------------------------------------------------------

// The shape that the job says, if it has as many elements as the first record; else the number of them. Where it has
// none, nothing can be said of the others: no column.
static enum ps_code tfrecord_add_column(struct tfrecord *t, const char *name, const struct ps_job_column *said,
                                        enum nn_dtype dtype, uint64_t count, struct ps_error *e)
{
    uint64_t product = 1;
    for (size_t i = 0; said && i < said->rank; i++)
        product *= said->shape[i];
    if (said && said->rank && product != count)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "feature \"%.60s\" has %" PRIu64 " elements, expected as many as data.columns says", name,
                       count);
    if (count == 0)
        return PS_OK;
    if (said && said->rank)
        wk_source_add(&t->base, name, dtype, said->shape, said->rank);
    else
        wk_source_add(&t->base, name, dtype, &count, count > 1 || dtype == NN_UINT8);
    return PS_OK;
}

static enum ps_code tfrecord_add_image(struct tfrecord *t, const char *name, struct wk_bytes value,
                                       const struct ps_job_data *spec, struct ps_error *e)
{
    uint64_t shape[3] = {spec->image_size[0], spec->image_size[1], spec->color == PS_COLOR_GRAYSCALE ? 1 : 3};
    if (!shape[0] && wk_image_size(value.at, value.n, shape, e))
        return ps_error_prefix(e, "feature \"%.60s\"", name);
    t->image[t->base.columns] = true;
    wk_source_add(&t->base, name, NN_UINT8, shape, 3);
    return PS_OK;
}

static enum ps_code tfrecord_add_feature(struct tfrecord *t, struct wk_feature f, const struct ps_job_data *spec,
                                         struct ps_error *e)
{
    char *name = wk_text_copy((const char *)f.name.at, f.name.n);
    const struct ps_job_column *said = ps_job_columns_find(&spec->columns, name);
    int type = said ? said->type : PS_COLUMN_ANY;
    enum ps_code code = PS_OK;
    struct wk_bytes value = {NULL, 0};
    double number;
    uint64_t n = 0;
    bool skipped = type == PS_COLUMN_SKIP || f.kind == WK_FEATURE_NONE || !f.name.n;
    if (f.kind == WK_FEATURE_BYTES && !skipped) {
        bool one = wk_feature_next_bytes(&f, &value);
        bool image = type == PS_COLUMN_IMAGE || (type == PS_COLUMN_ANY && one && wk_image_is(value.at, value.n));
        code = image ? tfrecord_add_image(t, name, value, spec, e)
                     : tfrecord_add_column(t, name, said, NN_UINT8, value.n, e);
    } else if (!skipped) {
        enum nn_dtype dtype = f.kind == WK_FEATURE_INT ? NN_INT32 : NN_FLOAT;
        while (wk_feature_next_number(&f, &number))
            n++;
        code = tfrecord_add_column(t, name, said, dtype, n, e);
    }
    free(name);
    return code;
}

static int tfrecord_compare(const void *a, const void *b)
{
    const struct wk_feature *x = a, *y = b;
    size_t n = x->name.n < y->name.n ? x->name.n : y->name.n;
    int order = n ? memcmp(x->name.at, y->name.at, n) : 0;
    return order ? order : (x->name.n > y->name.n) - (x->name.n < y->name.n);
}

// In the order of their names: a map's entries have none of their own.
static enum ps_code tfrecord_find_columns(struct tfrecord *t, const struct ps_job_data *spec, struct ps_error *e)
{
    const uint8_t *bytes;
    uint8_t *own;
    struct wk_feature *feature = NULL;
    size_t n = 0;
    bool more = true;
    enum ps_code code = tfrecord_load(t, 0, &bytes, &own, e);
    struct wk_example x = {.rest = {bytes, (size_t)t->length[0]}};
    while (code == PS_OK && more) {
        feature = ps_realloc(feature, (n + 1) * sizeof *feature);
        code = wk_example_next(&x, &feature[n], &more, e);
        n += more;
    }
    if (code == PS_OK && n > 0)
        qsort(feature, n, sizeof *feature, tfrecord_compare);
    t->image = ps_alloc((n + 1) * sizeof *t->image);
    for (size_t i = 0; i < n && code == PS_OK; i++)
        code = tfrecord_add_feature(t, feature[i], spec, e);
    free(feature);
    free(own);
    if (code == PS_OK && t->base.columns == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "the first record has no feature with elements");
    return code;
}

static enum ps_code tfrecord_open_part(const struct ps_job_data *spec, const char *path, struct wk_part *part,
                                       struct ps_error *e)
{
    struct tfrecord *t = ps_alloc(sizeof *t);
    t->base.class = &tfrecord_class;
    t->color = (enum ps_color)spec->color;
    t->resize = spec->image_size[0] != 0;
    enum ps_code code = wk_block_open(path, &t->block, e);
    if (code == PS_OK && (tfrecord_find_records(t, e) || tfrecord_find_columns(t, spec, e)))
        code = ps_error_prefix(e, "%s", path);
    if (code != PS_OK) {
        tfrecord_free(&t->base);
        return code;
    }
    for (size_t i = 0; i < t->base.columns; i++) {
        const char *name = t->base.column[i].name;
        t->base.column[i].y =
            strcmp(name, "y") == 0 || strcmp(name, "label") == 0 || strcmp(name, "image/class/label") == 0;
    }
    return wk_cache_create(&t->base, &part->source, e);
}

enum ps_code wk_tfrecord_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e)
{
    (void)seed;
    enum ps_code code = tfrecord_open_part(spec, spec->path, &data->train, e);
    if (code == PS_OK && spec->test_path)
        code = tfrecord_open_part(spec, spec->test_path, &data->test, e);
    return code;
}

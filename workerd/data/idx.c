// SPDX-License-Identifier: Apache-2.0
//
// MNIST's four files.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "workerd/data/data_internal.h"

enum { MAGIC = 4, DIMENSION = 4, UNSIGNED_BYTES = 8 };

size_t wk_idx_header_size(size_t rank)
{
    return MAGIC + DIMENSION * rank;
}

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

enum ps_code wk_idx_header(const uint8_t *bytes, size_t size, size_t rank, struct wk_idx *idx, struct ps_error *e)
{
    uint32_t magic = UNSIGNED_BYTES << 8 | (uint32_t)rank;
    *idx = (struct wk_idx){.rank = rank, .header = wk_idx_header_size(rank)};
    if (size >= MAGIC && big_endian(bytes) != magic)
        return ps_fail(e, PS_DATA_LOSS, "the magic number is 0x%08x, expected 0x%08x (unsigned bytes, rank %zu)",
                       big_endian(bytes), magic, rank);
    if (size < idx->header)
        return ps_fail(e, PS_DATA_LOSS, "the file has %zu bytes, expected an IDX header of %zu", size, idx->header);
    for (size_t i = 0; i < rank; i++)
        idx->shape[i] = big_endian(bytes + MAGIC + DIMENSION * i);
    // A float's count: that is what the elements become.
    return ps_shape_count(idx->shape, rank, PS_FLOAT32, &idx->count, e);
}

enum ps_code wk_idx_parse(const uint8_t *bytes, size_t size, size_t rank, struct wk_idx *idx, struct ps_error *e)
{
    char shape[128];
    enum ps_code code = wk_idx_header(bytes, size, rank, idx, e);
    if (code != PS_OK)
        return code;
    ps_shape_text(idx->shape, rank, shape, sizeof shape);
    if (size - idx->header < idx->count)
        return ps_fail(e, PS_DATA_LOSS, "the file ends after %zu bytes, expected %" PRIu64 " for shape %s", size,
                       idx->header + idx->count, shape);
    if (size - idx->header > idx->count)
        return ps_fail(e, PS_DATA_LOSS,
                       "bytes follow the %" PRIu64 " that shape %s takes, expected the end of the file",
                       idx->header + idx->count, shape);
    idx->elements = bytes + idx->header;
    return PS_OK;
}

struct source {
    char *path;
    uint8_t *bytes;
    struct wk_idx idx;
};

static void source_fini(struct source *s)
{
    free(s->path);
    free(s->bytes);
}

// "train-images-idx3-ubyte", or with a dot before idx3, plain or .gz. NULL: none of the four.
static char *find_file(const char *folder, const char *name, size_t rank)
{
    static const char *const spelling[][2] = {{"-", ""}, {"-", ".gz"}, {".", ""}, {".", ".gz"}};
    for (size_t i = 0; i < sizeof spelling / sizeof *spelling; i++) {
        char *path = ps_printf("%s/%s%sidx%zu-ubyte%s", folder, name, spelling[i][0], rank, spelling[i][1]);
        if (access(path, F_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}

// The header first, because its dimensions bound what is read: one byte more than they take shows whether the
// file ends there.
static enum ps_code read_source(const char *folder, const char *name, size_t rank, struct source *s, struct ps_error *e)
{
    size_t size;
    s->path = find_file(folder, name, rank);
    if (!s->path)
        return ps_fail(e, PS_NOT_FOUND, "%s: no file %s-idx%zu-ubyte or %s.idx%zu-ubyte, plain or .gz", folder, name,
                       rank, name, rank);
    enum ps_code code = wk_file_read(s->path, wk_idx_header_size(rank), &s->bytes, &size, e);
    if (code != PS_OK)
        return code;
    code = wk_idx_header(s->bytes, size, rank, &s->idx, e);
    free(s->bytes);
    s->bytes = NULL;
    if (code != PS_OK)
        return ps_error_prefix(e, "%s", s->path);
    code = wk_file_read(s->path, s->idx.header + s->idx.count + 1, &s->bytes, &size, e);
    if (code != PS_OK)
        return code;
    code = wk_idx_parse(s->bytes, size, rank, &s->idx, e);
    return code == PS_OK ? PS_OK : ps_error_prefix(e, "%s", s->path);
}

// The elements move to the front of the file's buffer, which then is the part's.
static void take_images(struct wk_part *part, struct source *s)
{
    struct wk_split *split = &part->split;
    split->examples = s->idx.shape[0];
    split->rank = s->idx.rank - 1;
    memcpy(split->shape, s->idx.shape + 1, split->rank * sizeof *split->shape);
    split->inputs = s->idx.count / split->examples;
    part->bytes = memmove(s->bytes, s->idx.elements, s->idx.count);
    s->bytes = NULL;
}

static enum ps_code take_labels(struct wk_part *part, bool labels, const struct source *images, const struct source *s,
                                struct ps_error *e)
{
    if (s->idx.count != part->split.examples)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s has %" PRIu64 " labels, expected %" PRIu64 ", the images of %s",
                       s->path, s->idx.count, part->split.examples, images->path);
    enum ps_code code = wk_part_alloc_y(part, labels, NULL, 0, e);
    for (uint64_t i = 0; i < s->idx.count && code == PS_OK; i++)
        code = wk_part_put_y(part, i, s->idx.elements[i], e);
    return code;
}

static enum ps_code idx_load_part(const char *folder, const char *images_name, const char *labels_name, bool labels,
                                  struct wk_part *part, struct ps_error *e)
{
    struct source images = {0}, numbers = {0};
    enum ps_code code = read_source(folder, images_name, 3, &images, e);
    if (code == PS_OK)
        code = read_source(folder, labels_name, 1, &numbers, e);
    if (code == PS_OK) {
        take_images(part, &images);
        code = take_labels(part, labels, &images, &numbers, e);
    }
    source_fini(&images);
    source_fini(&numbers);
    return code;
}

enum ps_code wk_idx_open(const struct wk_data_spec *spec, struct wk_data *data, struct ps_error *e)
{
    enum ps_code code = idx_load_part(spec->path, "train-images", "train-labels", spec->labels, &data->train, e);
    if (code == PS_OK)
        code = idx_load_part(spec->path, "t10k-images", "t10k-labels", spec->labels, &data->test, e);
    return code;
}

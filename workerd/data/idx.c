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

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

enum ps_code wk_idx_parse(const uint8_t *bytes, size_t have, uint64_t size, size_t rank, struct wk_idx *idx,
                          struct ps_error *e)
{
    uint32_t magic = UNSIGNED_BYTES << 8 | (uint32_t)rank;
    char shape[128];
    *idx = (struct wk_idx){.rank = rank, .header = MAGIC + DIMENSION * rank};
    if (have >= MAGIC && big_endian(bytes) != magic)
        return ps_fail(e, PS_DATA_LOSS, "the magic number is 0x%08x, expected 0x%08x (unsigned bytes, rank %zu)",
                       big_endian(bytes), magic, rank);
    if (have < idx->header)
        return ps_fail(e, PS_DATA_LOSS, "the file has %" PRIu64 " bytes, expected an IDX header of %zu", size,
                       idx->header);
    for (size_t i = 0; i < rank; i++)
        idx->shape[i] = big_endian(bytes + MAGIC + DIMENSION * i);
    // A float's count: that is what the elements become.
    if (ps_shape_count(idx->shape, rank, PS_FLOAT32, &idx->count, e))
        return e->code;
    ps_shape_text(idx->shape, rank, shape, sizeof shape);
    if (size - idx->header < idx->count)
        return ps_fail(e, PS_DATA_LOSS, "the file ends after %" PRIu64 " bytes, expected %" PRIu64 " for shape %s",
                       size, idx->header + idx->count, shape);
    if (size - idx->header > idx->count)
        return ps_fail(e, PS_DATA_LOSS,
                       "bytes follow the %" PRIu64 " that shape %s takes, expected the end of the file",
                       idx->header + idx->count, shape);
    return PS_OK;
}

// "train-images-idx3-ubyte", or with a dot before idx3, plain or .gz. NULL: none of the four.
static char *idx_find_file(const char *folder, const char *name, size_t rank)
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

static enum ps_code idx_read_header(const struct wk_block *block, size_t rank, struct wk_idx *idx, struct ps_error *e)
{
    uint8_t *own;
    const uint8_t *bytes;
    size_t have;
    enum ps_code code = wk_block_head(block, MAGIC + DIMENSION * PS_MAX_RANK, &bytes, &have, &own, e);
    if (code == PS_OK)
        code = wk_idx_parse(bytes, have, block->size, rank, idx, e);
    free(own);
    return code;
}

// The column of one file: x, of rank 3 with the examples, or y.
static enum ps_code idx_add_file(struct wk_source *s, const char *folder, const char *name, size_t rank,
                                 struct ps_error *e)
{
    struct wk_block *block;
    struct wk_idx idx;
    char *path = idx_find_file(folder, name, rank);
    if (!path)
        return ps_fail(e, PS_NOT_FOUND, "%s: no file %s-idx%zu-ubyte or %s.idx%zu-ubyte, plain or .gz", folder, name,
                       rank, name, rank);
    enum ps_code code = wk_block_open(path, &block, e);
    free(path);
    if (code != PS_OK)
        return code;
    wk_records_own(s, block);
    if (idx_read_header(block, rank, &idx, e))
        return ps_error_prefix(e, "%s", block->path);
    if (s->columns && idx.shape[0] != s->examples)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s has %" PRIu64 " labels, expected %" PRIu64 ", as many as images",
                       block->path, idx.shape[0], s->examples);
    s->examples = idx.shape[0];
    struct wk_field field = {
        .block = block, .offset = idx.header, .stride = idx.count / idx.shape[0], .kind = 'u', .width = 1};
    wk_records_add(s, s->columns ? "y" : "x", field, idx.shape + 1, rank - 1)->y = rank == 1;
    return PS_OK;
}

static enum ps_code idx_open_part(const char *folder, const char *images, const char *labels, struct wk_part *part,
                                  struct ps_error *e)
{
    part->source = wk_records_create(0);
    if (idx_add_file(part->source, folder, images, 3, e))
        return e->code;
    return idx_add_file(part->source, folder, labels, 1, e);
}

enum ps_code wk_idx_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e)
{
    (void)seed;
    if (idx_open_part(spec->path, "train-images", "train-labels", &data->train, e))
        return e->code;
    return idx_open_part(spec->path, "t10k-images", "t10k-labels", &data->test, e);
}

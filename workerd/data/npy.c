// SPDX-License-Identifier: Apache-2.0
//
// Examples in NumPy's files: npy, one array each, and npz, zip archives of them.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/file/zip.h"
#include "workerd/data/data_internal.h"

enum { HEAD = 1 << 15, PREAMBLE = 12 };

enum ps_code wk_npy_parse(const uint8_t *bytes, size_t have, uint64_t size, struct ps_npy *npy, struct ps_error *e)
{
    // ps_npy_parse looks at the header alone, whose length stands in the preamble.
    if (have < size && have >= PREAMBLE) {
        size_t width = bytes[6] == 1 ? 2 : 4, length = 0;
        for (size_t i = 0; i < width; i++)
            length |= (size_t)bytes[8 + i] << (8 * i);
        if (length + 8 + width > have)
            return ps_fail(e, PS_DATA_LOSS, "its header has %zu bytes, expected at most %zu", length, have);
    }
    if (ps_npy_parse(bytes, have < PREAMBLE ? have : size, npy, e))
        return e->code;
    if (npy->kind == 'b')
        npy->kind = 'u';
    bool number = npy->kind == 'u' || npy->kind == 'i' || (npy->kind == 'f' && npy->width > 2);
    if (!number)
        return ps_fail(e, PS_DATA_LOSS, "its elements are of type %c%zu, expected integers, bool, float32 or float64",
                       npy->kind, npy->width);
    return PS_OK;
}

// The array's head; *elements: where in the block its elements begin.
static enum ps_code npy_read_head(const struct wk_block *block, uint64_t offset, uint64_t size, struct ps_npy *npy,
                                  uint64_t *elements, struct ps_error *e)
{
    uint8_t head[HEAD];
    size_t have = size < HEAD ? (size_t)size : HEAD;
    if (wk_block_read(block, offset, have, head, e) || wk_npy_parse(head, have, size, npy, e))
        return e->code;
    *elements = offset + (uint64_t)(npy->elements - head);
    npy->elements = NULL;
    return PS_OK;
}

enum ps_code wk_npy_add(struct wk_source *s, const char *name, struct wk_block *block, uint64_t offset, uint64_t size,
                        struct ps_error *e)
{
    struct ps_npy npy;
    uint64_t elements;
    if (npy_read_head(block, offset, size, &npy, &elements, e))
        return e->code;
    if (npy.rank < 1)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s is a single number, expected a row for each example", name);
    if (s->columns && npy.shape[0] != s->examples)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s has %" PRIu64 " rows, expected %" PRIu64 " as %s has", name,
                       npy.shape[0], s->examples, s->column[0].name);
    s->examples = npy.shape[0];
    uint64_t stride = npy.count / npy.shape[0] * npy.width;
    struct wk_field field = {
        .block = block, .offset = elements, .stride = stride, .kind = npy.kind, .width = npy.width};
    wk_records_add(s, name, field, npy.shape + 1, npy.rank - 1);
    return PS_OK;
}

static enum ps_code npy_add_file(struct wk_source *s, const char *name, const char *path, struct ps_error *e)
{
    struct wk_block *block;
    if (wk_block_open(path, &block, e))
        return e->code;
    wk_records_own(s, block);
    if (wk_npy_add(s, name, block, 0, block->size, e))
        return ps_error_prefix(e, "%s", path);
    return PS_OK;
}

static enum ps_code npy_open_part(const char *x, const char *y, struct wk_part *part, struct ps_error *e)
{
    part->source = wk_records_create(0);
    if (npy_add_file(part->source, "x", x, e) || npy_add_file(part->source, "y", y, e))
        return e->code;
    part->source->column[1].y = true;
    return PS_OK;
}

enum ps_code wk_npy_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e)
{
    (void)seed;
    enum ps_code code = npy_open_part(spec->x, spec->y, &data->train, e);
    if (code == PS_OK && spec->x_test)
        code = npy_open_part(spec->x_test, spec->y_test, &data->test, e);
    return code;
}

// ---- npz ----------------------------------------------------------------------------------------------------------

// "x_train.npy" with the suffix "_train" is the column x; false: it is not of this split.
static bool npz_column_name(const char *member, const char *suffix, char *name, size_t size)
{
    size_t n = strlen(member), tail = strlen(suffix);
    if (n < 4 || strcmp(member + n - 4, ".npy") != 0)
        return false;
    n -= 4;
    if (n <= tail || n - tail >= size || strncmp(member + n - tail, suffix, tail) != 0)
        return false;
    memcpy(name, member, n - tail);
    name[n - tail] = '\0';
    return true;
}

static enum ps_code npz_read(const void *archive, uint64_t at, size_t n, void *to, struct ps_error *e)
{
    return wk_block_read(archive, at, n, to, e);
}

// An array that is stored as it is lies in the archive; any other in memory of its own.
static enum ps_code npz_add_entry(struct wk_source *s, struct wk_block *archive, const struct ps_zip_entry *entry,
                                  const char *name, struct ps_error *e)
{
    if (!entry->deflated && ps_zip_verify(entry, e))
        return e->code;
    if (!entry->deflated)
        return wk_npy_add(s, name, archive, entry->begin, entry->size, e);
    uint8_t *bytes = wk_array(entry->size, 1, 1, e);
    if (!bytes)
        return PS_RESOURCE_EXHAUSTED;
    if (ps_zip_unpack(entry, bytes, e)) {
        free(bytes);
        return e->code;
    }
    struct wk_block *block = wk_block_of(archive->path, bytes, entry->size);
    wk_records_own(s, block);
    return wk_npy_add(s, name, block, 0, entry->size, e);
}

static bool npz_has(const struct ps_zip *zip, const char *suffix)
{
    char name[256];
    for (size_t i = 0; i < zip->n; i++)
        if (npz_column_name(zip->entry[i].name, suffix, name, sizeof name))
            return true;
    return false;
}

static enum ps_code npz_add_entries(struct wk_source *s, struct wk_block *archive, const struct ps_zip *zip,
                                    const char *suffix, struct ps_error *e)
{
    char name[256];
    for (size_t i = 0; i < zip->n; i++) {
        const struct ps_zip_entry *entry = &zip->entry[i];
        if (!npz_column_name(entry->name, suffix, name, sizeof name))
            continue;
        if (wk_source_find(s, name) >= 0)
            return ps_fail(e, PS_INVALID_ARGUMENT, "%s: there are two of it", entry->name);
        if (npz_add_entry(s, archive, entry, name, e))
            return ps_error_prefix(e, "%s", entry->name);
        s->column[s->columns - 1].y = strcmp(name, "y") == 0;
    }
    return s->columns ? PS_OK : ps_fail(e, PS_INVALID_ARGUMENT, "no member is an .npy, expected a file of numpy.savez");
}

// Of an archive whose arrays are of splits, those that are of none: x_val.
static void npz_warn(const char *path, const struct ps_zip *zip)
{
    char name[256], more[40] = "";
    const char *first = NULL;
    size_t others = 0;
    for (size_t i = 0; i < zip->n; i++) {
        const char *member = zip->entry[i].name;
        if (!npz_column_name(member, "_train", name, sizeof name) &&
            !npz_column_name(member, "_test", name, sizeof name))
            first = others++ ? first : member;
    }
    if (others > 1)
        snprintf(more, sizeof more, ", and %zu more like it", others - 1);
    if (first)
        ps_warn("%s: %.60s is passed over%s: expected arrays whose names end in _train or _test", path, first, more);
}

// The arrays of one split. With both in one file their names end in _train and _test; none: there is no source.
static enum ps_code npz_open_part(const char *path, const char *suffix, struct wk_part *part, struct ps_error *e)
{
    struct wk_block *archive;
    struct ps_zip *zip = NULL;
    if (wk_block_open(path, &archive, e))
        return e->code;
    enum ps_code code = ps_zip_read(&(struct ps_zip_source){npz_read, archive, archive->size}, &zip, e);
    if (code != PS_OK)
        ps_error_prefix(e, "%s", path);
    if (code == PS_OK && (!*suffix || npz_has(zip, suffix))) {
        if (strcmp(suffix, "_train") == 0)
            npz_warn(path, zip);
        part->source = wk_records_create(0);
        wk_records_own(part->source, archive);
        code = npz_add_entries(part->source, archive, zip, suffix, e);
        if (code != PS_OK)
            ps_error_prefix(e, "%s", path);
    } else {
        wk_block_free(archive);
    }
    ps_zip_free(zip);
    return code;
}

enum ps_code wk_npz_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e)
{
    (void)seed;
    if (npz_open_part(spec->path, "_train", &data->train, e))
        return e->code;
    bool paired = data->train.source != NULL;
    if (!paired && npz_open_part(spec->path, "", &data->train, e))
        return e->code;
    if (paired && !spec->test_path)
        return npz_open_part(spec->path, "_test", &data->test, e);
    if (!spec->test_path)
        return PS_OK;
    if (npz_open_part(spec->test_path, "_test", &data->test, e) ||
        (!data->test.source && npz_open_part(spec->test_path, "", &data->test, e)))
        return e->code;
    return PS_OK;
}

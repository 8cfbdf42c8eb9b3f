// SPDX-License-Identifier: Apache-2.0
//
// CIFAR's binary files: https://www.cs.toronto.edu/~kriz/cifar.html. CIFAR-10: records of a label and an image in
// data_batch_1.bin to 5 and test_batch.bin. CIFAR-100: of a label of 20, one of 100 and an image in train.bin and
// test.bin. An image is 32 rows of 32 bytes of red, then green, then blue.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "workerd/data/data_internal.h"

enum { SIDE = 32, CHANNELS = 3, IMAGE = SIDE * SIDE * CHANNELS, MOST_FILES = 5 };

enum ps_code wk_cifar_parse(uint64_t size, int classes, uint64_t *examples, struct ps_error *e)
{
    uint64_t record = IMAGE + (classes == 10 ? 1 : 2);
    *examples = size / record;
    if (size == 0 || size % record)
        return ps_fail(e, PS_DATA_LOSS,
                       "the file has %" PRIu64 " bytes, expected records of %" PRIu64 " as CIFAR-%d has", size, record,
                       classes == 10 ? 10 : 100);
    return PS_OK;
}

static enum ps_code cifar_open_file(const char *path, int classes, struct wk_source **out, struct ps_error *e)
{
    struct wk_block *block;
    uint64_t examples;
    size_t labels = classes == 10 ? 1 : 2;
    if (wk_block_open(path, &block, e))
        return e->code;
    if (wk_cifar_parse(block->size, classes, &examples, e)) {
        wk_block_free(block);
        return ps_error_prefix(e, "%s", path);
    }
    struct wk_source *s = *out = wk_records_create(examples);
    wk_records_own(s, block);
    struct wk_field x = {
        .block = block, .offset = labels, .stride = labels + IMAGE, .kind = 'u', .width = 1, .planes = CHANNELS};
    struct wk_field y = {.block = block, .offset = classes == 100, .stride = x.stride, .kind = 'u', .width = 1};
    wk_records_add(s, "x", x, (uint64_t[]){SIDE, SIDE, CHANNELS}, 3);
    wk_records_add(s, "y", y, NULL, 0)->y = true;
    return PS_OK;
}

// In the folder, or in that which the archive makes in it.
static char *cifar_find_file(const char *folder, const char *inner, const char *name)
{
    char *path = ps_printf("%s/%s", folder, name);
    if (access(path, F_OK) == 0)
        return path;
    char *deeper = ps_printf("%s/%s/%s", folder, inner, name);
    if (access(deeper, F_OK) != 0) {
        free(deeper);
        return path;  // which its opening says is missing
    }
    free(path);
    return deeper;
}

static enum ps_code cifar_open_part(const char *folder, int classes, const char *const *name, size_t n,
                                    struct wk_part *part, struct ps_error *e)
{
    struct wk_source *file[MOST_FILES] = {NULL};
    enum ps_code code = PS_OK;
    for (size_t i = 0; i < n && code == PS_OK; i++) {
        char *path = cifar_find_file(folder, classes == 10 ? "cifar-10-batches-bin" : "cifar-100-binary", name[i]);
        code = cifar_open_file(path, classes, &file[i], e);
        free(path);
    }
    if (code == PS_OK && n == 1) {
        part->source = file[0];
        return PS_OK;
    }
    if (code == PS_OK)
        return wk_concat_create(file, n, &part->source, e);
    for (size_t i = 0; i < n; i++)
        wk_source_free(file[i]);
    return code;
}

enum ps_code wk_cifar_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e)
{
    static const char *const ten[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                                      "data_batch_5.bin"};
    static const char *const hundred[] = {"train.bin"}, *const ten_test[] = {"test_batch.bin"},
                             *const hundred_test[] = {"test.bin"};
    bool is_ten = spec->classes == 10;
    (void)seed;
    if (cifar_open_part(spec->path, spec->classes, is_ten ? ten : hundred, is_ten ? 5 : 1, &data->train, e))
        return e->code;
    return cifar_open_part(spec->path, spec->classes, is_ten ? ten_test : hundred_test, 1, &data->test, e);
}

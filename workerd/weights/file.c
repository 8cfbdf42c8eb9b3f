// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/text.h"
#include "common/file/output.h"
#include "common/file/zip.h"
#include "workerd/weights/hdf5_file.h"
#include "workerd/weights/weights.h"

static const char weights_entry[] = "model.weights.h5";  // of a .keras file

enum kind { KIND_SAFETENSORS, KIND_HDF5, KIND_KERAS };

// ---- reading ------------------------------------------------------------------------------------------------------

// By its first bytes. A file that cannot be read is safetensors', whose reader says why.
static enum kind file_kind(const char *path)
{
    char mark[8] = "";
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(mark, 1, sizeof mark, f) : 0;
    if (f)
        fclose(f);
    if (n == sizeof mark && memcmp(mark, "\x89HDF\r\n\x1a\n", sizeof mark) == 0)
        return KIND_HDF5;
    return n >= 4 && memcmp(mark, "PK\3\4", 4) == 0 ? KIND_KERAS : KIND_SAFETENSORS;
}

static enum ps_code file_read_hdf5(const char *path, struct ps_safetensors **file, struct ps_error *e)
{
    struct stat st = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *bytes = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &st) == 0)
        bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (bytes == MAP_FAILED)
        return ps_fail(e, PS_UNAVAILABLE, "%s", strerror(error));
    enum ps_code code = wk_hdf5_read(bytes, (size_t)st.st_size, file, e);
    munmap(bytes, (size_t)st.st_size);
    return code;
}

static enum ps_code file_read_entry(const struct ps_zip *zip, struct ps_safetensors **file, struct ps_error *e)
{
    const struct ps_zip_entry *entry = ps_zip_find(zip, weights_entry);
    if (!entry)
        return ps_fail(e, PS_INVALID_ARGUMENT, "expected a file that model.save() of Keras 3 writes: it has no %s",
                       weights_entry);
    uint8_t *bytes = ps_try_alloc_array(entry->size, 1);
    if (!bytes)
        return ps_no_memory(e, weights_entry);
    enum ps_code code = ps_zip_unpack(entry, bytes, e);
    if (code == PS_OK)
        code = wk_hdf5_read(bytes, entry->size, file, e);
    free(bytes);
    return code;
}

enum ps_code wk_weights_read(const char *path, struct ps_safetensors **file, struct ps_error *e)
{
    struct ps_zip *zip;
    enum kind kind = file_kind(path);
    if (kind == KIND_SAFETENSORS)
        return ps_safetensors_read(path, file, e);
    if (wk_hdf5_check(e) || (kind == KIND_HDF5 && file_read_hdf5(path, file, e)))
        return ps_error_prefix(e, "%.200s", path);
    if (kind == KIND_HDF5)
        return PS_OK;
    if (ps_zip_open(path, &zip, e))
        return e->code;
    enum ps_code code = file_read_entry(zip, file, e);
    ps_zip_free(zip);
    return code ? ps_error_prefix(e, "%.200s", path) : PS_OK;
}

// ---- writing ------------------------------------------------------------------------------------------------------

static enum kind file_kind_of_name(const char *path)
{
    return ps_ends_with(path, ".keras") ? KIND_KERAS : ps_ends_with(path, ".weights.h5") ? KIND_HDF5 : KIND_SAFETENSORS;
}

enum ps_code wk_weights_check_output(const char *path, struct ps_error *e)
{
    return file_kind_of_name(path) != KIND_SAFETENSORS && wk_hdf5_check(e) ? ps_error_prefix(e, "output %.200s", path)
                                                                           : PS_OK;
}

// The model's tensors, by their own names or by those that Keras saves them under; then, of these, what it
// saves besides: whole numbers of 0 are without data.
static struct ps_safetensor *file_tensors(const struct nn_model *model, const float *const *value,
                                          const struct nn_saved *saved, size_t *all)
{
    size_t n = nn_model_params(model);
    for (*all = n; saved && saved[*all].path;)
        ++*all;
    struct ps_safetensor *tensors = ps_alloc((*all + 1) * sizeof *tensors);
    for (size_t i = 0; i < n; i++) {
        const struct nn_param *p = nn_model_param(model, i);
        tensors[i] =
            (struct ps_safetensor){.name = saved ? saved[i].path : p->name, .rank = p->rank, .count = p->count};
        memcpy(tensors[i].shape, p->shape, sizeof p->shape);
        tensors[i].data = value[i];
    }
    for (size_t i = n; i < *all; i++)
        tensors[i] = (struct ps_safetensor){.name = saved[i].path,
                                            .rank = saved[i].value != NULL,
                                            .shape = {saved[i].count},
                                            .count = saved[i].count,
                                            .data = saved[i].value};
    return tensors;
}

static enum ps_code file_make_hdf5(const struct nn_model *model, const float *const *value, uint8_t **bytes,
                                   size_t *size, struct ps_error *e)
{
    struct nn_saved *saved = nn_model_saved(model);
    size_t n;
    struct ps_safetensor *tensors = file_tensors(model, value, saved, &n);
    enum ps_code code = wk_hdf5_write(tensors, n, bytes, size, e);
    free(tensors);
    nn_model_free_saved(saved);
    return code;
}

// What Keras 2 and Keras 3 take for their own.
static const char *file_metadata(const struct nn_model *model)
{
    const char *own = nn_model_metadata(model);
    return own ? own : nn_model_is_keras2(model) ? "{\"keras_version\": \"2.15.0\"}" : "{\"keras_version\": \"3.0.0\"}";
}

// As Keras 3 opens it: a document that a person has written need not say whose its class is, but Keras looks for that
// in the model itself, though not in its layers. Malloc'd.
static char *file_config(const struct nn_model *model)
{
    const char *document = nn_model_document(model), *rest = strchr(document, '{');
    json_t *json = json_loads(document, 0, NULL);
    const bool says = !json || json_object_get(json, "module") || nn_model_is_keras2(model);
    const char *class = json_string_value(json_object_get(json, "class_name"));
    const char *module = class && strcmp(class, "Sequential") == 0 ? "keras" : "keras.src.models.functional";
    char *config = says || !rest ? ps_strdup(document)
                                 : ps_printf("{\"module\": \"%s\", \"registered_name\": null, %s", module, rest + 1);
    json_decref(json);
    return config;
}

static enum ps_code file_put_archive(FILE *to, const struct nn_model *model, const uint8_t *bytes, size_t size,
                                     struct ps_error *e)
{
    const char *metadata = file_metadata(model);
    char *config = file_config(model);
    struct ps_zip_writer w;
    struct ps_error end;
    ps_zip_begin(&w, to);
    enum ps_code code = ps_zip_add(&w, "metadata.json", metadata, strlen(metadata), e);
    if (code == PS_OK)
        code = ps_zip_add(&w, "config.json", config, strlen(config), e);
    free(config);
    if (code == PS_OK)
        code = ps_zip_add(&w, weights_entry, bytes, size, e);
    return ps_zip_end(&w, code ? &end : e) && !code ? e->code : code;
}

static enum ps_code file_write_keras(const char *path, const struct nn_model *model, const float *const *value,
                                     bool archive, struct ps_error *e)
{
    struct ps_output o;
    uint8_t *bytes = NULL;
    size_t size = 0;
    enum ps_code code = file_make_hdf5(model, value, &bytes, &size, e);
    if (code)
        return ps_error_prefix(e, "%.200s", path);
    code = ps_output_open(&o, path, e);
    if (code == PS_OK && archive && file_put_archive(o.file, model, bytes, size, e))
        code = ps_error_prefix(e, "%.200s", path);
    if (code == PS_OK && !archive)
        fwrite(bytes, 1, size, o.file);
    if (code == PS_OK)
        code = ps_output_commit(&o, e);
    else if (o.file)
        ps_output_abort(&o);
    free(bytes);
    return code;
}

enum ps_code wk_weights_write(const char *path, const struct nn_model *model, const float *const *value,
                              struct ps_error *e)
{
    enum kind kind = file_kind_of_name(path);
    if (kind != KIND_SAFETENSORS)
        return file_write_keras(path, model, value, kind == KIND_KERAS, e);
    size_t n;
    struct ps_safetensor *tensors = file_tensors(model, value, NULL, &n);
    enum ps_code code = ps_safetensors_write(path, tensors, n, e);
    free(tensors);
    return code;
}

// SPDX-License-Identifier: Apache-2.0
//
// A model from a file: JSON, or a .keras file, which is a zip file of
//
//     config.json        what model.to_json() gives, and how the model was compiled
//     metadata.json      Keras's version, the date
//     model.weights.h5   (workerd/weights)
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "common/file/zip.h"
#include "workerd/nn/graph.h"

enum { MAX_TEXT = 64 << 20 };  // bytes

// ---- a .keras file ------------------------------------------------------------------------------------------------

// malloc'd, with a NUL behind it. NULL: e says why.
static char *load_entry(const struct ps_zip *zip, const char *name, size_t *length, struct ps_error *e)
{
    const struct ps_zip_entry *entry = ps_zip_find(zip, name);
    if (!entry || entry->size > MAX_TEXT) {
        ps_fail(e, PS_INVALID_ARGUMENT, "expected a file that model.save() of Keras 3 writes: its %s %s", name,
                entry ? "is too large" : "is missing");
        return NULL;
    }
    char *text = ps_try_alloc(entry->size + 1);
    if (!text)
        ps_no_memory(e, name);
    if (!text || ps_zip_unpack(entry, (uint8_t *)text, e)) {
        free(text);
        return NULL;
    }
    *length = entry->size;
    return text;
}

static enum ps_code load_archive(const struct ps_zip *zip, const char *path, struct nn_model **model,
                                 struct ps_error *e)
{
    size_t length = 0, ignored;
    char *config = load_entry(zip, "config.json", &length, e);
    char *metadata = config ? load_entry(zip, "metadata.json", &ignored, e) : NULL;
    enum ps_code code =
        metadata ? nn_model_read(config, length, metadata, path, model, e) : ps_error_prefix(e, "%.200s", path);
    free(config);
    free(metadata);
    return code;
}

static enum ps_code load_zip(const char *path, struct nn_model **model, struct ps_error *e)
{
    struct ps_zip *zip;
    if (ps_zip_open(path, &zip, e))
        return e->code;
    enum ps_code code = load_archive(zip, path, model, e);
    ps_zip_free(zip);
    return code;
}

// ---- JSON ---------------------------------------------------------------------------------------------------------

static enum ps_code load_text(FILE *f, size_t size, const char *path, struct nn_model **model, struct ps_error *e)
{
    char *text = ps_try_alloc(size + 1);
    if (!text)
        return ps_no_memory(e, path);
    size_t got = fread(text, 1, size, f);
    const size_t mark = got >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;  // a byte-order mark
    enum ps_code code = ferror(f) ? ps_fail(e, PS_UNAVAILABLE, "%s: reading: %s", path, strerror(errno))
                                  : nn_model_read(text + mark, got - mark, NULL, path, model, e);
    free(text);
    return code;
}

// ---- either -------------------------------------------------------------------------------------------------------

static enum ps_code load_check(FILE *f, const char *path, struct stat *st, struct ps_error *e)
{
    if (fstat(fileno(f), st) == 0 && (S_ISDIR(st->st_mode) || (S_ISREG(st->st_mode) && st->st_size == 0)))
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s is %s; expected a file with model.to_json()", path,
                       S_ISDIR(st->st_mode) ? "a folder" : "empty");
    if (!S_ISREG(st->st_mode))
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: expected a file of at most %d bytes", path, MAX_TEXT);
    return PS_OK;
}

static enum ps_code load_file(FILE *f, const char *path, struct nn_model **model, struct ps_error *e)
{
    struct stat st;
    char mark[8] = "";
    if (load_check(f, path, &st, e))
        return e->code;
    size_t n = fread(mark, 1, sizeof mark, f);
    rewind(f);
    if (n >= 4 && memcmp(mark, "PK\3\4", 4) == 0)
        return load_zip(path, model, e);
    if (n == sizeof mark && memcmp(mark, "\x89HDF\r\n\x1a\n", sizeof mark) == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "%s is an HDF5 file, Keras's old format: save the model as a .keras file, or model.to_json()",
                       path);
    if (st.st_size > MAX_TEXT)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: expected a file of at most %d bytes", path, MAX_TEXT);
    return load_text(f, (size_t)st.st_size, path, model, e);
}

enum ps_code nn_model_load(const char *path, struct nn_model **model, struct ps_error *e)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return ps_fail(e, PS_NOT_FOUND, "%s: %s", path, strerror(errno));
    enum ps_code code = load_file(f, path, model, e);
    fclose(f);
    return code;
}

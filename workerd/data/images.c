// SPDX-License-Identifier: Apache-2.0
//
// Folders of images: one folder per class, numbered in the order of their names, as Keras does it. The examples are in
// the order of classes and names, but where a part of them becomes test data. An image is decoded when it is first
// needed.
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "workerd/data/data_internal.h"
#include "workerd/data/image.h"

enum { MOST_BYTES = 1 << 28 };  // of a file

struct images {
    struct wk_source base;
    char **path;     // (examples)
    int32_t *label;  // (examples)
    uint64_t capacity;
    enum ps_color color;
    bool resize;
    uint64_t others;  // files and folders in those of the classes that are no images
    char *other;      // the first; NULL: there is none
    char *empty;      // the first folder of a class without an image; NULL: there is none
};

// ---- names --------------------------------------------------------------------------------------------------------

static int images_is_shown(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

// By bytes, whatever the locale.
static int images_compare(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool images_has_suffix(const char *name)
{
    static const char *const known[] = {".png", ".jpg", ".jpeg"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof known / sizeof *known; i++)
        if (strcasecmp(dot, known[i]) == 0)
            return true;
    return false;
}

// A folder's entries in order, malloc'd names; n = -1: it is none.
static int images_list(const char *folder, char ***name)
{
    struct dirent **entry;
    int n = scandir(folder, &entry, images_is_shown, images_compare);
    *name = n > 0 ? ps_alloc((size_t)n * sizeof **name) : NULL;
    for (int i = 0; i < n; i++) {
        (*name)[i] = ps_strdup(entry[i]->d_name);
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
    return n;
}

static void images_free_list(char **name, int n)
{
    for (int i = 0; i < n; i++)
        free(name[i]);
    free(name);
}

static void images_add(struct images *s, char *path, int32_t label)
{
    if (s->base.examples == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 1024;
        s->path = ps_realloc(s->path, s->capacity * sizeof *s->path);
        s->label = ps_realloc(s->label, s->capacity * sizeof *s->label);
    }
    s->path[s->base.examples] = path;
    s->label[s->base.examples++] = label;
}

// An image, or what is none and not looked at.
static void images_take(struct images *s, char *path, int32_t label)
{
    if (images_has_suffix(path)) {
        images_add(s, path, label);
        return;
    }
    if (s->others++)
        free(path);
    else
        s->other = path;
}

// One class, if path is a folder. A file is none, nor is a link to nothing.
static enum ps_code images_add_class(struct images *s, const char *path, const char *class,
                                     struct wk_vocabulary *classes, struct ps_error *e)
{
    const uint64_t before = s->base.examples;
    char **name;
    int n = images_list(path, &name);
    if (n < 0)
        return errno == ENOTDIR || errno == ENOENT ? PS_OK : ps_fail(e, ps_code_of_file(errno), "%s: %m", path);
    int32_t label = wk_vocabulary_find(classes, class, strlen(class));
    for (int i = 0; i < n && label >= 0; i++)
        images_take(s, ps_printf("%s/%s", path, name[i]), label);
    images_free_list(name, n);
    if (s->base.examples == before && !classes->fixed && !s->empty)
        s->empty = ps_strdup(path);
    return label >= 0 ? PS_OK
                      : ps_fail(e, PS_INVALID_ARGUMENT, "%s: the training data have no folder of that name", path);
}

// The classes are the folder's folders; those that the training data had, in the test data.
static enum ps_code images_find(struct images *s, const char *folder, struct wk_vocabulary *classes, struct ps_error *e)
{
    char **name;
    int n = images_list(folder, &name);
    enum ps_code code = PS_OK;
    bool outside = false;
    if (n < 0)
        return ps_fail(e, ps_code_of_file(errno), "%s: %m", folder);
    for (int i = 0; i < n && code == PS_OK; i++) {
        outside |= images_has_suffix(name[i]);
        char *path = ps_printf("%s/%s", folder, name[i]);
        code = images_add_class(s, path, name[i], classes, e);
        free(path);
    }
    images_free_list(name, n);
    if (code == PS_OK && s->base.examples == 0)
        return ps_fail(e, PS_NOT_FOUND, "%s: %s, expected a folder of them for each class", folder,
                       outside ? "its images lie in no folder of a class" : "no .png, .jpg or .jpeg file");
    return code;
}

static void images_warn(const struct images *s)
{
    char more[40] = "";
    if (s->others > 1)
        snprintf(more, sizeof more, ", and %" PRIu64 " more like it", s->others - 1);
    if (s->others)
        ps_warn("%s is passed over%s: expected .png, .jpg and .jpeg files in the folder of a class", s->other, more);
    if (s->empty)
        ps_warn("%s has no .png, .jpg or .jpeg file: it counts as a class, which no example is of", s->empty);
}

// As Keras does before it splits them: what data.validation_split takes away from the end is of all classes. It is the
// same for every worker, and of a key from which no epoch draws.
static void images_mix(struct images *s, uint64_t seed)
{
    const uint64_t n = s->base.examples;
    char **path = ps_alloc(n * sizeof *path);
    int32_t *label = ps_alloc(n * sizeof *label);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t from = wk_shuffle(seed, UINT64_MAX, n, i);
        path[i] = s->path[from];
        label[i] = s->label[from];
    }
    free(s->path);
    free(s->label);
    s->path = path;
    s->label = label;
}

// ---- the source ---------------------------------------------------------------------------------------------------

static enum ps_code images_read(const struct wk_source *base, uint64_t example, size_t column, void *to,
                                struct ps_error *e)
{
    const struct images *s = (const struct images *)base;
    uint8_t *bytes;
    size_t size;
    if (column == 1) {
        *(int32_t *)to = s->label[example];
        return PS_OK;
    }
    if (wk_file_read_bytes(s->path[example], MOST_BYTES, &bytes, &size, e))
        return e->code;
    enum ps_code code = wk_image_read(bytes, size, s->color, base->column[0].shape, s->resize, to, e);
    free(bytes);
    return code;
}

static void images_where(const struct wk_source *base, uint64_t example, size_t column, char *to, size_t size)
{
    (void)column;
    snprintf(to, size, "%s", ((const struct images *)base)->path[example]);
}

static void images_free(struct wk_source *base)
{
    struct images *s = (struct images *)base;
    for (uint64_t i = 0; i < base->examples; i++)
        free(s->path[i]);
    free(s->path);
    free(s->label);
    free(s->other);
    free(s->empty);
    wk_source_fini(base);
    free(s);
}

static const struct wk_source_class images_class = {.read = images_read, .where = images_where, .free = images_free};

static enum ps_code images_add_columns(struct images *s, const struct ps_job_data *spec, int32_t classes,
                                       struct ps_error *e)
{
    uint64_t shape[3] = {spec->image_size[0], spec->image_size[1], spec->color == PS_COLOR_GRAYSCALE ? 1 : 3};
    if (!shape[0]) {
        uint8_t *bytes;
        size_t size;
        if (wk_file_read(s->path[0], MOST_BYTES, &bytes, &size, e))
            return e->code;
        enum ps_code code = wk_image_size(bytes, size, shape, e);
        free(bytes);
        if (code != PS_OK)
            return ps_error_prefix(e, "%s", s->path[0]);
    }
    wk_source_add(&s->base, "x", NN_UINT8, shape, 3);
    struct wk_column *y = wk_source_add(&s->base, "y", NN_INT32, NULL, 0);
    y->y = true;
    y->classes = classes;
    return PS_OK;
}

// mixes: their order is drawn from the seed.
static enum ps_code images_open_part(const struct ps_job_data *spec, const char *folder, struct wk_vocabulary *classes,
                                     bool mixes, uint64_t seed, struct wk_part *part, struct ps_error *e)
{
    struct images *s = ps_alloc(sizeof *s);
    s->base.class = &images_class;
    s->color = (enum ps_color)spec->color;
    s->resize = spec->image_size[0] != 0;
    if (images_find(s, folder, classes, e) || images_add_columns(s, spec, (int32_t)classes->n, e)) {
        images_free(&s->base);
        return e->code;
    }
    images_warn(s);
    if (mixes)
        images_mix(s, seed);
    return wk_cache_create(&s->base, &part->source, e);
}

enum ps_code wk_images_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e)
{
    struct wk_vocabulary classes = {0};
    enum ps_code code = images_open_part(spec, spec->path, &classes, spec->validation_split > 0, seed, &data->train, e);
    classes.fixed = true;
    data->numbering = wk_vocabulary_hash(PS_HASH_SEED, &classes);
    if (code == PS_OK && spec->test_path)
        code = images_open_part(spec, spec->test_path, &classes, false, seed, &data->test, e);
    wk_vocabulary_fini(&classes);
    return code;
}

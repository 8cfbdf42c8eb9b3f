// SPDX-License-Identifier: Apache-2.0
//
// Where examples come from. A source is immutable once opened; any thread reads any example of it at any time.
#ifndef WK_SOURCE_H
#define WK_SOURCE_H

#include "common/base/error.h"
#include "common/base/limits.h"
#include "workerd/nn/tensor.h"

struct nn_words;

struct wk_column {
    char *name;
    enum nn_dtype dtype;  // of what is read: NN_UINT8, NN_INT32, or NN_FLOAT, finite
    uint64_t shape[PS_MAX_RANK];
    size_t rank;
    size_t count;                  // elements of one example
    bool y;                        // a target, where the job does not say what it is
    size_t place;                  // of the file's columns, from 1; 0: not known
    int32_t classes;               // its values are below it, as is known without reading them; 0: not known
    bool wide;                     // integers that may be none of 32 bits: bind.c makes dtype NN_FLOAT where it can
    bool doubles;                  // floats of 64 bits: bind.c makes dtype NN_INT32 where something takes integers
    uint64_t rounded;              // where integers were: 1 + an example with what is none; else 0
    const struct nn_words *words;  // of which it has the numbers (workerd/nn/model.h); NULL: it has none
};

struct wk_source;
struct wk_source_class {
    // One example's value of a column; to has room for its count elements.
    enum ps_code (*read)(const struct wk_source *s, uint64_t example, size_t column, void *to, struct ps_error *e);
    // Where an example's value of a column stands, for errors: "train.csv: line 7, field 2 (age)".
    void (*where)(const struct wk_source *s, uint64_t example, size_t column, char *to, size_t size);
    // One more column, without a name, of the elements of n columns side by side, if it can be read at once; or NULL.
    bool (*merge)(struct wk_source *s, const size_t *columns, size_t n);
    void (*free)(struct wk_source *s);
};

struct wk_source {
    const struct wk_source_class *class;
    uint64_t examples;
    struct wk_column *column;
    size_t columns;
    bool quick;  // to read all of it takes no time worth mentioning
};

static inline size_t wk_dtype_size(enum nn_dtype dtype)
{
    return dtype == NN_UINT8 ? 1 : 4;
}

// A column more, whose name is copied and whose count is worked out from the shape; valid until the next.
struct wk_column *wk_source_add(struct wk_source *s, const char *name, enum nn_dtype dtype, const uint64_t *shape,
                                size_t rank);
// By its name, or where none has that, by its place. -1: no such column.
int wk_source_find(const struct wk_source *s, const char *name);
void wk_source_free(struct wk_source *s);  // may be NULL
void wk_source_fini(struct wk_source *s);  // what wk_source_add made

// Sources of the same columns, one after the other, as one that owns them. n >= 1.
enum ps_code wk_concat_create(struct wk_source **part, size_t n, struct wk_source **out, struct ps_error *e);

// Keeps what was read of a source whose examples take time to make, if all of it takes at most WK_CACHE bytes; else
// *out is the source itself. Owns it; on an error it is freed.
#define WK_CACHE (UINT64_C(256) << 20)
enum ps_code wk_cache_create(struct wk_source *source, struct wk_source **out, struct ps_error *e);

// ---- bytes to read from -------------------------------------------------------------------------------------------

// A file, or memory. Any thread reads.
struct wk_block {
    char *path;      // for messages
    uint8_t *bytes;  // NULL: read from fd
    uint64_t size;
    int fd;  // -1: none
};

// Gzip, and a file of up to WK_IN_MEMORY bytes, is read into memory.
enum { WK_IN_MEMORY = 64 << 20 };
enum ps_code wk_block_open(const char *path, struct wk_block **block, struct ps_error *e);
// Memory, malloc'd, which becomes the block's.
struct wk_block *wk_block_of(const char *path, void *bytes, uint64_t size);
void wk_block_free(struct wk_block *block);  // may be NULL
enum ps_code wk_block_read(const struct wk_block *block, uint64_t at, size_t n, void *to, struct ps_error *e);
// Its first bytes, at most `most`: in the block, or in *own, which is to be freed.
enum ps_code wk_block_head(const struct wk_block *block, size_t most, const uint8_t **bytes, size_t *n, uint8_t **own,
                           struct ps_error *e);

// The first limit bytes of a file, plain or gzip; malloc'd. The error names the path.
enum ps_code wk_file_read(const char *path, uint64_t limit, uint8_t **bytes, size_t *size, struct ps_error *e);
// The same, and the caller puts before the error where it was.
enum ps_code wk_file_read_bytes(const char *path, uint64_t limit, uint8_t **bytes, size_t *size, struct ps_error *e);
// The same of one that is open, as a pipe can be opened but once; closes fd.
enum ps_code wk_file_read_open(int fd, uint64_t limit, uint8_t **bytes, size_t *size, struct ps_error *e);
// malloc'd rows * columns elements; NULL and RESOURCE_EXHAUSTED in e if there is no such memory.
void *wk_array(uint64_t rows, uint64_t columns, size_t element, struct ps_error *e);

// ---- records ------------------------------------------------------------------------------------------------------

// The elements of a column: example i's are in the block from offset + i * stride on.
struct wk_field {
    struct wk_block *block;
    uint64_t offset, stride;
    char kind;      // 'u', 'i', 'f' as in NumPy's types
    size_t width;   // bytes per element
    size_t planes;  // the file has so many planes, one after the other, and is read with them innermost; 0: as it is
};

// A source whose columns lie in blocks. What was added is the source's.
struct wk_source *wk_records_create(uint64_t examples);
void wk_records_own(struct wk_source *s, struct wk_block *block);
struct wk_column *wk_records_add(struct wk_source *s, const char *name, struct wk_field field, const uint64_t *shape,
                                 size_t rank);
// "line" and a number per example, malloc'd, instead of "row"; and "field" with a column's number, from 1 on.
void wk_records_set_lines(struct wk_source *s, uint64_t *line, size_t *field);

#endif

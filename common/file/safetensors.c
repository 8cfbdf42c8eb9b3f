// SPDX-License-Identifier: Apache-2.0
//
// Top to bottom: checksums, reading (the file, the header, the tensors, how they cover the data), finding, reading MiB
// by MiB, writing.
#include "common/file/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/crc32c.h"
#include "common/file/output.h"
#include "common/file/shards.h"

_Static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "float32 data is little-endian in the file and used where it lies");

enum { MAX_HEADER = 100000000, PREFIX = 8 };  // bytes; the limit is the format's own
enum { CHECKSUMMED = 1 << 20 };               // bytes of data that have one checksum

static enum ps_code safetensors_no_memory(const char *path, struct ps_error *e)
{
    return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%s: no memory for what it says of its tensors", path);
}

// ---- checksums ----------------------------------------------------------------------------------------------------

// Of the header, and of so many bytes of data.
static size_t checksums_of(uint64_t data_size)
{
    return 1 + (size_t)((data_size + CHECKSUMMED - 1) / CHECKSUMMED);
}

// Adds what stands at this place in the data to the sums of its parts.
static void checksums_add(uint32_t *sums, uint64_t at, const char *data, uint64_t size)
{
    while (size) {
        const uint64_t room = CHECKSUMMED - at % CHECKSUMMED, n = size < room ? size : room;
        uint32_t *sum = &sums[1 + at / CHECKSUMMED];
        *sum = ps_crc32c(*sum, data, n);
        at += n;
        data += n;
        size -= n;
    }
}

// ---- reading ------------------------------------------------------------------------------------------------------

// A file that is being read, and what is known of it: bytes.
struct source {
    int fd;
    const char *path;
    uint64_t size, header;  // the file's; of them the header's with its length
    uint32_t header_crc;
};

// It cannot be opened or looked at, which errno says: that is no word on what it holds.
static enum ps_code source_fail(const struct source *f, struct ps_error *e)
{
    return ps_fail(e, ps_code_of_file(errno), "%s: %s", f->path, strerror(errno));
}

// From a place of the file on, where fd stands.
static enum ps_code read_fully(const struct source *f, uint64_t from, void *to, size_t n, struct ps_error *e)
{
    for (size_t at = 0; at < n;) {
        ssize_t got = read(f->fd, (char *)to + at, n - at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ps_fail(e, ps_code_of_file(errno), "%s: reading at byte %" PRIu64 ": %s", f->path, from + at,
                           strerror(errno));
        if (got == 0)
            return ps_fail(e, PS_DATA_LOSS, "%s: the file ends at byte %" PRIu64 ", %zu bytes too early", f->path,
                           from + at, n - at);
        at += (size_t)got;
    }
    return PS_OK;
}

// The header is wrong: the error says where it stands in the file.
static enum ps_code header_prefix(const struct source *f, struct ps_error *e)
{
    return ps_error_prefix(e, "%.200s: header, bytes 0 to %" PRIu64, f->path, f->header - 1);
}

// What people have beside safetensors, by its first bytes, which are `word`; NULL: none of these.
static const char *safetensors_other_kind(uint64_t word)
{
    static const struct {
        const char *mark, *kind;
    } kinds[] = {
        {"\x89HDF", "HDF5"}, {"PK\x03\x04", "a zip archive, such as .keras, .npz and .pt"}, {"\x93NUM", "NumPy"}};
    const uint64_t bytes = htole64(word);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (memcmp(&bytes, kinds[i].mark, 4) == 0)
            return kinds[i].kind;
    return NULL;
}

// Reads the length and the header's text (freed by the caller), and leaves fd at the data.
static enum ps_code read_header(struct source *f, char **text, struct ps_error *e)
{
    uint64_t word;
    if (f->size < PREFIX)
        return ps_fail(e, PS_DATA_LOSS, "%s: expected 8 bytes of header length, but the file ends at byte %" PRIu64,
                       f->path, f->size);
    if (read_fully(f, 0, &word, sizeof word, e))
        return e->code;
    word = le64toh(word);
    const char *other = word > MAX_HEADER ? safetensors_other_kind(word) : NULL;
    if (other)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: expected safetensors, but it is %s", f->path, other);
    if (word > MAX_HEADER)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "%s: expected a safetensors header of at most %d bytes, but bytes 0 to 7 say %" PRIu64, f->path,
                       MAX_HEADER, word);
    if (word > f->size - PREFIX)
        return ps_fail(e, PS_DATA_LOSS,
                       "%s: bytes 0 to 7 say that the header ends at byte %" PRIu64
                       ", but the file ends at byte %" PRIu64,
                       f->path, PREFIX + word, f->size);
    char *s = malloc(word + 1);
    if (!s)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%s: no memory for a header of %" PRIu64 " bytes", f->path, word);
    if (read_fully(f, PREFIX, s, word, e)) {
        free(s);
        return e->code;
    }
    f->header = PREFIX + word;
    *text = s;
    return PS_OK;
}

static enum ps_code safetensors_parse_header(struct source *f, json_t **header, struct ps_error *e)
{
    char *text = NULL;
    json_error_t error;
    if (read_header(f, &text, e))
        return e->code;
    const uint64_t length = f->header - PREFIX, word = htole64(length);
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    f->header_crc = ps_crc32c(ps_crc32c(0, &word, sizeof word), text, length);
    free(text);
    if (!root) {
        ps_fail(e, PS_INVALID_ARGUMENT, "it is not JSON: %s (byte %d)", error.text, PREFIX + error.position);
        return header_prefix(f, e);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        ps_fail(e, PS_INVALID_ARGUMENT, "expected a JSON object");
        return header_prefix(f, e);
    }
    *header = root;
    return PS_OK;
}

static float safetensors_from_f32(const char *at)
{
    float x;
    memcpy(&x, at, sizeof x);
    return x;
}

static float safetensors_from_f64(const char *at)
{
    double x;
    memcpy(&x, at, sizeof x);
    return (float)x;
}

static float safetensors_from_bf16(const char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// 1 bit of sign, 5 of exponent (15 is 2^0, 31 infinity and NaN, 0 without the leading 1), 10 of fraction.
static float safetensors_from_f16(const char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    int exponent = half >> 10 & 31, fraction = half & 1023;
    float x = exponent == 31 ? (fraction ? NAN : INFINITY)
              : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                             : ldexpf((float)fraction, -24);
    return half >> 15 ? -x : x;
}

static const struct dtype {
    const char *name;
    size_t width;                       // bytes; 0: not known
    float (*to_float)(const char *at);  // NULL: no floats
} dtypes[] = {
    {"F32", 4, safetensors_from_f32},
    {"F16", 2, safetensors_from_f16},
    {"BF16", 2, safetensors_from_bf16},
    {"F64", 8, safetensors_from_f64},
    {"BOOL", 1, NULL},
    {"U8", 1, NULL},
    {"I8", 1, NULL},
    {"F8_E5M2", 1, NULL},
    {"F8_E4M3", 1, NULL},
    {"U16", 2, NULL},
    {"I16", 2, NULL},
    {"U32", 4, NULL},
    {"I32", 4, NULL},
    {"U64", 8, NULL},
    {"I64", 8, NULL},
};

// What is known of a tensor before the data is in memory.
struct entry {
    struct ps_safetensor tensor;
    const struct dtype *dtype;
    uint64_t begin, bytes;
};

// The format has got more types since: what is of one that is not known here is passed over as what holds no floats.
static enum ps_code read_dtype(const json_t *value, struct entry *entry, struct ps_error *e)
{
    static const struct dtype other = {.width = 0};
    const char *word = json_string_value(json_object_get(value, "dtype"));
    if (!word)
        return ps_fail(e, PS_INVALID_ARGUMENT, "tensor \"%.100s\": expected a dtype", entry->tensor.name);
    entry->tensor.dtype = word;
    entry->dtype = &other;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(word, dtypes[i].name) == 0)
            entry->dtype = &dtypes[i];
    return PS_OK;
}

// A dimension may be 0: then there are no elements.
static enum ps_code read_shape(const json_t *entry, struct ps_safetensor *t, struct ps_error *e)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > PS_MAX_RANK)
        return ps_fail(e, PS_INVALID_ARGUMENT, "tensor \"%.100s\": expected a shape of at most %d dimensions", t->name,
                       PS_MAX_RANK);
    bool empty = false;
    t->rank = json_array_size(shape);
    for (size_t i = 0; i < t->rank; i++) {
        const json_t *dimension = json_array_get(shape, i);
        if (!json_is_integer(dimension) || json_integer_value(dimension) < 0)
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "tensor \"%.100s\": expected dimension %zu to be a whole number of 0 or more", t->name, i);
        t->shape[i] = (uint64_t)json_integer_value(dimension);
        empty |= t->shape[i] == 0;
    }
    if (!empty && ps_shape_count(t->shape, t->rank, PS_FLOAT32, &t->count, e) != PS_OK)
        return ps_error_prefix(e, "tensor \"%.100s\"", t->name);
    return PS_OK;
}

// Where its bytes begin is counted from the start of the data.
static enum ps_code read_offsets(const json_t *value, const struct source *f, struct entry *entry, struct ps_error *e)
{
    char shape[160];
    const struct ps_safetensor *t = &entry->tensor;
    const struct dtype *dtype = entry->dtype;
    const json_t *offsets = json_object_get(value, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second) ||
        json_integer_value(first) < 0 || json_integer_value(second) < json_integer_value(first))
        return ps_fail(e, PS_INVALID_ARGUMENT, "tensor \"%.100s\": expected data_offsets [begin, end] in bytes",
                       t->name);
    uint64_t from = (uint64_t)json_integer_value(first), to = (uint64_t)json_integer_value(second);
    uint64_t bytes = t->count * dtype->width;  // read_shape has seen to it that this is below 2^64
    if (dtype->width && to - from != bytes)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "tensor \"%.100s\": data_offsets span %" PRIu64 " bytes, but shape %s of %s takes %" PRIu64,
                       t->name, to - from, ps_shape_text(t->shape, t->rank, shape, sizeof shape), dtype->name, bytes);
    if (to > f->size - f->header)
        return ps_fail(e, PS_DATA_LOSS,
                       "tensor \"%.100s\" ends at byte %" PRIu64 ", but the file ends at byte %" PRIu64, t->name,
                       f->header + to, f->size);
    entry->begin = from;
    entry->bytes = to - from;
    return PS_OK;
}

static int by_begin(const void *a, const void *b)
{
    uint64_t x = ((const struct entry *)a)->begin, y = ((const struct entry *)b)->begin;
    return (x > y) - (x < y);
}

// The format wants every byte of the data in exactly one tensor.
static enum ps_code check_cover(const struct source *f, const struct entry *entry, size_t n, struct ps_error *e)
{
    uint64_t end = f->header;
    for (size_t i = 0; i < n; i++) {
        const uint64_t begin = f->header + entry[i].begin;
        if (begin < end)
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "tensor \"%.100s\" begins at byte %" PRIu64
                           ", inside \"%.100s\", which ends at byte %" PRIu64,
                           entry[i].tensor.name, begin, entry[i - 1].tensor.name, end);
        if (begin > end)
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "tensor \"%.100s\" begins at byte %" PRIu64 ", but expected it at byte %" PRIu64
                           ": a hole in the data",
                           entry[i].tensor.name, begin, end);
        end += entry[i].bytes;
    }
    if (end < f->size)
        return ps_fail(e, PS_INVALID_ARGUMENT, "bytes %" PRIu64 " to %" PRIu64 ", the file's last, are of no tensor",
                       end, f->size - 1);
    return PS_OK;
}

// Those that have no elements, and so no data, are left out.
static enum ps_code read_entries(const struct source *f, json_t *header, struct entry *entries, size_t *n,
                                 struct ps_error *e)
{
    const char *name;
    json_t *value;
    size_t count = 0;
    json_object_foreach(header, name, value)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        struct entry *entry = &entries[count];
        *entry = (struct entry){.tensor.name = name};
        if (read_dtype(value, entry, e) || read_shape(value, &entry->tensor, e) || read_offsets(value, f, entry, e))
            return header_prefix(f, e);
        count += entry->tensor.count > 0;
    }
    qsort(entries, count, sizeof *entries, by_begin);
    *n = count;
    return check_cover(f, entries, count, e) ? header_prefix(f, e) : PS_OK;
}

static void *safetensors_alloc(const char *path, uint64_t size, struct ps_error *e)
{
    void *p = ps_try_alloc_aligned(size);
    if (!p)
        ps_fail(e, PS_RESOURCE_EXHAUSTED, "%s: no memory for %" PRIu64 " bytes of tensors", path, size);
    return p;
}

static enum ps_code read_data(const struct source *f, float **data, struct ps_error *e)
{
    const uint64_t size = f->size - f->header;
    float *to = safetensors_alloc(f->path, size, e);
    if (!to)
        return PS_RESOURCE_EXHAUSTED;
    enum ps_code code = read_fully(f, f->header, to, size, e);
    if (code == PS_OK)
        *data = to;
    else
        free(to);
    return code;
}

static bool safetensors_is_seal(const struct entry *entry)
{
    return strcmp(entry->tensor.name, PS_SAFETENSORS_CHECKSUMS) == 0 && strcmp(entry->tensor.dtype, "U32") == 0;
}

static enum ps_code seal_fail_none(const struct source *f, struct ps_error *e)
{
    ps_fail(e, PS_INVALID_ARGUMENT, "has no checksums: expected a checkpoint");
    return header_prefix(f, e);
}

// The seal is the last tensor.
static enum ps_code seal_check_count(const struct source *f, const struct entry *seal, struct ps_error *e)
{
    const size_t n = checksums_of(seal->begin);
    if (seal->tensor.count == n)
        return PS_OK;
    ps_fail(e, PS_DATA_LOSS, "is damaged: it names %" PRIu64 " checksums, expected %zu", seal->tensor.count, n);
    return header_prefix(f, e);
}

// The header (0) or a MiB of the data (counted from 1) is not what its checksum says. data_size: that the seal is of.
static enum ps_code seal_fail(const struct source *f, uint64_t data_size, size_t bad, struct ps_error *e)
{
    const uint64_t end = f->header + data_size, sum = end + bad * sizeof(uint32_t);
    const uint64_t first = bad ? f->header + (bad - 1) * CHECKSUMMED : 0;
    const uint64_t last = bad == 0 ? f->header : first + CHECKSUMMED < end ? first + CHECKSUMMED : end;
    return ps_fail(e, PS_DATA_LOSS,
                   "%s: is damaged: bytes %" PRIu64 " to %" PRIu64 " are not what their checksum, bytes %" PRIu64
                   " to %" PRIu64 ", says",
                   f->path, first, last - 1, sum, sum + sizeof(uint32_t) - 1);
}

// Compares header and data with the seal.
static enum ps_code safetensors_check_seal(const struct source *f, const struct entry *seal, const float *data,
                                           struct ps_error *e)
{
    const size_t n = checksums_of(seal->begin);
    const char *const bytes = (const char *)data, *const written = bytes + seal->begin;
    if (seal_check_count(f, seal, e))
        return e->code;
    uint32_t *sums = ps_try_alloc_array(n, sizeof *sums);
    if (!sums)
        return safetensors_no_memory(f->path, e);
    sums[0] = f->header_crc;
    checksums_add(sums, 0, bytes, seal->begin);
    size_t bad = 0;
    while (bad < n && memcmp(&sums[bad], written + bad * sizeof *sums, sizeof *sums) == 0)
        bad++;
    free(sums);
    return bad == n ? PS_OK : seal_fail(f, seal->begin, bad, e);
}

// F64 as it is, each where a double may lie.
static enum ps_code safetensors_keep_doubles(const char *path, const struct entry *entries, struct ps_safetensors *s,
                                             struct ps_error *e)
{
    uint64_t doubles = 0;
    for (size_t i = 0; i < s->n; i++)
        doubles += entries[i].dtype->to_float == safetensors_from_f64 ? entries[i].tensor.count : 0;
    if (!doubles)
        return PS_OK;
    s->doubles = safetensors_alloc(path, doubles * sizeof *s->doubles, e);
    if (!s->doubles)
        return PS_RESOURCE_EXHAUSTED;
    double *to = s->doubles;
    for (size_t i = 0; i < s->n; i++) {
        if (entries[i].dtype->to_float != safetensors_from_f64)
            continue;
        const uint64_t count = entries[i].tensor.count;
        memcpy(to, (const char *)s->data + entries[i].begin, count * sizeof *to);
        s->tensor[i].doubles = to;
        to += count;
    }
    return PS_OK;
}

// Gives the tensors their data. Where all are float32 it stays where it was read; else it is converted into a block of
// its own, which takes its place: other widths need not leave a float where one may lie.
static enum ps_code safetensors_set_data(const char *path, const struct entry *entries, struct ps_safetensors *s,
                                         struct ps_error *e)
{
    uint64_t floats = 0;
    bool as_read = true;
    for (size_t i = 0; i < s->n; i++) {
        as_read &= entries[i].dtype == &dtypes[0];
        floats += entries[i].dtype->to_float ? entries[i].tensor.count : 0;
    }
    for (size_t i = 0; as_read && i < s->n; i++)
        s->tensor[i].data = s->data + entries[i].begin / sizeof(float);
    if (as_read)
        return PS_OK;
    float *to = safetensors_alloc(path, floats * sizeof *to, e);
    if (!to || safetensors_keep_doubles(path, entries, s, e)) {
        free(to);
        return PS_RESOURCE_EXHAUSTED;
    }
    for (size_t i = 0, at = 0; i < s->n; i++) {
        const struct dtype *dtype = entries[i].dtype;
        if (!dtype->to_float)
            continue;
        s->tensor[i].data = to + at;
        for (uint64_t j = 0; j < entries[i].tensor.count; j++)
            to[at++] = dtype->to_float((const char *)s->data + entries[i].begin + j * dtype->width);
    }
    free(s->data);
    s->data = to;
    return PS_OK;
}

static enum ps_code read_entries_of(const struct source *f, json_t *header, struct entry **entries, size_t *n,
                                    struct ps_error *e)
{
    struct entry *v = calloc(json_object_size(header) + 1, sizeof *v);
    if (!v)
        return safetensors_no_memory(f->path, e);
    const enum ps_code code = read_entries(f, header, v, n, e);
    if (code == PS_OK)
        *entries = v;
    else
        free(v);
    return code;
}

static enum ps_code safetensors_take_entries(const char *path, struct ps_safetensors *s, const struct entry *entries,
                                             struct ps_error *e)
{
    s->tensor = ps_try_alloc_array(s->n + 1, sizeof *s->tensor);
    if (!s->tensor)
        return safetensors_no_memory(path, e);
    for (size_t i = 0; i < s->n; i++)
        s->tensor[i] = entries[i].tensor;
    return PS_OK;
}

// The header lives on in s for the names.
static enum ps_code read_tensors(const struct source *f, struct ps_safetensors *s, struct ps_error *e)
{
    struct entry *entries;
    if (read_entries_of(f, s->header, &entries, &s->n, e))
        return e->code;
    enum ps_code code = read_data(f, &s->data, e);
    s->sealed = code == PS_OK && s->n && safetensors_is_seal(&entries[s->n - 1]);
    if (s->sealed)
        code = safetensors_check_seal(f, &entries[--s->n], s->data, e);
    if (code == PS_OK)
        code = safetensors_take_entries(f->path, s, entries, e);
    if (code == PS_OK)
        code = safetensors_set_data(f->path, entries, s, e);
    free(entries);
    return code;
}

static enum ps_code source_check(struct source *f, struct ps_error *e)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0)
        return source_fail(f, e);
    if (!S_ISREG(st.st_mode))
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: expected a regular file", f->path);
    f->size = (uint64_t)st.st_size;
    return PS_OK;
}

static enum ps_code read_file(struct source *f, bool sealed, struct ps_safetensors *s, struct ps_error *e)
{
    json_t *header = NULL;
    if (source_check(f, e) || safetensors_parse_header(f, &header, e))
        return e->code;
    s->header = header;
    if (read_tensors(f, s, e))
        return e->code;
    return sealed && !s->sealed ? seal_fail_none(f, e) : PS_OK;
}

// What becomes of a file's shards.
enum shards { SHARDS_LEFT, SHARDS_NAMED, SHARDS_READ };

static enum ps_code safetensors_read(const char *path, bool sealed, enum shards shards, struct ps_safetensors **out,
                                     struct ps_error *e)
{
    struct ps_error unheard;
    struct source f = {.fd = open(path, O_RDONLY | O_CLOEXEC), .path = path};
    e = e ? e : &unheard;
    if (f.fd < 0)
        return source_fail(&f, e);
    struct ps_safetensors *s = ps_try_alloc(sizeof *s);
    enum ps_code code = s ? read_file(&f, sealed, s, e) : safetensors_no_memory(path, e);
    close(f.fd);
    if (code == PS_OK && shards != SHARDS_LEFT)
        code = ps_shards_join(s, path, shards == SHARDS_READ, e);
    if (code == PS_OK)
        *out = s;
    else
        ps_safetensors_free(s);
    return code;
}

enum ps_code ps_safetensors_read(const char *path, struct ps_safetensors **out, struct ps_error *e)
{
    return safetensors_read(path, false, SHARDS_READ, out, e);
}

enum ps_code ps_safetensors_read_sealed(const char *path, struct ps_safetensors **out, struct ps_error *e)
{
    return safetensors_read(path, true, SHARDS_READ, out, e);
}

enum ps_code ps_safetensors_read_index(const char *path, struct ps_safetensors **out, struct ps_error *e)
{
    return safetensors_read(path, true, SHARDS_NAMED, out, e);
}

enum ps_code ps_safetensors_read_shard(const char *path, struct ps_safetensors **out, struct ps_error *e)
{
    return safetensors_read(path, true, SHARDS_LEFT, out, e);
}

void ps_safetensors_free(struct ps_safetensors *s)
{
    if (!s)
        return;
    json_decref(s->header);
    ps_shards_free(s->shards);
    free(s->tensor);
    free(s->data);
    free(s->doubles);
    free(s);
}

const struct ps_safetensor *ps_safetensors_find(const struct ps_safetensors *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->tensor[i].name, name) == 0)
            return &s->tensor[i];
    return NULL;
}

const char *ps_safetensors_metadata(const struct ps_safetensors *s, const char *key)
{
    return json_string_value(json_object_get(json_object_get(s->header, "__metadata__"), key));
}

// ---- reading MiB by MiB -------------------------------------------------------------------------------------------

struct ps_safetensors_stream {
    char *path;
    struct source file;
    struct ps_safetensors tensors;
    uint32_t *sums;       // as the file has them
    uint64_t size, next;  // bytes of data; those that were read
    float *chunk;         // the last MiB, or what there is of it; NULL: none was read
    size_t n, at;         // floats in it; those that were handed out
};

static enum ps_code stream_read_sums(struct ps_safetensors_stream *s, const struct entry *seal, struct ps_error *e)
{
    const size_t n = checksums_of(seal->begin), bytes = n * sizeof *s->sums;
    s->size = seal->begin;
    if (seal_check_count(&s->file, seal, e))
        return e->code;
    s->sums = ps_try_alloc(bytes);
    if (!s->sums)
        return safetensors_no_memory(s->path, e);
    const ssize_t got = pread(s->file.fd, s->sums, bytes, (off_t)(s->file.header + s->size));
    if (got != (ssize_t)bytes)
        return ps_fail(e, got < 0 ? ps_code_of_file(errno) : PS_DATA_LOSS, "%s: reading its checksums: %s", s->path,
                       got < 0 ? strerror(errno) : "the file ends too early");
    return s->sums[0] == s->file.header_crc ? PS_OK : seal_fail(&s->file, s->size, 0, e);
}

static enum ps_code stream_take_entries(struct ps_safetensors_stream *s, struct ps_error *e)
{
    struct entry *entries;
    size_t n;
    if (read_entries_of(&s->file, s->tensors.header, &entries, &n, e))
        return e->code;
    enum ps_code code = n && safetensors_is_seal(&entries[n - 1]) ? stream_read_sums(s, &entries[n - 1], e)
                                                                  : seal_fail_none(&s->file, e);
    s->tensors.n = n - (n > 0);
    for (size_t i = 0; code == PS_OK && i < s->tensors.n; i++)
        if (entries[i].dtype != &dtypes[0])
            code = ps_fail(e, PS_INVALID_ARGUMENT, "%s: tensor \"%.100s\" is %.16s, expected F32", s->path,
                           entries[i].tensor.name, entries[i].tensor.dtype);
    if (code == PS_OK)
        code = safetensors_take_entries(s->path, &s->tensors, entries, e);
    free(entries);
    return code;
}

enum ps_code ps_safetensors_stream_open(const char *path, struct ps_safetensors_stream **out, struct ps_error *e)
{
    json_t *header = NULL;
    struct ps_safetensors_stream *s = ps_try_alloc(sizeof *s);
    if (!s)
        return safetensors_no_memory(path, e);
    s->path = ps_try_strdup(path);
    s->file = (struct source){.fd = open(path, O_RDONLY | O_CLOEXEC), .path = s->path};
    enum ps_code code = PS_OK;
    if (!s->path)
        code = safetensors_no_memory(path, e);
    else if (s->file.fd < 0)
        code = source_fail(&s->file, e);
    else
        code = source_check(&s->file, e);
    if (code == PS_OK)
        code = safetensors_parse_header(&s->file, &header, e);
    s->tensors.header = header;
    if (code == PS_OK)
        code = stream_take_entries(s, e);
    if (code == PS_OK)
        *out = s;
    else
        ps_safetensors_stream_close(s);
    return code;
}

const struct ps_safetensors *ps_safetensors_stream_tensors(const struct ps_safetensors_stream *s)
{
    return &s->tensors;
}

static enum ps_code stream_fill(struct ps_safetensors_stream *s, struct ps_error *e)
{
    const uint64_t left = s->size - s->next;
    const size_t bytes = left < CHECKSUMMED ? (size_t)left : CHECKSUMMED, number = 1 + (size_t)(s->next / CHECKSUMMED);
    if (bytes == 0)
        return ps_fail(e, PS_DATA_LOSS, "%s: has no more than its %" PRIu64 " bytes of data", s->path, s->size);
    if (!s->chunk && !(s->chunk = ps_try_alloc(CHECKSUMMED)))
        return safetensors_no_memory(s->path, e);
    if (read_fully(&s->file, s->file.header + s->next, s->chunk, bytes, e))
        return e->code;
    if (ps_crc32c(0, s->chunk, bytes) != s->sums[number])
        return seal_fail(&s->file, s->size, number, e);
    s->next += bytes;
    s->n = bytes / sizeof *s->chunk;
    s->at = 0;
    return PS_OK;
}

enum ps_code ps_safetensors_stream_read(struct ps_safetensors_stream *s, float *to, size_t n, struct ps_error *e)
{
    while (n) {
        if (s->at == s->n && stream_fill(s, e))
            return e->code;
        const size_t room = s->n - s->at, some = n < room ? n : room;
        memcpy(to, s->chunk + s->at, some * sizeof *to);
        s->at += some;
        to += some;
        n -= some;
    }
    return PS_OK;
}

void ps_safetensors_stream_close(struct ps_safetensors_stream *s)
{
    if (!s)
        return;
    if (s->file.fd >= 0)
        close(s->file.fd);
    json_decref(s->tensors.header);
    free(s->tensors.tensor);
    free(s->sums);
    free(s->chunk);
    free(s->path);
    free(s);
}

// ---- writing ------------------------------------------------------------------------------------------------------

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ps_safetensor *)a)->name, ((const struct ps_safetensor *)b)->name);
}

static size_t tensor_width(const struct ps_safetensor *t)
{
    return t->doubles ? sizeof *t->doubles : sizeof *t->data;
}

static uint64_t tensor_bytes(const struct ps_safetensor *t)
{
    return t->count * tensor_width(t);
}

static int by_width(const void *a, const void *b)
{
    const size_t x = tensor_width(a), y = tensor_width(b);
    return x == y ? by_name(a, b) : (x < y) - (x > y);
}

// The tensors sorted by name, wide ones first, so that each lies where its numbers may, each with its count; freed by
// the caller.
static enum ps_code sort_tensors(const char *path, const struct ps_safetensor *tensors, size_t n,
                                 struct ps_safetensor **out, struct ps_error *e)
{
    struct ps_safetensor *t = ps_try_alloc_array(n, sizeof *t);
    enum ps_code code = PS_OK;
    if (!t)
        return safetensors_no_memory(path, e);
    for (size_t i = 0; i < n; i++)
        t[i] = tensors[i];
    qsort(t, n, sizeof *t, by_name);
    for (size_t i = 0; code == PS_OK && i < n; i++) {
        if (strcmp(t[i].name, "__metadata__") == 0 || strcmp(t[i].name, PS_SAFETENSORS_CHECKSUMS) == 0 ||
            (i > 0 && strcmp(t[i].name, t[i - 1].name) == 0))
            code = ps_fail(e, PS_INVALID_ARGUMENT, "%s: tensor \"%.100s\": expected a name that is not taken", path,
                           t[i].name);
        else if (ps_shape_count(t[i].shape, t[i].rank, t[i].doubles ? PS_FLOAT64 : PS_FLOAT32, &t[i].count, e) != PS_OK)
            code = ps_error_prefix(e, "%.100s: tensor \"%.100s\"", path, t[i].name);
    }
    qsort(t, n, sizeof *t, by_width);
    if (code == PS_OK)
        *out = t;
    else
        free(t);
    return code;
}

// {"dtype": "F32", "shape": [...], "data_offsets": [offset, offset + bytes]}
static json_t *entry_json(const struct ps_safetensor *t, const char *dtype, uint64_t offset)
{
    json_t *shape = json_array();
    for (size_t i = 0; i < t->rank; i++)
        if (json_array_append_new(shape, json_integer((json_int_t)t->shape[i]))) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", shape, "data_offsets", (json_int_t)offset,
                     (json_int_t)(offset + tensor_bytes(t)));
}

// The header with its length before it, padded with spaces to a multiple of 8; freed by the caller. seals: it names
// checksums.
static enum ps_code make_header(const char *path, const struct ps_safetensor *t, size_t n, json_t *metadata, bool seals,
                                char **out, size_t *size, struct ps_error *e)
{
    json_t *root = json_object();
    uint64_t offset = 0;
    enum ps_code code = PS_OK;
    if (metadata && json_object_set(root, "__metadata__", metadata))
        code = safetensors_no_memory(path, e);
    for (size_t i = 0; code == PS_OK && i < n; i++) {
        if (json_object_set_new(root, t[i].name, entry_json(&t[i], t[i].doubles ? "F64" : "F32", offset)) != 0)
            code = ps_fail(e, PS_INVALID_ARGUMENT, "%s: tensor %zu: expected a name in UTF-8", path, i);
        offset += tensor_bytes(&t[i]);
    }
    const struct ps_safetensor sums = {.rank = 1, .shape = {checksums_of(offset)}, .count = checksums_of(offset)};
    if (code == PS_OK && seals && json_object_set_new(root, PS_SAFETENSORS_CHECKSUMS, entry_json(&sums, "U32", offset)))
        code = safetensors_no_memory(path, e);
    char *text = code == PS_OK ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (code != PS_OK)
        return code;
    const size_t length = text ? strlen(text) : 0, padded = (length + 7) & ~(size_t)7;
    const uint64_t word = htole64(padded);
    char *header = text ? ps_try_alloc(PREFIX + padded) : NULL;
    if (!header) {
        free(text);
        return safetensors_no_memory(path, e);
    }
    memcpy(header, &word, PREFIX);
    memcpy(header + PREFIX, text, length);
    memset(header + PREFIX + length, ' ', padded - length);
    free(text);
    *out = header;
    *size = PREFIX + padded;
    return PS_OK;
}

static uint64_t safetensors_size(const struct ps_safetensor *t, size_t n)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += tensor_bytes(&t[i]);
    return bytes;
}

// A file that is being written. Errors are kept in the stream.
struct target {
    FILE *file;
    uint32_t *sums;  // NULL: it gets none
    uint64_t at;     // bytes of data
    const atomic_bool *stop;
};

static bool target_is_stopped(const struct target *to)
{
    return to->stop && atomic_load(to->stop);
}

// Adds the data to the sums while the processor has it at hand.
static void write_data(struct target *to, const struct iovec *data)
{
    for (size_t done = 0; done < data->iov_len && !ferror(to->file) && !target_is_stopped(to);) {
        const char *from = (const char *)data->iov_base + done;
        const size_t room = CHECKSUMMED - to->at % CHECKSUMMED, left = data->iov_len - done;
        const size_t n = left < room ? left : room;
        if (to->sums)
            checksums_add(to->sums, to->at, from, n);
        fwrite(from, 1, n, to->file);
        done += n;
        to->at += n;
    }
}

static void write_tensor(struct target *to, const struct ps_safetensor *t)
{
    const void *data = t->doubles ? (const void *)t->doubles : t->data;
    const struct iovec whole = {(void *)data, tensor_bytes(t)};
    if (data)
        write_data(to, &whole);
    for (size_t i = 0; !data && i < t->n_parts; i++)
        write_data(to, &t->parts[i]);
}

// The header, the data, and behind them the sums.
static void write_parts(struct target *to, const struct ps_safetensor *t, size_t n, const char *header, size_t size)
{
    fwrite(header, 1, size, to->file);
    for (size_t i = 0; i < n; i++)
        write_tensor(to, &t[i]);
    if (!to->sums)
        return;
    to->sums[0] = ps_crc32c(0, header, size);
    fwrite(to->sums, sizeof *to->sums, checksums_of(to->at), to->file);
}

static enum ps_code write_file(const char *path, const struct ps_safetensor *t, size_t n, const char *header,
                               size_t size, struct target *to, struct ps_error *e)
{
    struct ps_output o;
    if (ps_output_open(&o, path, e))
        return e->code;
    to->file = o.file;
    write_parts(to, t, n, header, size);
    if (!target_is_stopped(to))
        return ps_output_commit(&o, e);
    ps_output_abort(&o);
    return ps_fail(e, PS_CANCELLED, "%s: stopped while it was written", path);
}

static enum ps_code write_sorted(const char *path, const struct ps_safetensor *t, size_t n, json_t *metadata,
                                 bool seals, const atomic_bool *stop, struct ps_error *e)
{
    struct target to = {.stop = stop};
    char *header = NULL;
    size_t size = 0;
    if (seals && !(to.sums = ps_try_alloc_array(checksums_of(safetensors_size(t, n)), sizeof *to.sums)))
        return safetensors_no_memory(path, e);
    enum ps_code code = make_header(path, t, n, metadata, seals, &header, &size, e);
    if (code == PS_OK)
        code = write_file(path, t, n, header, size, &to, e);
    free(to.sums);
    free(header);
    return code;
}

static enum ps_code safetensors_write(const char *path, const struct ps_safetensor *tensors, size_t n, json_t *metadata,
                                      bool seals, const atomic_bool *stop, struct ps_error *e)
{
    struct ps_safetensor *sorted = NULL;
    enum ps_code code = sort_tensors(path, tensors, n, &sorted, e);
    if (code == PS_OK)
        code = write_sorted(path, sorted, n, metadata, seals, stop, e);
    free(sorted);
    return code;
}

enum ps_code ps_safetensors_write_sealed(const char *path, const struct ps_safetensor *tensors, size_t n,
                                         const struct ps_safetensors_text *texts, size_t n_texts,
                                         const atomic_bool *stop, struct ps_error *e)
{
    json_t *metadata = json_object();
    enum ps_code code = PS_OK;
    for (size_t i = 0; i < n_texts && code == PS_OK; i++)
        if (json_object_set_new(metadata, texts[i].key, json_string(texts[i].text)))
            code = ps_fail(e, PS_INVALID_ARGUMENT, "%s: expected metadata in UTF-8", path);
    if (code == PS_OK)
        code = safetensors_write(path, tensors, n, metadata, true, stop, e);
    json_decref(metadata);
    return code;
}

enum ps_code ps_safetensors_write(const char *path, const struct ps_safetensor *tensors, size_t n, struct ps_error *e)
{
    return safetensors_write(path, tensors, n, NULL, false, NULL, e);
}

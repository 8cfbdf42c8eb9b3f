// SPDX-License-Identifier: Apache-2.0
//
// Top to bottom: the fields, the directory's place, its entries, unpacking, writing.
#include "common/file/zip.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/base/alloc.h"
#include "common/file/read_at.h"

enum {
    LOCAL_MARK = 0x04034b50,    // "PK\3\4": before each entry's content
    ENTRY_MARK = 0x02014b50,    // "PK\1\2": of each entry in the directory
    END_MARK = 0x06054b50,      // "PK\5\6": after the directory
    END64_MARK = 0x06064b50,    // "PK\6\6": before that, where 32 bits are too few,
    LOCATOR_MARK = 0x07064b50,  // "PK\6\7": and where it is
    LOCAL_BYTES = 30,           // without the name and the extra fields
    ENTRY_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    MAX_COMMENT = 65535,
    BUFFER = 1 << 18,  // bytes that are read at a time
    STORED = 0,
    DEFLATED = 8,
    FLAG_ENCRYPTED = 1,
    FLAG_UTF8 = 1 << 11,
    EXTRA_64 = 1,            // the extra field with sizes of 64 bits
    DEFLATE_MOST = 1032,     // bytes that one packed byte stands for
    DATE_1980 = 1 << 5 | 1,  // 1 January
    VERSION = 20,            // what is needed to unpack: 2.0,
    VERSION_64 = 45,         // 4.5 with fields of 64 bits
    MADE_ON_UNIX = 3 << 8,
};

// ---- fields, little-endian ----------------------------------------------------------------------------------------

static uint64_t zip_field(const uint8_t *at, size_t bytes)
{
    uint64_t x = 0;
    for (size_t i = bytes; i > 0; i--)
        x = x << 8 | at[i - 1];
    return x;
}

static uint64_t zip_u16(const uint8_t *at)
{
    return zip_field(at, 2);
}

static uint64_t zip_u32(const uint8_t *at)
{
    return zip_field(at, 4);
}

static bool zip_is_inside(uint64_t begin, uint64_t bytes, uint64_t size)
{
    return begin <= size && bytes <= size - begin;
}

// ---- where the directory is ---------------------------------------------------------------------------------------

struct directory {
    uint64_t begin, bytes, entries;
};

// The record at the end of the file, before a comment of any bytes that reaches to the end: where it is in the file's
// last bytes. NULL: there is none.
static const uint8_t *zip_find_end(const uint8_t *bytes, size_t size)
{
    for (size_t comment = 0; comment <= MAX_COMMENT && comment + END_BYTES <= size; comment++) {
        const uint8_t *at = bytes + size - END_BYTES - comment;
        if (zip_u32(at) == END_MARK && zip_u16(at + 20) == comment)
            return at;
    }
    return NULL;
}

// The record of 64-bit fields, where the locator before byte `end` says that there is one. *at = end: there is none.
static enum ps_code zip_read_end64(const struct ps_zip_source *from, uint64_t end, uint8_t record[END64_BYTES],
                                   uint64_t *at, struct ps_error *e)
{
    uint8_t locator[LOCATOR_BYTES];
    *at = end;
    if (end < LOCATOR_BYTES)
        return PS_OK;
    if (from->read(from->arg, end - LOCATOR_BYTES, LOCATOR_BYTES, locator, e))
        return e->code;
    const uint64_t begin = zip_field(locator + 8, 8);
    if (zip_u32(locator) != LOCATOR_MARK || !zip_is_inside(begin, END64_BYTES, end))
        return PS_OK;
    if (from->read(from->arg, begin, END64_BYTES, record, e))
        return e->code;
    *at = zip_u32(record) == END64_MARK ? begin : end;
    return PS_OK;
}

// end: the record there, which begins at byte `at` of the file.
static enum ps_code zip_read_end(const struct ps_zip_source *from, const uint8_t *end, uint64_t at, struct directory *d,
                                 struct ps_error *e)
{
    uint8_t end64[END64_BYTES];
    uint64_t limit;
    if (zip_read_end64(from, at, end64, &limit, e))
        return e->code;
    const bool wide = limit < at;
    uint64_t volume = wide ? zip_u32(end64 + 16) | zip_u32(end64 + 20) : zip_u16(end + 4) | zip_u16(end + 6);
    if (wide)
        *d = (struct directory){zip_field(end64 + 48, 8), zip_field(end64 + 40, 8), zip_field(end64 + 32, 8)};
    else
        *d = (struct directory){zip_u32(end + 16), zip_u32(end + 12), zip_u16(end + 10)};
    if (volume != 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "is one of several volumes of a zip file");
    if (!zip_is_inside(d->begin, d->bytes, limit) || d->entries > d->bytes / ENTRY_BYTES)
        return ps_fail(e, PS_DATA_LOSS,
                       "the zip directory should have %" PRIu64 " entries in %" PRIu64 " bytes from byte %" PRIu64
                       " on, but it ends at byte %" PRIu64,
                       d->entries, d->bytes, d->begin, limit);
    return PS_OK;
}

static enum ps_code zip_find_directory(const struct ps_zip_source *from, struct directory *d, struct ps_error *e)
{
    const size_t n = from->size < MAX_COMMENT + END_BYTES ? (size_t)from->size : MAX_COMMENT + END_BYTES;
    uint8_t *last = ps_try_alloc(n + 1);
    if (!last)
        return ps_no_memory(e, "a zip file's end");
    enum ps_code code = from->read(from->arg, from->size - n, n, last, e);
    const uint8_t *end = code == PS_OK ? zip_find_end(last, n) : NULL;
    if (end)
        code = zip_read_end(from, end, from->size - n + (uint64_t)(end - last), d, e);
    else if (code == PS_OK)
        code = ps_fail(e, PS_INVALID_ARGUMENT, "is no zip file, or its end is missing");
    free(last);
    return code;
}

// ---- its entries --------------------------------------------------------------------------------------------------

// One entry of the directory, with the lengths of what follows its fixed part.
struct place {
    const uint8_t *at;
    uint64_t name, extra, comment;
    uint64_t local;  // where its content's header is
};

// Takes from the extra field of 64 bits those values that do not fit their own: all bits set says so.
static bool zip_read_64(const struct place *p, struct ps_zip_entry *entry, uint64_t *local)
{
    uint64_t *const wide[] = {&entry->size, &entry->packed_bytes, local};
    const uint8_t *at = p->at + ENTRY_BYTES + p->name, *end = at + p->extra;
    while (end - at >= 4 && zip_u16(at) != EXTRA_64 && zip_u16(at + 2) <= (uint64_t)(end - at - 4))
        at += 4 + zip_u16(at + 2);
    bool there = end - at >= 4 && zip_u16(at) == EXTRA_64 && zip_u16(at + 2) <= (uint64_t)(end - at - 4);
    const uint8_t *value = at + 4, *last = there ? value + zip_u16(at + 2) : value;
    for (int i = 0; i < 3; i++) {
        if (*wide[i] != UINT32_MAX)
            continue;
        if (!there || last - value < 8)
            return false;
        *wide[i] = zip_field(value, 8);
        value += 8;
    }
    return true;
}

static enum ps_code zip_check_kind(const uint8_t *at, const struct ps_zip_entry *entry, struct ps_error *e)
{
    uint64_t method = zip_u16(at + 10);
    if (zip_u16(at + 8) & FLAG_ENCRYPTED)
        return ps_fail(e, PS_INVALID_ARGUMENT, "entry '%.100s' is encrypted", entry->name);
    if (method != STORED && method != DEFLATED)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "entry '%.100s' is packed by method %" PRIu64 "; those known are 0 (stored) and 8 (deflate)",
                       entry->name, method);
    uint64_t most = method == STORED ? entry->packed_bytes : (entry->packed_bytes + 1) * DEFLATE_MOST;
    if (entry->size > most || (method == STORED && entry->size < most))
        return ps_fail(e, PS_DATA_LOSS,
                       "entry '%.100s' is said to have %" PRIu64 " bytes, which %" PRIu64 " packed ones cannot hold",
                       entry->name, entry->size, entry->packed_bytes);
    return PS_OK;
}

// Finds the content behind its own header, whose extra fields need not be the directory's.
static enum ps_code zip_place(uint64_t limit, uint64_t local, struct ps_zip_entry *entry, struct ps_error *e)
{
    uint8_t header[LOCAL_BYTES] = {0};
    if (zip_is_inside(local, LOCAL_BYTES, limit) &&
        entry->source.read(entry->source.arg, local, LOCAL_BYTES, header, e))
        return e->code;
    if (zip_u32(header) != LOCAL_MARK)
        return ps_fail(e, PS_DATA_LOSS, "entry '%.100s' should be at byte %" PRIu64 ", but no entry begins there",
                       entry->name, local);
    entry->begin = local + LOCAL_BYTES + zip_u16(header + 26) + zip_u16(header + 28);
    if (!zip_is_inside(entry->begin, entry->packed_bytes, limit))
        return ps_fail(e, PS_DATA_LOSS,
                       "entry '%.100s' should have %" PRIu64 " bytes from byte %" PRIu64
                       " on, but the entries end at byte %" PRIu64,
                       entry->name, entry->packed_bytes, entry->begin, limit);
    return PS_OK;
}

static enum ps_code zip_read_entry(uint64_t limit, const struct place *p, struct ps_zip_entry *entry,
                                   struct ps_error *e)
{
    uint64_t local = zip_u32(p->at + 42);
    entry->deflated = zip_u16(p->at + 10) == DEFLATED;
    entry->crc = (uint32_t)zip_u32(p->at + 16);
    entry->packed_bytes = zip_u32(p->at + 20);
    entry->size = zip_u32(p->at + 24);
    if (!zip_read_64(p, entry, &local))
        return ps_fail(e, PS_DATA_LOSS, "entry '%.100s' lacks its sizes of 64 bits", entry->name);
    // What a file can hold bounds the sizes before anything is computed of them.
    if (entry->packed_bytes > limit)
        return ps_fail(e, PS_DATA_LOSS, "entry '%.100s' should have %" PRIu64 " bytes, but the file has %" PRIu64,
                       entry->name, entry->packed_bytes, limit);
    enum ps_code code = zip_check_kind(p->at, entry, e);
    return code == PS_OK ? zip_place(limit, local, entry, e) : code;
}

// The entries' names, each with a NUL, one after the other: the directory has fixed parts that are longer. bytes: the
// directory.
static enum ps_code zip_read_entries(const struct ps_zip_source *from, const uint8_t *bytes, const struct directory *d,
                                     struct ps_zip *zip, struct ps_error *e)
{
    uint64_t at = 0;
    char *name = zip->names;
    for (; zip->n < d->entries; zip->n++) {
        struct place p = {bytes + at, 0, 0, 0, 0};
        struct ps_zip_entry *entry = &zip->entry[zip->n];
        if (d->bytes - at < ENTRY_BYTES || zip_u32(p.at) != ENTRY_MARK)
            return ps_fail(e, PS_DATA_LOSS, "entry %zu of the zip directory is damaged", zip->n);
        p.name = zip_u16(p.at + 28);
        p.extra = zip_u16(p.at + 30);
        p.comment = zip_u16(p.at + 32);
        if (p.name + p.extra + p.comment > d->bytes - at - ENTRY_BYTES)
            return ps_fail(e, PS_DATA_LOSS, "entry %zu of the zip directory is damaged", zip->n);
        entry->name = memcpy(name, p.at + ENTRY_BYTES, p.name);
        entry->source = *from;
        name += p.name + 1;
        if (zip_read_entry(d->begin, &p, entry, e))
            return e->code;
        at += ENTRY_BYTES + p.name + p.extra + p.comment;
    }
    return PS_OK;
}

static enum ps_code zip_read_directory(const struct ps_zip_source *from, const struct directory *d, struct ps_zip *zip,
                                       struct ps_error *e)
{
    uint8_t *bytes = ps_try_alloc(d->bytes + 1);
    zip->entry = ps_try_alloc_array(d->entries + 1, sizeof *zip->entry);
    zip->names = ps_try_alloc(d->bytes + 1);
    enum ps_code code = bytes && zip->entry && zip->names ? PS_OK : ps_no_memory(e, "a zip file's directory");
    if (code == PS_OK)
        code = from->read(from->arg, d->begin, (size_t)d->bytes, bytes, e);
    if (code == PS_OK)
        code = zip_read_entries(from, bytes, d, zip, e);
    free(bytes);
    return code;
}

enum ps_code ps_zip_read(const struct ps_zip_source *from, struct ps_zip **zip, struct ps_error *e)
{
    struct directory d = {0};
    struct ps_error unheard;
    e = e ? e : &unheard;
    if (zip_find_directory(from, &d, e))
        return e->code;
    struct ps_zip *z = ps_try_alloc(sizeof *z);
    const enum ps_code code = z ? zip_read_directory(from, &d, z, e) : ps_no_memory(e, "a zip file's directory");
    if (code == PS_OK)
        *zip = z;
    else
        ps_zip_free(z);
    return code;
}

static enum ps_code zip_read_memory(const void *arg, uint64_t at, size_t n, void *to, struct ps_error *e)
{
    (void)e;
    if (n)
        memcpy(to, (const uint8_t *)arg + at, n);
    return PS_OK;
}

enum ps_code ps_zip_parse(const uint8_t *bytes, size_t size, struct ps_zip **zip, struct ps_error *e)
{
    return ps_zip_read(&(struct ps_zip_source){zip_read_memory, bytes, size}, zip, e);
}

// A file that is open, of so many bytes then.
struct zip_file {
    int fd;
    uint64_t size;
};

static enum ps_code zip_read_file(const void *arg, uint64_t at, size_t n, void *to, struct ps_error *e)
{
    const struct zip_file *file = arg;
    return ps_read_at(file->fd, file->size, at, n, to, e);
}

static enum ps_code zip_check_file(struct zip_file *file, struct ps_error *e)
{
    struct stat st;
    if (fstat(file->fd, &st) != 0)
        return ps_fail(e, ps_code_of_file(errno), "%s", strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "expected a zip file, not %s",
                       S_ISDIR(st.st_mode)   ? "a folder"
                       : S_ISREG(st.st_mode) ? "an empty one"
                                             : "a device or a pipe");
    file->size = (uint64_t)st.st_size;
    return PS_OK;
}

static void zip_close(struct zip_file *file)
{
    if (file && file->fd >= 0)
        close(file->fd);
    free(file);
}

enum ps_code ps_zip_open(const char *path, struct ps_zip **zip, struct ps_error *e)
{
    struct zip_file *file = ps_try_alloc(sizeof *file);
    if (!file)
        return ps_no_memory(e, path);
    file->fd = open(path, O_RDONLY | O_CLOEXEC);
    enum ps_code code =
        file->fd < 0 ? ps_fail(e, ps_code_of_file(errno), "%s", strerror(errno)) : zip_check_file(file, e);
    if (code == PS_OK)
        code = ps_zip_read(&(struct ps_zip_source){zip_read_file, file, file->size}, zip, e);
    if (code == PS_OK) {
        (*zip)->file = file;
        return PS_OK;
    }
    zip_close(file);
    return ps_error_prefix(e, "%.200s", path);
}

void ps_zip_free(struct ps_zip *zip)
{
    if (!zip)
        return;
    zip_close(zip->file);
    free(zip->entry);
    free(zip->names);
    free(zip);
}

const struct ps_zip_entry *ps_zip_find(const struct ps_zip *zip, const char *name)
{
    for (size_t i = zip->n; i > 0; i--)
        if (strcmp(zip->entry[i - 1].name, name) == 0)
            return &zip->entry[i - 1];
    return NULL;
}

// ---- unpacking ----------------------------------------------------------------------------------------------------

static uInt zip_portion(uint64_t bytes)
{
    enum { PORTION = 1 << 30 };  // zlib counts in 32 bits
    return bytes < PORTION ? (uInt)bytes : PORTION;
}

// The packed bytes from `in` on, or some of them.
static enum ps_code zip_give(z_stream *z, const struct ps_zip_entry *entry, uint64_t in, uint8_t *buffer,
                             struct ps_error *e)
{
    const uint64_t left = entry->packed_bytes - in;
    z->next_in = buffer;
    z->avail_in = left < BUFFER ? (uInt)left : BUFFER;
    return entry->source.read(entry->source.arg, entry->begin + in, z->avail_in, buffer, e);
}

// DATA_LOSS also where what it gives is not of the size that is expected.
static enum ps_code zip_inflate(z_stream *z, const struct ps_zip_entry *entry, uint8_t *buffer, uint8_t *to,
                                struct ps_error *e)
{
    uint64_t in = 0, out = 0;
    int status = Z_OK;
    while (status == Z_OK) {
        if (zip_give(z, entry, in, buffer, e))
            return e->code;
        const uInt give = z->avail_in, room = zip_portion(entry->size - out);
        z->next_out = to + out;
        z->avail_out = room;
        status = inflate(z, Z_NO_FLUSH);
        in += give - z->avail_in;
        out += room - z->avail_out;
    }
    if (status == Z_STREAM_END && out == entry->size)
        return PS_OK;
    return ps_fail(e, PS_DATA_LOSS, "entry '%.100s' is damaged: it does not unpack to %" PRIu64 " bytes", entry->name,
                   entry->size);
}

static enum ps_code zip_unpack_deflated(const struct ps_zip_entry *entry, uint8_t *to, struct ps_error *e)
{
    z_stream z = {0};
    uint8_t nothing, *buffer = ps_try_alloc(BUFFER);
    if (!buffer || inflateInit2(&z, -MAX_WBITS) != Z_OK) {  // no header of zlib's own
        free(buffer);
        return ps_no_memory(e, "unpacking a zip file");
    }
    const enum ps_code code = zip_inflate(&z, entry, buffer, entry->size > 0 ? to : &nothing, e);
    inflateEnd(&z);
    free(buffer);
    return code;
}

static enum ps_code zip_check_crc(const struct ps_zip_entry *entry, uint32_t crc, struct ps_error *e)
{
    if (entry->size > 0 && crc != entry->crc)
        return ps_fail(e, PS_DATA_LOSS, "entry '%.100s' is damaged: its checksum differs", entry->name);
    return PS_OK;
}

enum ps_code ps_zip_verify(const struct ps_zip_entry *entry, struct ps_error *e)
{
    struct ps_error unheard;
    e = e ? e : &unheard;
    uint8_t *buffer = ps_try_alloc(BUFFER);
    uLong crc = 0;
    enum ps_code code = buffer ? PS_OK : ps_no_memory(e, "reading a zip file");
    for (uint64_t at = 0; code == PS_OK && at < entry->size;) {
        const size_t n = entry->size - at < BUFFER ? (size_t)(entry->size - at) : BUFFER;
        code = entry->source.read(entry->source.arg, entry->begin + at, n, buffer, e);
        crc = crc32_z(crc, buffer, code == PS_OK ? n : 0);
        at += n;
    }
    free(buffer);
    return code == PS_OK ? zip_check_crc(entry, (uint32_t)crc, e) : code;
}

enum ps_code ps_zip_unpack(const struct ps_zip_entry *entry, uint8_t *to, struct ps_error *e)
{
    struct ps_error unheard;
    e = e ? e : &unheard;
    enum ps_code code = entry->deflated
                            ? zip_unpack_deflated(entry, to, e)
                            : entry->source.read(entry->source.arg, entry->begin, (size_t)entry->size, to, e);
    return code == PS_OK ? zip_check_crc(entry, (uint32_t)(entry->size > 0 ? crc32_z(0, to, entry->size) : 0), e)
                         : code;
}

// ---- writing ------------------------------------------------------------------------------------------------------

static void zip_put(FILE *to, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        putc((int)(value >> 8 * i & 0xff), to);
}

// Takes the value a field of 64 bits? Then its own has all bits set.
static bool zip_is_wide(uint64_t value)
{
    return value >= UINT32_MAX;
}

static void zip_put_u32(FILE *to, uint64_t value)
{
    zip_put(to, zip_is_wide(value) ? UINT32_MAX : value, 4);
}

static size_t zip_extra_bytes(size_t wide)
{
    return wide ? 4 + 8 * wide : 0;
}

// The extra field with so many values that are wide.
static void zip_put_extra(FILE *to, const uint64_t *value, size_t wide)
{
    if (wide) {
        zip_put(to, EXTRA_64, 2);
        zip_put(to, 8 * wide, 2);
    }
    for (size_t i = 0; i < wide; i++)
        zip_put(to, value[i], 8);
}

// What a local header and an entry of the directory have alike. wide: so many values stand in the extra field.
static void zip_put_facts(FILE *to, const char *name, uint32_t crc, uint64_t size, size_t wide)
{
    zip_put(to, wide ? VERSION_64 : VERSION, 2);
    zip_put(to, FLAG_UTF8, 2);
    zip_put(to, STORED, 2);
    zip_put(to, 0, 2);  // midnight
    zip_put(to, DATE_1980, 2);
    zip_put(to, crc, 4);
    zip_put_u32(to, size);
    zip_put_u32(to, size);
    zip_put(to, strlen(name), 2);
    zip_put(to, zip_extra_bytes(wide), 2);
}

void ps_zip_begin(struct ps_zip_writer *w, FILE *file)
{
    *w = (struct ps_zip_writer){.file = file};
    w->directory = open_memstream(&w->text, &w->length);
}

enum ps_code ps_zip_add(struct ps_zip_writer *w, const char *name, const void *content, uint64_t size,
                        struct ps_error *e)
{
    if (!w->directory)
        return ps_no_memory(e, "a zip file's directory");
    const uint32_t crc = (uint32_t)(size > 0 ? crc32_z(0, content, size) : 0);
    const size_t sizes = zip_is_wide(size) ? 2 : 0, wide = sizes + zip_is_wide(w->at);
    const uint64_t value[] = {size, size, w->at};
    zip_put(w->file, LOCAL_MARK, 4);
    zip_put_facts(w->file, name, crc, size, sizes);
    fputs(name, w->file);
    zip_put_extra(w->file, value, sizes);
    if (size > 0)
        fwrite(content, 1, size, w->file);

    zip_put(w->directory, ENTRY_MARK, 4);
    zip_put(w->directory, MADE_ON_UNIX | (wide ? VERSION_64 : VERSION), 2);
    zip_put_facts(w->directory, name, crc, size, wide);
    zip_put(w->directory, 0, 6);                        // no comment, volume 0, no attributes of DOS's
    zip_put(w->directory, UINT64_C(0100644) << 16, 4);  // a file, -rw-r--r--
    zip_put_u32(w->directory, w->at);
    fputs(name, w->directory);
    zip_put_extra(w->directory, value + (sizes ? 0 : 2), wide);
    w->at += LOCAL_BYTES + strlen(name) + zip_extra_bytes(sizes) + size;
    w->n++;
    return PS_OK;
}

// The record of 64-bit fields, and where it is.
static void zip_put_end64(const struct ps_zip_writer *w)
{
    zip_put(w->file, END64_MARK, 4);
    zip_put(w->file, END64_BYTES - 12, 8);  // bytes that follow
    zip_put(w->file, MADE_ON_UNIX | VERSION_64, 2);
    zip_put(w->file, VERSION_64, 2);
    zip_put(w->file, 0, 8);  // volume 0
    zip_put(w->file, w->n, 8);
    zip_put(w->file, w->n, 8);
    zip_put(w->file, w->length, 8);
    zip_put(w->file, w->at, 8);
    zip_put(w->file, LOCATOR_MARK, 4);
    zip_put(w->file, 0, 4);
    zip_put(w->file, w->at + w->length, 8);
    zip_put(w->file, 1, 4);  // of one volume
}

static void zip_put_end(const struct ps_zip_writer *w)
{
    const uint64_t n = w->n < UINT16_MAX ? w->n : UINT16_MAX;
    fwrite(w->text, 1, w->length, w->file);
    if (n == UINT16_MAX || zip_is_wide(w->length) || zip_is_wide(w->at))
        zip_put_end64(w);
    zip_put(w->file, END_MARK, 4);
    zip_put(w->file, 0, 4);  // volume 0
    zip_put(w->file, n, 2);
    zip_put(w->file, n, 2);
    zip_put_u32(w->file, w->length);
    zip_put_u32(w->file, w->at);
    zip_put(w->file, 0, 2);  // no comment
}

enum ps_code ps_zip_end(struct ps_zip_writer *w, struct ps_error *e)
{
    bool whole = w->directory && fclose(w->directory) == 0;
    if (whole)
        zip_put_end(w);
    free(w->text);
    return whole ? PS_OK : ps_no_memory(e, "a zip file's directory");
}

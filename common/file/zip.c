// SPDX-License-Identifier: Apache-2.0
//
// Top to bottom: the fields, the directory's place, its entries, unpacking, writing.
#include "common/file/zip.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/base/alloc.h"

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
    STORED = 0,
    DEFLATED = 8,
    FLAG_ENCRYPTED = 1,
    FLAG_UTF8 = 1 << 11,
    EXTRA_64 = 1,            // the extra field with sizes of 64 bits
    DEFLATE_MOST = 1032,     // bytes that one packed byte stands for
    DATE_1980 = 1 << 5 | 1,  // 1 January
    VERSION = 20,            // what is needed to unpack: 2.0
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

// The record at the end, before a comment of any bytes that reaches to the end; NULL: there is none.
static const uint8_t *zip_find_end(const uint8_t *bytes, size_t size)
{
    for (size_t comment = 0; comment <= MAX_COMMENT && comment + END_BYTES <= size; comment++) {
        const uint8_t *at = bytes + size - END_BYTES - comment;
        if (zip_u32(at) == END_MARK && zip_u16(at + 20) == comment)
            return at;
    }
    return NULL;
}

// The record of 64-bit fields, where the locator before `end` says that there is one; NULL: there is none.
static const uint8_t *zip_find_end64(const uint8_t *bytes, size_t end)
{
    if (end < LOCATOR_BYTES || zip_u32(bytes + end - LOCATOR_BYTES) != LOCATOR_MARK)
        return NULL;
    uint64_t at = zip_field(bytes + end - LOCATOR_BYTES + 8, 8);
    return zip_is_inside(at, END64_BYTES, end) && zip_u32(bytes + at) == END64_MARK ? bytes + at : NULL;
}

static enum ps_code zip_find_directory(const uint8_t *bytes, size_t size, struct directory *d, struct ps_error *e)
{
    const uint8_t *end = zip_find_end(bytes, size);
    if (!end)
        return ps_fail(e, PS_INVALID_ARGUMENT, "is no zip file, or its end is missing");
    const uint8_t *end64 = zip_find_end64(bytes, (size_t)(end - bytes));
    uint64_t limit = (uint64_t)((end64 ? end64 : end) - bytes);
    uint64_t volume = end64 ? zip_u32(end64 + 16) | zip_u32(end64 + 20) : zip_u16(end + 4) | zip_u16(end + 6);
    if (end64)
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
static enum ps_code zip_place(const uint8_t *bytes, uint64_t limit, uint64_t local, struct ps_zip_entry *entry,
                              struct ps_error *e)
{
    if (!zip_is_inside(local, LOCAL_BYTES, limit) || zip_u32(bytes + local) != LOCAL_MARK)
        return ps_fail(e, PS_DATA_LOSS, "entry '%.100s' should be at byte %" PRIu64 ", but no entry begins there",
                       entry->name, local);
    uint64_t begin = local + LOCAL_BYTES + zip_u16(bytes + local + 26) + zip_u16(bytes + local + 28);
    if (!zip_is_inside(begin, entry->packed_bytes, limit))
        return ps_fail(e, PS_DATA_LOSS,
                       "entry '%.100s' should have %" PRIu64 " bytes from byte %" PRIu64
                       " on, but the entries end at byte %" PRIu64,
                       entry->name, entry->packed_bytes, begin, limit);
    entry->packed = bytes + begin;
    return PS_OK;
}

static enum ps_code zip_read_entry(const uint8_t *bytes, uint64_t limit, const struct place *p,
                                   struct ps_zip_entry *entry, struct ps_error *e)
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
    return code == PS_OK ? zip_place(bytes, limit, local, entry, e) : code;
}

// The entries' names, each with a NUL, one after the other: the directory has fixed parts that are longer.
static enum ps_code zip_read_entries(const uint8_t *bytes, const struct directory *d, struct ps_zip *zip,
                                     struct ps_error *e)
{
    uint64_t at = d->begin, end = d->begin + d->bytes;
    char *name = zip->names;
    for (; zip->n < d->entries; zip->n++) {
        struct place p = {bytes + at, 0, 0, 0, 0};
        struct ps_zip_entry *entry = &zip->entry[zip->n];
        if (end - at < ENTRY_BYTES || zip_u32(p.at) != ENTRY_MARK)
            return ps_fail(e, PS_DATA_LOSS, "entry %zu of the zip directory is damaged", zip->n);
        p.name = zip_u16(p.at + 28);
        p.extra = zip_u16(p.at + 30);
        p.comment = zip_u16(p.at + 32);
        if (p.name + p.extra + p.comment > end - at - ENTRY_BYTES)
            return ps_fail(e, PS_DATA_LOSS, "entry %zu of the zip directory is damaged", zip->n);
        entry->name = memcpy(name, p.at + ENTRY_BYTES, p.name);
        name += p.name + 1;
        if (zip_read_entry(bytes, d->begin, &p, entry, e))
            return e->code;
        at += ENTRY_BYTES + p.name + p.extra + p.comment;
    }
    return PS_OK;
}

enum ps_code ps_zip_parse(const uint8_t *bytes, size_t size, struct ps_zip **zip, struct ps_error *e)
{
    struct directory d = {0};
    enum ps_code code = zip_find_directory(bytes, size, &d, e);
    if (code)
        return code;
    struct ps_zip *z = ps_try_alloc(sizeof *z);
    if (!z)
        return ps_no_memory(e, "a zip file's directory");
    z->entry = ps_try_alloc_array(d.entries + 1, sizeof *z->entry);
    z->names = ps_try_alloc(d.bytes + 1);
    code = z->entry && z->names ? zip_read_entries(bytes, &d, z, e) : ps_no_memory(e, "a zip file's directory");
    if (code == PS_OK)
        *zip = z;
    else
        ps_zip_free(z);
    return code;
}

static enum ps_code zip_map(const char *path, void **mapped, size_t *size, struct ps_error *e)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return ps_fail(e, errno == ENOENT ? PS_NOT_FOUND : PS_FAILED_PRECONDITION, "%s", strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) {
        close(fd);
        return ps_fail(e, PS_INVALID_ARGUMENT, "expected a zip file, not %s",
                       S_ISDIR(st.st_mode)   ? "a folder"
                       : S_ISREG(st.st_mode) ? "an empty one"
                                             : "a device or a pipe");
    }
    *size = (size_t)st.st_size;
    *mapped = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
    int error = errno;
    close(fd);
    return *mapped == MAP_FAILED ? ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot be mapped: %s", strerror(error)) : PS_OK;
}

enum ps_code ps_zip_open(const char *path, struct ps_zip **zip, struct ps_error *e)
{
    void *mapped = NULL;
    size_t size = 0;
    if (zip_map(path, &mapped, &size, e))
        return ps_error_prefix(e, "%.200s", path);
    enum ps_code code = ps_zip_parse(mapped, size, zip, e);
    if (code) {
        munmap(mapped, size);
        return ps_error_prefix(e, "%.200s", path);
    }
    (*zip)->mapped = mapped;
    (*zip)->mapped_bytes = size;
    return PS_OK;
}

void ps_zip_free(struct ps_zip *zip)
{
    if (!zip)
        return;
    if (zip->mapped)
        munmap(zip->mapped, zip->mapped_bytes);
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

// Is what it gives of the size that is expected?
static bool zip_inflate(z_stream *z, const struct ps_zip_entry *entry, uint8_t *to)
{
    uint64_t in = 0, out = 0;
    int status = Z_OK;
    while (status == Z_OK) {
        const uInt give = zip_portion(entry->packed_bytes - in), room = zip_portion(entry->size - out);
        z->next_in = (Bytef *)(uintptr_t)(entry->packed + in);  // which zlib only reads
        z->next_out = to + out;
        z->avail_in = give;
        z->avail_out = room;
        status = inflate(z, Z_NO_FLUSH);
        in += give - z->avail_in;
        out += room - z->avail_out;
    }
    return status == Z_STREAM_END && out == entry->size;
}

enum ps_code ps_zip_check(const struct ps_zip_entry *entry, const uint8_t *content, struct ps_error *e)
{
    if (entry->size > 0 && crc32_z(0, content, entry->size) != entry->crc)
        return ps_fail(e, PS_DATA_LOSS, "entry '%.100s' is damaged: its checksum differs", entry->name);
    return PS_OK;
}

enum ps_code ps_zip_unpack(const struct ps_zip_entry *entry, uint8_t *to, struct ps_error *e)
{
    z_stream z = {0};
    uint8_t nothing;
    if (!entry->deflated) {
        if (entry->size > 0)
            memcpy(to, entry->packed, entry->size);
        return ps_zip_check(entry, to, e);
    }
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)  // no header of zlib's own
        return ps_no_memory(e, "unpacking a zip file");
    bool whole = zip_inflate(&z, entry, entry->size > 0 ? to : &nothing);
    inflateEnd(&z);
    if (!whole)
        return ps_fail(e, PS_DATA_LOSS, "entry '%.100s' is damaged: it does not unpack to %" PRIu64 " bytes",
                       entry->name, entry->size);
    return ps_zip_check(entry, to, e);
}

// ---- writing ------------------------------------------------------------------------------------------------------

static void zip_put(FILE *to, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        putc((int)(value >> 8 * i & 0xff), to);
}

// What a local header and an entry of the directory have alike.
static void zip_put_facts(FILE *to, const char *name, uint32_t crc, uint64_t size)
{
    zip_put(to, VERSION, 2);
    zip_put(to, FLAG_UTF8, 2);
    zip_put(to, STORED, 2);
    zip_put(to, 0, 2);  // midnight
    zip_put(to, DATE_1980, 2);
    zip_put(to, crc, 4);
    zip_put(to, size, 4);
    zip_put(to, size, 4);
    zip_put(to, strlen(name), 2);
    zip_put(to, 0, 2);  // no extra fields
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
    if (w->n == UINT16_MAX || size >= UINT32_MAX || w->at + size >= UINT32_MAX - (uint64_t)UINT16_MAX)
        return ps_fail(e, PS_OUT_OF_RANGE, "entry '%.100s' of %" PRIu64 " bytes: a zip file here holds 4 GiB", name,
                       size);
    uint32_t crc = (uint32_t)(size > 0 ? crc32_z(0, content, size) : 0);
    zip_put(w->file, LOCAL_MARK, 4);
    zip_put_facts(w->file, name, crc, size);
    fputs(name, w->file);
    if (size > 0)
        fwrite(content, 1, size, w->file);

    zip_put(w->directory, ENTRY_MARK, 4);
    zip_put(w->directory, 3 << 8 | VERSION, 2);  // made on Unix
    zip_put_facts(w->directory, name, crc, size);
    zip_put(w->directory, 0, 6);                        // no comment, volume 0, no attributes of DOS's
    zip_put(w->directory, UINT64_C(0100644) << 16, 4);  // a file, -rw-r--r--
    zip_put(w->directory, w->at, 4);
    fputs(name, w->directory);
    w->at += LOCAL_BYTES + strlen(name) + size;
    w->n++;
    return PS_OK;
}

static void zip_put_end(const struct ps_zip_writer *w)
{
    fwrite(w->text, 1, w->length, w->file);
    zip_put(w->file, END_MARK, 4);
    zip_put(w->file, 0, 4);  // volume 0
    zip_put(w->file, w->n, 2);
    zip_put(w->file, w->n, 2);
    zip_put(w->file, w->length, 4);
    zip_put(w->file, w->at, 4);
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

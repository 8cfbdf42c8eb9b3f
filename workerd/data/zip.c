// SPDX-License-Identifier: Apache-2.0
//
// Zip archives, as far as numpy.savez needs them: found by their central directory, with 64-bit sizes; members stored
// or deflated. APPNOTE.TXT 4.3 and 4.5 (PKWARE).
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "common/base/alloc.h"
#include "workerd/data/data_internal.h"

enum {
    END = 22,           // bytes of the end of central directory record, without its comment
    LONGEST_END = END + UINT16_MAX,
    LOCATOR = 20,       // of the zip64 locator, which stands before it
    END64 = 56,         // of the zip64 end of central directory record
    ENTRY = 46,         // of an entry of the directory, without its name and extra fields
    LOCAL = 30,         // of a local header, likewise
    MOST_MEMBERS = 10000,
    ZIP64 = 1,          // the extra field with 64-bit sizes
    STORED = 0,
    DEFLATED = 8,
    ENCRYPTED = 1,
};

static uint16_t zip_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t zip_u32(const uint8_t *p)
{
    return (uint32_t)zip_u16(p) | (uint32_t)zip_u16(p + 2) << 16;
}

static uint64_t zip_u64(const uint8_t *p)
{
    return (uint64_t)zip_u32(p) | (uint64_t)zip_u32(p + 4) << 32;
}

struct directory {
    uint64_t at, size, members;
};

// The 64-bit record, if a locator that stands before the end at `end` says where it is.
static enum ps_code zip_find_end64(const struct wk_block *b, uint64_t end, struct directory *d, struct ps_error *e)
{
    uint8_t locator[LOCATOR], record[END64];
    if (end < LOCATOR)
        return PS_OK;
    if (wk_block_read(b, end - LOCATOR, LOCATOR, locator, e))
        return e->code;
    if (memcmp(locator, "PK\6\7", 4) != 0)
        return PS_OK;
    if (wk_block_read(b, zip_u64(locator + 8), END64, record, e))
        return e->code;
    if (memcmp(record, "PK\6\6", 4) != 0)
        return ps_fail(e, PS_DATA_LOSS, "no zip64 end record at byte %" PRIu64 ", where its locator points",
                       zip_u64(locator + 8));
    *d = (struct directory){.members = zip_u64(record + 32), .size = zip_u64(record + 40), .at = zip_u64(record + 48)};
    return PS_OK;
}

// The last signature in the file's tail whose comment ends with the file.
static enum ps_code zip_find_directory(const struct wk_block *b, struct directory *d, struct ps_error *e)
{
    size_t n = b->size < LONGEST_END ? (size_t)b->size : LONGEST_END;
    uint8_t *tail = wk_array(n, 1, 1, e);
    if (!tail)
        return PS_RESOURCE_EXHAUSTED;
    enum ps_code code = wk_block_read(b, b->size - n, n, tail, e);
    bool found = false;
    for (size_t i = n < END ? 0 : n - END + 1; code == PS_OK && !found && i-- > 0;) {
        const uint8_t *p = tail + i;
        if (memcmp(p, "PK\5\6", 4) != 0 || END + (size_t)zip_u16(p + 20) != n - i)
            continue;
        found = true;
        *d = (struct directory){.members = zip_u16(p + 10), .size = zip_u32(p + 12), .at = zip_u32(p + 16)};
        code = zip_find_end64(b, b->size - n + i, d, e);
    }
    free(tail);
    if (code == PS_OK && !found)
        return ps_fail(e, PS_DATA_LOSS, "no end of a zip archive in it: expected a file of numpy.savez, whole");
    if (code == PS_OK && (d->at > b->size || d->size > b->size - d->at || d->members > MOST_MEMBERS))
        return ps_fail(e, PS_DATA_LOSS,
                       "the directory has %" PRIu64 " members in %" PRIu64 " bytes from byte %" PRIu64
                       " on, expected at most %d within the file's %" PRIu64,
                       d->members, d->size, d->at, MOST_MEMBERS, b->size);
    return code;
}

// Each of the three that is all ones in the entry stands in the extra field, in this order.
static bool zip_take_extra(const uint8_t *extra, size_t n, struct wk_zip_member *m)
{
    uint64_t *wide[] = {&m->size, &m->packed, &m->header};
    for (size_t at = 0; at + 4 <= n;) {
        size_t size = zip_u16(extra + at + 2), from = at + 4;
        if (size > n - from)
            return false;
        for (size_t k = 0; zip_u16(extra + at) == ZIP64 && k < 3; k++) {
            if (*wide[k] != UINT32_MAX)
                continue;
            if (from + 8 > at + 4 + size)
                return false;
            *wide[k] = zip_u64(extra + from);
            from += 8;
        }
        at += 4 + size;
    }
    return true;
}

// An entry of the directory; *used: its bytes.
static enum ps_code zip_parse_entry(const uint8_t *p, size_t n, struct wk_zip_member *m, size_t *used,
                                    struct ps_error *e)
{
    if (n < ENTRY || memcmp(p, "PK\1\2", 4) != 0)
        return ps_fail(e, PS_DATA_LOSS, "no entry of the directory where one was expected");
    size_t name = zip_u16(p + 28), extra = zip_u16(p + 30), comment = zip_u16(p + 32);
    *used = ENTRY + name + extra + comment;
    if (*used > n)
        return ps_fail(e, PS_DATA_LOSS, "an entry of the directory goes beyond its end");
    m->name = ps_printf("%.*s", (int)name, (const char *)p + ENTRY);
    m->crc = zip_u32(p + 16);
    m->packed = zip_u32(p + 20);
    m->size = zip_u32(p + 24);
    m->header = zip_u32(p + 42);
    int method = zip_u16(p + 10);
    m->deflated = method == DEFLATED;
    if (!zip_take_extra(p + ENTRY + name, extra, m))
        return ps_fail(e, PS_DATA_LOSS, "%s: its extra fields do not fit", m->name);
    if (zip_u16(p + 8) & ENCRYPTED || (method != STORED && method != DEFLATED))
        return ps_fail(e, PS_UNIMPLEMENTED, "%s: method %d%s, expected stored or deflated", m->name, method,
                       zip_u16(p + 8) & ENCRYPTED ? ", encrypted" : "");
    if (method == STORED && m->packed != m->size)
        return ps_fail(e, PS_DATA_LOSS, "%s: stored, but of two sizes", m->name);
    return PS_OK;
}

enum ps_code wk_zip_parse(const struct wk_block *block, struct wk_zip *zip, struct ps_error *e)
{
    struct directory d = {0};
    *zip = (struct wk_zip){0};
    if (zip_find_directory(block, &d, e))
        return e->code;
    uint8_t *bytes = wk_array(d.size, 1, 1, e);
    if (!bytes)
        return PS_RESOURCE_EXHAUSTED;
    enum ps_code code = wk_block_read(block, d.at, (size_t)d.size, bytes, e);
    zip->member = ps_alloc((size_t)(d.members + 1) * sizeof *zip->member);
    size_t at = 0, used = 0;
    for (uint64_t i = 0; i < d.members && code == PS_OK; i++, at += used)
        code = zip_parse_entry(bytes + at, (size_t)d.size - at, &zip->member[zip->members++], &used, e);
    free(bytes);
    if (code != PS_OK)
        wk_zip_free(zip);
    return code;
}

void wk_zip_free(struct wk_zip *zip)
{
    for (size_t i = 0; i < zip->members; i++)
        free(zip->member[i].name);
    free(zip->member);
    *zip = (struct wk_zip){0};
}

enum ps_code wk_zip_offset(const struct wk_block *block, const struct wk_zip_member *m, uint64_t *offset,
                           struct ps_error *e)
{
    uint8_t local[LOCAL];
    if (wk_block_read(block, m->header, LOCAL, local, e))
        return e->code;
    if (memcmp(local, "PK\3\4", 4) != 0)
        return ps_fail(e, PS_DATA_LOSS, "no member begins at byte %" PRIu64 ", where the directory says so", m->header);
    *offset = m->header + LOCAL + zip_u16(local + 26) + zip_u16(local + 28);
    if (*offset > block->size || m->packed > block->size - *offset)
        return ps_fail(e, PS_DATA_LOSS, "its %" PRIu64 " bytes from byte %" PRIu64 " on go beyond the archive's end",
                       m->packed, *offset);
    return PS_OK;
}

// Deflate makes at most 1032 bytes of one, so that a size that is more than that is a lie: nothing is allocated for it.
static enum ps_code zip_inflate(const uint8_t *packed, const struct wk_zip_member *m, uint8_t *to, struct ps_error *e)
{
    z_stream z = {0};
    uint64_t in = 0, out = 0;
    int result = inflateInit2(&z, -MAX_WBITS);
    while (result == Z_OK || result == Z_BUF_ERROR) {
        uint64_t more_in = m->packed - in, more_out = m->size - out;
        z.next_in = (uint8_t *)packed + in;
        z.avail_in = more_in < INT32_MAX ? (unsigned)more_in : INT32_MAX;
        z.next_out = to + out;
        z.avail_out = more_out < INT32_MAX ? (unsigned)more_out : INT32_MAX;
        unsigned had_in = z.avail_in, had_out = z.avail_out;
        result = inflate(&z, Z_NO_FLUSH);
        in += had_in - z.avail_in;
        out += had_out - z.avail_out;
        if (result == Z_BUF_ERROR || (had_in == z.avail_in && had_out == z.avail_out))
            break;
    }
    inflateEnd(&z);
    if (result != Z_STREAM_END || out != m->size)
        return ps_fail(e, PS_DATA_LOSS, "inflates to %" PRIu64 " bytes, expected %" PRIu64, out, m->size);
    return PS_OK;
}

static uint32_t zip_crc(const uint8_t *bytes, uint64_t n)
{
    return (uint32_t)crc32_z(crc32(0, NULL, 0), bytes, (size_t)n);
}

enum ps_code wk_zip_read(const struct wk_block *block, const struct wk_zip_member *m, uint8_t **bytes,
                         struct ps_error *e)
{
    uint64_t offset;
    if (wk_zip_offset(block, m, &offset, e))
        return e->code;
    if (m->size / 1032 > m->packed)
        return ps_fail(e, PS_DATA_LOSS, "%" PRIu64 " bytes cannot inflate to %" PRIu64, m->packed, m->size);
    uint8_t *packed = wk_array(m->packed, 1, 1, e), *to = packed ? wk_array(m->size, 1, 1, e) : NULL;
    enum ps_code code = to ? wk_block_read(block, offset, (size_t)m->packed, packed, e) : PS_RESOURCE_EXHAUSTED;
    if (code == PS_OK && m->deflated)
        code = zip_inflate(packed, m, to, e);
    else if (code == PS_OK && m->size)
        memcpy(to, packed, (size_t)m->size);
    if (code == PS_OK && zip_crc(to, m->size) != m->crc)
        code = ps_fail(e, PS_DATA_LOSS, "its CRC-32 is 0x%08x, expected 0x%08x", zip_crc(to, m->size), m->crc);
    free(packed);
    if (code == PS_OK)
        *bytes = to;
    else
        free(to);
    return code;
}

// SPDX-License-Identifier: Apache-2.0
//
// Zip files, as .npz and .keras are: entries one after the other, then a directory that says where each is.
//     https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
// Read: entries as they are or deflated, with or without the 64-bit fields. Written: entries as they are. Everything
// else that zip knows (encryption, several volumes, other methods) is refused by name.
//
//     if (ps_zip_open(path, &zip, e))
//         return e->code;
//     const struct ps_zip_entry *entry = ps_zip_find(zip, "config.json");
//     uint8_t *bytes = ps_try_alloc_array(entry->size, 1);
//     code = ps_zip_unpack(entry, bytes, e);
//
// Threads: what is read may be unpacked by several at once; a writer belongs to one.
#ifndef PS_COMMON_ZIP_H
#define PS_COMMON_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/error.h"

// ---- reading ------------------------------------------------------------------------------------------------------

// Where a zip file's bytes come from.
struct ps_zip_source {
    // n bytes from `at` on, which lie within its size.
    enum ps_code (*read)(const void *arg, uint64_t at, size_t n, void *to, struct ps_error *e);
    const void *arg;  // read's
    uint64_t size;    // bytes
};

struct ps_zip_entry {
    const char *name;  // the zip's
    struct ps_zip_source source;
    uint64_t begin;  // of its packed bytes, in the file
    uint64_t packed_bytes;
    uint64_t size;  // bytes of its content, by what the directory says; at most what so many packed bytes can hold
    uint32_t crc;   // of its content
    bool deflated;
};

struct ps_zip {
    struct ps_zip_entry *entry;  // in the directory's order
    size_t n;
    char *names;            // of all entries
    struct zip_file *file;  // that ps_zip_open has opened, or NULL
};

// Opens the file and reads its directory. As ps_code_of_file; INVALID_ARGUMENT, DATA_LOSS. The path stands in front.
// Entries are read when they are unpacked, which fails in the same ways where the file is cut short by then.
enum ps_code ps_zip_open(const char *path, struct ps_zip **zip, struct ps_error *e);
// The same of a source, whose arg must live as long as the zip. The errors of its read, too.
enum ps_code ps_zip_read(const struct ps_zip_source *from, struct ps_zip **zip, struct ps_error *e);
// The same of what is in memory, which must live as long as the zip.
enum ps_code ps_zip_parse(const uint8_t *bytes, size_t size, struct ps_zip **zip, struct ps_error *e);
void ps_zip_free(struct ps_zip *zip);  // NULL is fine

// The entry with this name, the last one where there are several; NULL: there is none.
const struct ps_zip_entry *ps_zip_find(const struct ps_zip *zip, const char *name);

// Writes the entry's content to `to`, which has room for entry->size bytes. DATA_LOSS: it is damaged.
enum ps_code ps_zip_unpack(const struct ps_zip_entry *entry, uint8_t *to, struct ps_error *e);
// Is the content of an entry that is not deflated the one that was written? It is read for that, a part at a time.
// DATA_LOSS.
enum ps_code ps_zip_verify(const struct ps_zip_entry *entry, struct ps_error *e);

// ---- writing ------------------------------------------------------------------------------------------------------

// Entries bear the date 1980-01-01, so that the same contents make the same bytes.
struct ps_zip_writer {
    FILE *file;  // the caller's; whether it took everything is the caller's to look at
    uint64_t at;
    uint64_t n;
    FILE *directory;  // in memory, until the end
    char *text;
    size_t length;
};

void ps_zip_begin(struct ps_zip_writer *w, FILE *file);
// What fields of 32 bits do not hold goes into those of 64 bits. RESOURCE_EXHAUSTED: no memory for the directory.
enum ps_code ps_zip_add(struct ps_zip_writer *w, const char *name, const void *content, uint64_t size,
                        struct ps_error *e);
// Writes the directory and frees what the writer has; to be called in any case, and once. RESOURCE_EXHAUSTED: the
// directory did not fit into memory, and what is written is no zip file.
enum ps_code ps_zip_end(struct ps_zip_writer *w, struct ps_error *e);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// Zip files: whatever the bytes, an error or entries that lie in the buffer and unpack into what they say they need.
#include <stdlib.h>

#include "common/file/zip.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void unpack(const struct ps_zip_entry *entry)
{
    struct ps_error e;
    uint8_t *to = malloc(entry->size ? entry->size : 1);
    if (to && ps_zip_unpack(entry, to, &e) == PS_OK && !entry->deflated && ps_zip_verify(entry, &e) != PS_OK)
        abort();
    free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    enum { MOST = 1 << 24 };
    struct ps_error e;
    struct ps_zip *zip;
    if (ps_zip_parse(bytes, size, &zip, &e) != PS_OK)
        return 0;
    for (size_t i = 0; i < zip->n; i++) {
        const struct ps_zip_entry *entry = &zip->entry[i];
        if (entry->begin > size || entry->packed_bytes > size - entry->begin)
            abort();
        if (!ps_zip_find(zip, entry->name))
            abort();
        if (entry->size <= MOST)
            unpack(entry);
    }
    ps_zip_free(zip);
    return 0;
}

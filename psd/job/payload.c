// SPDX-License-Identifier: Apache-2.0
#include "psd/job/payload.h"

#include <string.h>

// Moves to the slice in which offset lies, which is below the payload's end. Returns where in it.
static size_t payload_seek(struct psd_feed *f, size_t offset)
{
    if (offset < f->base)
        f->slice = f->base = 0;
    while (offset - f->base >= f->payload->v[f->slice].len)
        f->base += f->payload->v[f->slice++].len;
    return offset - f->base;
}

void psd_feed_copy(struct psd_feed *f, size_t offset, size_t len, void *to)
{
    uint8_t *out = to;
    while (len) {
        size_t at = payload_seek(f, offset), n = f->payload->v[f->slice].len - at;
        n = n < len ? n : len;
        memcpy(out, f->payload->v[f->slice].data + at, n);
        out += n;
        offset += n;
        len -= n;
    }
}

enum { RUN_BYTES = 16 << 10, ELEM_MAX = 8 };

void psd_feed_walk(struct psd_feed *f, size_t offset, size_t bytes, size_t elem,
                   bool (*fn)(void *arg, size_t first, const void *data, size_t n), void *arg)
{
    uint8_t split[ELEM_MAX];  // an element that two slices share
    for (size_t done = 0, len; done < bytes; done += len) {
        size_t at = payload_seek(f, offset + done);
        const uint8_t *here = f->payload->v[f->slice].data + at;
        size_t left = bytes - done < RUN_BYTES ? bytes - done : RUN_BYTES;
        len = f->payload->v[f->slice].len - at;
        len = (len < left ? len : left) / elem * elem;
        if (len == 0) {
            len = elem;
            psd_feed_copy(f, offset + done, len, split);
            here = split;
        }
        if (!fn(arg, done / elem, here, len / elem))
            return;
    }
}

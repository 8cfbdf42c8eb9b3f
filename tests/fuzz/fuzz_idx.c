// SPDX-License-Identifier: Apache-2.0
//
// IDX files of images and of labels: whatever the bytes, an error or elements that all lie in the buffer.
#include <stdlib.h>

#include "workerd/data/data_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    for (size_t rank = 1; rank <= 3; rank += 2) {
        struct ps_error e;
        struct wk_idx idx;
        if (wk_idx_parse(bytes, size, size, rank, &idx, &e) != PS_OK)
            continue;
        if (idx.header + idx.count != size)
            abort();
    }
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// npy files: whatever the bytes, an error or elements that all lie in the buffer.
#include <stdlib.h>

#include "workerd/data/data_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct ps_error e;
    struct ps_npy npy;
    if (ps_npy_parse(bytes, size, &npy, &e) != PS_OK)
        return 0;
    if (npy.elements + npy.count * npy.width != bytes + size)
        abort();
    bool number = npy.kind != 'S' && npy.kind != 'V' && !(npy.kind == 'f' && npy.width == 2);
    for (uint64_t i = 0; number && i < npy.count; i++)
        (void)wk_element(npy.kind, npy.width, npy.elements + i * npy.width);
    return 0;
}

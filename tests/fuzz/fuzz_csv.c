// SPDX-License-Identifier: Apache-2.0
//
// CSV files as labels and as targets: whatever the bytes, an error or numbers that are finite.
#include <math.h>
#include <stdlib.h>

#include "workerd/data/data_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(const struct wk_part *part)
{
    for (uint64_t i = 0; i < part->split.examples * part->split.inputs; i++)
        if (!isfinite(part->floats[i]))
            abort();
    for (uint64_t i = 0; i < part->split.examples; i++)
        if (part->label ? part->label[i] < 0 || part->label[i] >= part->split.classes : !isfinite(part->target[i]))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    for (int labels = 0; labels <= 1; labels++) {
        struct ps_error e;
        struct wk_part part = {0};
        if (wk_csv_parse((const char *)bytes, size, labels, &part, &e) == PS_OK)
            check(&part);
        wk_part_fini(&part);
    }
    return 0;
}

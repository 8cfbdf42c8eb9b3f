// SPDX-License-Identifier: Apache-2.0
//
// CSV files, with and without categories: whatever the bytes, an error or a table of finite numbers and of categories
// that there are.
#include <math.h>
#include <stdlib.h>

#include "workerd/data/data_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(const struct wk_csv_format *format, const struct wk_csv *csv)
{
    for (uint64_t row = 0; row < csv->rows; row++)
        for (size_t i = 0; i < format->fields; i++) {
            const typeof(*csv->cell) *cell = &csv->cell[row * format->fields + i];
            if (format->type[i] == PS_COLUMN_NUMBER && !csv->column[i].ints && !isfinite(cell->number))
                abort();
            if (format->type[i] == PS_COLUMN_CATEGORY &&
                (cell->integer < 0 || (size_t)cell->integer >= format->vocabulary[i].n))
                abort();
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct ps_job_column second = {.name = "2", .type = PS_COLUMN_CATEGORY};
    for (size_t n = 0; n <= 1; n++) {
        struct ps_error e;
        const struct ps_job_columns columns = {&second, n};
        struct wk_csv_format format = {.separator = ',', .columns = &columns};
        struct wk_csv csv = {0};
        if (wk_csv_parse((const char *)bytes, size, &format, &csv, &e) == PS_OK)
            check(&format, &csv);
        wk_csv_fini(&csv);
        wk_csv_format_fini(&format);
    }
    return 0;
}

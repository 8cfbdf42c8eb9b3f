// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/findings.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/error.h"

static const struct table_column columns[] = {
    {"verdict", "verdict", TABLE_TEXT},
    {"subject", "what", TABLE_TEXT},
    {"finding", "finding", TABLE_TEXT},
    {"advice", "what to do", TABLE_TEXT},
};

static const char *const names[] = {"ok", "warning", "failed", "wrong", "unreachable"};

void findings_init(struct findings *f)
{
    table_init(&f->table, columns, sizeof columns / sizeof columns[0]);
    f->worst = VERDICT_OK;
}

void findings_fini(struct findings *f)
{
    table_fini(&f->table);
}

void findings_add(struct findings *f, enum verdict verdict, const char *subject, const char *advice, const char *format,
                  ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    table_row(&f->table);
    table_cell(&f->table, table_text(names[verdict]));
    table_cell(&f->table, table_text(subject));
    table_cell(&f->table, table_text(text));
    table_cell(&f->table, table_text(advice));
    if (verdict > f->worst)
        f->worst = verdict;
}

int findings_exit(const struct findings *f)
{
    switch (f->worst) {
    case VERDICT_FAILED:
        return ps_code_exit(PS_ABORTED);
    case VERDICT_WRONG:
        return ps_code_exit(PS_FAILED_PRECONDITION);
    case VERDICT_UNREACHABLE:
        return ps_code_exit(PS_UNAVAILABLE);
    default:
        return 0;
    }
}

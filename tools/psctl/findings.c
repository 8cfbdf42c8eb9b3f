// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/findings.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/base/error.h"

static const struct table_column columns[] = {
    {"verdict", "verdict", TABLE_TEXT},
    {"subject", "what", TABLE_TEXT},
    {"finding", "finding", TABLE_TEXT},
    {"advice", "what to do", TABLE_TEXT},
};

static const struct table_column line_columns[] = {
    {"verdict", "verdict", TABLE_TEXT},
    {"subject", "what", TABLE_TEXT},
    {"finding", "finding; what to do", TABLE_TEXT},
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

void findings_show(const struct findings *f, bool json, FILE *to)
{
    struct table lines;
    size_t i;
    json_t *row;
    table_init(&lines, line_columns, sizeof line_columns / sizeof line_columns[0]);
    json_array_foreach(f->table.rows, i, row)
    {
        const char *finding = json_string_value(json_array_get(row, 2));
        const char *advice = json_string_value(json_array_get(row, 3));
        table_row(&lines);
        table_cell(&lines, json_incref(json_array_get(row, 0)));
        table_cell(&lines, json_incref(json_array_get(row, 1)));
        table_cell(&lines, json_sprintf("%s%s%s", finding ? finding : "", advice ? "; " : "", advice ? advice : ""));
    }
    table_show(&(struct table_part){"findings", json ? &f->table : &lines, false}, 1, json, to);
    table_fini(&lines);
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

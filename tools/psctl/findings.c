// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"

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

// ---- for monitoring -----------------------------------------------------------------------------------------------

static const char *finding_cell(const json_t *row, size_t column)
{
    const char *text = json_string_value(json_array_get(row, column));
    return text ? text : "";
}

// Text may be another process's. What is behind a bar would be performance data.
static void plugin_put(char *text, FILE *to)
{
    ps_utf8_plain(text);
    for (char *at = text; *at; at++)
        *at = *at == '|' ? '/' : *at;
    fputs(text, to);
}

// "ps:1 (...): connection refused; start psd there"
static void plugin_say(const json_t *row, FILE *to)
{
    const char *advice = finding_cell(row, 3);
    char text[1024];
    snprintf(text, sizeof text, "%s: %s%s%s", finding_cell(row, 1), finding_cell(row, 2), *advice ? "; " : "", advice);
    plugin_put(text, to);
}

static size_t plugin_count(const struct findings *f, bool critical)
{
    size_t i, n = 0;
    json_t *row;
    json_array_foreach(f->table.rows, i, row)
    {
        const bool warning = strcmp(finding_cell(row, 0), names[VERDICT_WARNING]) == 0;
        const bool well = strcmp(finding_cell(row, 0), names[VERDICT_OK]) == 0;
        n += critical ? !warning && !well : warning;
    }
    return n;
}

static const json_t *plugin_worst(const struct findings *f)
{
    size_t i;
    json_t *row;
    json_array_foreach(f->table.rows, i, row) if (strcmp(finding_cell(row, 0), names[f->worst]) == 0) return row;
    return NULL;
}

static void plugin_say_others(const struct findings *f, const json_t *worst, FILE *to)
{
    size_t i;
    json_t *row;
    json_array_foreach(f->table.rows, i, row)
    {
        if (row == worst || strcmp(finding_cell(row, 0), names[VERDICT_OK]) == 0)
            continue;
        plugin_say(row, to);
        fputc('\n', to);
    }
}

int findings_plugin(const struct findings *f, FILE *to)
{
    static const char *const states[] = {"OK", "WARNING", "CRITICAL"};
    const int state = f->worst > VERDICT_WARNING ? 2 : f->worst;
    const json_t *worst = plugin_worst(f);
    fprintf(to, "PARAMSERVER %s - ", states[state]);
    if (state == 0 || !worst)
        fprintf(to, "all is well");
    else
        plugin_say(worst, to);
    fprintf(to, " | checked=%zu warnings=%zu critical=%zu\n", json_array_size(f->table.rows), plugin_count(f, false),
            plugin_count(f, true));
    plugin_say_others(f, worst, to);
    return state;
}

int findings_plugin_unknown(const struct ps_error *error, FILE *to)
{
    char text[sizeof error->text];
    snprintf(text, sizeof text, "%s", error->text);
    fputs("PARAMSERVER UNKNOWN - ", to);
    plugin_put(text, to);
    fputc('\n', to);
    return 3;
}

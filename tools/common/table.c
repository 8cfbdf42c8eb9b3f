// SPDX-License-Identifier: Apache-2.0
#include "tools/common/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/utf8.h"

enum { CELL_MAX = 512 };

void table_init(struct table *t, const struct table_column *columns, size_t n_columns)
{
    *t = (struct table){.columns = columns, .n_columns = n_columns, .rows = json_array()};
}

void table_fini(struct table *t)
{
    json_decref(t->rows);
    t->rows = NULL;
}

void table_row(struct table *t)
{
    json_array_append_new(t->rows, json_array());
}

void table_cell(struct table *t, json_t *value)
{
    json_t *row = json_array_get(t->rows, json_array_size(t->rows) - 1);
    json_array_append_new(row, value ? value : json_null());
}

json_t *table_text(const char *text)
{
    if (!text || !*text)
        return NULL;
    json_t *value = json_string(text);
    if (value)
        return value;
    char *valid = ps_strdup(text);  // JSON is UTF-8
    ps_utf8_repair(valid);
    value = json_string(valid);
    free(valid);
    return value;
}

// What is not finite is kept as an object of one text, under a key that no figure has.
json_t *table_real(double x)
{
    return isfinite(x) ? json_real(x) : json_pack("{s:s}", "", isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

// Of what is not finite, else NULL.
static const char *table_real_text(const json_t *value)
{
    return json_string_value(json_object_get(value, ""));
}

json_t *table_count(uint64_t n)
{
    return json_integer((json_int_t)n);
}

// ---- one cell as text ---------------------------------------------------------------------------------------------

void table_bytes_text(double bytes, char *to, size_t size)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t u = 0;
    // 1023.95 would be rounded to 1024.0 of a unit: it is 1.0 of the next.
    while (fabs(bytes) >= (u ? 1023.95 : 1023.5) && u + 1 < sizeof unit / sizeof unit[0]) {
        bytes /= 1024;
        u++;
    }
    snprintf(to, size, "%.*f %s", u ? 1 : 0, bytes, unit[u]);
}

void table_ms_text(int64_t ms, char *to, size_t size)
{
    int64_t minutes = ms / 60000;
    if (ms < 1000)
        snprintf(to, size, "%" PRId64 " ms", ms);
    else if (minutes == 0)
        snprintf(to, size, "%" PRId64 ".%" PRId64 " s", ms / 1000, ms % 1000 / 100);
    else if (minutes < 60)
        snprintf(to, size, "%" PRId64 " min %02" PRId64 " s", minutes, ms / 1000 % 60);
    else
        snprintf(to, size, "%" PRId64 " h %02" PRId64 " min", minutes / 60, minutes % 60);
}

static void us_text(int64_t us, char *to, size_t size)
{
    if (us < 10000)
        snprintf(to, size, "%" PRId64 ".%" PRId64 " ms", us / 1000, us % 1000 / 100);
    else
        table_ms_text(us / 1000, to, size);
}

static void number_text(const json_t *value, char *to, size_t size)
{
    double real = json_number_value(value);
    if (json_is_integer(value))
        snprintf(to, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        snprintf(to, size, fabs(real) >= 1000 && fabs(real) < 1e9 ? "%.0f" : "%.4g", real);
}

// Text may come from the wire: what would steer a terminal is not passed on to one.
static void plain_text(const char *from, char *to, size_t size)
{
    snprintf(to, size, "%s", from);
    ps_utf8_plain(to);
}

// A number, one that is not finite, or a text.
static void scalar_text(const json_t *value, char *to, size_t size)
{
    if (json_is_string(value))
        plain_text(json_string_value(value), to, size);
    else if (table_real_text(value) || json_is_null(value))
        snprintf(to, size, "%s", json_is_null(value) ? "-" : table_real_text(value));
    else
        number_text(value, to, size);
}

static void list_text(const json_t *array, const char *separator, char *to, size_t size)
{
    size_t i, len = 0;
    json_t *value;
    *to = '\0';
    json_array_foreach(array, i, value)
    {
        char item[128];
        scalar_text(value, item, sizeof item);
        if (len < size)
            len += (size_t)snprintf(to + len, size - len, "%s%s", i ? separator : "", item);
    }
}

static void named_text(const json_t *object, char *to, size_t size)
{
    const char *key, *comma = "";
    json_t *value;
    size_t len = 0;
    *to = '\0';
    json_object_foreach((json_t *)object, key, value)
    {
        char name[128], number[128];
        plain_text(key, name, sizeof name);
        scalar_text(value, number, sizeof number);
        // There is room for the comma, the dots and the end, else the dots stand in its place.
        const size_t more = strlen(comma) + strlen(name) + 1 + strlen(number);
        if (len + more + strlen(", ...") >= size) {
            snprintf(to + len, size - len, ", ...");
            return;
        }
        len += (size_t)snprintf(to + len, size - len, "%s%s %s", comma, name, number);
        comma = ", ";
    }
}

static void cell_text(const struct table_column *column, const json_t *value, char to[CELL_MAX])
{
    char list[CELL_MAX - 8];
    if (!value || json_is_null(value)) {
        strcpy(to, "-");
        return;
    }
    switch (column->type) {
    case TABLE_TEXT:
    case TABLE_SENTENCE:
        plain_text(json_string_value(value), to, CELL_MAX);
        break;
    case TABLE_COUNT:
    case TABLE_REAL:
        scalar_text(value, to, CELL_MAX);
        break;
    case TABLE_INDEX:
        snprintf(to, CELL_MAX, "%" JSON_INTEGER_FORMAT, json_integer_value(value) + 1);
        break;
    case TABLE_BYTES:
        table_bytes_text(json_number_value(value), to, CELL_MAX);
        break;
    case TABLE_MS:
        table_ms_text(json_integer_value(value), to, CELL_MAX);
        break;
    case TABLE_US:
        us_text(json_integer_value(value), to, CELL_MAX);
        break;
    case TABLE_SHAPE:
        list_text(value, ", ", list, sizeof list);
        snprintf(to, CELL_MAX, "(%s)", list);
        break;
    case TABLE_LIST:
        list_text(value, ",", to, CELL_MAX);
        break;
    case TABLE_NUMBERS:
        named_text(value, to, CELL_MAX);
        break;
    case TABLE_SHARE:
        snprintf(to, CELL_MAX, "%.1f %%", 100 * json_number_value(value));
        break;
    case TABLE_FLAG:
        strcpy(to, json_is_true(value) ? "yes" : "-");
        break;
    }
}

// ---- text ---------------------------------------------------------------------------------------------------------

// Columns a UTF-8 string takes, one per code point.
static int table_text_width(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static bool table_column_is_known(const struct table *t, size_t column)
{
    size_t i;
    json_t *row;
    if (t->columns[column].always)
        return json_array_size(t->rows) > 0;
    json_array_foreach(t->rows, i, row)
    {
        const json_t *value = json_array_get(row, column);
        if (value && !json_is_null(value) && !json_is_false(value))
            return true;
    }
    return false;
}

static int column_width(const struct table *t, size_t column)
{
    char text[CELL_MAX];
    int widest = table_text_width(t->columns[column].title);
    size_t i;
    json_t *row;
    json_array_foreach(t->rows, i, row)
    {
        cell_text(&t->columns[column], json_array_get(row, column), text);
        if (table_text_width(text) > widest)
            widest = table_text_width(text);
    }
    return widest;
}

static bool to_the_right(enum table_type type)
{
    return type == TABLE_COUNT || type == TABLE_INDEX || type == TABLE_REAL || type == TABLE_BYTES ||
           type == TABLE_MS || type == TABLE_US || type == TABLE_SHARE;
}

// Holds back the spaces after a cell until another follows, so that no line ends in one.
struct line {
    FILE *to;
    int pad;
};

static void line_cell(struct line *line, const struct table_column *column, int wide, const char *text)
{
    int room = wide - table_text_width(text);
    bool right = to_the_right(column->type);
    fprintf(line->to, "%*s%s", line->pad + (right ? room : 0), "", text);
    line->pad = 2 + (right ? 0 : room);
}

// Widths of the columns; 0: the column is left out.
static int *table_layout(const struct table *t)
{
    int *wide = ps_alloc(t->n_columns * sizeof *wide);
    for (size_t c = 0; c < t->n_columns; c++)
        wide[c] = table_column_is_known(t, c) ? column_width(t, c) : 0;
    return wide;
}

static const char *const ellipsis[] = {"...", "\xe2\x80\xa6"};  // without and with UTF-8

// Cuts text to `wide` columns, where it has more.
static void table_shorten(char *text, int wide, const char *dots)
{
    if (table_text_width(text) <= wide)
        return;
    int keep = wide > table_text_width(dots) ? wide - table_text_width(dots) : 0;
    char *at = text;
    while (*at && keep > 0)
        keep -= ((unsigned char)*++at & 0xc0) != 0x80;
    strcpy(at, dots);
}

static void print_rows(const struct table *t, const int *wide, size_t rows, const char *dots, FILE *to)
{
    struct line head = {.to = to};
    for (size_t c = 0; c < t->n_columns; c++)
        if (wide[c])
            line_cell(&head, &t->columns[c], wide[c], t->columns[c].title);
    if (json_array_size(t->rows))
        putc('\n', to);
    for (size_t i = 0; i < rows; i++) {
        struct line line = {.to = to};
        char text[CELL_MAX + 4];
        for (size_t c = 0; c < t->n_columns; c++) {
            if (!wide[c])
                continue;
            cell_text(&t->columns[c], json_array_get(json_array_get(t->rows, i), c), text);
            table_shorten(text, wide[c], dots);
            line_cell(&line, &t->columns[c], wide[c], text);
        }
        putc('\n', to);
    }
}

static int table_least(int a, int b)
{
    return a < b ? a : b;
}

static bool table_is_sentence(const struct table_column *column)
{
    return column->type == TABLE_SENTENCE || column->type == TABLE_NUMBERS;
}

// Leaves columns out from the right until the rest fits, but the first and the sentence. Returns how many.
static size_t table_leave_out(const struct table *t, int *wide, int *used, int columns, bool details)
{
    size_t left_out = 0;
    for (size_t c = t->n_columns; c-- > 1 && *used > columns;) {
        if (!wide[c] || table_is_sentence(&t->columns[c]) || (details && !t->columns[c].detail))
            continue;
        *used -= wide[c] + 2;
        wide[c] = 0;
        left_out++;
    }
    return left_out;
}

// Columns of a sentence at least, where it has as many.
enum { SENTENCE_LEAST = 16 };

// Details are left out first; then a sentence is cut where the line ends, unless hardly anything would be left of it.
static size_t table_fit_terminal(const struct table *t, int *wide, int columns)
{
    const size_t last = t->n_columns - 1;
    const bool says = wide[last] && table_is_sentence(&t->columns[last]);
    const int whole = says ? wide[last] : 0;
    int used = -2;
    if (says)
        wide[last] = table_least(whole, SENTENCE_LEAST);
    for (size_t c = 0; c < t->n_columns; c++)
        used += wide[c] ? wide[c] + 2 : 0;
    size_t left_out = table_leave_out(t, wide, &used, columns, true);
    if (says)
        wide[last] = used > columns ? whole : table_least(whole, wide[last] + columns - used);
    return left_out;
}

void table_print_within(const struct table *t, int columns, FILE *to)
{
    int *wide = table_layout(t);
    size_t left_out = columns ? table_fit_terminal(t, wide, columns) : 0;
    print_rows(t, wide, json_array_size(t->rows), "...", to);
    if (left_out)
        fprintf(to, "(%zu more column%s in a wider window, or with --json)\n", left_out, left_out == 1 ? "" : "s");
    free(wide);
}

void table_print(const struct table *t, FILE *to)
{
    struct winsize size = {0};
    if (!isatty(fileno(to)) || ioctl(fileno(to), TIOCGWINSZ, &size) != 0)
        size.ws_col = 0;
    table_print_within(t, size.ws_col, to);
}

void table_print_record(const struct table *t, FILE *to)
{
    int widest = 0;
    for (size_t c = 0; c < t->n_columns; c++)
        if (table_column_is_known(t, c) && table_text_width(t->columns[c].title) > widest)
            widest = table_text_width(t->columns[c].title);
    for (size_t c = 0; c < t->n_columns; c++) {
        char text[CELL_MAX];
        cell_text(&t->columns[c], json_array_get(json_array_get(t->rows, 0), c), text);
        if (table_column_is_known(t, c))
            fprintf(to, "%s%*s  %s\n", t->columns[c].title, widest - table_text_width(t->columns[c].title), "", text);
    }
}

// ---- JSON ---------------------------------------------------------------------------------------------------------

// A cell for programs: JSON has no number for what is not finite.
static json_t *cell_json(json_t *value)
{
    size_t i;
    const char *key;
    json_t *of, *copy;
    if (!value || table_real_text(value))
        return json_null();
    if (json_is_array(value)) {
        copy = json_array();
        json_array_foreach(value, i, of) json_array_append_new(copy, cell_json(of));
    } else if (json_is_object(value)) {
        copy = json_object();
        json_object_foreach(value, key, of) json_object_set_new(copy, key, cell_json(of));
    } else {
        copy = json_incref(value);
    }
    return copy;
}

static json_t *row_object(const struct table *t, const json_t *row)
{
    json_t *object = json_object();
    for (size_t c = 0; c < t->n_columns; c++)
        json_object_set_new(object, t->columns[c].key, cell_json(json_array_get(row, c)));
    return object;
}

static json_t *part_json(const struct table_part *part)
{
    const struct table *t = part->table;
    if (part->record)
        return row_object(t, json_array_get(t->rows, 0));
    json_t *array = json_array();
    size_t i;
    json_t *row;
    json_array_foreach(t->rows, i, row) json_array_append_new(array, row_object(t, row));
    return array;
}

static void show_json(const struct table_part *parts, size_t n, FILE *to)
{
    json_t *document;
    if (n == 1) {
        document = part_json(parts);
    } else {
        document = json_object();
        for (size_t i = 0; i < n; i++)
            json_object_set_new(document, parts[i].name, part_json(&parts[i]));
    }
    json_dumpf(document, to, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    putc('\n', to);
    json_decref(document);
}

void table_show(const struct table_part *parts, size_t n, bool json, FILE *to)
{
    if (json) {
        show_json(parts, n, to);
        return;
    }
    bool shown = false;
    for (size_t i = 0; i < n; i++) {
        if (json_array_size(parts[i].table->rows) == 0)
            continue;
        if (shown)
            putc('\n', to);
        shown = true;
        (parts[i].record ? table_print_record : table_print)(parts[i].table, to);
    }
}

// ---- a screen -----------------------------------------------------------------------------------------------------

// Columns: of a name at most; of a sentence at least, where it has as many.
enum { NAME_COLUMNS = 24, SENTENCE_COLUMNS = 32 };

// Makes the columns fit: texts become shorter, then columns are left out, details first. The sentence gets what room
// there is in the end. Returns how many are left out.
static size_t table_fit(const struct table *t, int *wide, int columns)
{
    size_t sentence = t->n_columns;
    int used = -2, whole = 0;
    for (size_t c = 0; c < t->n_columns; c++) {
        if (wide[c] && table_is_sentence(&t->columns[c])) {
            sentence = c;
            whole = wide[c];
            wide[c] = table_least(whole, SENTENCE_COLUMNS);
        } else if (t->columns[c].type == TABLE_TEXT) {
            wide[c] = table_least(wide[c], NAME_COLUMNS);
        }
        used += wide[c] ? wide[c] + 2 : 0;
    }
    size_t left_out = table_leave_out(t, wide, &used, columns, true);
    left_out += table_leave_out(t, wide, &used, columns, false);
    if (sentence < t->n_columns && used < columns)
        wide[sentence] = table_least(whole, wide[sentence] + columns - used);
    return left_out;
}

// Deals `lines` out to the tables, one by one: small tables are whole, large ones get the same. Returns how many rows
// are left over.
static size_t table_share_lines(const struct table_part *parts, size_t n, int lines, size_t *rows)
{
    size_t left_over = 0, given;
    memset(rows, 0, n * sizeof *rows);
    do {
        given = 0;
        for (size_t i = 0; i < n && lines > 0; i++) {
            if (rows[i] == json_array_size(parts[i].table->rows))
                continue;
            rows[i]++;
            lines--;
            given++;
        }
    } while (given);
    for (size_t i = 0; i < n; i++)
        left_over += json_array_size(parts[i].table->rows) - rows[i];
    return left_over;
}

static void say_left_out(size_t rows, size_t columns, FILE *to)
{
    if (rows)
        fprintf(to, "%zu row%s", rows, rows == 1 ? "" : "s");
    if (columns)
        fprintf(to, "%s%zu column%s", rows ? " and " : "", columns, columns == 1 ? "" : "s");
    if (rows || columns)
        fprintf(to, " %s not shown\n", rows + columns == 1 ? "is" : "are");
}

void table_show_screen(const struct table_part *parts, size_t n, const struct table_screen *screen, FILE *to)
{
    size_t *rows = ps_alloc(n * sizeof *rows), columns = 0;
    // The last line says what is not shown; a table has one of titles, and an empty one after it.
    int lines = screen->rows - 1;
    bool shown = false;
    for (size_t i = 0; i < n; i++)
        lines -= json_array_size(parts[i].table->rows) ? 2 : 0;
    size_t left_over = table_share_lines(parts, n, lines, rows);
    for (size_t i = 0; i < n; i++) {
        if (json_array_size(parts[i].table->rows) == 0)
            continue;
        if (shown)
            putc('\n', to);
        shown = true;
        int *wide = table_layout(parts[i].table);
        columns += table_fit(parts[i].table, wide, screen->columns);
        print_rows(parts[i].table, wide, rows[i], ellipsis[screen->utf8], to);
        free(wide);
    }
    if (left_over || columns)
        putc('\n', to);
    say_left_out(left_over, columns, to);
    free(rows);
}

// SPDX-License-Identifier: Apache-2.0
//
// CSV by RFC 4180: records of fields with a separator between them, fields in quotes may have separators, line ends and
// doubled quotes in them. Blanks at the ends of a field belong to its word, but not to a number or to a name in the
// header. Two passes over the text: the first counts records and holds their fields to the first's, so that what the
// second fills is never larger than the file allows.
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "workerd/data/data_internal.h"

// ---- fields -------------------------------------------------------------------------------------------------------

struct csv_reader {
    const char *at, *end;
    char separator;
    uint64_t line;  // of at, from 1
    size_t number;  // of the field last read, from 1
    char *buffer;   // of a field with doubled quotes, without them
    size_t capacity;
};

struct csv_field {
    const char *text;
    size_t size;
    uint64_t line;
    bool quoted, last;  // last: of its record
};

static bool csv_is_blank(char c)
{
    return c == ' ' || c == '\t';
}

// Goes past a line end or the text's end; false: something else is there.
static bool csv_end_record(struct csv_reader *r)
{
    const char *at = r->at;
    if (at < r->end && *at == '\r')
        at++;
    if (at < r->end && *at != '\n')
        return false;
    r->line += at < r->end;
    r->at = at < r->end ? at + 1 : r->end;
    return true;
}

// What stands between quotes, with doubled ones made one.
static void csv_unquote(struct csv_reader *r, struct csv_field *f, bool doubled)
{
    if (!doubled)
        return;
    if (r->capacity < f->size)
        r->buffer = ps_realloc(r->buffer, r->capacity = f->size);
    size_t n = 0;
    for (size_t i = 0; i < f->size; i++) {
        r->buffer[n++] = f->text[i];
        i += f->text[i] == '"';
    }
    f->text = r->buffer;
    f->size = n;
}

static enum ps_code csv_read_quoted(struct csv_reader *r, struct csv_field *f, struct ps_error *e)
{
    bool doubled = false;
    const char *start = ++r->at;
    for (;; r->at++) {
        if (r->at == r->end)
            return ps_fail(e, PS_INVALID_ARGUMENT, "line %" PRIu64 ", field %zu opens a quote that nothing closes",
                           f->line, r->number);
        r->line += *r->at == '\n';
        if (*r->at != '"')
            continue;
        if (r->at + 1 == r->end || r->at[1] != '"')
            break;
        doubled = true;
        r->at++;
    }
    f->text = start;
    f->size = (size_t)(r->at++ - start);
    f->quoted = true;
    csv_unquote(r, f, doubled);
    while (r->at < r->end && csv_is_blank(*r->at) && *r->at != r->separator)
        r->at++;
    return PS_OK;
}

static enum ps_code csv_read_plain(struct csv_reader *r, struct csv_field *f, struct ps_error *e)
{
    const char *start = r->at, *stop;
    while (r->at < r->end && *r->at != r->separator && *r->at != '\n') {
        if (*r->at == '"')
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "line %" PRIu64 ", field %zu has a quote inside, expected the whole field in quotes and "
                           "this one doubled",
                           f->line, r->number);
        r->at++;
    }
    stop = r->at;
    if (stop > start && stop[-1] == '\r' && (r->at == r->end || *r->at == '\n'))
        r->at = --stop;
    f->text = start;
    f->size = (size_t)(stop - start);
    return PS_OK;
}

// Leaves out the blanks around a field without quotes.
static struct csv_field csv_trim(struct csv_field f)
{
    while (!f.quoted && f.size && csv_is_blank(*f.text)) {
        f.text++;
        f.size--;
    }
    while (!f.quoted && f.size && csv_is_blank(f.text[f.size - 1]))
        f.size--;
    return f;
}

// The next field. Its text is valid until the next one.
static enum ps_code csv_read_field(struct csv_reader *r, struct csv_field *f, struct ps_error *e)
{
    const char *at = r->at;
    *f = (struct csv_field){.line = r->line};
    r->number++;
    while (at < r->end && csv_is_blank(*at) && *at != r->separator)
        at++;
    bool quoted = at < r->end && *at == '"';
    r->at = quoted ? at : r->at;
    if (quoted ? csv_read_quoted(r, f, e) : csv_read_plain(r, f, e))
        return e->code;
    if (r->at < r->end && *r->at == r->separator) {
        r->at++;
        return PS_OK;
    }
    f->last = csv_end_record(r);
    if (f->last) {
        return PS_OK;
    }
    return ps_fail(e, PS_INVALID_ARGUMENT,
                   "line %" PRIu64 ", field %zu: something follows the closing quote, expected '%c' or the end of the "
                   "line",
                   r->line, r->number, r->separator);
}

// ---- numbers ------------------------------------------------------------------------------------------------------

// As a C string, for messages; false if it is longer than any number.
static bool csv_text(const struct csv_field *f, char to[64])
{
    size_t kept = f->size < 64 ? f->size : 63;
    for (size_t i = 0; i < kept; i++)
        to[i] = f->text[i] >= ' ' && f->text[i] <= '~' ? f->text[i] : '?';
    to[kept] = '\0';
    return kept == f->size;
}

// A number in strtod's sense, but no hexadecimal one, which is a word elsewhere. nan and inf are numbers, so that a
// line that holds one is no header.
static bool csv_is_number(const struct csv_field *f, double *value)
{
    char text[64], *stop;
    bool whole = csv_text(f, text);
    *value = strtod(text, &stop);
    return whole && stop != text && *stop == '\0' && !strpbrk(text, "xX");
}

// " (age)", where the file has names.
static const char *csv_label(const struct wk_csv_format *format, size_t number, char to[80])
{
    char digits[24];
    const char *name = number <= format->fields ? format->name[number - 1] : "";
    snprintf(digits, sizeof digits, "%zu", number);
    *to = '\0';
    if (*name && strcmp(name, digits) != 0)
        snprintf(to, 80, " (%.60s)", name);
    return to;
}

static bool csv_is_int(double value)
{
    return value == floor(value) && value >= INT32_MIN && value <= INT32_MAX;
}

// Notes what decides whether the column is kept as integers.
static void csv_put_number(double value, uint64_t row, struct wk_csv_column *column, union wk_csv_cell *to)
{
    if (column->ints)
        to->integer = (int32_t)value;
    else
        to->number = (float)value;
    if (!csv_is_int(value) && !column->other)
        column->other = row + 1;
    column->rounded |= (double)(float)value != value && (csv_is_int(value) || csv_is_int((double)(float)value));
}

static enum ps_code csv_take_number(const struct wk_csv_format *format, const struct csv_field *f, size_t number,
                                    struct wk_csv *csv, uint64_t row, struct ps_error *e)
{
    char text[64], label[80];
    double value;
    bool is = csv_is_number(f, &value);
    if (is && fabs(value) <= FLT_MAX) {
        csv_put_number(value, row, &csv->column[number - 1], &csv->cell[row * format->fields + number - 1]);
        return PS_OK;
    }
    csv_text(f, text);
    csv_label(format, number, label);
    if (!*text)
        return ps_fail(e, PS_INVALID_ARGUMENT, "line %" PRIu64 ", field %zu%s is empty, expected a number", f->line,
                       number, label);
    return ps_fail(e, PS_INVALID_ARGUMENT, "line %" PRIu64 ", field %zu%s is \"%s\", expected a finite number%s",
                   f->line, number, label, text, is ? "" : "; words need data.columns: a category");
}

// Would a word that is unknown be known without the blanks at its ends?
static bool csv_is_known_bare(struct wk_vocabulary *v, const struct csv_field *f)
{
    struct csv_field bare = csv_trim(*f);
    return bare.size < f->size && v->fixed && wk_vocabulary_find(v, bare.text, bare.size) >= 0;
}

// Words that a StringLookup takes for unknown, most likely by mistake.
static void csv_warn_of_blanks(struct wk_csv_format *format, const struct csv_field *f, size_t number,
                               const char *label, const char *text)
{
    if (!format->warned)
        ps_warn("CSV: line %" PRIu64 ", field %zu%s is \"%s\", which the vocabulary has without the blanks at its "
                "ends: the word is unknown, as may be others",
                f->line, number, label, text);
    format->warned = true;
}

static enum ps_code csv_take_category(struct wk_csv_format *format, const struct csv_field *f, size_t number,
                                      int32_t *to, struct ps_error *e)
{
    char text[64], label[80];
    struct wk_vocabulary *v = &format->vocabulary[number - 1];
    csv_text(f, text);
    csv_label(format, number, label);
    if (!csv_trim(*f).size && !f->quoted && !format->words[number - 1])
        return ps_fail(e, PS_INVALID_ARGUMENT, "line %" PRIu64 ", field %zu%s is empty, expected a word", f->line,
                       number, label);
    *to = memchr(f->text, '\0', f->size) ? -1 : wk_vocabulary_find(v, f->text, f->size);
    if (*to >= 0)
        return PS_OK;
    bool bare = csv_is_known_bare(v, f);
    if (format->words[number - 1] && !format->words[number - 1]->closed) {
        if (bare)
            csv_warn_of_blanks(format, f, number, label, text);
        return PS_OK;
    }
    return ps_fail(e, PS_INVALID_ARGUMENT,
                   "line %" PRIu64 ", field %zu%s is \"%s\", expected one of the column's %zu categories%s", f->line,
                   number, label, text, v->n, bare ? "; the blanks at its ends belong to it" : "");
}

// ---- the first line -----------------------------------------------------------------------------------------------

// By name or number: what the job says of a column.
static const struct ps_job_column *csv_said(const struct wk_csv_format *format, const char *name, size_t number)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%zu", number);
    const struct ps_job_column *c = ps_job_columns_find(format->columns, name);
    return c ? c : ps_job_columns_find(format->columns, digits);
}

// Of an input of strings: by name or number, as the job says.
static const struct nn_words *csv_words(const struct wk_csv_format *format, const char *name, size_t number)
{
    const struct wk_data *data = format->data;
    char digits[24];
    if (!data)
        return NULL;
    snprintf(digits, sizeof digits, "%zu", number);
    const struct nn_words *words = *name ? data->words(data, name) : NULL;
    return words ? words : data->words(data, digits);
}

static bool csv_takes_number(const struct wk_csv_format *format, size_t number)
{
    const struct ps_job_column *c = csv_said(format, "", number);
    if (csv_words(format, "", number))
        return false;
    return !c || c->type == PS_COLUMN_ANY || c->type == PS_COLUMN_NUMBER;
}

// Does the job name a column other than by its number? Then the file has to have names.
static bool csv_names_columns(const struct wk_csv_format *format)
{
    for (size_t i = 0; i < format->columns->n; i++)
        if (format->columns->of[i].name[strspn(format->columns->of[i].name, "0123456789")])
            return true;
    return false;
}

// A line of names is a header. One of names and numbers is neither a header nor an example: to take it for either would
// hide a mistake. So would it be with a line of words where all fields are words.
static enum ps_code csv_find_header(struct csv_reader r, const struct wk_csv_format *format, bool *header,
                                    struct ps_error *e)
{
    struct csv_field f = {0};
    double value;
    char text[64], name[64] = "";
    size_t a_number = 0, a_name = 0;
    bool tells = false;
    *header = format->header == PS_HEADER_YES || (format->header == PS_HEADER_AUTO && csv_names_columns(format));
    if (*header || format->header == PS_HEADER_NO)
        return PS_OK;
    for (size_t i = 1; !f.last; i++) {
        if (csv_read_field(&r, &f, e))
            break;
        f = csv_trim(f);
        bool whole = csv_text(&f, text), takes = csv_takes_number(format, i), is = csv_is_number(&f, &value);
        tells |= takes || is;
        if (!takes)
            continue;
        if (is)
            a_number = a_number ? a_number : i;
        else if ((*text || !whole) && !a_name) {
            a_name = i;
            memcpy(name, text, sizeof name);
        }
    }
    free(r.buffer);
    if (!f.last)
        return e->code;
    if (a_name && a_number)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "line 1, field %zu is \"%s\", expected a number as in field %zu, or names alone: a header",
                       a_name, name, a_number);
    if (!tells)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "line 1 has words alone, as all lines may have: expected data.header: true or false");
    *header = a_name > 0;
    return PS_OK;
}

static enum ps_code csv_take_type(struct wk_csv_format *format, size_t i, struct ps_error *e)
{
    const struct ps_job_column *said = csv_said(format, format->name[i], i + 1);
    format->type[i] = said && said->type != PS_COLUMN_ANY ? said->type : PS_COLUMN_NUMBER;
    if (format->type[i] != PS_COLUMN_NUMBER && format->type[i] != PS_COLUMN_CATEGORY &&
        format->type[i] != PS_COLUMN_SKIP)
        return ps_fail(e, PS_INVALID_ARGUMENT, "data.columns.%s: expected a number, a category or skip in CSV",
                       said->name);
    if (format->type[i] != PS_COLUMN_SKIP)
        format->words[i] = csv_words(format, format->name[i], i + 1);
    if (format->words[i] && said && said->vocabulary)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "data.columns.%s: expected no vocabulary: the model's StringLookup has the words", said->name);
    if (format->words[i]) {
        format->type[i] = PS_COLUMN_CATEGORY;
        wk_vocabulary_of(&format->vocabulary[i], format->words[i]);
    }
    if (said && said->vocabulary)
        return wk_vocabulary_load(&format->vocabulary[i], said->vocabulary, e);
    return PS_OK;
}

static enum ps_code csv_add_name(struct wk_csv_format *format, char *name, struct wk_vocabulary *seen,
                                 struct ps_error *e)
{
    size_t i = format->fields++;
    if ((i & (i - 1)) == 0)  // there is room for a power of two, which is full now
        format->name = ps_realloc(format->name, (i ? 2 * i : 1) * sizeof *format->name);
    format->name[i] = name;
    size_t before = (size_t)wk_vocabulary_find(seen, name, strlen(name));
    if (before < i)
        return ps_fail(e, PS_INVALID_ARGUMENT, "line 1: fields %zu and %zu are both called \"%.60s\"", before + 1,
                       i + 1, name);
    return PS_OK;
}

// The first record's fields get their names, from it if it is the header.
static enum ps_code csv_take_names(struct csv_reader *r, bool header, struct wk_csv_format *format, struct ps_error *e)
{
    struct csv_field f = {0};
    struct wk_vocabulary seen = {0};
    enum ps_code code = PS_OK;
    while (!f.last && code == PS_OK) {
        code = csv_read_field(r, &f, e);
        f = csv_trim(f);
        bool named = header && f.size && !memchr(f.text, '\0', f.size);
        if (code == PS_OK)
            code = csv_add_name(format, named ? wk_text_copy(f.text, f.size) : ps_printf("%zu", format->fields + 1),
                                &seen, e);
    }
    wk_vocabulary_fini(&seen);
    return code;
}

static enum ps_code csv_check_said(const struct wk_csv_format *format, struct ps_error *e)
{
    for (size_t k = 0; k < format->columns->n; k++) {
        bool found = false;
        for (size_t i = 0; i < format->fields && !found; i++)
            found = csv_said(format, format->name[i], i + 1) == &format->columns->of[k];
        if (!found)
            return ps_fail(e, PS_INVALID_ARGUMENT, "data.columns says what \"%.60s\" is, but line 1 has no such field",
                           format->columns->of[k].name);
    }
    return PS_OK;
}

static enum ps_code csv_learn_format(struct csv_reader *r, bool header, struct wk_csv_format *format,
                                     struct ps_error *e)
{
    if (csv_take_names(r, header, format, e) || csv_check_said(format, e))
        return e->code;
    if (format->fields < 2)
        return ps_fail(
            e, PS_INVALID_ARGUMENT,
            "line 1 has one field, as fields end at '%c' (data.separator): expected inputs and then a label or "
            "target",
            r->separator);
    format->type = ps_alloc(format->fields * sizeof *format->type);
    format->vocabulary = ps_alloc(format->fields * sizeof *format->vocabulary);
    format->words = ps_alloc(format->fields * sizeof *format->words);
    for (size_t i = 0; i < format->fields; i++)
        if (csv_take_type(format, i, e))
            return e->code;
    return PS_OK;
}

// ---- records ------------------------------------------------------------------------------------------------------

static enum ps_code csv_count(struct csv_reader r, size_t fields, uint64_t *rows, struct ps_error *e)
{
    enum ps_code code = PS_OK;
    for (*rows = 0; r.at < r.end && code == PS_OK; (*rows)++) {
        struct csv_field f = {0};
        uint64_t line = r.line;
        for (r.number = 0; code == PS_OK && !f.last;)
            code = csv_read_field(&r, &f, e);
        if (code == PS_OK && r.number != fields)
            code = ps_fail(e, PS_INVALID_ARGUMENT, "line %" PRIu64 " has %zu fields, expected %zu as on line 1", line,
                           r.number, fields);
    }
    free(r.buffer);
    return code;
}

static enum ps_code csv_take_record(struct csv_reader *r, struct wk_csv_format *format, struct wk_csv *csv,
                                    uint64_t row, struct ps_error *e)
{
    csv->line[row] = r->line;
    r->number = 0;
    for (size_t i = 0; i < format->fields; i++) {
        struct csv_field f;
        enum ps_code code = csv_read_field(r, &f, e);
        struct csv_field bare = csv_trim(f);
        if (code == PS_OK && format->type[i] == PS_COLUMN_NUMBER)
            code = csv_take_number(format, &bare, i + 1, csv, row, e);
        else if (code == PS_OK && format->type[i] == PS_COLUMN_CATEGORY)
            code = csv_take_category(format, &f, i + 1, &csv->cell[row * format->fields + i].integer, e);
        if (code != PS_OK)
            return code;
    }
    return PS_OK;
}

// A column of integers that floats round, as numbers of users may be, is read again.
static bool csv_find_ints(struct wk_csv *csv, size_t fields)
{
    bool found = false;
    for (struct wk_csv_column *c = csv->column; c < csv->column + fields; c++) {
        const bool is = c->rounded && !c->other;
        found |= is && !c->ints;
        c->ints = is;
    }
    return found;
}

static enum ps_code csv_take_records(struct csv_reader *r, struct wk_csv_format *format, struct wk_csv *csv,
                                     struct ps_error *e)
{
    const char *at = r->at;
    const uint64_t line = r->line;
    do {
        r->at = at;
        r->line = line;
        for (uint64_t row = 0; row < csv->rows; row++)
            if (csv_take_record(r, format, csv, row, e))
                return e->code;
    } while (csv_find_ints(csv, format->fields));
    return PS_OK;
}

static enum ps_code csv_check_names(struct csv_reader *r, const struct wk_csv_format *format, struct ps_error *e)
{
    struct csv_field f = {0};
    for (size_t i = 0; !f.last; i++) {
        if (csv_read_field(r, &f, e))
            return e->code;
        f = csv_trim(f);
        bool same = i < format->fields && strlen(format->name[i]) == f.size &&
                    (!f.size || memcmp(format->name[i], f.text, f.size) == 0);
        if (!same && f.size && i < format->fields && format->name[i][strspn(format->name[i], "0123456789")])
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "line 1, field %zu is \"%.*s\", expected \"%.60s\" as in training data", i + 1,
                           (int)(f.size < 60 ? f.size : 60), f.text, format->name[i]);
    }
    return PS_OK;
}

static enum ps_code csv_read(struct csv_reader *r, struct wk_csv_format *format, struct wk_csv *csv, struct ps_error *e)
{
    bool header;
    struct csv_reader first;
    if (csv_find_header(*r, format, &header, e))
        return e->code;
    first = *r;
    bool known = format->fields > 0;
    enum ps_code code = PS_OK;
    if (known)
        code = header ? csv_check_names(&first, format, e) : PS_OK;
    else
        code = csv_learn_format(&first, header, format, e);
    r->buffer = first.buffer;
    r->capacity = first.capacity;
    if (code != PS_OK)
        return code;
    if (header)
        *r = first;
    r->number = 0;
    struct csv_reader counting = *r;
    counting.buffer = NULL;
    counting.capacity = 0;
    if (csv_count(counting, format->fields, &csv->rows, e))
        return e->code;
    if (csv->rows == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "only a header line, expected at least one line of numbers");
    csv->cell = wk_array(csv->rows, format->fields, sizeof *csv->cell, e);
    csv->line = csv->cell ? wk_array(csv->rows, 1, sizeof *csv->line, e) : NULL;
    if (!csv->line)
        return PS_RESOURCE_EXHAUSTED;
    csv->column = ps_alloc(format->fields * sizeof *csv->column);
    return csv_take_records(r, format, csv, e);
}

// Leaves out lines of blanks at the end.
static void csv_trim_end(struct csv_reader *r)
{
    const char *at = r->end;
    while (at > r->at && (csv_is_blank(at[-1]) || at[-1] == '\n' || at[-1] == '\r') && at[-1] != r->separator)
        if (*--at == '\n')
            r->end = at;
    r->end = at == r->at ? at : r->end;
}

enum ps_code wk_csv_parse(const char *text, size_t size, struct wk_csv_format *format, struct wk_csv *csv,
                          struct ps_error *e)
{
    struct csv_reader r = {
        .at = text + wk_text_mark(text, size), .end = text + size, .separator = format->separator, .line = 1};
    csv_trim_end(&r);
    if (r.end == r.at)
        return ps_fail(e, PS_INVALID_ARGUMENT, "the file is empty, expected lines of numbers");
    enum ps_code code = csv_read(&r, format, csv, e);
    free(r.buffer);
    return code;
}

void wk_csv_format_fini(struct wk_csv_format *format)
{
    for (size_t i = 0; i < format->fields; i++) {
        free(format->name[i]);
        if (format->vocabulary)
            wk_vocabulary_fini(&format->vocabulary[i]);
    }
    free(format->name);
    free(format->type);
    free(format->words);
    free(format->vocabulary);
}

void wk_csv_fini(struct wk_csv *csv)
{
    free(csv->cell);
    free(csv->line);
    free(csv->column);
}

// ---- the source ---------------------------------------------------------------------------------------------------

// The table's columns, of what is not skipped; the cells and lines become the source's.
static void csv_make_source(const char *path, const struct wk_csv_format *format, struct wk_csv *csv,
                            struct wk_part *part)
{
    struct wk_block *block = wk_block_of(path, csv->cell, csv->rows * format->fields * sizeof *csv->cell);
    size_t *number = ps_alloc(format->fields * sizeof *number);
    part->source = wk_records_create(csv->rows);
    wk_records_own(part->source, block);
    for (size_t i = 0; i < format->fields; i++) {
        bool category = format->type[i] == PS_COLUMN_CATEGORY;
        if (format->type[i] == PS_COLUMN_SKIP)
            continue;
        number[part->source->columns] = i + 1;
        struct wk_field field = {.block = block,
                                 .offset = i * sizeof *csv->cell,
                                 .stride = format->fields * sizeof *csv->cell,
                                 .kind = category || csv->column[i].ints ? 'i' : 'f',
                                 .width = sizeof *csv->cell};
        struct wk_column *c = wk_records_add(part->source, format->name[i], field, NULL, 0);
        c->place = i + 1;
        c->classes = category && !format->words[i] ? (int32_t)format->vocabulary[i].n : 0;
        c->words = format->words[i];
        c->rounded = csv->column[i].rounded ? csv->column[i].other : 0;
    }
    if (part->source->columns)
        part->source->column[part->source->columns - 1].y = true;
    wk_records_set_lines(part->source, csv->line, number);
    csv->cell = NULL;
    csv->line = NULL;
}

static enum ps_code csv_open_part(const char *path, struct wk_csv_format *format, struct wk_part *part,
                                  struct ps_error *e)
{
    uint8_t *bytes;
    size_t size;
    struct wk_csv csv = {0};
    if (wk_file_read(path, SIZE_MAX, &bytes, &size, e))
        return e->code;
    enum ps_code code = wk_csv_parse((const char *)bytes, size, format, &csv, e);
    free(bytes);
    if (code == PS_OK)
        csv_make_source(path, format, &csv, part);
    wk_csv_fini(&csv);
    return code == PS_OK ? PS_OK : ps_error_prefix(e, "%s", path);
}

static uint64_t csv_hash_categories(const struct wk_csv_format *format)
{
    uint64_t hash = PS_HASH_SEED;
    bool any = false;
    for (size_t i = 0; i < format->fields; i++)
        if (format->type[i] == PS_COLUMN_CATEGORY) {
            hash = wk_vocabulary_hash(hash, &format->vocabulary[i]);
            any = true;
        }
    return any ? hash : 0;
}

// Categories that the training data do not have are errors in the test data: no class stands for them.
enum ps_code wk_csv_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e)
{
    const char *separator = spec->separator ? spec->separator : ",";
    struct wk_csv_format format = {.separator = strcmp(separator, "tab") == 0 ? '\t' : *separator,
                                   .header = spec->header,
                                   .columns = &spec->columns,
                                   .data = data};
    (void)seed;
    enum ps_code code = csv_open_part(spec->path, &format, &data->train, e);
    if (code == PS_OK)
        data->numbering = csv_hash_categories(&format);
    for (size_t i = 0; code == PS_OK && i < format.fields; i++)
        format.vocabulary[i].fixed = true;
    if (code == PS_OK && spec->test_path)
        code = csv_open_part(spec->test_path, &format, &data->test, e);
    wk_csv_format_fini(&format);
    return code;
}

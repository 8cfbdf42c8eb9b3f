// SPDX-License-Identifier: Apache-2.0
//
// Two passes over the text: the first counts lines and holds their fields to the first line's, so that what
// the second fills is never larger than the file allows.
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workerd/data/data_internal.h"

struct text {
    const char *at;
    size_t size;
};

// Cuts off what stands before the next mark (and the mark); false at the end.
static bool csv_next_cell(struct text *rest, char mark, struct text *piece)
{
    if (!rest->at)
        return false;
    const char *stop = memchr(rest->at, mark, rest->size);
    *piece = (struct text){rest->at, stop ? (size_t)(stop - rest->at) : rest->size};
    *rest = stop ? (struct text){stop + 1, rest->size - piece->size - 1} : (struct text){0};
    return true;
}

static bool csv_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

// A field as a C string without the blanks around it; false if it is longer than any number.
static bool field_text(struct text field, char to[64])
{
    while (field.size && csv_is_blank(*field.at)) {
        field.at++;
        field.size--;
    }
    while (field.size && csv_is_blank(field.at[field.size - 1]))
        field.size--;
    size_t kept = field.size < 64 ? field.size : 63;
    for (size_t i = 0; i < kept; i++)
        to[i] = field.at[i] >= ' ' && field.at[i] <= '~' ? field.at[i] : '?';
    to[kept] = '\0';
    return kept == field.size;
}

// A number in strtod's sense: nan and inf are numbers here, so that a line that holds one is no header.
static bool is_number(struct text field, double *value)
{
    char text[64], *stop;
    bool whole = field_text(field, text);
    *value = strtod(text, &stop);
    return whole && stop != text && *stop == '\0';
}

// A line of names is a header. One of names and numbers is neither a header nor an example: to take it for either would
// hide a mistake.
static enum ps_code csv_find_header(struct text line, bool *header, struct ps_error *e)
{
    struct text field;
    double value;
    char text[64], name[64] = "";
    size_t a_number = 0, a_name = 0;
    for (size_t i = 1; csv_next_cell(&line, ',', &field); i++) {
        bool empty = field_text(field, text) && !*text;
        if (is_number(field, &value))
            a_number = a_number ? a_number : i;
        else if (!empty && !a_name) {
            a_name = i;
            memcpy(name, text, sizeof name);
        }
    }
    if (a_name && a_number)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "line 1, field %zu is \"%s\", expected a number as in field %zu, or names alone: a header",
                       a_name, name, a_number);
    *header = a_name > 0;
    return PS_OK;
}

static enum ps_code parse_field(struct text field, uint64_t line, size_t number, double *value, struct ps_error *e)
{
    char text[64];
    bool is = is_number(field, value);
    if (is && fabs(*value) <= FLT_MAX)
        return PS_OK;
    field_text(field, text);
    if (!*text)
        return ps_fail(e, PS_INVALID_ARGUMENT, "line %" PRIu64 ", field %zu is empty, expected a number", line, number);
    return ps_fail(e, PS_INVALID_ARGUMENT, "line %" PRIu64 ", field %zu is \"%s\", expected a finite number", line,
                   number, text);
}

// Spreadsheets put a byte-order mark before UTF-8.
static void csv_skip_mark(struct text *text)
{
    static const char mark[3] = {'\xef', '\xbb', '\xbf'};
    if (text->size >= sizeof mark && memcmp(text->at, mark, sizeof mark) == 0)
        *text = (struct text){text->at + sizeof mark, text->size - sizeof mark};
}

struct layout {
    bool header;
    uint64_t rows;  // lines of numbers
    size_t columns;
};

static enum ps_code csv_measure(struct text text, struct layout *layout, struct ps_error *e)
{
    struct text line, field, first = text;
    csv_next_cell(&first, '\n', &line);
    *layout = (struct layout){0};
    if (csv_find_header(line, &layout->header, e) != PS_OK)
        return e->code;
    for (uint64_t n = 1; csv_next_cell(&text, '\n', &line); n++) {
        size_t columns = 0;
        while (csv_next_cell(&line, ',', &field))
            columns++;
        if (n == 1)
            layout->columns = columns;
        if (columns != layout->columns)
            return ps_fail(e, PS_INVALID_ARGUMENT, "line %" PRIu64 " has %zu fields, expected %zu as on line 1", n,
                           columns, layout->columns);
        layout->rows += n > 1 || !layout->header;
    }
    if (layout->columns < 2)
        return ps_fail(e, PS_INVALID_ARGUMENT, "line 1 has one field, expected inputs and then a label or target");
    if (layout->rows == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "only a header line, expected at least one line of numbers");
    return PS_OK;
}

static enum ps_code parse_line(struct text line, uint64_t number, uint64_t row, struct wk_part *part,
                               struct ps_error *e)
{
    struct text field;
    size_t inputs = part->split.inputs;
    float *x = part->floats + row * inputs;
    for (size_t i = 0; csv_next_cell(&line, ',', &field); i++) {
        double value;
        enum ps_code code = parse_field(field, number, i + 1, &value, e);
        if (code != PS_OK)
            return code;
        if (i < inputs)
            x[i] = (float)value;
        else if ((code = wk_part_put_y(part, row, value, e)) != PS_OK)
            return ps_error_prefix(e, "line %" PRIu64 ", field %zu", number, i + 1);
    }
    return PS_OK;
}

enum ps_code wk_csv_parse(const char *bytes, size_t size, bool labels, struct wk_part *part, struct ps_error *e)
{
    struct text text = {bytes, size}, line;
    struct layout layout;
    csv_skip_mark(&text);
    while (text.size && (csv_is_blank(text.at[text.size - 1]) || text.at[text.size - 1] == '\n'))
        text.size--;
    if (text.size == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "the file is empty, expected lines of numbers");
    enum ps_code code = csv_measure(text, &layout, e);
    if (code != PS_OK)
        return code;
    size_t inputs = layout.columns - 1;
    part->split = (struct wk_split){.examples = layout.rows, .shape = {inputs}, .rank = 1, .inputs = inputs};
    part->floats = wk_array(layout.rows, inputs, sizeof *part->floats, e);
    if (!part->floats)
        return PS_RESOURCE_EXHAUSTED;
    code = wk_part_alloc_y(part, labels, NULL, 0, e);
    if (layout.header)
        csv_next_cell(&text, '\n', &line);
    for (uint64_t row = 0; code == PS_OK && csv_next_cell(&text, '\n', &line); row++)
        code = parse_line(line, row + 1 + layout.header, row, part, e);
    return code;
}

static enum ps_code csv_load_part(const char *path, bool labels, struct wk_part *part, struct ps_error *e)
{
    uint8_t *bytes;
    size_t size;
    enum ps_code code = wk_file_read(path, SIZE_MAX, &bytes, &size, e);
    if (code != PS_OK)
        return code;
    code = wk_csv_parse((const char *)bytes, size, labels, part, e);
    free(bytes);
    return code == PS_OK ? PS_OK : ps_error_prefix(e, "%s", path);
}

enum ps_code wk_csv_open(const struct wk_data_spec *spec, struct wk_data *data, struct ps_error *e)
{
    enum ps_code code = csv_load_part(spec->path, spec->labels, &data->train, e);
    if (code == PS_OK && spec->test_path)
        code = csv_load_part(spec->test_path, spec->labels, &data->test, e);
    return code;
}

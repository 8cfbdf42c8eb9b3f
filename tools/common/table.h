// SPDX-License-Identifier: Apache-2.0
//
// Facts as rows under typed columns, shown either to people (aligned text, human units) or to programs (JSON,
// raw numbers). A command fills tables and says nothing of how they look.
#ifndef TOOLS_TABLE_H
#define TOOLS_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum table_type {
    TABLE_TEXT,      // string: a name, a state
    TABLE_SENTENCE,  // string, for the last column
    TABLE_COUNT,     // integer
    TABLE_INDEX,     // integer, counted from 0; for people from 1
    TABLE_REAL,      // number, four digits for people
    TABLE_BYTES,     // number: "1.2 MiB"
    TABLE_MS,        // integer, milliseconds: "350 ms", "2.5 s", "1 h 02 min"
    TABLE_US,        // integer, microseconds: likewise, and "0.3 ms"
    TABLE_SHAPE,     // array of integers: "(3, 3, 32)"
    TABLE_LIST,      // array of numbers or texts: "0,1"
    TABLE_NUMBERS,   // object of numbers, for the last column: "loss 0.25, val_loss 0.31"
    TABLE_SHARE,     // number from 0 to 1: "41.5 %"
    TABLE_FLAG,      // boolean: "yes", or "-"; a column without a yes is left out
};

struct table_column {
    const char *key;    // in JSON
    const char *title;  // for people
    enum table_type type;
    bool always;  // is shown where no row knows it, too
    bool detail;  // is left out first where the screen is too narrow
};

struct table {
    const struct table_column *columns;
    size_t n_columns;
    json_t *rows;  // array of rows, each an array of cells
};

// columns must outlive the table.
void table_init(struct table *t, const struct table_column *columns, size_t n_columns);
void table_fini(struct table *t);

void table_row(struct table *t);
// The next cell of the last row; takes over value. NULL (which is what json_real makes of a NaN) stands for
// "not known": "-" for people, null in JSON. Cells that are never added are not known either.
void table_cell(struct table *t, json_t *value);

// A text cell: NULL and "" are not known.
json_t *table_text(const char *text);
json_t *table_count(uint64_t n);
// "12.3 MiB"
void table_bytes_text(double bytes, char *to, size_t size);
void table_ms_text(int64_t ms, char *to, size_t size);  // as TABLE_MS
json_t *table_real(double x);                           // "nan", "inf" or "-inf" for people, then null in JSON

// Aligned text. Numbers stand to the right; a column that no row knows is left out, unless it is always shown. On a
// terminal that is too narrow details are left out, which is said below, and a sentence in the last column is cut where
// the line ends.
void table_print(const struct table *t, FILE *to);
void table_print_within(const struct table *t, int columns, FILE *to);  // of a terminal; 0: it is none
// The first row as "title  value" lines.
void table_print_record(const struct table *t, FILE *to);

// What a command shows: several tables, each under a name.
struct table_part {
    const char *name;  // key in JSON
    const struct table *table;
    bool record;  // one row, shown as lines; in JSON an object instead of an array of them
};

// Writes the parts to `to`. In JSON one part is the document itself, several are the members of an object.
void table_show(const struct table_part *parts, size_t n, bool json, FILE *to);

struct table_screen {
    int rows, columns;
    bool utf8;  // it shows UTF-8
};

// Writes what fits a screen of the tables, as many rows of one as of the other. Long texts end in an ellipsis; columns
// that do not fit are left out, details and the last ones first; the last line says how many rows and columns are not
// shown.
void table_show_screen(const struct table_part *parts, size_t n, const struct table_screen *screen, FILE *to);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// What a job file says of its data's columns, in two maps:
//
//     columns:                   # by name, or by number from 1
//       age: number              # a type: number, category (words become 0, 1, 2 ... in the order of their first
//                                #   appearance), image, skip
//       city: {type: category, vocabulary: cities.txt}     # a word per line
//                                # in CSV, a column of an input that a StringLookup reads needs no line: it has
//                                #   that layer's vocabulary
//       image: {type: bytes, shape: [28, 28, 1]}
//     inputs:                    # of the model, by the names of its InputLayers: a column, or several side by side
//       numbers: [age, income]
//       place: city
//
// Threads: one per struct.
#ifndef PS_COMMON_COLUMNS_H
#define PS_COMMON_COLUMNS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/limits.h"
#include "common/file/yaml.h"

enum ps_column_type {
    PS_COLUMN_ANY,  // what the data say
    PS_COLUMN_NUMBER,
    PS_COLUMN_CATEGORY,
    PS_COLUMN_BYTES,
    PS_COLUMN_IMAGE,
    PS_COLUMN_SKIP,
};

struct ps_job_column {
    char *name;
    int type;          // enum ps_column_type
    char *vocabulary;  // a file; NULL: none
    uint64_t shape[PS_MAX_RANK];
    size_t rank;  // of shape; 0: not said
};

struct ps_job_columns {
    struct ps_job_column *of;
    size_t n;
};

// An input or output of the model, and the columns that are its elements.
struct ps_job_port {
    char *name;
    char **column;
    size_t n;
};

struct ps_job_ports {
    struct ps_job_port *of;
    size_t n;
};

// what: the value's path in the job file, for errors. A list is freed by its free function, after errors too.
enum ps_code ps_job_columns_parse(const struct ps_yaml *v, const char *what, struct ps_job_columns *to,
                                  struct ps_error *e);
enum ps_code ps_job_ports_parse(const struct ps_yaml *v, const char *what, struct ps_job_ports *to, struct ps_error *e);
// A column or a list of columns.
enum ps_code ps_job_port_parse(const struct ps_yaml *v, const char *what, struct ps_job_port *to, struct ps_error *e);
void ps_job_columns_free(struct ps_job_columns *c);
void ps_job_port_free(struct ps_job_port *p);
void ps_job_ports_free(struct ps_job_ports *p);
// As they would stand in a job file; NULL: none was said. A new reference.
json_t *ps_job_columns_json(const struct ps_job_columns *c);
// Of such JSON (may be NULL): a column has a vocabulary, wherever its file is.
void ps_job_columns_hide_paths(json_t *columns);
json_t *ps_job_port_json(const struct ps_job_port *p);
json_t *ps_job_ports_json(const struct ps_job_ports *p);

// NULL: nothing is said of it.
static inline const struct ps_job_column *ps_job_columns_find(const struct ps_job_columns *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->of[i].name, name) == 0)
            return &c->of[i];
    return NULL;
}

#endif

// SPDX-License-Identifier: Apache-2.0
//
// What is chosen by a name and has settings, such as a loss or a metric: described by tables, and read by them.
//
//     huber
//     {name: huber, delta: 2}
//     {class_name: Huber, config: {delta: 2}}        as Keras writes it
//
// Threads: any; tables are constant.
#ifndef PS_COMMON_NAMED_H
#define PS_COMMON_NAMED_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/error.h"

struct ps_named {
    const char *name;       // ours
    const char *spellings;  // Keras's other ones, with a space between two
    const char *text;       // what it is, in one line
};

struct ps_setting {
    const char *name;
    enum ps_setting_kind {
        PS_SETTING_FLAG,   // bool
        PS_SETTING_REAL,   // double, min to max
        PS_SETTING_COUNT,  // int, min to max
        PS_SETTING_WORD,   // int: index in words
        PS_SETTING_FIXED,  // must be the fallback, or words[0]: Keras has others, and we do not
    } kind;
    size_t offset;
    double fallback, min, max;
    const char *const *words;  // ends with NULL
    uint64_t of;               // the kinds that have it, as bits; 0: all
};

struct ps_names {
    const char *what;  // "loss"
    const struct ps_named *named;
    int n;
    const struct ps_setting *setting;
    size_t n_settings;
};

// Reads *kind, the index of what is named, and its settings, those that are not given with their defaults, into `to`.
// path: where it stands, for errors: INVALID_ARGUMENT "loss.delta must be ..., not ...". key: the key that is wrong;
// NULL where that is none. label, which may be NULL, has the name as it was written: from's.
enum ps_code ps_named_read(const struct ps_names *names, const char *path, const json_t *from, int *kind, void *to,
                           const char **label, const char **key, struct ps_error *e);
// In the form of a file, with all settings. A new reference.
json_t *ps_named_json(const struct ps_names *names, int kind, const void *of);
// A line for each: its name, its settings, what it is.
void ps_named_list(const struct ps_names *names, FILE *to);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// The section `callbacks:` of a job file: a list of what is done beside the training. One table (in callbacks.c) says
// which callbacks there are, and their settings with types, defaults and ranges; names and defaults are Keras's where
// Keras has them. What a callback does with its settings is workerd's (workerd/job/callback.h).
//
//     callbacks:
//       - {name: early_stopping, patience: 3}
//       - terminate_on_nan                    # nothing to set
#ifndef PS_COMMON_CALLBACKS_H
#define PS_COMMON_CALLBACKS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

struct ps_yaml;

enum { PS_CALLBACK_KEYS = 8 };

struct ps_callback_class;

struct ps_callback {
    const struct ps_callback_class *class;
    union ps_callback_value {
        char *text;  // owned
        uint64_t count;
        double real;  // NaN: not given, and there is no default
        bool flag;
    } value[PS_CALLBACK_KEYS];
};

struct ps_callbacks {
    struct ps_callback *v;
    size_t n;
};

// INVALID_ARGUMENT: "FILE:LINE: ...".
enum ps_code ps_callbacks_parse(const struct ps_yaml *list, struct ps_callbacks *to, struct ps_error *e);
void ps_callbacks_free(struct ps_callbacks *c);
// Before a job takes its time: can their files be written, as far as can be seen now? CANNOT_CREATE.
enum ps_code ps_callbacks_check_files(const struct ps_callbacks *c, struct ps_error *e);
// The first one that writes to a path, by ps_output_same: its name. NULL: none does.
const char *ps_callbacks_writer(const struct ps_callbacks *c, const char *path);
char **ps_callbacks_path(struct ps_callbacks *c, size_t i);  // the i-th of all their paths; NULL: there are not so many
// Where checkpoints lie whose shards the ps tasks write: one folder, theirs; NULL: there are none.
const char *ps_callbacks_shards(const struct ps_callbacks *c);
// As a job file has it. A new reference.
json_t *ps_callbacks_json(const struct ps_callbacks *c);

// Those that there are; NULL from the last on.
const char *ps_callback_known(size_t i);
const char *ps_callback_name(const struct ps_callback *c);
// What tells it from others of its name: its setting `path`, else `monitor`, and which of them that is. NULL: neither.
const char *ps_callback_subject(const struct ps_callback *c, const char **key);
// Settings by name, of the type that the table gives them.
const char *ps_callback_text(const struct ps_callback *c, const char *key);
uint64_t ps_callback_count(const struct ps_callback *c, const char *key);
double ps_callback_real(const struct ps_callback *c, const char *key);
bool ps_callback_flag(const struct ps_callback *c, const char *key);

#endif

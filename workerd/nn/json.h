// SPDX-License-Identifier: Apache-2.0
//
// A value of a JSON document together with the way to it, so that whatever is wrong can say where it stands:
//   model.json: $.config.layers[3].config.units: expected a whole number from 1 to 2147483647, not -3
//
// A struct nn_json lives on the reader's stack; what `up` points to must outlive it. Readers return INVALID_ARGUMENT
// and set their output only when they succeed. A member that is not there can be asked for and read like any other:
// the error then says that it is missing.
#ifndef NN_JSON_H
#define NN_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

struct nn_json {
    const struct nn_json *up;  // NULL: the root
    const char *key;           // member of up; NULL: element `index` of up
    size_t index;
    json_t *value;     // borrowed; NULL: up has no such member
    const char *file;  // the document's name
};

struct nn_json nn_json_root(const char *file, json_t *value);
struct nn_json nn_json_member(const struct nn_json *object, const char *key);
struct nn_json nn_json_element(const struct nn_json *array, size_t index);
bool nn_json_given(const struct nn_json *at);  // there, and not null

// "file: path: <formatted>"
enum ps_code nn_json_fail(const struct nn_json *at, struct ps_error *e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// "file: path: expected <formatted>, not <the value>" or ", which is missing".
enum ps_code nn_json_expected(const struct nn_json *at, struct ps_error *e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

enum ps_code nn_json_object(const struct nn_json *at, struct ps_error *e);
enum ps_code nn_json_array(const struct nn_json *at, size_t *n, struct ps_error *e);
enum ps_code nn_json_string(const struct nn_json *at, const char **s, struct ps_error *e);
enum ps_code nn_json_int(const struct nn_json *at, int64_t min, int64_t max, int64_t *v, struct ps_error *e);
enum ps_code nn_json_real(const struct nn_json *at, double min, double max, double *v, struct ps_error *e);
enum ps_code nn_json_bool(const struct nn_json *at, bool *v, struct ps_error *e);

// Refuses members outside known[] (which ends with NULL) unless they are null, which asks for nothing.
enum ps_code nn_json_only(const struct nn_json *object, const char *const *known, struct ps_error *e);

// "a, b, c" of words[] (which ends with NULL), in to; returns to.
char *nn_json_list(const char *const *words, char *to, size_t size);

#endif

// SPDX-License-Identifier: Apache-2.0
//
// YAML as a small tree in which every value knows the line it stands on, so that whoever reads a
// configuration can say where a mistake is; and assignments from the command line laid over it.
//
// Accepted: one document of maps, lists and scalars. Refused: anchors, aliases, tags, keys that are not
// scalars or appear twice, and whatever is over the bounds below.
#ifndef PS_COMMON_YAML_H
#define PS_COMMON_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum {
    PS_YAML_MAX_BYTES = 1 << 24,  // room for a cluster's 65536 workers
    PS_YAML_MAX_DEPTH = 16,       // of nesting
    PS_YAML_MAX_KEYS = 1 << 16,   // in one map: weights of classes
};

enum ps_yaml_kind { PS_YAML_SCALAR, PS_YAML_LIST, PS_YAML_MAP };

struct ps_yaml {
    enum ps_yaml_kind kind;
    const char *source;     // the file's name, or for what was assigned the assignment itself; not owned
    int line;               // of the key where there is one, else of the value; 0: assigned
    char *key;              // in a map, else NULL
    char *text;             // of a scalar
    bool quoted;            // a scalar in quotes or a block: a string whatever it looks like
    struct ps_yaml *first;  // what a list or map holds, in order
    struct ps_yaml *next;   // in the same list or map
};

// text is len bytes; name is what errors call it, and has to outlive the tree. An empty text is an empty map.
enum ps_code ps_yaml_parse(const char *text, size_t len, const char *name, struct ps_yaml **root, struct ps_error *e);
// The file at path, which has to outlive the tree. NOT_FOUND and the like: it cannot be read.
enum ps_code ps_yaml_load(const char *path, struct ps_yaml **root, struct ps_error *e);
void ps_yaml_free(struct ps_yaml *root);

// The bytes of a file of at most PS_YAML_MAX_BYTES, malloc'd.
enum ps_code ps_yaml_read_file(const char *path, char **text, size_t *len, struct ps_error *e);

// Lays "KEY=VALUE" over a tree whose root is a map: KEY is a dotted path ("optimizer.name"; missing maps are
// made), VALUE a scalar or a flow value ("[accuracy]", "{kind: idx, path: x}"), which replaces what was
// there. assignment has to outlive the tree. On an error the tree is as it was.
enum ps_code ps_yaml_set(struct ps_yaml *root, const char *assignment, struct ps_error *e);

// The value at a dotted path, or NULL.
const struct ps_yaml *ps_yaml_find(const struct ps_yaml *root, const char *path);
// Nothing, said in one of YAML's ways: a key without a value, ~ or null.
bool ps_yaml_is_null(const struct ps_yaml *v);

// Paths in a file are relative to that file: how many bytes of v's source, a folder and its slash, go before the path.
size_t ps_yaml_folder(const struct ps_yaml *v, const char *path);

// Fails with INVALID_ARGUMENT and "FILE:LINE: ..." or "--set KEY: ...".
enum ps_code ps_yaml_fail(const struct ps_yaml *at, struct ps_error *e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// The same with "WHAT must be <formatted>, not <the value>". what: the value's dotted path.
enum ps_code ps_yaml_expected(const struct ps_yaml *v, const char *what, struct ps_error *e, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// Typed values. Bounds are inclusive.
enum ps_code ps_yaml_string(const struct ps_yaml *v, const char *what, const char **to, struct ps_error *e);
enum ps_code ps_yaml_uint(const struct ps_yaml *v, const char *what, uint64_t min, uint64_t max, uint64_t *to,
                          struct ps_error *e);
enum ps_code ps_yaml_real(const struct ps_yaml *v, const char *what, double *to,
                          struct ps_error *e);  // finite
enum ps_code ps_yaml_bool(const struct ps_yaml *v, const char *what, bool *to, struct ps_error *e);
// The index of the value among words, which ends with NULL.
enum ps_code ps_yaml_choice(const struct ps_yaml *v, const char *what, const char *const *words, int *to,
                            struct ps_error *e);

#endif

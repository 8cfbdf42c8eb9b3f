// SPDX-License-Identifier: Apache-2.0
//
// TF_CONFIG, in which TensorFlow's users have their cluster already:
//
//     {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}, "task": {"type": "worker", "index": 1}}
//
// Read as TensorFlow reads it (TFConfigClusterResolver, multi_worker_util): what stands beside `cluster` and `task` is
// ignored, a task type that it does not know is not; the chief counts as a worker, before the others; an evaluator
// need not be listed; an index may be a string of digits. `master` is what a chief was called before. Stricter where
// TensorFlow would fail later or count wrong: keys and addresses that are there twice, an index without a type or a
// type without an index.
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/base/alloc.h"
#include "common/cluster/cluster.h"

// Of each kind there may be PS_MAX_TASKS: each address is compared with all others.
enum { TF_CONFIG_MAX_BYTES = 1 << 20 };

enum kind { PS, WORKER, CHIEF, EVALUATOR, KINDS };
static const char *const names[] = {"ps", "worker", "chief", "evaluator"};
#define KNOWN "ps, worker, chief or evaluator"

struct reader {
    struct ps_cluster *c;
    const char *said[KINDS];  // the key under which this kind was listed; NULL: it was not
    size_t n[KINDS];
    json_t *seen;  // address: where it stands
    struct ps_error *e;
};

// ---- errors -------------------------------------------------------------------------------------------------------

static const char *tf_type_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        break;
    }
    return "null";
}

// v NULL: it is missing.
static enum ps_code tf_expected(struct reader *r, const char *path, const char *what, const json_t *v)
{
    if (!v)
        return ps_fail(r->e, PS_INVALID_ARGUMENT, "TF_CONFIG: %s is missing: expected %s", path, what);
    return ps_fail(r->e, PS_INVALID_ARGUMENT, "TF_CONFIG: %s must be %s, not %s", path, what, tf_type_name(v));
}

static enum ps_code tf_unknown(struct reader *r, const char *where, const char *name)
{
    const char *near = ps_nearest(name, names, KINDS);
    if (near)
        return ps_fail(r->e, PS_INVALID_ARGUMENT, "TF_CONFIG: %s: unknown task type '%.60s'; did you mean '%s'?", where,
                       name, near);
    return ps_fail(r->e, PS_INVALID_ARGUMENT, "TF_CONFIG: %s: unknown task type '%.60s'; expected " KNOWN, where, name);
}

// KINDS: none of them.
static enum kind tf_kind(const char *name)
{
    enum kind kind = PS;
    while (kind < KINDS && strcmp(name, names[kind]) != 0)
        kind++;
    return strcmp(name, "master") == 0 ? CHIEF : kind;
}

// ---- the cluster --------------------------------------------------------------------------------------------------

// Every address is some task's own, whatever its kind.
static enum ps_code tf_read_address(struct reader *r, enum kind kind, const char *path, const json_t *v)
{
    if (!json_is_string(v))
        return tf_expected(r, path, "an address, as in \"node1:7070\"", v);
    if (json_string_length(v) == 0)
        return ps_fail(r->e, PS_INVALID_ARGUMENT, "TF_CONFIG: %s is empty: expected host:port", path);
    const char *address = json_string_value(v);
    const json_t *before = json_object_get(r->seen, address);
    if (before)
        return ps_fail(r->e, PS_INVALID_ARGUMENT,
                       "TF_CONFIG: %s: address '%.200s' is %s as well, each task needs its own", path, address,
                       json_string_value(before));
    if (json_object_set_new(r->seen, address, json_string(path)))
        return ps_no_memory(r->e, "a cluster");
    if (kind == PS && ps_cluster_add(r->c, address, r->e))
        return ps_error_prefix(r->e, "TF_CONFIG: %s", path);
    return PS_OK;
}

static enum ps_code tf_read_kind(struct reader *r, const char *key, const json_t *list)
{
    char path[64];
    size_t i;
    json_t *v;
    enum kind kind = tf_kind(key);
    if (kind == KINDS)
        return tf_unknown(r, "cluster", key);
    snprintf(path, sizeof path, "cluster.%s", key);
    if (r->said[kind])
        return ps_fail(r->e, PS_INVALID_ARGUMENT, "TF_CONFIG: %s: the chief is at cluster.%s already", path,
                       r->said[kind]);
    if (!json_is_array(list))
        return tf_expected(r, path, "a list of addresses", list);
    r->said[kind] = key;
    r->n[kind] = json_array_size(list);
    if (r->n[kind] > (kind == CHIEF ? 1 : PS_MAX_TASKS))
        return ps_fail(r->e, PS_INVALID_ARGUMENT, "TF_CONFIG: %s has %zu addresses: expected at most %d", path,
                       r->n[kind], kind == CHIEF ? 1 : PS_MAX_TASKS);
    json_array_foreach(list, i, v)
    {
        snprintf(path, sizeof path, "cluster.%s[%zu]", key, i);
        if (tf_read_address(r, kind, path, v))
            return r->e->code;
    }
    return PS_OK;
}

// The chief counts as a worker, before the others.
static enum ps_code tf_add_workers(struct reader *r, json_t *cluster)
{
    static const enum kind kinds[] = {CHIEF, WORKER};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const char *said = r->said[kinds[k]];
        size_t i;
        json_t *v;
        json_array_foreach(said ? json_object_get(cluster, said) : NULL, i, v)
        {
            if (ps_cluster_add_worker(r->c, json_string_value(v), r->e))
                return r->e->code;
        }
    }
    return PS_OK;
}

static enum ps_code tf_read_cluster(struct reader *r, json_t *cluster)
{
    const char *key;
    json_t *list;
    if (!json_is_object(cluster))
        return tf_expected(r, "cluster", "an object with the addresses of ps, worker and chief", cluster);
    json_object_foreach(cluster, key, list)
    {
        if (tf_read_kind(r, key, list))
            return r->e->code;
    }
    if (r->n[PS] == 0 && !r->c->needs_no_ps)
        return ps_fail(r->e, PS_INVALID_ARGUMENT, "TF_CONFIG: cluster.ps is %s: expected the ps tasks' addresses",
                       r->said[PS] ? "empty" : "missing");
    const size_t workers = r->n[CHIEF] + r->n[WORKER];
    if (workers > PS_MAX_TASKS)
        return ps_fail(r->e, PS_INVALID_ARGUMENT, "TF_CONFIG: there are %zu workers: expected at most %d", workers,
                       PS_MAX_TASKS);
    return tf_add_workers(r, cluster);
}

// ---- the task -----------------------------------------------------------------------------------------------------

static bool tf_whole_number(const json_t *v, uint64_t *to)
{
    const char *text = json_string_value(v);
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        *to = (uint64_t)json_integer_value(v);
        return true;
    }
    if (!text || !*text || strlen(text) != json_string_length(v) || text[strspn(text, "0123456789")])
        return false;
    *to = strtoull(text, NULL, 10);  // one too large stays the largest
    return true;
}

static enum ps_code tf_read_index(struct reader *r, enum kind kind, const json_t *v, uint64_t *index)
{
    if (!v || !tf_whole_number(v, index))
        return tf_expected(r, "task.index", "a whole number from 0 on", v);
    if (kind == EVALUATOR && !r->said[kind])
        return PS_OK;
    if (r->n[kind] == 0)
        return ps_fail(r->e, PS_INVALID_ARGUMENT, "TF_CONFIG: task.type is %s, but cluster lists none", names[kind]);
    if (*index >= r->n[kind])
        return ps_fail(r->e, PS_INVALID_ARGUMENT,
                       "TF_CONFIG: task.index is %" PRIu64 ", but cluster.%s has %zu address%s, the first is 0", *index,
                       r->said[kind], r->n[kind], r->n[kind] == 1 ? "" : "es");
    return PS_OK;
}

// Absent where somebody only looks at the cluster, as psctl does.
static enum ps_code tf_read_task(struct reader *r, const json_t *task)
{
    static const enum ps_task_type types[] = {PS_TASK_PS, PS_TASK_WORKER, PS_TASK_WORKER, PS_TASK_EVALUATOR};
    uint64_t index = 0;
    if (!task)
        return PS_OK;
    if (!json_is_object(task))
        return tf_expected(r, "task", "an object with type and index", task);
    const json_t *type = json_object_get(task, "type");
    if (!json_is_string(type))
        return tf_expected(r, "task.type", KNOWN, type);
    enum kind kind = tf_kind(json_string_value(type));
    if (kind == KINDS)
        return tf_unknown(r, "task.type", json_string_value(type));
    if (tf_read_index(r, kind, json_object_get(task, "index"), &index))
        return r->e->code;
    r->c->task = types[kind];
    r->c->index = (size_t)index + (kind == WORKER ? r->n[CHIEF] : 0);
    return PS_OK;
}

// ---- the whole ----------------------------------------------------------------------------------------------------

static enum ps_code tf_parse(const char *text, json_t **root, struct ps_error *e)
{
    json_error_t error;
    size_t len = strlen(text);
    if (len > TF_CONFIG_MAX_BYTES)
        return ps_fail(e, PS_INVALID_ARGUMENT, "TF_CONFIG: more than %d bytes", TF_CONFIG_MAX_BYTES);
    *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (*root)
        return PS_OK;
    if (json_error_code(&error) == json_error_out_of_memory || !error.text[0])
        return ps_no_memory(e, "TF_CONFIG");
    const char *near = strstr(error.text, " near ");  // and then what stands there, whatever it is
    return ps_fail(e, PS_INVALID_ARGUMENT, "TF_CONFIG: line %d, column %d: not JSON: %.*s", error.line, error.column,
                   near ? (int)(near - error.text) : (int)strlen(error.text), error.text);
}

enum ps_code ps_cluster_parse_tf_config(const char *json, struct ps_cluster *c, struct ps_error *e)
{
    struct reader r = {.c = c, .seen = json_object(), .e = e};
    json_t *root = NULL;
    e->code = PS_OK;
    if (!r.seen)
        ps_no_memory(e, "a cluster");
    else if (tf_parse(json, &root, e) == PS_OK && !json_is_object(root))
        ps_fail(e, PS_INVALID_ARGUMENT, "TF_CONFIG must be an object with cluster and task, not %s",
                tf_type_name(root));
    else if (root && tf_read_cluster(&r, json_object_get(root, "cluster")) == PS_OK)
        tf_read_task(&r, json_object_get(root, "task"));
    json_decref(root);
    json_decref(r.seen);
    if (e->code != PS_OK)
        ps_cluster_fini(c);
    return e->code;
}

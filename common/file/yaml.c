// SPDX-License-Identifier: Apache-2.0
//
// The tree is built from libyaml's events. Its document interface would resolve aliases and drop anchors
// before they could be refused, and load a document of any depth first.
#include "common/file/yaml.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "common/base/alloc.h"
#include "common/base/name_table.h"

// ---- errors -------------------------------------------------------------------------------------------------------

// Puts where it was before the text of an error that has just been made.
static enum ps_code yaml_prefix_place(const char *source, int line, struct ps_error *e)
{
    if (e && line)
        ps_error_prefix(e, "%s:%d", source, line);
    else if (e)
        ps_error_prefix(e, "--set %.*s", (int)strcspn(source, "="), source);
    return PS_INVALID_ARGUMENT;
}

enum ps_code ps_yaml_fail(const struct ps_yaml *at, struct ps_error *e, const char *format, ...)
{
    char text[384];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ps_fail(e, PS_INVALID_ARGUMENT, "%s", text);
    return yaml_prefix_place(at->source, at->line, e);
}

bool ps_yaml_is_null(const struct ps_yaml *v)
{
    return v->kind == PS_YAML_SCALAR && !v->quoted &&
           (v->text[0] == '\0' || strcmp(v->text, "~") == 0 || strcmp(v->text, "null") == 0);
}

enum ps_code ps_yaml_expected(const struct ps_yaml *v, const char *what, struct ps_error *e, const char *format, ...)
{
    char expected[256];
    va_list args;
    va_start(args, format);
    vsnprintf(expected, sizeof expected, format, args);
    va_end(args);
    if (v->kind != PS_YAML_SCALAR)
        return ps_yaml_fail(v, e, "%s must be %s, not a %s", what, expected, v->kind == PS_YAML_LIST ? "list" : "map");
    if (ps_yaml_is_null(v))
        return ps_yaml_fail(v, e, "%s must be %s, not empty", what, expected);
    return ps_yaml_fail(v, e, "%s must be %s, not %s\"%.60s\"", what, expected, v->quoted ? "the string " : "",
                        v->text);
}

// ---- the tree -----------------------------------------------------------------------------------------------------

// With len bytes of text where that is not NULL. NULL: no memory.
static struct ps_yaml *node_create(enum ps_yaml_kind kind, const char *source, int line, const char *text, size_t len)
{
    struct ps_yaml *v = ps_try_alloc(sizeof *v);
    char *copy = v && text ? strndup(text, len) : NULL;
    if (!v || (text && !copy)) {
        free(v);
        return NULL;
    }
    *v = (struct ps_yaml){.kind = kind, .source = source, .line = line, .text = copy};
    return v;
}

void ps_yaml_free(struct ps_yaml *v)
{
    if (!v)
        return;
    for (struct ps_yaml *child = v->first, *next; child; child = next) {
        next = child->next;
        ps_yaml_free(child);
    }
    free(v->key);
    free(v->text);
    free(v);
}

// The link to the child of this key (len bytes), or the one a new child would be hung on.
static struct ps_yaml **yaml_slot_of(struct ps_yaml *map, const char *key, size_t len)
{
    struct ps_yaml **slot = &map->first;
    while (*slot && (strncmp((*slot)->key, key, len) != 0 || (*slot)->key[len] != '\0'))
        slot = &(*slot)->next;
    return slot;
}

const struct ps_yaml *ps_yaml_find(const struct ps_yaml *root, const char *path)
{
    const struct ps_yaml *v = root;
    while (v && v->kind == PS_YAML_MAP) {
        size_t len = strcspn(path, ".");
        v = *yaml_slot_of((struct ps_yaml *)v, path, len);
        if (path[len] == '\0')
            return v;
        path += len + 1;
    }
    return NULL;
}

// ---- reading ------------------------------------------------------------------------------------------------------

struct reader {
    yaml_parser_t parser;
    yaml_event_t event;  // the current one
    const char *source;
    bool assigned;       // a --set: no lines, and no block collections
    struct ps_error *e;  // not NULL
};

static int line_of(const struct reader *r)
{
    return r->assigned ? 0 : (int)r->event.start_mark.line + 1;
}

// Fails at the current event.
static struct ps_yaml *yaml_refuse(struct reader *r, const char *why)
{
    ps_fail(r->e, PS_INVALID_ARGUMENT, "%s", why);
    yaml_prefix_place(r->source, line_of(r), r->e);
    return NULL;
}

static struct ps_yaml *no_memory(struct reader *r)
{
    ps_no_memory(r->e, r->source);
    return NULL;
}

static bool yaml_advance(struct reader *r)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event))
        return true;
    const yaml_parser_t *p = &r->parser;
    size_t line = p->problem_mark.line + 1;
    bool tab = p->error == YAML_SCANNER_ERROR && p->buffer.pointer && *p->buffer.pointer == '\t';
    if (p->error == YAML_MEMORY_ERROR)
        return no_memory(r) != NULL;
    if (p->error == YAML_READER_ERROR)  // which counts bytes only
        ps_fail(r->e, PS_INVALID_ARGUMENT, "%s at byte %zu", p->problem, p->problem_offset);
    else
        ps_fail(r->e, PS_INVALID_ARGUMENT, "%s%s%s", p->context ? p->context : "", p->context ? ": " : "",
                tab          ? "found a tab, where YAML takes spaces only"
                : p->problem ? p->problem
                             : "not YAML");
    if (p->error == YAML_READER_ERROR)
        line = p->mark.line + 1;
    yaml_prefix_place(r->source, r->assigned ? 0 : (int)line, r->e);
    return false;
}

static struct ps_yaml *read_value(struct reader *r, int depth);

static struct ps_yaml *read_scalar(struct reader *r)
{
    const char *text = (const char *)r->event.data.scalar.value;
    size_t len = r->event.data.scalar.length;
    if (memchr(text, 0, len))
        return yaml_refuse(r, "a value has a NUL byte in it");
    struct ps_yaml *v = node_create(PS_YAML_SCALAR, r->source, line_of(r), text, len);
    if (!v)
        return no_memory(r);
    v->quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return v;
}

static struct ps_yaml *read_list(struct reader *r, int depth)
{
    struct ps_yaml *list = node_create(PS_YAML_LIST, r->source, line_of(r), NULL, 0);
    if (!list)
        return no_memory(r);
    struct ps_yaml **tail = &list->first;
    while (yaml_advance(r)) {
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return list;
        *tail = read_value(r, depth + 1);
        if (!*tail)
            break;
        tail = &(*tail)->next;
    }
    ps_yaml_free(list);
    return NULL;
}

// The key at the current event, as a string of its own; NULL: it cannot be one.
static char *read_key(struct reader *r, const struct ps_name_table *before)
{
    char why[128];
    struct ps_yaml *key;
    const struct ps_yaml *twin;
    if (r->event.type != YAML_SCALAR_EVENT) {
        yaml_refuse(r, "a key must be a word");
        return NULL;
    }
    if (before->n == PS_YAML_MAX_KEYS) {
        snprintf(why, sizeof why, "a map has more than %d keys", PS_YAML_MAX_KEYS);
        yaml_refuse(r, why);
        return NULL;
    }
    key = read_value(r, 0);
    if (!key)
        return NULL;
    twin = ps_name_table_find(before, key->text);
    if (twin) {
        snprintf(why, sizeof why, "key \"%.60s\" appears twice, first on line %d", key->text, twin->line);
        yaml_refuse(r, why);
        ps_yaml_free(key);
        return NULL;
    }
    char *text = key->text;
    key->text = NULL;
    ps_yaml_free(key);
    return text;
}

// The pair whose key is the current event. NULL: it is refused.
static struct ps_yaml *read_pair(struct reader *r, int depth, struct ps_name_table *before)
{
    const int line = line_of(r);
    char *key = read_key(r, before);
    struct ps_yaml *v = key && yaml_advance(r) ? read_value(r, depth + 1) : NULL;
    if (!v) {
        free(key);
        return NULL;
    }
    v->key = key;
    v->line = line;
    if (ps_name_table_put(before, key, v))
        return v;
    ps_yaml_free(v);
    return no_memory(r);
}

static struct ps_yaml *read_map(struct reader *r, int depth)
{
    struct ps_yaml *map = node_create(PS_YAML_MAP, r->source, line_of(r), NULL, 0);
    if (!map)
        return no_memory(r);
    struct ps_name_table keys = {NULL};
    struct ps_yaml **tail = &map->first;
    bool ended = false;
    while (!ended && yaml_advance(r)) {
        ended = r->event.type == YAML_MAPPING_END_EVENT;
        if (ended)
            continue;
        *tail = read_pair(r, depth, &keys);
        if (!*tail)
            break;
        tail = &(*tail)->next;
    }
    ps_name_table_free(&keys);
    if (ended)
        return map;
    ps_yaml_free(map);
    return NULL;
}

// What an event must not bring; NULL: it is fine.
static const char *yaml_event_objection(const struct reader *r, int depth)
{
    const yaml_event_t *event = &r->event;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    bool block = false;
    if (event->type == YAML_ALIAS_EVENT)
        return "aliases (*name) are not supported";
    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
        block = event->data.sequence_start.style == YAML_BLOCK_SEQUENCE_STYLE;
    } else {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
        block = event->data.mapping_start.style == YAML_BLOCK_MAPPING_STYLE;
    }
    if (anchor)
        return "anchors (&name) are not supported";
    if (tag)
        return "tags (!name) are not supported";
    if (block && r->assigned)
        return "the value must be a scalar, [a, list] or {a: map}";
    return depth > PS_YAML_MAX_DEPTH ? "values are nested too deeply" : NULL;
}

// The value that begins with the current event; afterwards its last event is the current one.
static struct ps_yaml *read_value(struct reader *r, int depth)
{
    const char *why = yaml_event_objection(r, depth);
    if (why)
        return yaml_refuse(r, why);
    if (r->event.type == YAML_SCALAR_EVENT)
        return read_scalar(r);
    return r->event.type == YAML_SEQUENCE_START_EVENT ? read_list(r, depth) : read_map(r, depth);
}

// A stream of one document or none.
static struct ps_yaml *read_stream(struct reader *r)
{
    if (!yaml_advance(r) || !yaml_advance(r))  // the start of the stream, then of the document
        return NULL;
    if (r->event.type == YAML_STREAM_END_EVENT) {
        struct ps_yaml *v = r->assigned ? node_create(PS_YAML_SCALAR, r->source, 0, "", 0)
                                        : node_create(PS_YAML_MAP, r->source, 1, NULL, 0);
        return v ? v : no_memory(r);
    }
    struct ps_yaml *v = yaml_advance(r) ? read_value(r, 1) : NULL;
    if (!v)
        return NULL;
    if (yaml_advance(r) && yaml_advance(r)) {  // the end of the document, then of the stream
        if (r->event.type == YAML_STREAM_END_EVENT)
            return v;
        yaml_refuse(r, "a second document begins here; there may be one");
    }
    ps_yaml_free(v);
    return NULL;
}

static enum ps_code yaml_parse(const char *text, size_t len, const char *source, bool assigned, struct ps_yaml **root,
                               struct ps_error *e)
{
    struct ps_error unheard;
    struct reader r = {.source = source, .assigned = assigned, .e = e ? e : &unheard};
    if (len > PS_YAML_MAX_BYTES)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: more than %d bytes", source, PS_YAML_MAX_BYTES);
    if (!yaml_parser_initialize(&r.parser))
        return ps_no_memory(e, source);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
    struct ps_yaml *v = read_stream(&r);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    if (!v)
        return r.e->code;
    *root = v;
    return PS_OK;
}

enum ps_code ps_yaml_parse(const char *text, size_t len, const char *name, struct ps_yaml **root, struct ps_error *e)
{
    return yaml_parse(text, len, name, false, root, e);
}

// ---- files --------------------------------------------------------------------------------------------------------

static enum ps_code cannot_read(const char *path, struct ps_error *e)
{
    return ps_fail(e, PS_NOT_FOUND, "cannot read %s: %s", path, strerror(errno));
}

enum ps_code ps_yaml_read_file(const char *path, char **text, size_t *len, struct ps_error *e)
{
    enum ps_code code = PS_OK;
    FILE *f = fopen(path, "re");
    if (!f)
        return cannot_read(path, e);
    char *buffer = malloc(PS_YAML_MAX_BYTES + 1);
    size_t n = buffer ? fread(buffer, 1, PS_YAML_MAX_BYTES + 1, f) : 0;
    if (!buffer)
        code = ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory to read %s", path);
    else if (ferror(f))
        code = cannot_read(path, e);
    else if (n > PS_YAML_MAX_BYTES)
        code = ps_fail(e, PS_INVALID_ARGUMENT, "%s: more than %d bytes", path, PS_YAML_MAX_BYTES);
    fclose(f);
    if (code != PS_OK) {
        free(buffer);
        return code;
    }
    *text = buffer;
    *len = n;
    return PS_OK;
}

enum ps_code ps_yaml_load(const char *path, struct ps_yaml **root, struct ps_error *e)
{
    char *text;
    size_t len;
    enum ps_code code = ps_yaml_read_file(path, &text, &len, e);
    if (code != PS_OK)
        return code;
    code = ps_yaml_parse(text, len, path, root, e);
    free(text);
    return code;
}

// ---- assignments --------------------------------------------------------------------------------------------------

// Is KEY (len bytes) words with single dots between them, and not too many?
static bool is_path(const char *key, size_t len)
{
    int parts = 1;
    for (size_t i = 0; i < len; i++) {
        if (key[i] != '.')
            continue;
        if (i == 0 || key[i - 1] == '.')
            return false;
        parts++;
    }
    return len > 0 && key[len - 1] != '.' && parts <= PS_YAML_MAX_DEPTH;
}

// Gives v, which is freed where that fails, the key (len bytes). NULL: no memory.
static struct ps_yaml *yaml_set_key(struct ps_yaml *v, const char *key, size_t len)
{
    if (v && (v->key = strndup(key, len)))
        return v;
    ps_yaml_free(v);
    return NULL;
}

// v under the path [key, end): a map in a map for each word but the last. Takes v over. NULL: no memory.
static struct ps_yaml *yaml_wrap_in_maps(struct ps_yaml *v, const char *key, const char *end)
{
    const char *word = end;
    while (word > key && word[-1] != '.')
        word--;
    v = yaml_set_key(v, word, (size_t)(end - word));
    if (!v || word == key)
        return v;
    struct ps_yaml *map = node_create(PS_YAML_MAP, v->source, 0, NULL, 0);
    if (!map) {
        ps_yaml_free(v);
        return NULL;
    }
    map->first = v;
    return yaml_wrap_in_maps(map, key, word - 1);
}

// Hangs v on slot in place of what is there.
static void yaml_replace(struct ps_yaml **slot, struct ps_yaml *v)
{
    struct ps_yaml *old = *slot;
    v->next = old ? old->next : NULL;
    *slot = v;
    ps_yaml_free(old);
}

enum ps_code ps_yaml_set(struct ps_yaml *root, const char *assignment, struct ps_error *e)
{
    size_t len = strcspn(assignment, "="), word;
    const char *key = assignment, *end = assignment + len;
    struct ps_yaml **slot, *map = root, *v;
    if (*end != '=' || !is_path(key, len))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "--set %.100s: must be KEY=VALUE, KEY a dotted path such as optimizer.name", assignment);
    enum ps_code code = yaml_parse(end + 1, strlen(end + 1), assignment, true, &v, e);
    if (code != PS_OK)
        return code;
    // As far as there are maps; the others come with the value.
    for (;; map = *slot, key += word + 1) {
        word = strcspn(key, ".=");
        slot = yaml_slot_of(map, key, word);
        if (key + word == end || !*slot || ps_yaml_is_null(*slot))
            break;
        if ((*slot)->kind != PS_YAML_MAP) {
            ps_yaml_fail(v, e, "%.*s is not a map", (int)(key + word - assignment), assignment);
            ps_yaml_free(v);
            return PS_INVALID_ARGUMENT;
        }
    }
    v = yaml_wrap_in_maps(v, key, end);
    if (!v)
        return ps_no_memory(e, "an assignment");
    yaml_replace(slot, v);
    return PS_OK;
}

// ---- typed values -------------------------------------------------------------------------------------------------

enum ps_code ps_yaml_string(const struct ps_yaml *v, const char *what, const char **to, struct ps_error *e)
{
    if (v->kind != PS_YAML_SCALAR || ps_yaml_is_null(v))
        return ps_yaml_expected(v, what, e, "a string");
    *to = v->text;
    return PS_OK;
}

enum ps_code ps_yaml_uint(const struct ps_yaml *v, const char *what, uint64_t min, uint64_t max, uint64_t *to,
                          struct ps_error *e)
{
    bool digits = v->kind == PS_YAML_SCALAR && !v->quoted && *v->text && !v->text[strspn(v->text, "0123456789")];
    errno = 0;
    uint64_t n = digits ? strtoull(v->text, NULL, 10) : 0;
    if (!digits || errno || n < min || n > max)
        return ps_yaml_expected(v, what, e, "a whole number from %" PRIu64 " to %" PRIu64, min, max);
    *to = n;
    return PS_OK;
}

size_t ps_yaml_folder(const struct ps_yaml *v, const char *path)
{
    const char *slash = v->line ? strrchr(v->source, '/') : NULL;
    return slash && path[0] != '/' ? (size_t)(slash - v->source) + 1 : 0;
}

enum ps_code ps_yaml_real(const struct ps_yaml *v, const char *what, double *to, struct ps_error *e)
{
    bool plain = v->kind == PS_YAML_SCALAR && !v->quoted && *v->text && !v->text[strspn(v->text, "+-.0123456789eE")];
    char *end = NULL;
    double x = plain ? strtod(v->text, &end) : 0;
    if (!plain || *end || !isfinite(x))
        return ps_yaml_expected(v, what, e, "a number");
    *to = x;
    return PS_OK;
}

enum ps_code ps_yaml_bool(const struct ps_yaml *v, const char *what, bool *to, struct ps_error *e)
{
    bool plain = v->kind == PS_YAML_SCALAR && !v->quoted;
    if (!plain || (strcmp(v->text, "true") != 0 && strcmp(v->text, "false") != 0))
        return ps_yaml_expected(v, what, e, "true or false");
    *to = v->text[0] == 't';
    return PS_OK;
}

enum ps_code ps_yaml_choice(const struct ps_yaml *v, const char *what, const char *const *words, int *to,
                            struct ps_error *e)
{
    char list[192] = "";
    int n = 0;
    for (size_t at = 0; words[n]; n++) {
        if (v->kind == PS_YAML_SCALAR && strcmp(v->text, words[n]) == 0) {
            *to = n;
            return PS_OK;
        }
        const char *between = n == 0 ? "" : words[n + 1] ? ", " : " or ";
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", between, words[n]);
        if (at >= sizeof list)
            at = sizeof list - 1;
    }
    const char *nearest = v->kind == PS_YAML_SCALAR && !ps_yaml_is_null(v) ? ps_nearest(v->text, words, n) : NULL;
    if (nearest)
        return ps_yaml_fail(v, e, "%s \"%.60s\" is not known; did you mean \"%s\"?", what, v->text, nearest);
    return ps_yaml_expected(v, what, e, "%s", list);
}

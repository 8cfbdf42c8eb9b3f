// SPDX-License-Identifier: Apache-2.0
// The description of a cluster: YAML, or a list of addresses. Every mistake is reported with file and line.
#include "libclient/cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "common/alloc.h"
#include "common/error.h"
#include "libclient/convert.h"
#include "libclient/psclient.h"

enum { FILE_MAX = 1 << 20 };  // bytes of a cluster file

// What is being read, for errors.
struct source {
    const char *name;
    yaml_document_t document;
};

// ---- addresses ----------------------------------------------------------------------------------------------------

// NULL: a good one; else what is wrong with it.
static const char *address_fault(const char *address)
{
    if (strncmp(address, "unix:", 5) == 0)
        return address[5] ? NULL : "the path after unix: is missing";
    const char *colon = strrchr(address, ':');
    if (!colon || colon == address)
        return "expected host:port or unix:/path";
    char *end;
    errno = 0;
    long port = strtol(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end || errno || port < 1 || port > 65535)
        return "the port must be a number from 1 to 65535";
    return NULL;
}

static enum ps_code add_address(struct psc_cluster *c, const char *address, struct ps_error *e)
{
    const char *fault = address_fault(address);
    if (fault)
        return ps_fail(e, PS_INVALID_ARGUMENT, "ps address '%s': %s", address, fault);
    c->addresses = ps_realloc(c->addresses, (c->n + 1) * sizeof *c->addresses);
    c->addresses[c->n++] = ps_strdup(address);
    return PS_OK;
}

// ---- YAML ---------------------------------------------------------------------------------------------------------

static enum ps_code at_line(const struct source *s, const yaml_node_t *node, struct ps_error *e)
{
    return ps_error_prefix(e, "%s:%zu", s->name, node->start_mark.line + 1);
}

static enum ps_code need_list(const struct source *s, const char *key, const yaml_node_t *node, struct ps_error *e)
{
    if (node->type == YAML_SEQUENCE_NODE)
        return PS_OK;
    ps_fail(e, PS_INVALID_ARGUMENT, "%s: expected a list, as in %s: [\"127.0.0.1:7070\"]", key, key);
    return at_line(s, node, e);
}

static enum ps_code check_new(const struct psc_cluster *c, const char *address, struct ps_error *e)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->addresses[i], address) == 0)
            return ps_fail(e, PS_INVALID_ARGUMENT, "ps address '%s' is there twice: each task needs its own", address);
    return PS_OK;
}

static enum ps_code read_ps(struct source *s, const yaml_node_t *list, struct psc_cluster *c, struct ps_error *e)
{
    enum ps_code code = need_list(s, "ps", list, e);
    if (code != PS_OK)
        return code;
    const yaml_node_item_t *end = list->data.sequence.items.top;
    for (const yaml_node_item_t *i = list->data.sequence.items.start; i < end; i++) {
        const yaml_node_t *node = yaml_document_get_node(&s->document, *i);
        if (node->type != YAML_SCALAR_NODE) {
            ps_fail(e, PS_INVALID_ARGUMENT, "ps: expected addresses, each host:port or unix:/path");
            return at_line(s, node, e);
        }
        const char *address = (const char *)node->data.scalar.value;
        if (check_new(c, address, e) != PS_OK || add_address(c, address, e) != PS_OK)
            return at_line(s, node, e);
    }
    if (c->n == 0) {
        ps_fail(e, PS_INVALID_ARGUMENT, "ps: the list is empty, a cluster needs at least one ps task");
        return at_line(s, list, e);
    }
    return PS_OK;
}

static enum ps_code read_worker(struct source *s, const yaml_node_t *list, struct psc_cluster *c, struct ps_error *e)
{
    enum ps_code code = need_list(s, "worker", list, e);
    if (code == PS_OK)
        c->workers = (size_t)(list->data.sequence.items.top - list->data.sequence.items.start);
    return code;
}

static const struct section {
    const char *key;
    enum ps_code (*read)(struct source *, const yaml_node_t *, struct psc_cluster *, struct ps_error *);
} sections[] = {{"ps", read_ps}, {"worker", read_worker}};

enum { N_SECTIONS = sizeof sections / sizeof *sections };

// Its index, or -1 and the error.
static int find_section(const struct source *s, const yaml_node_t *key, struct ps_error *e)
{
    const char *known[N_SECTIONS];
    const char *word = key->type == YAML_SCALAR_NODE ? (const char *)key->data.scalar.value : "(not a word)";
    for (int i = 0; i < N_SECTIONS; i++) {
        known[i] = sections[i].key;
        if (strcmp(word, sections[i].key) == 0)
            return i;
    }
    const char *near = ps_nearest(word, known, N_SECTIONS);
    if (near)
        ps_fail(e, PS_INVALID_ARGUMENT, "unknown key '%s'; did you mean '%s'?", word, near);
    else
        ps_fail(e, PS_INVALID_ARGUMENT, "unknown key '%s'; expected ps or worker", word);
    at_line(s, key, e);
    return -1;
}

static enum ps_code read_root(struct source *s, struct psc_cluster *c, struct ps_error *e)
{
    bool seen[N_SECTIONS] = {false};
    const yaml_node_t *root = yaml_document_get_root_node(&s->document);
    if (!root || root->type != YAML_MAPPING_NODE)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s:1: expected a mapping with the key ps: a list of addresses",
                       s->name);
    const yaml_node_pair_t *end = root->data.mapping.pairs.top;
    for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start; pair < end; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&s->document, pair->key);
        int i = find_section(s, key, e);
        if (i < 0)
            return e->code;
        if (seen[i]) {
            ps_fail(e, PS_INVALID_ARGUMENT, "%s is there twice", sections[i].key);
            return at_line(s, key, e);
        }
        seen[i] = true;
        if (sections[i].read(s, yaml_document_get_node(&s->document, pair->value), c, e) != PS_OK)
            return e->code;
    }
    if (c->n == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: ps is missing: the list of the ps tasks' addresses", s->name);
    return PS_OK;
}

static enum ps_code parse(const char *text, size_t len, const char *name, struct psc_cluster *c, struct ps_error *e)
{
    struct source s = {.name = name};
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%s: no memory for the YAML parser", name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    if (yaml_parser_load(&parser, &s.document)) {
        read_root(&s, c, e);
        yaml_document_delete(&s.document);
    } else {
        ps_fail(e, PS_INVALID_ARGUMENT, "%s:%zu: not YAML: %s", name, parser.problem_mark.line + 1,
                parser.problem ? parser.problem : "no memory");
    }
    yaml_parser_delete(&parser);
    return e->code;
}

// malloc'd, or NULL and the error.
static char *read_file(const char *path, size_t *len, struct ps_error *e)
{
    FILE *f = fopen(path, "re");
    if (!f) {
        ps_fail(e, PS_NOT_FOUND, "%s: %s", path, strerror(errno));
        return NULL;
    }
    char *buffer = ps_alloc(FILE_MAX + 1);
    *len = fread(buffer, 1, FILE_MAX + 1, f);
    if (ferror(f))
        ps_fail(e, PS_NOT_FOUND, "%s: %s", path, strerror(errno));
    else if (*len > FILE_MAX)
        ps_fail(e, PS_INVALID_ARGUMENT, "%s: longer than %d bytes, which no cluster file is", path, FILE_MAX);
    fclose(f);
    if (e->code == PS_OK)
        return buffer;
    free(buffer);
    return NULL;
}

// ---- the public functions -----------------------------------------------------------------------------------------

static psc_code give(struct psc_cluster *c, const struct ps_error *e, psc_cluster **cluster, psc_error *error)
{
    if (e->code == PS_OK)
        *cluster = c;
    else
        psc_cluster_free(c);
    return psc__error_out(e, error);
}

psc_code psc_cluster_load(const char *path, psc_cluster **cluster, psc_error *error)
{
    struct ps_error e = {.code = PS_OK};
    struct psc_cluster *c = ps_alloc(sizeof *c);
    size_t len = 0;
    char *text = read_file(path, &len, &e);
    if (text)
        parse(text, len, path, c, &e);
    free(text);
    return give(c, &e, cluster, error);
}

psc_code psc_cluster_parse(const char *yaml, const char *name, psc_cluster **cluster, psc_error *error)
{
    struct ps_error e = {.code = PS_OK};
    struct psc_cluster *c = ps_alloc(sizeof *c);
    parse(yaml, strlen(yaml), name, c, &e);
    return give(c, &e, cluster, error);
}

psc_code psc_cluster_create(const char *const *ps, size_t n, psc_cluster **cluster, psc_error *error)
{
    struct ps_error e = {.code = PS_OK};
    struct psc_cluster *c = ps_alloc(sizeof *c);
    for (size_t i = 0; i < n && e.code == PS_OK; i++)
        add_address(c, ps[i], &e);
    if (n == 0)
        ps_fail(&e, PS_INVALID_ARGUMENT, "a cluster needs at least one ps task");
    return give(c, &e, cluster, error);
}

size_t psc_cluster_tasks(const psc_cluster *cluster)
{
    return cluster->n;
}

size_t psc_cluster_workers(const psc_cluster *cluster)
{
    return cluster->workers;
}

const char *psc_cluster_address(const psc_cluster *cluster, size_t task)
{
    return task < cluster->n ? cluster->addresses[task] : NULL;
}

void psc_cluster_free(psc_cluster *cluster)
{
    if (!cluster)
        return;
    for (size_t i = 0; i < cluster->n; i++)
        free(cluster->addresses[i]);
    free(cluster->addresses);
    free(cluster);
}

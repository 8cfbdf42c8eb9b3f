// SPDX-License-Identifier: Apache-2.0
// The description of a cluster: YAML, or a list of addresses. Every mistake is reported with file and line.
#include "common/cluster/cluster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/error.h"
#include "common/file/yaml.h"
#include "libclient/convert.h"

// ---- addresses ----------------------------------------------------------------------------------------------------

enum { UNIX_PATH_MAX = 107 };  // sockaddr_un.sun_path without its NUL

// Is there something between the two that no host's name has in it? A scheme (grpc://) is refused by its slashes, as
// TensorFlow does.
static bool has_stranger(const char *at, const char *end)
{
    for (; at < end; at++)
        if ((unsigned char)*at <= ' ' || *at == 127 || *at == '/' || *at == ',')
            return true;
    return false;
}

// NULL: a good one; else what is wrong with it.
static const char *address_fault(const char *address)
{
    static const char forms[] = "expected host:port or unix:/path";
    if (strncmp(address, "unix:", 5) == 0)
        return !address[5]                           ? "the path after unix: is missing"
               : strlen(address + 5) > UNIX_PATH_MAX ? "the path after unix: is longer than 107 bytes"
                                                     : NULL;
    const char *colon = strrchr(address, ':');
    if (!colon || colon == address || has_stranger(address, colon))
        return forms;
    if (memchr(address, ':', (size_t)(colon - address)) && (*address != '[' || colon[-1] != ']'))
        return "expected host:port, where an IPv6 address has brackets, as in [::1]:7070";
    char *end;
    errno = 0;
    long port = strtol(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end || errno || port < 1 || port > 65535)
        return "the port must be a number from 1 to 65535";
    return NULL;
}

enum ps_code psc__cluster_add(struct psc_cluster *c, const char *address, struct ps_error *e)
{
    const char *fault = address_fault(address);
    for (size_t i = 0; i < c->n && !fault; i++)
        fault = strcmp(c->addresses[i], address) == 0 ? "is there twice, each task needs its own" : NULL;
    if (fault)
        return ps_fail(e, PS_INVALID_ARGUMENT, "ps address '%.200s': %s", address, fault);
    if (c->n == PSC_MAX_TASKS)
        return ps_fail(e, PS_INVALID_ARGUMENT, "there are more than %d ps tasks", PSC_MAX_TASKS);
    char **addresses = ps_try_realloc(c->addresses, (c->n + 1) * sizeof *addresses);
    if (!addresses)
        return ps_no_memory(e, "a cluster");
    c->addresses = addresses;
    addresses[c->n] = ps_try_strdup(address);
    if (!addresses[c->n])
        return ps_no_memory(e, "a cluster");
    c->n++;
    return PS_OK;
}

// ---- YAML ---------------------------------------------------------------------------------------------------------

static enum ps_code read_ps(const struct ps_yaml *list, struct psc_cluster *c, struct ps_error *e)
{
    if (list->kind != PS_YAML_LIST || !list->first)
        return ps_yaml_expected(list, "ps", e, "a list of addresses, as in [\"127.0.0.1:7070\"]");
    for (const struct ps_yaml *item = list->first; item; item = item->next) {
        const char *address;
        if (ps_yaml_string(item, "ps", &address, e) != PS_OK)
            return e->code;
        if (psc__cluster_add(c, address, e) != PS_OK)
            return ps_error_prefix(e, "%s:%d", item->source, item->line);
    }
    return PS_OK;
}

static enum ps_code read_worker(const struct ps_yaml *list, struct psc_cluster *c, struct ps_error *e)
{
    if (list->kind != PS_YAML_LIST)
        return ps_yaml_expected(list, "worker", e, "a list with one entry per worker");
    for (const struct ps_yaml *item = list->first; item; item = item->next)
        c->workers++;
    if (c->workers > PSC_MAX_TASKS)
        return ps_yaml_fail(list, e, "there are more than %d workers", PSC_MAX_TASKS);
    return PS_OK;
}

static enum ps_code unknown_key(const struct ps_yaml *section, struct ps_error *e)
{
    static const char *const known[] = {"ps", "worker"};
    const char *near = ps_nearest(section->key, known, sizeof known / sizeof *known);
    if (near)
        return ps_yaml_fail(section, e, "unknown key '%s'; did you mean '%s'?", section->key, near);
    return ps_yaml_fail(section, e, "unknown key '%s'; expected ps or worker", section->key);
}

static enum ps_code read_cluster(const struct ps_yaml *root, struct psc_cluster *c, struct ps_error *e)
{
    enum ps_code code = PS_OK;
    if (root->kind != PS_YAML_MAP)
        return ps_yaml_fail(root, e, "expected a map with the key ps: a list of addresses");
    for (const struct ps_yaml *section = root->first; section && code == PS_OK; section = section->next) {
        if (strcmp(section->key, "ps") == 0)
            code = read_ps(section, c, e);
        else if (strcmp(section->key, "worker") == 0)
            code = read_worker(section, c, e);
        else
            code = unknown_key(section, e);
    }
    if (code == PS_OK && c->n == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: ps is missing: the list of the ps tasks' addresses", root->source);
    return code;
}

// ---- the public functions -----------------------------------------------------------------------------------------

psc_code psc__cluster_give(struct psc_cluster *c, struct ps_error *e, psc_cluster **cluster, psc_error *error)
{
    if (!c)
        ps_no_memory(e, "a cluster");
    if (e->code == PS_OK)
        *cluster = c;
    else
        psc_cluster_free(c);
    return psc__error_out(e, error);
}

psc_code psc_cluster_load(const char *path, psc_cluster **cluster, psc_error *error)
{
    struct ps_error e = {.code = PS_OK};
    struct psc_cluster *c = ps_try_alloc(sizeof *c);
    struct ps_yaml *root = NULL;
    if (c && ps_yaml_load(path, &root, &e) == PS_OK)
        read_cluster(root, c, &e);
    ps_yaml_free(root);
    return psc__cluster_give(c, &e, cluster, error);
}

psc_code psc_cluster_parse(const char *yaml, const char *name, psc_cluster **cluster, psc_error *error)
{
    struct ps_error e = {.code = PS_OK};
    struct psc_cluster *c = ps_try_alloc(sizeof *c);
    struct ps_yaml *root = NULL;
    if (c && ps_yaml_parse(yaml, strlen(yaml), name, &root, &e) == PS_OK)
        read_cluster(root, c, &e);
    ps_yaml_free(root);
    return psc__cluster_give(c, &e, cluster, error);
}

psc_code psc_cluster_create(const char *const *ps, size_t n, psc_cluster **cluster, psc_error *error)
{
    struct ps_error e = {.code = PS_OK};
    struct psc_cluster *c = ps_try_alloc(sizeof *c);
    for (size_t i = 0; c && i < n && e.code == PS_OK; i++)
        psc__cluster_add(c, ps[i], &e);
    if (n == 0)
        ps_fail(&e, PS_INVALID_ARGUMENT, "a cluster needs at least one ps task");
    return psc__cluster_give(c, &e, cluster, error);
}

psc_code psc_cluster_find(const char *path, psc_cluster **cluster, psc_error *error)
{
    struct ps_error e;
    const char *json = getenv("TF_CONFIG");
    if (path)
        return psc_cluster_load(path, cluster, error);
    if (json && *json)
        return psc_cluster_parse_tf_config(json, cluster, error);
    ps_fail(&e, PS_NOT_FOUND, "no cluster is named: neither a cluster file nor the environment's TF_CONFIG");
    return psc__error_out(&e, error);
}

psc_task_type psc_cluster_task(const psc_cluster *cluster, size_t *index)
{
    if (index && cluster->task != PSC_TASK_NONE)
        *index = cluster->index;
    return cluster->task;
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

// SPDX-License-Identifier: Apache-2.0
// The description of a cluster: YAML, or a list of addresses. Every mistake is reported with file and line.
#include "common/cluster/cluster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/error.h"
#include "common/file/yaml.h"

// ---- addresses ----------------------------------------------------------------------------------------------------

enum { UNIX_PATH_MAX = 107 };  // sockaddr_un.sun_path without its NUL

// Is there something between the two that no host's name has in it? A scheme (grpc://) is refused by its slashes, as
// TensorFlow does.
static bool address_has_stranger(const char *at, const char *end)
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
    if (!colon || colon == address || address_has_stranger(address, colon))
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

enum ps_code ps_cluster_add(struct ps_cluster *c, const char *address, struct ps_error *e)
{
    const char *fault = address_fault(address);
    for (size_t i = 0; i < c->n && !fault; i++)
        fault = strcmp(c->addresses[i], address) == 0 ? "is there twice, each task needs its own" : NULL;
    if (fault)
        return ps_fail(e, PS_INVALID_ARGUMENT, "ps address '%.200s': %s", address, fault);
    if (c->n == PS_MAX_TASKS)
        return ps_fail(e, PS_INVALID_ARGUMENT, "there are more than %d ps tasks", PS_MAX_TASKS);
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

enum ps_code ps_cluster_add_worker(struct ps_cluster *c, const char *address, struct ps_error *e)
{
    const bool has_address = address && !address_fault(address);
    if (has_address && ps_name_table_find(&c->has_worker, address))
        return ps_fail(e, PS_INVALID_ARGUMENT, "worker address '%.200s': is there twice, each worker needs its own",
                       address);
    char **worker = ps_try_reserve(c->worker, c->workers + 1, &c->cap_worker, sizeof *worker);
    if (!worker)
        return ps_no_memory(e, "a cluster");
    c->worker = worker;
    char *own = has_address ? ps_try_strdup(address) : NULL;
    if (has_address && (!own || !ps_name_table_put(&c->has_worker, own, own))) {
        free(own);
        return ps_no_memory(e, "a cluster");
    }
    worker[c->workers++] = own;
    return PS_OK;
}

// ---- YAML ---------------------------------------------------------------------------------------------------------

static enum ps_code cluster_read_ps(const struct ps_yaml *list, struct ps_cluster *c, struct ps_error *e)
{
    if (list->kind != PS_YAML_LIST || !list->first)
        return ps_yaml_expected(list, "ps", e, "a list of addresses, as in [\"127.0.0.1:7070\"]");
    for (const struct ps_yaml *item = list->first; item; item = item->next) {
        const char *address;
        if (ps_yaml_string(item, "ps", &address, e) != PS_OK)
            return e->code;
        if (ps_cluster_add(c, address, e) != PS_OK)
            return ps_error_prefix(e, "%s:%d", item->source, item->line);
    }
    return PS_OK;
}

static enum ps_code cluster_read_worker(const struct ps_yaml *list, struct ps_cluster *c, struct ps_error *e)
{
    if (list->kind != PS_YAML_LIST)
        return ps_yaml_expected(list, "worker", e, "a list with one entry per worker");
    for (const struct ps_yaml *item = list->first; item; item = item->next) {
        if (c->workers == PS_MAX_WORKERS)
            return ps_yaml_fail(list, e, "there are more than %d workers", PS_MAX_WORKERS);
        if (ps_cluster_add_worker(c, item->kind == PS_YAML_SCALAR ? item->text : NULL, e))
            return ps_error_prefix(e, "%s:%d", item->source, item->line);
    }
    return PS_OK;
}

// ---- tls: a folder, or a map of three files; or munge ---------------------------------------------------------------

void ps_tls_files_clear(struct ps_tls_files *f)
{
    free(f->folder);
    free(f->ca);
    free(f->certificate);
    free(f->key);
    *f = (struct ps_tls_files){NULL};
}

bool ps_tls_files_given(const struct ps_tls_files *f)
{
    return f->folder || f->certificate;
}

bool ps_cluster_has_tls(const struct ps_cluster *c)
{
    return ps_tls_files_given(&c->tls);
}

static bool cluster_copy_path(const char *path, char **to)
{
    *to = path ? ps_try_strdup(path) : NULL;
    return *to || !path;
}

// One of them says who calls.
static enum ps_code cluster_check_trust(bool tls, bool munge, struct ps_error *e)
{
    return munge && tls
               ? ps_fail(e, PS_INVALID_ARGUMENT, "tls and munge both say who may connect: expected one of them")
               : PS_OK;
}

// *to is {NULL} before. False: no memory.
static bool cluster_copy_files(const struct ps_tls_files *f, struct ps_tls_files *to)
{
    if (cluster_copy_path(f->folder, &to->folder) && cluster_copy_path(f->ca, &to->ca) &&
        cluster_copy_path(f->certificate, &to->certificate) && cluster_copy_path(f->key, &to->key))
        return true;
    ps_tls_files_clear(to);
    return false;
}

enum ps_code ps_cluster_set_tls(struct ps_cluster *c, const struct ps_tls_files *f, struct ps_error *e)
{
    struct ps_tls_files copy = {NULL};
    if (!f->folder && (!f->ca || !f->certificate))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "TLS: expected a folder, or the files of an authority and a certificate");
    if (cluster_check_trust(true, c->munge, e))
        return e->code;
    if (!cluster_copy_files(f, &copy))
        return ps_no_memory(e, "a cluster");
    ps_tls_files_clear(&c->tls);
    c->tls = copy;
    return PS_OK;
}

enum ps_code ps_cluster_set_munge(struct ps_cluster *c, const char *socket, struct ps_error *e)
{
    char *copy;
    if (cluster_check_trust(ps_cluster_has_tls(c), true, e))
        return e->code;
    if (!cluster_copy_path(socket, &copy))
        return ps_no_memory(e, "a cluster");
    if (copy) {
        free(c->munge_socket);
        c->munge_socket = copy;
    }
    c->munge = true;
    return PS_OK;
}

static enum ps_code cluster_read_path(const struct ps_yaml *v, const char *what, char **to, struct ps_error *e)
{
    const char *path;
    if (ps_yaml_string(v, what, &path, e))
        return e->code;
    if (!*path)
        return ps_yaml_expected(v, what, e, "a path");
    const size_t folder = ps_yaml_folder(v, path), len = strlen(path);
    *to = ps_try_alloc(folder + len + 1);
    if (!*to)
        return ps_no_memory(e, "a cluster");
    memcpy(*to, v->source, folder);
    memcpy(*to + folder, path, len);
    return PS_OK;
}

static enum ps_code cluster_read_tls_file(const struct ps_yaml *v, struct ps_tls_files *f, struct ps_error *e)
{
    if (strcmp(v->key, "ca") == 0)
        return cluster_read_path(v, "tls.ca", &f->ca, e);
    if (strcmp(v->key, "certificate") == 0)
        return cluster_read_path(v, "tls.certificate", &f->certificate, e);
    if (strcmp(v->key, "key") == 0)
        return cluster_read_path(v, "tls.key", &f->key, e);
    return ps_yaml_fail(v, e, "unknown key 'tls.%s'; expected ca, certificate or key", v->key);
}

static enum ps_code cluster_read_tls(const struct ps_yaml *section, struct ps_cluster *c, struct ps_error *e)
{
    e->code = PS_OK;
    if (section->kind == PS_YAML_SCALAR && !ps_yaml_is_null(section))
        return cluster_read_path(section, "tls", &c->tls.folder, e);
    if (section->kind != PS_YAML_MAP)
        return ps_yaml_expected(section, "tls", e, "a folder, or a map of ca, certificate and key");
    for (const struct ps_yaml *v = section->first; v && e->code == PS_OK; v = v->next)
        cluster_read_tls_file(v, &c->tls, e);
    if (e->code == PS_OK && (!c->tls.ca || !c->tls.certificate))
        return ps_yaml_fail(section, e, "tls: expected ca and certificate, and key where that is another file");
    return e->code;
}

// true, false, or where munged listens.
static enum ps_code cluster_read_munge(const struct ps_yaml *section, struct ps_cluster *c, struct ps_error *e)
{
    c->munge = section->kind == PS_YAML_SCALAR && section->text && strchr(section->text, '/');
    if (c->munge)
        return cluster_read_path(section, "munge", &c->munge_socket, e);
    if (ps_yaml_bool(section, "munge", &c->munge, e))
        return ps_yaml_expected(section, "munge", e, "true, false or the path of munged's socket");
    return PS_OK;
}

static enum ps_code cluster_unknown_key(const struct ps_yaml *section, struct ps_error *e)
{
    static const char *const known[] = {"ps", "worker", "tls", "munge"};
    const char *near = ps_nearest(section->key, known, sizeof known / sizeof *known);
    if (near)
        return ps_yaml_fail(section, e, "unknown key '%s'; did you mean '%s'?", section->key, near);
    return ps_yaml_fail(section, e, "unknown key '%s'; expected ps, worker, tls or munge", section->key);
}

static enum ps_code cluster_read(const struct ps_yaml *root, struct ps_cluster *c, struct ps_error *e)
{
    enum ps_code code = PS_OK;
    if (root->kind != PS_YAML_MAP)
        return ps_yaml_fail(root, e, "expected a map with the key ps: a list of addresses");
    for (const struct ps_yaml *section = root->first; section && code == PS_OK; section = section->next) {
        if (strcmp(section->key, "ps") == 0)
            code = cluster_read_ps(section, c, e);
        else if (strcmp(section->key, "worker") == 0)
            code = cluster_read_worker(section, c, e);
        else if (strcmp(section->key, "tls") == 0)
            code = cluster_read_tls(section, c, e);
        else if (strcmp(section->key, "munge") == 0)
            code = cluster_read_munge(section, c, e);
        else
            code = cluster_unknown_key(section, e);
    }
    if (code == PS_OK && cluster_check_trust(ps_cluster_has_tls(c), c->munge, e))
        return ps_error_prefix(e, "%s", root->source);
    if (code == PS_OK && c->n == 0 && !c->needs_no_ps && c->workers > 0)
        return ps_fail(
            e, PS_INVALID_ARGUMENT,
            "%s: lists workers alone: expected ps, too, the list of the ps tasks' addresses; of a job without "
            "ps tasks its workers' logs say how it goes",
            root->source);
    if (code == PS_OK && c->n == 0 && !c->needs_no_ps)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: ps is missing: the list of the ps tasks' addresses", root->source);
    return code;
}

// ---- the whole ----------------------------------------------------------------------------------------------------

// Takes *root apart, if there is one, and frees it.
static enum ps_code cluster_take(struct ps_yaml *root, struct ps_cluster *c, struct ps_error *e)
{
    enum ps_code code = root ? cluster_read(root, c, e) : e->code;
    ps_yaml_free(root);
    if (code != PS_OK)
        ps_cluster_fini(c);
    return code;
}

enum ps_code ps_cluster_load(const char *path, struct ps_cluster *c, struct ps_error *e)
{
    struct ps_yaml *root = NULL;
    ps_yaml_load(path, &root, e);
    return cluster_take(root, c, e);
}

enum ps_code ps_cluster_parse(const char *yaml, const char *name, struct ps_cluster *c, struct ps_error *e)
{
    struct ps_yaml *root = NULL;
    ps_yaml_parse(yaml, strlen(yaml), name, &root, e);
    return cluster_take(root, c, e);
}

enum ps_code ps_cluster_find(const char *path, struct ps_cluster *c, struct ps_error *e)
{
    const char *json = getenv("TF_CONFIG");
    if (path)
        return ps_cluster_load(path, c, e);
    if (json && *json)
        return ps_cluster_parse_tf_config(json, c, e);
    return ps_fail(e, PS_NOT_FOUND, "no cluster is named: neither a cluster file nor the environment's TF_CONFIG");
}

void ps_cluster_fini(struct ps_cluster *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->addresses[i]);
    for (size_t i = 0; i < c->workers; i++)
        free(c->worker[i]);
    ps_name_table_free(&c->has_worker);
    free(c->worker);
    free(c->addresses);
    free(c->munge_socket);
    ps_tls_files_clear(&c->tls);
    *c = (struct ps_cluster){0};
}

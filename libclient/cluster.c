// SPDX-License-Identifier: Apache-2.0
#include "libclient/cluster.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "libclient/convert.h"

_Static_assert((int)PSC_TASK_EVALUATOR == (int)PS_TASK_EVALUATOR, "the types of tasks are the same");

// Hands over what has been read into `is`, or fails with e.
static psc_code cluster_give(struct ps_cluster *is, struct ps_error *e, psc_cluster **cluster, psc_error *error)
{
    struct psc_cluster *c = e->code == PS_OK ? ps_try_alloc(sizeof *c) : NULL;
    if (c) {
        c->is = *is;
        *cluster = c;
    } else {
        if (e->code == PS_OK)
            ps_no_memory(e, "a cluster");
        ps_cluster_fini(is);
    }
    return psc__error_out(e, error);
}

psc_code psc_cluster_load(const char *path, psc_cluster **cluster, psc_error *error)
{
    struct ps_error e = {.code = PS_OK};
    struct ps_cluster is = {0};
    ps_cluster_load(path, &is, &e);
    return cluster_give(&is, &e, cluster, error);
}

psc_code psc_cluster_parse(const char *yaml, const char *name, psc_cluster **cluster, psc_error *error)
{
    struct ps_error e = {.code = PS_OK};
    struct ps_cluster is = {0};
    ps_cluster_parse(yaml, name, &is, &e);
    return cluster_give(&is, &e, cluster, error);
}

psc_code psc_cluster_parse_tf_config(const char *json, psc_cluster **cluster, psc_error *error)
{
    struct ps_error e = {.code = PS_OK};
    struct ps_cluster is = {0};
    ps_cluster_parse_tf_config(json, &is, &e);
    return cluster_give(&is, &e, cluster, error);
}

psc_code psc_cluster_find(const char *path, psc_cluster **cluster, psc_error *error)
{
    struct ps_error e = {.code = PS_OK};
    struct ps_cluster is = {0};
    ps_cluster_find(path, &is, &e);
    return cluster_give(&is, &e, cluster, error);
}

psc_code psc_cluster_create(const char *const *ps, size_t n, psc_cluster **cluster, psc_error *error)
{
    struct ps_error e = {.code = PS_OK};
    struct ps_cluster is = {0};
    for (size_t i = 0; i < n && e.code == PS_OK; i++)
        ps_cluster_add(&is, ps[i], &e);
    if (n == 0)
        ps_fail(&e, PS_INVALID_ARGUMENT, "a cluster needs at least one ps task");
    return cluster_give(&is, &e, cluster, error);
}

psc_code psc_cluster_set_tls(psc_cluster *cluster, const psc_tls *tls, psc_error *error)
{
    struct ps_error e = {.code = PS_OK};
    const struct ps_tls_files files = {(char *)tls->folder, (char *)tls->ca, (char *)tls->certificate,
                                       (char *)tls->key};
    ps_cluster_set_tls(&cluster->is, &files, &e);
    return psc__error_out(&e, error);
}

psc_code psc_cluster_set_munge(psc_cluster *cluster, const char *socket, psc_error *error)
{
    struct ps_error e = {.code = PS_OK};
    ps_cluster_set_munge(&cluster->is, socket, &e);
    return psc__error_out(&e, error);
}

psc_task_type psc_cluster_task(const psc_cluster *cluster, size_t *index)
{
    if (index && cluster->is.task != PS_TASK_NONE)
        *index = cluster->is.index;
    return (psc_task_type)cluster->is.task;
}

size_t psc_cluster_tasks(const psc_cluster *cluster)
{
    return cluster->is.n;
}

size_t psc_cluster_workers(const psc_cluster *cluster)
{
    return cluster->is.workers;
}

const char *psc_cluster_address(const psc_cluster *cluster, size_t task)
{
    return task < cluster->is.n ? cluster->is.addresses[task] : NULL;
}

void psc_cluster_free(psc_cluster *cluster)
{
    if (!cluster)
        return;
    ps_cluster_fini(&cluster->is);
    free(cluster);
}

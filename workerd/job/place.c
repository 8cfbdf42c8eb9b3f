// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/place.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/machine.h"

// Who this process is, as TF_CONFIG says; --rank is heard before that.
static enum ps_code place_take_task(struct wk_place *p, const struct wk_place_options *o, struct ps_error *e)
{
    if (o->rank >= 0)
        return PS_OK;
    p->evaluator = p->cluster.task == PS_TASK_EVALUATOR;
    if (p->cluster.task == PS_TASK_PS)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "TF_CONFIG: task.type must be worker, chief or evaluator for workerd; a ps task starts psd");
    if (p->cluster.task == PS_TASK_NONE)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "TF_CONFIG: task is missing: it or --rank must say which worker this is");
    p->rank = (uint32_t)p->cluster.index;
    return PS_OK;
}

static enum ps_code place_split_addresses(struct wk_place *p, const char *list, struct ps_error *e)
{
    char *copy = ps_strdup(list);
    for (char *at = copy, *one; e->code == PS_OK && (one = strtok_r(at, ",", &at));)
        ps_cluster_add(&p->cluster, one, e);
    free(copy);
    return e->code ? ps_error_prefix(e, "--ps") : PS_OK;
}

static const char *place_what_is_needed(const struct wk_place_options *o)
{
    if (!o->needs_peers)
        return "needs ps tasks: --cluster FILE, --ps A,B,C or TF_CONFIG";
    return o->needs_ps ? "needs ps tasks and the workers' addresses: --cluster FILE or TF_CONFIG"
                       : "needs the workers' addresses: --cluster FILE or TF_CONFIG";
}

// The addresses of --cluster or TF_CONFIG, and what else these say.
static enum ps_code place_load_cluster(struct wk_place *p, const struct wk_place_options *o, struct ps_error *e)
{
    p->cluster.needs_no_ps = !o->needs_ps;
    enum ps_code code = ps_cluster_find(o->cluster, &p->cluster, e);
    if (code == PS_NOT_FOUND && !o->cluster)
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s: strategy %s %s", o->job, o->strategy, place_what_is_needed(o));
    if (code)
        return code;
    if (!o->workers && p->cluster.workers)
        p->workers = (uint32_t)p->cluster.workers;
    return o->cluster ? PS_OK : place_take_task(p, o, e);
}

// Each worker has to have an address, and no other one.
static enum ps_code place_check_workers(const struct wk_place *p, const struct wk_place_options *o, struct ps_error *e)
{
    if (!o->needs_peers)
        return PS_OK;
    if (p->cluster.workers == 0 && !o->needs_ps)
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s: strategy %s %s, with the list worker", o->job, o->strategy,
                       place_what_is_needed(o));
    if (p->workers == 1)
        return PS_OK;
    if (p->cluster.workers != p->workers)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "strategy %s: there are %" PRIu32 " workers, and the cluster has %zu of them: expected the "
                       "address of each",
                       o->strategy, p->workers, p->cluster.workers);
    for (size_t i = 0; i < p->cluster.workers; i++)
        if (!p->cluster.worker[i])
            return ps_fail(e, PS_FAILED_PRECONDITION,
                           "strategy %s: the cluster's worker %zu has no address: expected host:port or unix:/path",
                           o->strategy, i);
    return PS_OK;
}

static enum ps_code place_open_tls(struct wk_place *p, const struct wk_place_options *o, struct ps_error *e)
{
    if (o->tls && ps_cluster_set_tls(&p->cluster, &(struct ps_tls_files){.folder = (char *)o->tls}, e))
        return e->code;
    if (!ps_cluster_has_tls(&p->cluster))
        return PS_OK;
    if (ps_tls_open(&p->cluster.tls, PS_ROLE_WORKER, &p->tls, e))
        return ps_error_prefix(e, "TLS");
    char until[PS_TLS_TIME];
    if (ps_tls_ends_soon(p->tls, until))
        ps_warn("TLS: the certificate holds until %s: psctl tls issue makes a new one", until);
    return PS_OK;
}

static enum ps_code place_open_munge(struct wk_place *p, const struct wk_place_options *o, struct ps_error *e)
{
    if (o->munge && ps_cluster_set_munge(&p->cluster, NULL, e))
        return e->code;
    return p->cluster.munge ? ps_munge_open(p->cluster.munge_socket, false, &p->munge, e) : PS_OK;
}

enum ps_code wk_place_find(struct wk_place *p, const struct wk_place_options *o, struct ps_error *e)
{
    *p = (struct wk_place){.rank = o->rank < 0 ? 0 : (uint32_t)o->rank,
                           .workers = o->workers ? (uint32_t)o->workers : 1};
    e->code = PS_OK;
    if (!o->needs_ps && !o->needs_peers)
        return p->rank == 0 && p->workers == 1 ? PS_OK
                                               : ps_fail(e, PS_INVALID_ARGUMENT,
                                                         "strategy %s has one worker, of rank 0: --rank %" PRIu32
                                                         " of --workers %" PRIu32 " does not go with it",
                                                         o->strategy, p->rank, p->workers);
    if (o->ps ? place_split_addresses(p, o->ps, e) : place_load_cluster(p, o, e))
        return e->code;
    if (p->evaluator)
        return PS_OK;
    if (place_open_tls(p, o, e) || place_open_munge(p, o, e))
        return e->code;
    if (p->rank >= p->workers)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "--rank is %" PRIu32 ", but the job has %" PRIu32 " worker%s: ranks go from 0 to %" PRIu32,
                       p->rank, p->workers, p->workers == 1 ? "" : "s", p->workers - 1);
    return place_check_workers(p, o, e);
}

// Of an address that means another place on another host.
static bool place_is_local(const char *address)
{
    return strncmp(address, "unix:", 5) == 0 || strncmp(address, "localhost", 9) == 0 ||
           strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0;
}

static uint64_t place_hash(char *const *addresses, size_t n, uint64_t h, bool *any, bool *local)
{
    for (size_t i = 0; addresses && i < n; i++) {
        const char *one = addresses[i] ? addresses[i] : "";
        *any |= *one != '\0';
        *local |= place_is_local(one);
        h = ps_hash(h, one, strlen(one) + 1);
    }
    return h;
}

char *wk_place_training(const struct wk_place *p)
{
    const char *slurm = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    bool any = false, local = false;
    char host[PS_HOST_NAME];
    uint64_t h = place_hash(p->cluster.addresses, p->cluster.n, PS_HASH_SEED, &any, &local);
    h = place_hash(p->cluster.worker, p->cluster.workers, h, &any, &local);
    if (!any)
        return NULL;
    if (slurm && !local)
        return ps_printf("job %s of Slurm, step %s", slurm, step ? step : "none");
    return ps_printf("addresses %016" PRIx64 "%s%s", h, local ? " at " : "", local ? ps_host_name(host) : "");
}

void wk_place_fini(struct wk_place *p)
{
    ps_tls_close(p->tls);
    ps_munge_close(p->munge);
    ps_cluster_fini(&p->cluster);
}

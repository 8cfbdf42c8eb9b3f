// SPDX-License-Identifier: Apache-2.0
//
// A job on ps tasks as one of its workers knows it: how it is reached, whether it goes on, which rounds it has, how far
// it is.
#include "common/base/clock.h"
#include "workerd/strategy/history.h"
#include "workerd/strategy/parameter_server.h"

psc_code wk_psd_cluster(const struct wk_env *env, psc_cluster **cluster, psc_error *error)
{
    psc_code code = psc_cluster_create(env->ps, env->n_ps, cluster, error);
    const psc_tls tls =
        env->tls ? (psc_tls){env->tls->folder, env->tls->ca, env->tls->certificate, env->tls->key} : (psc_tls){NULL};
    if (code)
        return code;
    if (env->tls)
        code = psc_cluster_set_tls(*cluster, &tls, error);
    else if (env->munge)
        code = psc_cluster_set_munge(*cluster, env->munge_socket, error);
    if (code)
        psc_cluster_free(*cluster);
    return code;
}

bool wk_psd_awaits_all(const struct wk_parameter_server_state *s)
{
    return s->update == PSC_SYNC && s->env->job->replicas_to_aggregate == 0;
}

bool wk_psd_in_rounds_of_all(const struct wk_parameter_server_state *s)
{
    return wk_psd_awaits_all(s) && !s->is_outer;
}

bool wk_psd_closes_whole_rounds(const struct wk_parameter_server_state *s)
{
    return wk_psd_awaits_all(s) && (!s->is_outer || s->n_buckets <= 1);
}

void wk_psd_count_step(struct wk_parameter_server_state *s)
{
    const uint64_t now = ps_now();
    s->step_ns = s->step_began ? now - s->step_began : 0;
    s->step_began = now;
}

uint64_t wk_psd_step_ns(const struct wk_parameter_server_state *s)
{
    const uint64_t most = WK_STEP_SECONDS * PS_SECOND;
    return s->step_ns < most ? s->step_ns : most;
}

enum ps_code wk_psd_barrier(struct wk_parameter_server_state *s, const char *name, struct ps_error *e)
{
    psc_error error;
    return psc_barrier(s->client, name, &error) ? wk_take_error(&error, e) : PS_OK;
}

enum ps_code wk_psd_health(const struct wk_parameter_server_state *s, struct ps_error *e)
{
    psc_error error;
    return psc_health(s->client, &error) ? wk_take_error(&error, e) : PS_OK;
}

uint64_t wk_psd_iterations(const struct wk_parameter_server_state *s)
{
    return (s->version ? s->version - s->loaded_version : 0) + s->base + s->ahead;
}

uint64_t wk_psd_rounds_trained(const struct wk_parameter_server_state *s)
{
    return s->trained_to - s->round_offset;
}

// SPDX-License-Identifier: Apache-2.0
//
// After a signal: who keeps the weights reads them from the ps tasks once more, and a worker that leaves does not take
// from others the step that they are in.
#include <inttypes.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/signals.h"
#include "workerd/strategy/history.h"
#include "workerd/strategy/parameter_server.h"

// After a signal a worker waits so long for a new chief where the old one is silent. The client itself ends after 8 s.
enum { CHIEF_SECONDS = 6, CHIEF_MARGIN_MS = 100 };

// ---- the weights --------------------------------------------------------------------------------------------------

// The client ends with the signal; who only reads needs no job that goes on. The thread that writes a checkpoint looks
// at the reader, too.
static enum ps_code signal_open_reader(struct wk_parameter_server_state *s, struct ps_error *e)
{
    const psc_options options = {
        .job = s->env->job->name, .rank = -1, .timeout_ms = WK_SALVAGE_MS, .refused_ms = WK_SALVAGE_REFUSED_MS};
    psc_error error;
    psc_cluster *cluster;
    psc_client *reader;
    if (wk_psd_cluster(s->env, &cluster, &error))
        return wk_take_error(&error, e);
    psc_code code = psc_connect(cluster, &options, &reader, &error);
    psc_cluster_free(cluster);
    if (code == PSC_OK && (code = psc_attach(reader, &error)) != PSC_OK)
        psc_close(reader, NULL);
    if (code)
        return wk_take_error(&error, e);
    s->reader = reader;
    return PS_OK;
}

static enum ps_code signal_read_once(struct wk_parameter_server_state *s, psc_result *result, struct ps_error *e)
{
    psc_error error;
    psc_op *op;
    psc_get(s->reader, s->weights, s->n, NULL, NULL, &op);
    if (psc_wait(op, result, &error))
        return wk_take_error(&error, e);
    s->salvaged = result->round == result->last_round ? result->round : UINT64_MAX;
    return PS_OK;
}

// Others may close a round just then: what is read once more is of that.
static enum ps_code signal_read_weights(struct wk_parameter_server_state *s, struct ps_error *e)
{
    psc_result result;
    const bool in_rounds = wk_psd_closes_whole_rounds(s);
    if (signal_read_once(s, &result, e))
        return e->code;
    if (in_rounds && s->salvaged == UINT64_MAX && signal_read_once(s, &result, e))
        return e->code;
    if (in_rounds && s->salvaged == UINT64_MAX)
        ps_warn("a step was cut: some of the weights are of round %" PRIu64 " and some of round %" PRIu64, result.round,
                result.last_round);
    return PS_OK;
}

// In rounds of all workers: those who have ended before their last step leave the round open that this one's is in, and
// may close it later. Of local_steps the last period is taken back, which nothing but the position counts.
static bool signal_undo_last_step(struct wk_parameter_server_state *s)
{
    if (s->is_outer)
        return wk_psd_closes_whole_rounds(s) && s->salvaged + 1 == s->counted;
    s->trained += s->undone;
    s->trained_to += s->undone;
    s->undone = wk_psd_in_rounds_of_all(s) && s->salvaged + 1 == wk_psd_rounds_trained(s);
    s->trained -= s->undone;
    s->trained_to -= s->undone;
    return s->undone;
}

// A live chief is heard again soon. What it last said may have been on its way a moment longer than is known here.
static bool signal_chief_lives(const struct wk_parameter_server_state *s)
{
    return ps_now() > s->stopped_at + CHIEF_MARGIN_MS * PS_MS + psc_chief_silence(s->client) * PS_MS;
}

// The chief keeps the weights. It may have been killed just before the signal came, and not count as dead yet: then who
// comes in its place does.
static bool signal_keeps_weights(const struct wk_parameter_server_state *s)
{
    const uint64_t until = s->stopped_at + CHIEF_SECONDS * PS_SECOND;
    struct ps_error ended = {.code = PS_OK};
    if (psc_is_chief(s->client))
        return true;
    while (!psc_is_heir(s->client) && !signal_chief_lives(s) && !wk_psd_health(s, &ended) && ps_now() < until)
        ps_sleep(10 * PS_MS);
    if (!psc_is_chief(s->client) && !signal_chief_lives(s) && ended.code == PS_OK)
        ps_warn("the chief, who keeps the weights, has been silent for %.1f s, and nobody is in its place",
                (double)psc_chief_silence(s->client) / 1e3);
    return psc_is_heir(s->client);
}

enum ps_code wk_psd_salvage(struct wk_parameter_server_state *s, bool *undone, struct ps_error *e)
{
    if (!signal_keeps_weights(s))
        return ps_fail(e, PS_NOT_FOUND, "the chief writes the weights");
    if ((!s->reader && signal_open_reader(s, e)) || signal_read_weights(s, e))
        return e->code;
    *undone = signal_undo_last_step(s);
    return PS_OK;
}

// ---- the end ------------------------------------------------------------------------------------------------------

// The chief, who keeps the weights, may have heard the same signal a moment later, and be in a step that this one has
// taken. Does this worker's end end the job for it, or close the round of that step without those who have not pushed?
static bool signal_ends_others_step(const struct wk_parameter_server_state *s)
{
    const struct wk_env *env = s->env;
    return !psc_is_chief(s->client) && !s->reader && (env->min_workers == env->workers || s->update == PSC_SYNC);
}

// So long a step of the chief may last, whatever signals come meanwhile.
static void signal_wait_for_others_step(const struct wk_parameter_server_state *s)
{
    const uint64_t until = ps_now() + WK_SIGNAL_SECONDS * PS_SECOND + wk_psd_step_ns(s);
    for (uint64_t now = ps_now(); now < until; now = ps_now())
        ps_sleep(until - now);
}

// What has failed besides, such as writing the weights, is a failure. ABORTED: others have ended, of the same signal.
static bool signal_is_interrupted(const struct ps_error *why)
{
    return why->code == PS_CANCELLED || why->code == PS_ABORTED;
}

void wk_psd_close(struct wk_parameter_server_state *s, const struct ps_error *why)
{
    const bool signalled = s->client && why && s->env->stop && ps_signal_number(s->env->stop);
    if (s->reader)
        psc_close(s->reader, NULL);
    if (signalled && signal_is_interrupted(why))
        psc_report_interrupted(s->client);
    if (signalled && signal_ends_others_step(s))
        signal_wait_for_others_step(s);
    if (s->client)
        psc_close(s->client, why ? why->text : NULL);
}

// SPDX-License-Identifier: Apache-2.0
//
// hybrid: the tables that Embeddings train live on the ps tasks, as with parameter_server in rounds; all other
// variables are every worker's, as with multi_worker_mirrored. So a table and what the optimizer keeps of it exist
// once, and do not go around the ring.
//
// It is made of those two strategies, each with its part of the model's variables (wk_env.has). Both have one step
// together: all workers take part in both, with the same rows, which weigh alike in both means. Step k is round k + 1
// of the ps tasks.
//
//     multi_worker_mirrored  who trains what, the sums of what all have seen, who writes the results
//     parameter_server       the tables, and what psctl knows of the job
//
// With the first worker that is lost the job ends: those that are left could agree on a step of the ring that the ps
// tasks have not taken.
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/signals.h"
#include "workerd/strategy/parameter_server.h"
#include "workerd/strategy/variables.h"

static const struct wk_strategy *const dense = &wk_mirrored, *const tables = &wk_parameter_server;

struct hybrid {
    struct wk_env dense_env, tables_env;
    void *dense, *tables;  // the states of the two
    uint64_t taken;        // steps, by both, since this run began
};

// ---- open ---------------------------------------------------------------------------------------------------------

static bool hybrid_is_dense(const struct nn_param *p)
{
    return !wk_is_table(p);
}

static enum ps_code hybrid_check_model(const struct wk_env *env, struct ps_error *e)
{
    for (size_t i = 0; i < nn_model_params(env->model); i++)
        if (wk_is_table(nn_model_param(env->model, i)))
            return PS_OK;
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "strategy hybrid: the model has no Embedding that is trained, whose table would be on the ps tasks: "
                   "expected strategy multi_worker_mirrored");
}

static enum ps_code hybrid_open(const struct wk_env *env, void **state, struct ps_error *e)
{
    if (hybrid_check_model(env, e))
        return e->code;
    struct hybrid *h = ps_alloc(sizeof *h);
    h->dense_env = h->tables_env = *env;
    h->dense_env.has = hybrid_is_dense;
    h->tables_env.has = wk_is_table;
    *state = h;
    return tables->open(&h->tables_env, &h->tables, e) || dense->open(&h->dense_env, &h->dense, e) ? e->code : PS_OK;
}

static void hybrid_close(void *state, const struct ps_error *why)
{
    struct hybrid *h = state;
    if (h->dense)
        dense->close(h->dense, why);
    if (h->tables)
        tables->close(h->tables, why);
    free(h);
}

// ---- who trains what ----------------------------------------------------------------------------------------------

static uint64_t hybrid_first_epoch(void *state, bool *late)
{
    const struct hybrid *h = state;
    return dense->sharder->first_epoch(h->dense, late);
}

static uint64_t hybrid_seed(void *state)
{
    const struct hybrid *h = state;
    return dense->sharder->seed(h->dense);
}

static enum wk_next hybrid_next(void *state, uint64_t epoch, bool idle, struct wk_work *work, struct ps_error *e)
{
    const struct hybrid *h = state;
    return dense->sharder->next(h->dense, epoch, idle, work, e);
}

// ---- a step -------------------------------------------------------------------------------------------------------

static enum ps_code hybrid_begin(void *state, const struct wk_work *work, struct ps_error *e)
{
    const struct hybrid *h = state;
    return dense->home->begin(h->dense, work, e) || tables->home->begin(h->tables, work, e) ? e->code : PS_OK;
}

static bool hybrid_has_table(const struct hybrid *h, size_t variable)
{
    return wk_env_has(&h->tables_env, variable);
}

static enum ps_code hybrid_need(void *state, size_t variable, struct ps_error *e)
{
    const struct hybrid *h = state;
    return hybrid_has_table(h, variable) ? tables->home->need(h->tables, variable, e)
                                         : dense->home->need(h->dense, variable, e);
}

static enum ps_code hybrid_ready(void *state, size_t variable, struct ps_error *e)
{
    const struct hybrid *h = state;
    return hybrid_has_table(h, variable) ? tables->home->ready(h->tables, variable, e)
                                         : dense->home->ready(h->dense, variable, e);
}

static enum ps_code hybrid_add_up(void *state, double *values, size_t n, struct ps_error *e)
{
    const struct hybrid *h = state;
    return dense->home->sum(h->dense, values, n, e);
}

static enum ps_code hybrid_end(void *state, const struct wk_work *work, struct ps_error *e)
{
    struct hybrid *h = state;
    if (tables->home->end(h->tables, work, e) || dense->home->end(h->dense, work, e))
        return e->code;
    h->taken++;
    return PS_OK;
}

// The ps tasks have taken all steps that this worker has, and the replica has the tables after them.
static enum ps_code hybrid_settle(const struct hybrid *h, struct ps_error *e)
{
    struct wk_parameter_server_state *s = h->tables;
    return s->settle(s, e);
}

static enum ps_code hybrid_refresh(void *state, struct ps_error *e)
{
    const struct hybrid *h = state;
    return tables->home->refresh(h->tables, e) || dense->home->refresh(h->dense, e) ? e->code : PS_OK;
}

static bool hybrid_is_stopped(const struct hybrid *h)
{
    const uint64_t until = ps_now() + WK_SIGNAL_SECONDS * PS_SECOND;
    while (!ps_signal_number(h->dense_env.stop) && ps_now() < until)
        ps_sleep(PS_MS);
    return ps_signal_number(h->dense_env.stop) != 0;
}

static enum ps_code hybrid_fail_salvage(struct ps_error *e)
{
    return ps_fail(e, PS_NOT_FOUND, "nobody has all weights of one step");
}

// The tables may be of another step than the rest, where a worker has ended between the two; or be lost. Who would have
// written all of it says that nobody does.
static enum ps_code hybrid_salvage(void *state, bool *undone, struct ps_error *e)
{
    const struct hybrid *h = state;
    const struct wk_parameter_server_state *s = h->tables;
    bool of_tables = false;  // which are a step ahead of the rest where that has not taken it
    if (!hybrid_is_stopped(h))
        return hybrid_fail_salvage(e);
    if (dense->home->salvage(h->dense, undone, e))
        return e->code;
    const enum ps_code code = tables->home->salvage(h->tables, &of_tables, e);
    if (code == PS_NOT_FOUND || (code == PS_OK && s->salvaged != h->taken)) {
        hybrid_fail_salvage(e);
        ps_warn("%s: none are written", e->text);
        return e->code;
    }
    return code;
}

// ---- checkpoints, the learning rate -------------------------------------------------------------------------------

static enum ps_code hybrid_save(void *state, struct wk_checkpoint *to, struct ps_error *e)
{
    const struct hybrid *h = state;
    return dense->home->save(h->dense, to, e) || tables->home->save(h->tables, to, e) ? e->code : PS_OK;
}

static enum ps_code hybrid_load(void *state, const struct wk_checkpoint *from, uint64_t epoch, uint64_t first,
                                uint64_t step, struct ps_error *e)
{
    const struct hybrid *h = state;
    return dense->home->load(h->dense, from, epoch, first, step, e) ||
                   tables->home->load(h->tables, from, epoch, first, step, e)
               ? e->code
               : PS_OK;
}

static double hybrid_rate(void *state)
{
    const struct hybrid *h = state;
    return dense->home->rate(h->dense);
}

static void hybrid_set_rate(void *state, double rate)
{
    const struct hybrid *h = state;
    dense->home->set_rate(h->dense, rate);
    tables->home->set_rate(h->tables, rate);
}

static bool hybrid_follows_schedule(const void *state)
{
    const struct hybrid *h = state;
    return dense->home->follows_schedule(h->dense);
}

static void hybrid_take_rate(void *state, bool is_set, double rate)
{
    const struct hybrid *h = state;
    dense->home->take_rate(h->dense, is_set, rate);
    tables->home->take_rate(h->tables, is_set, rate);
}

static enum ps_code hybrid_tell_rate(void *state, struct ps_error *e)
{
    const struct hybrid *h = state;
    return tables->home->tell_rate(h->tables, e);
}

// ---- with whom ----------------------------------------------------------------------------------------------------

static enum ps_code hybrid_sum(void *state, double *values, uint64_t n, struct ps_error *e)
{
    const struct hybrid *h = state;
    return hybrid_settle(h, e) || dense->group->sum(h->dense, values, n, e) ? e->code : PS_OK;
}

static enum ps_code hybrid_finish(void *state, struct wk_history *history, struct ps_error *e)
{
    const struct hybrid *h = state;
    return hybrid_settle(h, e) || dense->group->finish(h->dense, history, e) ? e->code : PS_OK;
}

static enum ps_code hybrid_elect(void *state, bool written, enum wk_writer *writer, struct ps_error *e)
{
    const struct hybrid *h = state;
    return dense->group->elect(h->dense, written, writer, e);
}

static bool hybrid_is_chief(void *state)
{
    const struct hybrid *h = state;
    return dense->group->is_chief(h->dense);
}

static bool hybrid_in_rounds(void *state)
{
    (void)state;
    return true;
}

static uint64_t hybrid_asked(void *state)
{
    const struct hybrid *h = state;
    return tables->group->asked(h->tables);
}

static void hybrid_answer(void *state, uint64_t number, bool failed, const char *text)
{
    const struct hybrid *h = state;
    tables->group->answer(h->tables, number, failed, text);
}

static void hybrid_report(void *state, uint64_t step, double examples_per_second, double loss)
{
    const struct hybrid *h = state;
    tables->group->report(h->tables, step, examples_per_second, loss);
}

static void hybrid_report_progress(void *state, const struct ps_progress *progress)
{
    const struct hybrid *h = state;
    tables->group->report_progress(h->tables, progress);
}

static const struct wk_sharder hybrid_sharder = {
    .first_epoch = hybrid_first_epoch,
    .seed = hybrid_seed,
    .next = hybrid_next,
};

static const struct wk_home hybrid_home = {
    .begin = hybrid_begin,
    .need = hybrid_need,
    .ready = hybrid_ready,
    .sum = hybrid_add_up,
    .end = hybrid_end,
    .refresh = hybrid_refresh,
    .salvage = hybrid_salvage,
    .save = hybrid_save,
    .load = hybrid_load,
    .rate = hybrid_rate,
    .set_rate = hybrid_set_rate,
    .take_rate = hybrid_take_rate,
    .follows_schedule = hybrid_follows_schedule,
    .tell_rate = hybrid_tell_rate,
};

static const struct wk_group hybrid_group = {
    .sum = hybrid_sum,
    .finish = hybrid_finish,
    .elect = hybrid_elect,
    .is_chief = hybrid_is_chief,
    .in_rounds = hybrid_in_rounds,
    .report = hybrid_report,
    .report_progress = hybrid_report_progress,
    .asked = hybrid_asked,
    .answer = hybrid_answer,
};

const struct wk_strategy wk_hybrid = {
    .replicates = true,
    .sharder = &hybrid_sharder,
    .home = &hybrid_home,
    .group = &hybrid_group,
    .open = hybrid_open,
    .close = hybrid_close,
};

// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/evaluate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/signals.h"
#include "common/file/npy.h"
#include "common/file/output.h"

enum ps_code wk_stopped(const struct wk_run *run, struct ps_error *e)
{
    const int signal = ps_signal_number(run->env.stop);
    if (signal)
        return ps_fail(e, PS_CANCELLED, "stopped by %s after step %" PRIu64, ps_signal_name(signal),
                       run->position.step);
    return PS_OK;
}

// What is done with each batch.
typedef enum ps_code (*evaluate_take)(struct wk_run *run, const struct nn_batch *b, void *arg, struct ps_error *e);

// Which batches of the split: every parts-th, from this one on.
struct evaluate_share {
    uint64_t part, parts;
};

static enum ps_code evaluate_batches(struct wk_run *run, struct wk_feed *feed, struct evaluate_share share,
                                     evaluate_take take, void *arg, struct ps_error *e)
{
    const uint64_t n = wk_data_test(run->data)->examples, batch = (uint64_t)run->env.job->batch_size;
    const uint64_t batches = (n + batch - 1) / batch;
    uint64_t asked = share.part, ahead = 0;
    enum ps_code code = wk_stopped(run, e);
    while (code == PS_OK) {
        for (; ahead < WK_FEED_AHEAD && asked < batches; ahead++, asked += share.parts)
            wk_feed_request(feed, 0, asked * batch, (int)(n - asked * batch < batch ? n - asked * batch : batch));
        if (ahead == 0)
            return PS_OK;
        const struct nn_batch *b = wk_feed_take(feed, e);
        run->data_lost |= !b && e->code != PS_CANCELLED;
        if (!b)
            return ps_error_prefix(e, "test data");
        code = take(run, b, arg, e);
        if (code == PS_INVALID_ARGUMENT)
            ps_error_prefix(e, "test data");
        if (--ahead && code == PS_OK)
            code = wk_stopped(run, e);
    }
    return code;
}

static enum ps_code evaluate_split(struct wk_run *run, struct evaluate_share share, evaluate_take take, void *arg,
                                   struct ps_error *e)
{
    struct wk_feed *feed;
    if (wk_feed_create(run->data, true, run->env.job->batch_size, false, 0, &feed, e))
        return e->code;
    enum ps_code code = evaluate_batches(run, feed, share, take, arg, e);
    wk_feed_free(feed);
    return code;
}

// ---- evaluate -----------------------------------------------------------------------------------------------------

// What a share of the split comes to.
struct evaluate_sums {
    struct wk_meter *meter;
    uint64_t examples;
};

static enum ps_code evaluate_add(struct wk_run *run, const struct nn_batch *b, void *arg, struct ps_error *e)
{
    struct evaluate_sums *sums = arg;
    struct nn_result result;
    if (nn_replica_evaluate(run->env.replica, b, &result, e))
        return e->code;
    wk_meter_add(sums->meter, &result);
    sums->examples += (uint64_t)b->rows;
    return PS_OK;
}

enum ps_code wk_evaluate_share(struct wk_run *run, uint64_t part, uint64_t parts, struct wk_meter *to,
                               uint64_t *examples, struct ps_error *e)
{
    const struct evaluate_share share = {part, parts};
    struct evaluate_sums sums = {.meter = to};
    const uint64_t start = ps_track_now(run->env.compute);
    if (wk_data_test(run->data)->examples > 0 && evaluate_split(run, share, evaluate_add, &sums, e))
        return e->code;
    ps_track_end(run->env.compute,
                 &(struct ps_span){PS_SPAN_EVALUATION, "evaluation", start, "examples", sums.examples});
    *examples = sums.examples;
    return PS_OK;
}

void wk_evaluate_forget(struct wk_run *run)
{
    wk_figures_drop_validation(&run->figures);
    json_decref(run->matrices);
    run->matrices = NULL;
    run->evaluated = false;
}

void wk_evaluate_set(struct wk_run *run, const struct wk_meter *meter)
{
    wk_evaluate_forget(run);
    run->matrices = wk_meter_matrices(meter, "val_");
    wk_meter_figures(meter, "val_", &run->figures);
    wk_figures_prefer_validation(&run->figures);
    run->evaluated = true;
}

enum ps_code wk_evaluate(struct wk_run *run, struct ps_error *e)
{
    struct wk_meter meter = {0};
    uint64_t examples;
    wk_evaluate_forget(run);
    enum ps_code code = wk_evaluate_share(run, 0, 1, &meter, &examples, e);
    if (code == PS_OK)
        wk_evaluate_set(run, &meter);
    wk_meter_reset(&meter);
    return code;
}

// ---- predict ------------------------------------------------------------------------------------------------------

// The files, one for each of the model's outputs.
struct predict {
    struct ps_output *file;
    char **path;
    size_t n;  // of those that are open
};

static enum ps_code predict_write(struct wk_run *run, const struct nn_batch *b, void *arg, struct ps_error *e)
{
    struct predict *p = arg;
    struct nn_result ignored;
    if (nn_replica_evaluate(run->env.replica, b, &ignored, e))
        return e->code;
    for (size_t k = 0; k < p->n; k++)
        fwrite(nn_replica_output(run->env.replica, k), sizeof(float),
               (size_t)b->rows * nn_type_count(nn_model_output(run->env.model, k).type), p->file[k].file);
    return PS_OK;
}

static void predict_write_header(const struct wk_run *run, size_t k, FILE *to)
{
    const struct nn_type *type = nn_model_output(run->env.model, k).type;
    char header[PS_NPY_HEADER_MAX];
    uint64_t shape[PS_MAX_RANK + 1] = {wk_data_test(run->data)->examples};
    for (int i = 0; i < type->rank; i++)
        shape[i + 1] = (uint64_t)type->dim[i];
    fwrite(header, 1, ps_npy_header("<f4", shape, (size_t)type->rank + 1, header), to);
}

char *wk_predict_path(const struct wk_run *run, const char *path, size_t k)
{
    size_t length = strlen(path), suffix = strlen(".npy");
    if (nn_model_outputs(run->env.model) == 1)
        return ps_strdup(path);
    if (length > suffix && strcmp(path + length - suffix, ".npy") == 0)
        length -= suffix;
    return ps_printf("%.*s-%s.npy", (int)length, path, nn_model_output(run->env.model, k).name);
}

static enum ps_code predict_open(const struct wk_run *run, const char *path, struct predict *p, struct ps_error *e)
{
    size_t n = nn_model_outputs(run->env.model);
    p->file = ps_alloc(n * sizeof *p->file);
    p->path = ps_alloc(n * sizeof *p->path);
    for (size_t k = 0; k < n; k++) {
        p->path[k] = wk_predict_path(run, path, k);
        if (ps_output_open(&p->file[k], p->path[k], e))
            return e->code;
        p->n++;
        predict_write_header(run, k, p->file[k].file);
    }
    return PS_OK;
}

static enum ps_code predict_close(const struct wk_run *run, struct predict *p, enum ps_code code, struct ps_error *e)
{
    for (size_t k = 0; k < p->n; k++) {
        if (code)
            ps_output_abort(&p->file[k]);
        else
            code = ps_output_commit(&p->file[k], e);
    }
    for (size_t k = 0; k < nn_model_outputs(run->env.model); k++)
        free(p->path[k]);
    free(p->path);
    free(p->file);
    return code;
}

enum ps_code wk_predict(struct wk_run *run, const char *path, struct ps_error *e)
{
    struct predict p = {0};
    if (wk_data_test(run->data)->examples == 0)
        return ps_fail(e, PS_FAILED_PRECONDITION, "the job's data have no test split, which is what is predicted");
    enum ps_code code = predict_open(run, path, &p, e);
    if (code == PS_OK)
        code = evaluate_split(run, (struct evaluate_share){0, 1}, predict_write, &p, e);
    return predict_close(run, &p, code, e);
}

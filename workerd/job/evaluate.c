// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/evaluate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/file/npy.h"
#include "common/file/output.h"

enum ps_code wk_stopped(const struct wk_run *run, struct ps_error *e)
{
    int signal = (int)*run->env.stop;
    return signal ? ps_fail(e, PS_CANCELLED, "stopped by signal %d after step %" PRIu64, signal, run->position.step)
                  : PS_OK;
}

// What is done with each batch.
typedef enum ps_code (*evaluate_take)(struct wk_run *run, const struct nn_batch *b, void *arg, struct ps_error *e);

static enum ps_code evaluate_batches(struct wk_run *run, struct wk_feed *feed, evaluate_take take, void *arg,
                                     struct ps_error *e)
{
    uint64_t n = wk_data_test(run->data)->examples, asked = 0;
    int batch = run->env.job->batch_size;
    enum ps_code code = wk_stopped(run, e);
    for (uint64_t done = 0, ahead = 0; code == PS_OK && done < n;) {
        for (; ahead < WK_FEED_AHEAD && asked < n; ahead++) {
            int rows = n - asked < (uint64_t)batch ? (int)(n - asked) : batch;
            wk_feed_request(feed, 0, asked, rows);
            asked += (uint64_t)rows;
        }
        const struct nn_batch *b = wk_feed_take(feed);
        code = take(run, b, arg, e);
        done += (uint64_t)b->rows;
        ahead--;
        if (code == PS_OK && done < n)
            code = wk_stopped(run, e);
    }
    return code;
}

static enum ps_code evaluate_split(struct wk_run *run, evaluate_take take, void *arg, struct ps_error *e)
{
    struct wk_feed *feed;
    if (wk_feed_create(run->data, true, run->env.job->batch_size, false, 0, &feed, e))
        return e->code;
    enum ps_code code = evaluate_batches(run, feed, take, arg, e);
    wk_feed_free(feed);
    return code;
}

// ---- evaluate -----------------------------------------------------------------------------------------------------

static enum ps_code evaluate_add(struct wk_run *run, const struct nn_batch *b, void *arg, struct ps_error *e)
{
    struct wk_meter *meter = arg;
    struct nn_result part;
    if (nn_replica_evaluate(run->env.replica, b, &part, e))
        return e->code;
    wk_meter_add(meter, &part);
    return PS_OK;
}

enum ps_code wk_evaluate(struct wk_run *run, struct ps_error *e)
{
    struct wk_meter meter = {0};
    wk_figures_drop(&run->figures, "val_");
    run->evaluated = false;
    enum ps_code code = PS_OK;
    if (wk_data_test(run->data)->examples > 0)
        code = evaluate_split(run, evaluate_add, &meter, e);
    json_decref(run->matrices);
    run->matrices = code == PS_OK ? wk_meter_matrices(&meter, "val_") : NULL;
    if (code == PS_OK)
        wk_meter_figures(&meter, "val_", &run->figures);
    run->evaluated = code == PS_OK;
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

// "out.npy"; of several outputs "out-NAME.npy".
static char *predict_path(const struct wk_run *run, const char *path, size_t k)
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
        p->path[k] = predict_path(run, path, k);
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
        code = evaluate_split(run, predict_write, &p, e);
    return predict_close(run, &p, code, e);
}

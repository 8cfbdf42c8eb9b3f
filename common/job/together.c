// SPDX-License-Identifier: Apache-2.0
#include "common/job/together.h"

#include <string.h>

#include "common/base/text.h"
#include "common/job/field.h"
#include "common/plan/placement.h"

static enum ps_code together_check_partitioner(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    struct ps_placement_spec spec;
    struct ps_error why = {.code = PS_OK};
    if (ps_placement_parse(job->placement, job->partitioner, &spec, &why) == PS_OK)
        return PS_OK;
    return ps_yaml_fail(ps_yaml_find(root, "strategy.partitioner"), e, "strategy.%s", why.text);
}

static enum ps_code together_check_data(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    const struct ps_job_data *d = &job->data;
    if (!d->x_test != !d->y_test)
        return ps_yaml_fail(ps_yaml_find(root, d->x_test ? "data.x_test" : "data.y_test"), e,
                            "data.x_test and data.y_test go together");
    if (!(d->validation_split >= 0 && d->validation_split < 1))
        return ps_yaml_expected(ps_yaml_find(root, "data.validation_split"), "data.validation_split", e,
                                "a number from 0 to below 1");
    if (!(d->noise >= 0 && d->noise <= 1e6))
        return ps_yaml_expected(ps_yaml_find(root, "data.augment.noise"), "data.augment.noise", e,
                                "a number from 0 to 1e6");
    if (d->kind == PS_DATA_CIFAR && d->classes != 10 && d->classes != 20 && d->classes != 100)
        return ps_yaml_expected(ps_yaml_find(root, "data.classes"), "data.classes", e, "10, 20 or 100");
    if (d->separator && strcmp(d->separator, "tab") != 0 &&
        (strlen(d->separator) != 1 || strchr("\"\r\n", *d->separator)))
        return ps_yaml_expected(ps_yaml_find(root, "data.separator"), "data.separator", e,
                                "a character that is no quote, or tab");
    return PS_OK;
}

// psd applies a round that is clipped by the norm of all variables when it has all of them, but each part is waited for
// before the next one is pushed.
static enum ps_code together_check_fragments(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    const struct ps_outer_optimizer *outer = &job->outer;
    for (size_t i = 0; i < outer->n_hypers && job->fragments > 1; i++)
        if (strcmp(outer->hypers[i].name, "global_clipnorm") == 0 && outer->hypers[i].value > 0)
            return ps_yaml_fail(ps_yaml_find(root, OUTER ".global_clipnorm"), e,
                                OUTER ".global_clipnorm does not go with strategy.fragments, as the norm of "
                                      "all parts is known with the last one alone: expected clipnorm or clipvalue");
    return PS_OK;
}

// A worker that trains alone for a while has no step that others could be behind, and its own average of the weights
// is nobody else's.
static enum ps_code together_check_local_steps(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    if (job->strategy != PS_STRATEGY_LOCAL_STEPS)
        return PS_OK;
    if (job->update == PS_SSP)
        return ps_yaml_fail(ps_yaml_find(root, "strategy.update"), e,
                            "strategy.update ssp does not go with strategy.name local_steps: expected sync or async");
    if (job->fragment_delay && job->fragment_delay >= job->local_steps)
        return ps_yaml_fail(ps_yaml_find(root, "strategy.fragment_sync_delay"), e,
                            "strategy.fragment_sync_delay is %d: expected less than strategy.local_steps, %d",
                            job->fragment_delay, job->local_steps);
    if ((job->fragment_delay || job->fragments > 1) && job->replicas_to_aggregate)
        return ps_yaml_fail(ps_yaml_find(root, "strategy.replicas_to_aggregate"), e,
                            "strategy.replicas_to_aggregate does not go with fragments or fragment_sync_delay");
    if (job->hypers[PS_HYPER_USE_EMA].value > 0)
        return ps_yaml_fail(ps_yaml_find(root, "optimizer.use_ema"), e,
                            "optimizer.use_ema does not go with strategy.name local_steps: expected it in " OUTER
                            ", for the weights that all workers share");
    return together_check_fragments(root, job, e);
}

// For whom, where all are waited for?
static enum ps_code together_check_grace(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    static const char path[] = "strategy.grace_seconds";
    const struct ps_yaml *v = ps_yaml_find(root, path);
    if (!(job->grace_seconds >= 0 && job->grace_seconds <= 86400))
        return ps_yaml_expected(v, path, e, "a number from 0 to 86400");
    if (job->grace_seconds > 0 && !job->replicas_to_aggregate)
        return ps_yaml_fail(v, e, "%s goes with strategy.replicas_to_aggregate alone: all workers are waited for",
                            path);
    return PS_OK;
}

// What is added up on its way is never in bytes. What is pushed is scaled where its size needs that.
static enum ps_code together_check_compression(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    const bool local = job->strategy == PS_STRATEGY_LOCAL_STEPS;
    if (job->compression != (local ? PS_COMPRESSION_FLOAT16 : PS_COMPRESSION_INT8))
        return PS_OK;
    return ps_yaml_fail(
        ps_yaml_find(root, "strategy.gradient_compression"), e,
        "strategy.gradient_compression %s does not go with strategy.name %s: expected none, bfloat16 or %s",
        ps_job_field_word(job, "strategy.gradient_compression"), ps_job_strategies[job->strategy],
        local ? "int8" : "float16");
}

// The ps tasks have the tables alone, and the workers the rest: nobody has the norm of all gradients, or all averages.
static enum ps_code together_check_hybrid(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    if (job->strategy != PS_STRATEGY_HYBRID)
        return PS_OK;
    if (job->update != PS_SYNC)
        return ps_yaml_fail(ps_yaml_find(root, "strategy.update"), e,
                            "strategy.update %s does not go with strategy.name hybrid: expected sync",
                            ps_job_field_word(job, "strategy.update"));
    if (job->on_existing == PS_RESUME)
        return ps_yaml_fail(ps_yaml_find(root, "on_existing"), e,
                            "on_existing resume does not go with strategy.name hybrid, as the ps tasks have the tables "
                            "alone: expected refuse or replace");
    if (job->hypers[PS_HYPER_GLOBAL_CLIPNORM].value > 0)
        return ps_yaml_fail(ps_yaml_find(root, "optimizer.global_clipnorm"), e,
                            "optimizer.global_clipnorm does not go with strategy.name hybrid, where nobody has all "
                            "gradients: expected clipnorm or clipvalue");
    if (job->hypers[PS_HYPER_USE_EMA].value > 0)
        return ps_yaml_fail(ps_yaml_find(root, "optimizer.use_ema"), e,
                            "optimizer.use_ema does not go with strategy.name hybrid");
    return PS_OK;
}

// NCCL adds up what lies on the GPUs, in float32, and all of it.
static enum ps_code together_check_communication(const struct ps_yaml *root, const struct ps_job *job,
                                                 struct ps_error *e)
{
    const struct ps_yaml *v = ps_yaml_find(root, "strategy.communication");
    if (job->communication != PS_COMMUNICATION_NCCL)
        return PS_OK;
    if (job->strategy == PS_STRATEGY_HYBRID)
        return ps_yaml_fail(v, e,
                            "strategy.communication nccl does not go with strategy.name hybrid: expected auto or "
                            "ring");
    if (job->compression != PS_COMPRESSION_NONE)
        return ps_yaml_fail(ps_yaml_find(root, "strategy.gradient_compression"), e,
                            "strategy.gradient_compression %s does not go with strategy.communication nccl: expected "
                            "none",
                            ps_job_field_word(job, "strategy.gradient_compression"));
    return PS_OK;
}

static enum ps_code together_check_warm_up(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    static const char path[] = "optimizer.warmup_epochs";
    const struct ps_yaml *v = ps_yaml_find(root, path);
    if (!(job->warmup_epochs >= 0 && job->warmup_epochs <= 1e6))
        return ps_yaml_expected(v, path, e, "a number from 0 to 1e6");
    if (job->warmup_epochs > 0 && job->scale_rate == PS_SCALE_NONE)
        return ps_yaml_fail(v, e, "%s does not go with optimizer.scale_learning_rate none: expected linear or sqrt",
                            path);
    if (job->warmup_epochs > 0 && job->schedule.warmup_steps > 0)
        return ps_yaml_fail(v, e, "%s does not go with " RATE ".warmup_steps: expected one of them", path);
    return PS_OK;
}

// The ps tasks write what they keep, where they have all of it.
static enum ps_code together_check_sharded(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    if (!ps_callbacks_shards(&job->callbacks) || job->strategy == PS_STRATEGY_PARAMETER_SERVER)
        return PS_OK;
    return ps_yaml_fail(ps_yaml_find(root, "callbacks"), e,
                        "callbacks: sharded does not go with strategy.name %s, with which the ps tasks do not have all "
                        "that a checkpoint keeps: expected parameter_server",
                        ps_job_strategies[job->strategy]);
}

static enum ps_code together_check_plateau(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    for (size_t i = 0; i < job->callbacks.n; i++)
        if (strcmp(ps_callback_name(&job->callbacks.v[i]), "reduce_lr_on_plateau") == 0 &&
            job->schedule.kind != PS_SCHEDULE_NONE)
            return ps_yaml_fail(ps_yaml_find(root, "callbacks"), e,
                                "callbacks: reduce_lr_on_plateau does not go with a learning rate that follows a "
                                "schedule");
    return PS_OK;
}

// What is written is told by the name's ending; safetensors, where that says nothing. Who gave one of these would find
// another thing in the file than expected.
static enum ps_code together_check_output(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    static const char *const others[] = {".h5",  ".hdf5", ".pt",     ".pth", ".ckpt", ".npy",
                                         ".npz", ".onnx", ".tflite", ".pb",  ".pkl",  ".pickle"};
    const char *name = job->output ? job->output : "";
    bool other = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        other |= ps_ends_with(name, others[i]);
    if (!other || ps_ends_with(name, ".weights.h5"))
        return PS_OK;
    return ps_yaml_fail(ps_yaml_find(root, "output"), e,
                        "output must be a name that ends in .keras, .weights.h5 or .safetensors, not %s", name);
}

enum ps_code ps_job_check_together(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    if (together_check_data(root, job, e) || together_check_local_steps(root, job, e) ||
        together_check_hybrid(root, job, e) || together_check_compression(root, job, e) ||
        together_check_grace(root, job, e) || together_check_communication(root, job, e) ||
        together_check_warm_up(root, job, e) || together_check_sharded(root, job, e) ||
        together_check_plateau(root, job, e) || together_check_output(root, job, e))
        return e->code;
    return together_check_partitioner(root, job, e);
}

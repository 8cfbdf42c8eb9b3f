// SPDX-License-Identifier: Apache-2.0
//
// A safetensors file, its names and shapes against a model: whatever the bytes, an error with every parameter as it
// was, or all of them overwritten.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/log.h"
#include "workerd/strategy/strategy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char model_text[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 1]}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"a\", \"units\": 1}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"b\", \"units\": 2}}]}}";

static const float mark = 12345;  // of what was not overwritten; no file of the corpus has it

static const struct wk_env *fuzz_env(void)
{
    static struct wk_env env;
    const struct ps_loss loss[NN_MAX_PORTS] = {PS_LOSS(.kind = PS_LOSS_MSE)};
    struct nn_model *model = NULL;
    struct ps_error e;
    if (env.replica)
        return &env;
    ps_log_init("fuzz", PS_LOG_ERROR);
    if (nn_model_parse(model_text, "net", &model, &e) ||
        nn_replica_create(model, "ref", 1, 1, 1, loss, &env.replica, &e))
        abort();
    env.model = model;
    return &env;
}

static void expect_untouched(const struct wk_env *env)
{
    for (size_t i = 0; i < nn_model_params(env->model); i++)
        for (uint64_t j = 0; j < nn_model_param(env->model, i)->count; j++)
            if (memcmp(&nn_replica_param(env->replica, i)[j], &mark, sizeof mark) != 0)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct wk_env *env = fuzz_env();
    char path[64];
    struct ps_error e = {0};
    if (size >= 4 && (memcmp(data, "PK\3\4", 4) == 0 || memcmp(data, "\x89HDF", 4) == 0))
        return 0;  // these have targets of their own, or a child
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (size_t i = 0; i < nn_model_params(env->model); i++)
        for (uint64_t j = 0; j < nn_model_param(env->model, i)->count; j++)
            nn_replica_param(env->replica, i)[j] = mark;
    if (wk_load_weights(env, path, &e) != PS_OK)
        expect_untouched(env);
    close(fd);
    return 0;
}

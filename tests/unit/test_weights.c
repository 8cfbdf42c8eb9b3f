// SPDX-License-Identifier: Apache-2.0
//
// workerd/strategy/weights: a weights file against a model, in the spellings that people meet.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/file/safetensors.h"
#include "workerd/strategy/checkpoint.h"
#include "workerd/strategy/strategy.h"

static const char model_text[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 1]}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"a\", \"units\": 1}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"b\", \"units\": 2}}]}}";

enum { N_PARAMS = 4 };

static struct wk_env env;
static char path[] = "/tmp/test_weights.XXXXXX";

static int open_model(void **state)
{
    static const struct ps_loss mse = PS_LOSS(.kind = PS_LOSS_MSE);
    static struct nn_model *model;
    struct ps_error e = {0};
    (void)state;
    close(mkstemp(path));
    if (nn_model_parse(model_text, "test", &model, &e) ||
        nn_replica_create(model, "ref", 1, 1, 1, &mse, &env.replica, &e))
        return -1;
    env.model = model;
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    nn_replica_free(env.replica);
    nn_model_free((struct nn_model *)env.model);
    return unlink(path);
}

// A file of tensors with these names, up to a NULL: of the shapes of the model's parameters in their order, then of
// shape (1,). All elements of tensor i are i + 1.
static void write_file(const char *const *names)
{
    static const float data[6][2] = {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6}};
    struct ps_safetensor t[6] = {0};
    struct ps_error e = {0};
    size_t n = 0;
    for (; names[n]; n++) {
        t[n] = (struct ps_safetensor){.name = names[n], .shape = {1}, .rank = 1, .data = data[n]};
        if (n < N_PARAMS) {
            t[n].rank = nn_model_param(env.model, n)->rank;
            memcpy(t[n].shape, nn_model_param(env.model, n)->shape, sizeof t[n].shape);
        }
    }
    if (ps_safetensors_write(path, t, n, &e) != PS_OK)
        fail_msg("%s", e.text);
}

// What is logged while the weights are loaded.
static char logged[1024];

static enum ps_code load_file(struct ps_error *e)
{
    FILE *to = tmpfile();
    int was = dup(STDERR_FILENO);
    dup2(fileno(to), STDERR_FILENO);
    enum ps_code code = wk_load_weights(&env, path, e);
    dup2(was, STDERR_FILENO);
    close(was);
    rewind(to);
    logged[fread(logged, 1, sizeof logged - 1, to)] = '\0';
    fclose(to);
    return code;
}

static void spellings(void **state)
{
    static const char *const names[][7] = {
        {"net/a/kernel", "net/a/bias", "net/b/kernel", "net/b/bias"},
        {"a/kernel", "a/bias", "b/kernel", "b/bias"},
        {"a/kernel:0", "a/bias:0", "b/kernel:0", "b/bias:0"},
        {"sequential_1/a/kernel", "sequential_1/a/bias", "sequential_1/b/kernel", "sequential_1/b/bias"},
        {"net/a/kernel:0", "a/bias", "other/b/kernel", "b/bias:0"},
        {"layers/dense/vars/0", "layers/dense/vars/1", "layers/dense_1/vars/0", "layers/dense_1/vars/1"},
        {"net/a/kernel", "net/a/bias", "net/b/kernel", "net/b/bias", "ema/a/kernel", "a/kernel"},  // the exact name
    };
    (void)state;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        struct ps_error e = {0};
        write_file(names[k]);
        if (load_file(&e) != PS_OK)
            fail_msg("%s", e.text);
        for (size_t i = 0; i < N_PARAMS; i++)
            for (uint64_t j = 0; j < nn_model_param(env.model, i)->count; j++)
                assert_true(nn_replica_param(env.replica, i)[j] == (float)(i + 1));
        if (names[k][4])
            assert_non_null(strstr(logged, ": the model has no use for 'a/kernel', 'ema/a/kernel'"));
        else
            assert_string_equal(logged, "");
    }
}

// Its weights are those of the model, whatever an optimizer has kept beside them.
static void a_checkpoint_is_a_weights_file(void **state)
{
    struct wk_checkpoint c = {.json = json_object()};
    struct ps_error e = {0};
    static const float value[2] = {0.5, 0.25};  // as many as any parameter has
    (void)state;
    for (size_t i = 0; i < N_PARAMS; i++) {
        const struct nn_param *p = nn_model_param(env.model, i);
        wk_checkpoint_put(&c, NULL, p->name, p->shape, p->rank, value);
        wk_checkpoint_put(&c, "velocity", p->name, p->shape, p->rank, value);
    }
    assert_int_equal(wk_checkpoint_write(&c, path, &e), PS_OK);
    wk_checkpoint_free(&c);
    if (load_file(&e) != PS_OK)
        fail_msg("%s", e.text);
    assert_string_equal(logged, "");
    for (size_t i = 0; i < N_PARAMS; i++)
        assert_true(nn_replica_param(env.replica, i)[0] == 0.5f);
}

static void refused_files(void **state)
{
    static const struct {
        const char *names[7], *says;
    } bad[] = {
        {{"net/a/kernel", "net/a/bias"},
         " does not fit the model; it has no tensors 'net/b/kernel', 'net/b/bias', which the model needs"},
        {{"net/a/kernel", "net/a/bias", "net/b/kernel", "net/c/bias", "seed"},
         "; it has no tensors 'net/b/bias', which the model needs; it has 'net/c/bias', 'seed' besides"},
        {{"deep/net/a/kernel", "a/bias", "b/kernel", "b/bias"}, "; it has no tensors 'net/a/kernel'"},
        {{"one/a/kernel", "a/bias", "b/kernel", "b/bias", "two/a/kernel"},
         ": tensors 'one/a/kernel' and 'two/a/kernel' could both be 'net/a/kernel'"},
        {{"a/kernel", "a/bias", "b/bias", "b/kernel"},
         "; it has other shapes: 'b/kernel' has (2,), not (1, 2), 'b/bias' has (1, 2), not (2,)"},
        {{"a/kernel", "b/kernel", "b/bias", "c"},
         "; it has no tensors 'net/a/bias', which the model needs; it has other shapes: 'b/kernel' has (1,), not (1, "
         "2), "
         "'b/bias' has (1, 2), not (2,); it has 'c' besides"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        struct ps_error e = {0};
        write_file(bad[k].names);
        nn_replica_param(env.replica, 0)[0] = 77;
        assert_int_equal(load_file(&e), PS_INVALID_ARGUMENT);
        if (!strstr(e.text, bad[k].says))
            fail_msg("no \"%s\" in \"%s\"", bad[k].says, e.text);
        assert_true(nn_replica_param(env.replica, 0)[0] == 77);  // nothing half taken
    }
}

// A parameter of whole numbers.
static void not_floats(void **state)
{
    (void)state;
    static const char header[] = "{\"a/kernel\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[0,4]},"
                                 "\"a/bias\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[4,6]},"
                                 "\"b/kernel\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[6,10]},"
                                 "\"b/bias\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[10,14]}}";
    const uint64_t length = sizeof header - 1;
    struct ps_error e = {0};
    FILE *f = fopen(path, "w");
    fwrite(&length, 8, 1, f);
    fwrite(header, 1, length, f);
    fwrite(header, 1, 14, f);
    fclose(f);
    assert_int_equal(load_file(&e), PS_INVALID_ARGUMENT);
    if (!strstr(e.text, "; it has no floats in 'a/kernel' (I32), where the model needs them"))
        fail_msg("%s", e.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spellings),
        cmocka_unit_test(a_checkpoint_is_a_weights_file),
        cmocka_unit_test(refused_files),
        cmocka_unit_test(not_floats),
    };
    ps_log_init("test", PS_LOG_WARNING);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, open_model, close_model);
}

// SPDX-License-Identifier: Apache-2.0
//
// workerd/weights and workerd/nn/load: what Keras has saved is read, what is written is laid out as Keras does it, and
// what is damaged says so. Without HDF5 the rest is skipped.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/file/zip.h"
#include "nn_files.h"
#include "workerd/strategy/strategy.h"
#include "workerd/weights/hdf5_file.h"
#include "workerd/weights/weights.h"

#define FILES "tests/golden/keras_files/"

// Only what the job says of models and weights is looked at.
static struct ps_job job;

static void skip_without_hdf5(void)
{
    if (wk_hdf5_check(NULL) != PS_OK)
        skip();
}

static struct wk_env open_env(const struct nn_model *model)
{
    const struct ps_loss loss[NN_MAX_PORTS] = {PS_LOSS(.kind = PS_LOSS_MSE)};
    struct wk_env env = {.job = &job, .model = model};
    struct ps_error e = {0};
    if (nn_replica_create(model, "ref", 1, 1, 1, loss, &env.replica, &e) != PS_OK)
        fail_msg("%s", e.text);
    return env;
}

static struct ps_safetensors *read_weights(const char *path)
{
    struct ps_safetensors *file = NULL;
    struct ps_error e = {0};
    if (wk_weights_read(path, &file, &e) != PS_OK)
        fail_msg("%s", e.text);
    return file;
}

// The values of the replica are those of the file, which has them by their names.
static void expect_values(const struct wk_env *env, const char *path)
{
    struct wk_env other = open_env(env->model);
    struct ps_error e = {0};
    if (wk_load_weights(&other, source(path), &e) != PS_OK)
        fail_msg("%s", e.text);
    for (size_t i = 0; i < nn_model_params(env->model); i++) {
        const struct nn_param *p = nn_model_param(env->model, i);
        if (memcmp(nn_replica_param(env->replica, i), nn_replica_param(other.replica, i), p->count * sizeof(float)))
            fail_msg("%s: %s differs", path, p->name);
    }
    nn_replica_free(other.replica);
}

static void expect_same_tensors(const char *a, const char *b)
{
    struct ps_safetensors *x = read_weights(a), *y = read_weights(b);
    assert_true(x->n == y->n);
    for (size_t i = 0; i < x->n; i++) {
        const struct ps_safetensor *t = &x->tensor[i], *u = ps_safetensors_find(y, t->name);
        if (!u || t->rank != u->rank || memcmp(t->shape, u->shape, t->rank * sizeof *t->shape) ||
            memcmp(t->data, u->data, t->count * sizeof *t->data))
            fail_msg("%s of %s differs", t->name, a);
    }
    ps_safetensors_free(x);
    ps_safetensors_free(y);
}

static void write_env(const struct wk_env *env, const char *path)
{
    const size_t n = nn_model_params(env->model);
    const float **value = ps_alloc(n * sizeof *value);
    struct ps_error e = {0};
    for (size_t i = 0; i < n; i++)
        value[i] = nn_replica_param(env->replica, i);
    if (wk_weights_write(path, env->model, value, &e) != PS_OK)
        fail_msg("%s", e.text);
    free(value);
}

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fwrite(bytes, 1, n, f);
    fclose(f);
}

// ---- whole files --------------------------------------------------------------------------------------------------

// The model and its weights from a .keras file; written again, they lie where Keras had them.
static void keras_file(const char *name)
{
    char path[512], weights[128], out[] = "/tmp/test_keras.XXXXXX", to[64];
    struct ps_error e = {0};
    snprintf(path, sizeof path, "%s", source(name));
    snprintf(weights, sizeof weights, "%.*s.safetensors", (int)(strlen(name) - strlen(".keras")), name);
    struct nn_model *model = load(name);
    struct wk_env env = open_env(model);
    job = (struct ps_job){.model = path};
    if (wk_init_weights(&env, &e) != PS_OK)
        fail_msg("%s", e.text);
    expect_values(&env, weights);

    assert_non_null(mkdtemp(out));
    snprintf(to, sizeof to, "%s/out.weights.h5", out);
    write_env(&env, to);
    expect_same_tensors(to, path);
    unlink(to);
    snprintf(to, sizeof to, "%s/out.keras", out);
    write_env(&env, to);
    expect_same_tensors(to, path);
    struct nn_model *again = NULL;
    if (nn_model_load(to, &again, &e) != PS_OK)
        fail_msg("%s", e.text);
    assert_string_equal(nn_model_document(again), nn_model_document(model));
    assert_string_equal(nn_model_metadata(again), nn_model_metadata(model));
    nn_model_free(again);
    unlink(to);
    rmdir(out);
    nn_replica_free(env.replica);
    nn_model_free(model);
}

static void keras_files(void **state)
{
    static const char *const names[] = {"mlp", "cnn", "cnn_keras2", "text", "attention", "wrapped", "wrapped_keras2"};
    (void)state;
    skip_without_hdf5();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        snprintf(path, sizeof path, FILES "%s.keras", names[i]);
        keras_file(path);
    }
}

static void weights_files(void **state)
{
    (void)state;
    skip_without_hdf5();
    struct nn_model *model = load(FILES "mlp.keras");
    struct wk_env env = open_env(model);
    struct ps_error e = {0};
    static const char *const same[] = {FILES "mlp.weights.h5", FILES "mlp_keras2.h5", FILES "mlp.keras"};
    for (size_t k = 0; k < 3; k++) {
        memset(nn_replica_param(env.replica, 0), 0, sizeof(float));
        if (wk_load_weights(&env, source(same[k]), &e) != PS_OK)
            fail_msg("%s", e.text);
        expect_values(&env, FILES "mlp.safetensors");
    }
    struct wk_env half = open_env(model);
    if (wk_load_weights(&half, source(FILES "mlp_half.weights.h5"), &e) != PS_OK)
        fail_msg("%s", e.text);
    for (size_t i = 0; i < nn_model_params(model); i++)
        for (uint64_t j = 0; j < nn_model_param(model, i)->count; j++)
            assert_float_equal(nn_replica_param(half.replica, i)[j], nn_replica_param(env.replica, i)[j], 0.01);
    nn_replica_free(half.replica);
    nn_replica_free(env.replica);
    nn_model_free(model);
}

// The same weights make the same bytes.
static void same_bytes(void **state)
{
    (void)state;
    skip_without_hdf5();
    static const float data[4] = {1, 2, 3, 4};
    const struct ps_safetensor t[] = {{.name = "layers/a/vars/0", .shape = {2, 2}, .rank = 2, .data = data},
                                      {.name = "layers/a/vars/1", .rank = 0, .data = data}};
    uint8_t *bytes[2];
    size_t size[2];
    struct ps_error e = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wk_hdf5_write(t, 2, &bytes[i], &size[i], &e), PS_OK);
        if (i == 0)
            sleep(1);  // a time of day in it would be another one
    }
    assert_true(size[0] == size[1]);
    assert_memory_equal(bytes[0], bytes[1], size[0]);
    free(bytes[0]);
    free(bytes[1]);
}

// Keras expects a count behind the mean and the variance of a Normalization, of which it is the third variable.
static void counts_are_written(void **state)
{
    (void)state;
    skip_without_hdf5();
    struct nn_model *model = NULL;
    struct ps_error e = {0};
    const char *json = "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
                       "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 2]}},"
                       "{\"class_name\": \"Normalization\", \"config\": {\"name\": \"n\"}},"
                       "{\"class_name\": \"Dense\", \"config\": {\"name\": \"d\", \"units\": 2}}]}}";
    assert_int_equal(nn_model_parse(json, "net", &model, &e), PS_OK);
    struct wk_env env = open_env(model);
    write_env(&env, "counts.weights.h5");
    struct ps_safetensors *file = read_weights("counts.weights.h5");
    assert_int_equal(file->n, 4);  // a whole number is none of what is read
    struct nn_saved *saved = nn_model_saved(model);
    assert_string_equal(saved[4].path, "layers/normalization/vars/2");
    assert_null(saved[4].value);
    assert_null(saved[5].path);
    nn_model_free_saved(saved);
    ps_safetensors_free(file);
    nn_replica_free(env.replica);
    nn_model_free(model);
    remove("counts.weights.h5");
}

// The weights of a vocabulary's terms stand in the config; Keras looks for them in the file as well.
static void idf_weights_are_written(void **state)
{
    (void)state;
    struct nn_model *model = NULL;
    struct ps_error e = {0};
    const char *json = "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
                       "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 2], "
                       "\"dtype\": \"int32\"}},"
                       "{\"class_name\": \"IntegerLookup\", \"config\": {\"name\": \"n\", \"vocabulary\": [7, 9], "
                       "\"output_mode\": \"tf_idf\", \"idf_weights\": [0.5, 1.5]}},"
                       "{\"class_name\": \"Dense\", \"config\": {\"name\": \"d\", \"units\": 2}}]}}";
    if (nn_model_parse(json, "net", &model, &e) != PS_OK)
        fail_msg("%s", e.text);
    struct wk_env env = open_env(model);
    write_env(&env, "idf.weights.h5");
    struct ps_safetensors *file = read_weights("idf.weights.h5");
    assert_int_equal(file->n, 3);
    const struct ps_safetensor *t = ps_safetensors_find(file, "layers/integer_lookup/vars/idf_weights");
    assert_non_null(t);
    assert_true(t->rank == 1 && t->shape[0] == 3 && t->data[0] == 1 && t->data[1] == 0.5F && t->data[2] == 1.5F);
    ps_safetensors_free(file);
    assert_int_equal(wk_load_weights(&env, "idf.weights.h5", &e), PS_OK);
    nn_replica_free(env.replica);
    nn_model_free(model);
    remove("idf.weights.h5");
}

// Of a model that a person has written without it Keras is told whose the class is, or it would not open the file.
static void a_model_written_by_hand_opens_in_keras(void **state)
{
    static const char json[] =
        "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
        "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 2]}},"
        "{\"class_name\": \"Dense\", \"config\": {\"name\": \"d\", \"units\": 2}}]}}";
    (void)state;
    skip_without_hdf5();
    struct nn_model *model = NULL, *again = NULL;
    struct ps_error e = {0};
    write_bytes("hand.json", json, strlen(json));
    assert_int_equal(nn_model_load("hand.json", &model, &e), PS_OK);
    struct wk_env env = open_env(model);
    write_env(&env, "hand.keras");
    assert_int_equal(nn_model_load("hand.keras", &again, &e), PS_OK);
    assert_non_null(strstr(nn_model_document(again),
                           "{\"module\":\"keras\",\"registered_name\":null,\"class_name\":\"Sequential\""));
    nn_replica_free(env.replica);
    nn_model_free(model);
    nn_model_free(again);
    remove("hand.json");
    remove("hand.keras");
}

// ---- what is wrong ------------------------------------------------------------------------------------------------

static void output_names(void **state)
{
    struct ps_error e = {0};
    (void)state;
    assert_int_equal(wk_weights_check_output("net.safetensors", &e), PS_OK);
    assert_int_equal(wk_weights_check_output("net", &e), PS_OK);
    bool there = wk_hdf5_check(NULL) == PS_OK;
    assert_int_equal(wk_weights_check_output("net.keras", &e), there ? PS_OK : PS_FAILED_PRECONDITION);
    assert_int_equal(wk_weights_check_output("net.weights.h5", &e), there ? PS_OK : PS_FAILED_PRECONDITION);
}

// A zip file of these entries: name, content, up to a NULL.
static void write_zip(const char *path, const char *const *entry)
{
    struct ps_zip_writer w;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    ps_zip_begin(&w, f);
    for (; *entry; entry += 2)
        assert_int_equal(ps_zip_add(&w, entry[0], entry[1], strlen(entry[1]), NULL), PS_OK);
    assert_int_equal(ps_zip_end(&w, NULL), PS_OK);
    fclose(f);
}

static void refused_archives(void **state)
{
    static const struct {
        const char *entry[7], *says;
    } bad[] = {
        {{"a", "b"}, "expected a file that model.save() of Keras 3 writes: its config.json is missing"},
        {{"config.json", "{}"}, "its metadata.json is missing"},
        {{"config.json", "{", "metadata.json", "{}"}, "line 1, column 1: expected JSON"},
        {{"config.json", "{}", "metadata.json", "{}"}, "expected \"Sequential\" or \"Functional\""},
    };
    char path[] = "/tmp/test_keras.XXXXXX";
    (void)state;
    close(mkstemp(path));
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        struct nn_model *model = NULL;
        struct ps_error e = {0};
        write_zip(path, bad[k].entry);
        assert_int_equal(nn_model_load(path, &model, &e), PS_INVALID_ARGUMENT);
        if (!strstr(e.text, bad[k].says) || strncmp(e.text, path, strlen(path)) != 0)
            fail_msg("no \"%s\" in \"%s\"", bad[k].says, e.text);
    }
    static const char hdf5[] = "\x89HDF\r\n\x1a\n";
    struct nn_model *model = NULL;
    struct ps_error e = {0};
    write_bytes(path, hdf5, sizeof hdf5);
    assert_int_equal(nn_model_load(path, &model, &e), PS_INVALID_ARGUMENT);
    assert_non_null(strstr(e.text, "is an HDF5 file, Keras's old format: save the model as a .keras file"));
    unlink(path);
}

// What adapt() has found becomes part of the document.
static void vocabulary_of_archive(void **state)
{
#define LAYER(class, name, rest) "{\"class_name\": \"" class "\", \"config\": {\"name\": \"" name "\", " rest "}}"
    static const char config[] = "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": [" LAYER(
        "InputLayer", "city",
        "\"batch_shape\": [null, 2], \"dtype\": \"string\"") "," LAYER("StringLookup", "words",
                                                                       "\"output_mode\": \"count\"") "]}}";
    const char *entry[] = {"config.json",
                           config,
                           "metadata.json",
                           "{}",
                           "assets/layers/string_lookup/vocabulary.txt",
                           "[UNK]\nNew York\n\nOslo\n\n",
                           NULL};
    char path[] = "/tmp/test_keras.XXXXXX";
    struct nn_model *model = NULL;
    struct ps_error e = {0};
    (void)state;
    close(mkstemp(path));
    write_zip(path, entry);
    if (nn_model_load(path, &model, &e) != PS_OK)
        fail_msg("%s", e.text);
    const struct nn_words *words = nn_model_input(model, 0).words;
    assert_int_equal(words->n, 3);
    assert_string_equal(words->word[0], "New York");
    assert_string_equal(words->word[1], "");
    assert_string_equal(words->word[2], "Oslo");
    assert_int_equal(nn_model_output(model, 0).type->dim[0], 4);
    assert_non_null(strstr(nn_model_document(model), "\"vocabulary\":[\"[UNK]\",\"New York\",\"\",\"Oslo\"]"));
    nn_model_free(model);
    entry[4] = NULL;
    write_zip(path, entry);
    assert_int_equal(nn_model_load(path, &model, &e), PS_INVALID_ARGUMENT);
    assert_non_null(strstr(e.text, "its assets/layers/string_lookup/vocabulary.txt is missing"));
    unlink(path);
}

static void refused_weights(void **state)
{
    static const char *const none[] = {"config.json", "{}", NULL}, *const text[] = {"model.weights.h5", "text", NULL};
    char path[] = "/tmp/test_keras.XXXXXX";
    struct ps_safetensors *file = NULL;
    struct ps_error e = {0};
    (void)state;
    skip_without_hdf5();
    close(mkstemp(path));
    write_zip(path, none);
    assert_int_equal(wk_weights_read(path, &file, &e), PS_INVALID_ARGUMENT);
    assert_non_null(
        strstr(e.text, ": expected a file that model.save() of Keras 3 writes: it has no model.weights.h5"));
    write_zip(path, text);
    assert_int_equal(wk_weights_read(path, &file, &e), PS_DATA_LOSS);
    assert_non_null(strstr(e.text, ": is no HDF5 file, or it is damaged"));
    unlink(path);
}

// Files that end early and files with bytes changed: a sentence with the path, or weights, and this process goes on.
static void damaged_hdf5(void **state)
{
    enum { MOST = 1 << 16, CUTS = 16, FLIPS = 128 };
    static uint8_t bytes[MOST];
    char path[] = "/tmp/test_keras.XXXXXX";
    (void)state;
    skip_without_hdf5();
    FILE *f = fopen(source(FILES "mlp.weights.h5"), "r");
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    close(mkstemp(path));
    for (size_t i = 0; i < CUTS + FLIPS; i++) {
        const size_t at = i < CUTS ? 8 + i * (n - 8) / CUTS : 8 + (i - CUTS) * (i - CUTS) * (n - 8) / (FLIPS * FLIPS);
        struct ps_safetensors *file = NULL;
        struct ps_error e = {0};
        bytes[at] ^= i < CUTS ? 0 : 0xff;
        write_bytes(path, bytes, i < CUTS ? at : n);
        bytes[at] ^= i < CUTS ? 0 : 0xff;
        enum ps_code code = wk_weights_read(path, &file, &e);
        if (code != PS_OK && (strncmp(e.text, path, strlen(path)) != 0 || strlen(e.text) < strlen(path) + 10))
            fail_msg("byte %zu: %s", at, e.text);
        assert_true(code != PS_OK || i >= CUTS);
        ps_safetensors_free(file);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keras_files),
        cmocka_unit_test(weights_files),
        cmocka_unit_test(same_bytes),
        cmocka_unit_test(counts_are_written),
        cmocka_unit_test(idf_weights_are_written),
        cmocka_unit_test(a_model_written_by_hand_opens_in_keras),
        cmocka_unit_test(output_names),
        cmocka_unit_test(refused_archives),
        cmocka_unit_test(refused_weights),
        cmocka_unit_test(damaged_hdf5),
        cmocka_unit_test(vocabulary_of_archive),
    };
    ps_log_init("test", PS_LOG_WARNING);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

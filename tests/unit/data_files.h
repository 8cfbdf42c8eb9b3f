// SPDX-License-Identifier: Apache-2.0
//
// What the tests of workerd/data share: files in a folder of their own per test, a stand-in for workerd/nn, and data
// opened and bound, well or with an error that says what it has to.
#ifndef TESTS_UNIT_DATA_FILES_H
#define TESTS_UNIT_DATA_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "common/base/alloc.h"
#include "workerd/data/data_internal.h"

// ---- a model, of which wk_data_bind asks for nothing else ----------------------------------------------------------

struct nn_model {
    size_t inputs, outputs;  // 0: one
    struct nn_type input, output, input2, output2;
    const char *input_name, *input2_name, *output_name, *output2_name;
    const struct nn_words *words;  // of the first input
};

size_t nn_model_inputs(const struct nn_model *model)
{
    return model->inputs ? model->inputs : 1;
}

size_t nn_model_outputs(const struct nn_model *model)
{
    return model->outputs ? model->outputs : 1;
}

struct nn_port nn_model_input(const struct nn_model *m, size_t k)
{
    return k ? (struct nn_port){m->input2_name, &m->input2}
             : (struct nn_port){m->input_name ? m->input_name : "in", &m->input, .words = m->words};
}

struct nn_port nn_model_output(const struct nn_model *m, size_t k)
{
    return k ? (struct nn_port){m->output2_name, &m->output2}
             : (struct nn_port){m->output_name ? m->output_name : "out", &m->output};
}

static const struct ps_loss data_xent[2] = {{.kind = PS_LOSS_SPARSE_XENT}, {.kind = PS_LOSS_SPARSE_XENT}};
static const struct ps_loss data_mse[2] = {{.kind = PS_LOSS_MSE}, {.kind = PS_LOSS_MSE}};

// ---- files --------------------------------------------------------------------------------------------------------

static int make_folder(void **state)
{
    char name[] = "/tmp/test_data.XXXXXX";
    if (!mkdtemp(name))
        return -1;
    *state = ps_strdup(name);
    return 0;
}

static int remove_folder(void **state)
{
    char *command = ps_printf("rm -r '%s'", (char *)*state);
    int rc = system(command);
    free(command);
    free(*state);
    return rc;
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

// Writes a file (gzip if its name ends so) and returns its path, to be freed.
static inline char *put(const char *folder, const char *name, const void *bytes, size_t size)
{
    char *path = ps_printf("%s/%s", folder, name);
    const char *dot = strrchr(name, '.');
    gzFile file = gzopen(path, dot && strcmp(dot, ".gz") == 0 ? "wb" : "wbT");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)size), size);
    assert_int_equal(gzclose(file), Z_OK);
    return path;
}

static inline char *put_text(const char *folder, const char *name, const char *text)
{
    return put(folder, name, text, strlen(text));
}

// An npy of version 1 (2, 3: 32-bit length) with this dict and these elements.
static inline char *put_npy(const char *folder, const char *name, int version, const char *dict, const void *elements,
                            size_t size)
{
    uint8_t file[2048] = "\x93NUMPY";
    size_t length = strlen(dict), start = version == 1 ? 10 : 12;
    assert_true(start + length + size <= sizeof file);
    file[6] = (uint8_t)version;
    file[8] = (uint8_t)length;
    memcpy(file + start, dict, length);
    memcpy(file + start + length, elements, size);
    return put(folder, name, file, start + length + size);
}

// ---- data ---------------------------------------------------------------------------------------------------------

static inline struct wk_data *open_good(const struct ps_job_data *spec)
{
    struct ps_error e = {0};
    struct wk_data *data = NULL;
    if (wk_data_open(spec, NULL, spec->kind == PS_DATA_DIGITS ? 3 : 0, &data, &e) != PS_OK)
        fail_msg("%s", e.text);
    return data;
}

// Opens the data; what is logged meanwhile, malloc'd.
static inline char *log_of(const struct ps_job_data *spec)
{
    char *text = ps_alloc(1024);
    FILE *to = tmpfile();
    const int was = dup(STDERR_FILENO);
    dup2(fileno(to), STDERR_FILENO);
    struct wk_data *data = open_good(spec);
    dup2(was, STDERR_FILENO);
    close(was);
    wk_data_free(data);
    rewind(to);
    text[fread(text, 1, 1023, to)] = '\0';
    fclose(to);
    return text;
}

static inline size_t elements_of(const struct wk_source *s, bool y)
{
    size_t n = 0;
    for (size_t i = 0; i < s->columns; i++)
        n += s->column[i].y == y && *s->column[i].name ? s->column[i].count : 0;
    return n;
}

// Binds x and y as they are to a model of flat inputs and outputs; labels: with that many classes, 0: to targets.
static inline enum ps_code bind_flat(struct wk_data *data, int classes, struct ps_error *e)
{
    size_t x = elements_of(data->train.source, false), y = elements_of(data->train.source, true);
    struct nn_model model = {.input = {NN_FLOAT, 1, {(int64_t)x}}, .output = {NN_FLOAT, 1, {(int64_t)y}}};
    if (classes && y == 1)
        model.output.dim[0] = classes;
    else if (classes)
        model.output = (struct nn_type){NN_FLOAT, 2, {(int64_t)y, classes}};
    return wk_data_bind(data, &model, classes ? data_xent : data_mse, e);
}

static inline struct wk_data *open_flat(const struct ps_job_data *spec, int classes)
{
    struct ps_error e = {0};
    struct wk_data *data = open_good(spec);
    if (bind_flat(data, classes, &e) != PS_OK)
        fail_msg("%s", e.text);
    return data;
}

// Opening or binding ends with an error that names all the parts (NULL: one fewer).
static inline void open_bad(const struct ps_job_data *spec, int classes, const char *part, const char *other)
{
    struct ps_error e = {0};
    struct wk_data *data = NULL;
    enum ps_code code = wk_data_open(spec, NULL, 0, &data, &e);
    if (code == PS_OK)
        code = bind_flat(data, classes, &e);
    else
        assert_null(data);
    if (code == PS_OK)
        fail_msg("no error; expected \"%s\"", part);
    if (!strstr(e.text, part) || (other && !strstr(e.text, other)))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", e.text, part, other ? other : "");
    wk_data_free(data);
}

// All examples of a port, in order, as floats (labels, too): to be freed.
static inline float *values_of(const struct wk_part *part, const struct wk_port *port)
{
    struct ps_error e = {0};
    void *raw = ps_alloc(wk_part_raw(part));
    float *value = ps_alloc(part->split.examples * port->count * sizeof *value);
    for (uint64_t i = 0; i < part->split.examples; i++) {
        float *to = value + i * port->count;
        if (wk_port_read(part, port, part->first + i, raw, to, &e))
            fail_msg("%s", e.text);
        for (size_t k = 0; port->dtype == NN_INT32 && k < port->count; k++) {
            int32_t n;
            memcpy(&n, &to[k], sizeof n);
            to[k] = (float)n;
        }
    }
    free(raw);
    return value;
}

static inline void expect_values(const struct wk_part *part, const struct wk_port *port, size_t n,
                                 const float *expected)
{
    assert_int_equal(n, part->split.examples * port->count);
    float *have = values_of(part, port);
    for (size_t i = 0; i < n; i++)
        if (have[i] != expected[i])
            fail_msg("value %zu is %.9g, expected %.9g", i, (double)have[i], (double)expected[i]);
    free(have);
}

#define EXPECT(part, port, ...) \
    expect_values(part, port, sizeof((float[]){__VA_ARGS__}) / sizeof(float), (float[]){__VA_ARGS__})

#endif

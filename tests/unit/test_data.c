// SPDX-License-Identifier: Apache-2.0
//
// workerd/data: the readers against good and bad files, the drawn digits against a golden checksum, the
// shuffle, and the feed. PS_MNIST names a folder with MNIST's four files; without it the test of the real
// data is empty.
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

// Stand-ins for workerd/nn: wk_data_check asks for nothing else.
struct nn_model {
    struct nn_type input, output;
};

size_t nn_model_inputs(const struct nn_model *model)
{
    return model ? 1 : 0;
}

size_t nn_model_outputs(const struct nn_model *model)
{
    return model ? 1 : 0;
}

struct nn_port nn_model_input(const struct nn_model *model, size_t k)
{
    (void)k;
    return (struct nn_port){"in", &model->input, 0};
}

struct nn_port nn_model_output(const struct nn_model *model, size_t k)
{
    (void)k;
    return (struct nn_port){"out", &model->output, 0};
}

// Files: in a folder of their own per test, removed with it.

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

// Writes a file (gzip if its name ends so) and returns its path, to be freed.
static char *put(const char *folder, const char *name, const void *bytes, size_t size)
{
    char *path = ps_printf("%s/%s", folder, name);
    const char *dot = strrchr(name, '.');
    gzFile file = gzopen(path, dot && strcmp(dot, ".gz") == 0 ? "wb" : "wbT");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)size), size);
    assert_int_equal(gzclose(file), Z_OK);
    return path;
}

static struct wk_data *open_good(const struct wk_data_spec *spec)
{
    struct ps_error e = {0};
    struct wk_data *data = NULL;
    enum ps_code code = wk_data_open(spec, &data, &e);
    if (code != PS_OK)
        fail_msg("%s", e.text);
    return data;
}

// The error names all the parts (NULL: one fewer).
static void open_bad(const struct wk_data_spec *spec, const char *part, const char *other)
{
    struct ps_error e = {0};
    struct wk_data *data = NULL;
    assert_int_not_equal(wk_data_open(spec, &data, &e), PS_OK);
    assert_null(data);
    if (!strstr(e.text, part) || (other && !strstr(e.text, other)))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", e.text, part, other ? other : "");
}

// IDX: two images of 2 by 3 and their labels, as both splits.

static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0,  0,  0,  2,  0,  0,
                                 0, 3, 0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 255};
static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 3};

static void put_idx(const char *folder, char mark, const char *suffix)
{
    static const char *const split[] = {"train", "t10k"};
    for (int i = 0; i < 2; i++) {
        char *x = ps_printf("%s-images%cidx3-ubyte%s", split[i], mark, suffix);
        char *y = ps_printf("%s-labels%cidx1-ubyte%s", split[i], mark, suffix);
        free(put(folder, x, images, sizeof images));
        free(put(folder, y, labels, sizeof labels));
        free(x);
        free(y);
    }
}

static void check_idx(const char *folder, bool as_labels)
{
    struct wk_data *data = open_good(&(struct wk_data_spec){.kind = WK_IDX, .path = folder, .labels = as_labels});
    const struct wk_part *part[] = {&data->train, &data->test};
    for (int i = 0; i < 2; i++) {
        const struct wk_split *split = i ? wk_data_test(data) : wk_data_train(data);
        assert_int_equal(split->examples, 2);
        assert_int_equal(split->rank, 2);
        assert_int_equal(split->shape[0], 2);
        assert_int_equal(split->shape[1], 3);
        assert_int_equal(split->inputs, 6);
        assert_int_equal(split->targets, 1);
        assert_int_equal(split->classes, as_labels ? 8 : 0);
        assert_memory_equal(part[i]->bytes, images + 16, 12);
        if (as_labels)
            assert_memory_equal(part[i]->label, ((int32_t[]){7, 3}), 8);
        else
            assert_memory_equal(part[i]->target, ((float[]){7, 3}), 8);
    }
    wk_data_free(data);
}

static void idx_plain_as_labels(void **state)
{
    put_idx(*state, '-', "");
    check_idx(*state, true);
}

static void idx_plain_as_targets(void **state)
{
    put_idx(*state, '-', "");
    check_idx(*state, false);
}

static void idx_gzip(void **state)
{
    put_idx(*state, '-', ".gz");
    check_idx(*state, true);
}

static void idx_dotted(void **state)
{
    put_idx(*state, '.', "");
    check_idx(*state, true);
}

static void idx_dotted_gzip(void **state)
{
    put_idx(*state, '.', ".gz");
    check_idx(*state, true);
}

static void idx_bad_files(void **state)
{
    static const struct {
        const char *name;
        const char *bytes;
        size_t size;
        const char *message;
    } bad[] = {
        {"train-images-idx3-ubyte", "", 0, "has 0 bytes, expected an IDX header of 16"},
        {"train-images-idx3-ubyte", "\0\0\x08\x03\0\0\0\x02", 8, "has 8 bytes, expected an IDX header of 16"},
        {"train-images-idx3-ubyte", "\0\0\x08\x01\0\0\0\x02", 8, "0x00000801, expected 0x00000803"},
        {"train-images-idx3-ubyte", "\0\0\x0d\x03\0\0\0\x01\0\0\0\x01\0\0\0\x01z", 17,
         "0x00000d03, expected 0x00000803"},
        {"train-images-idx3-ubyte", "\0\0\x08\x03\0\0\0\x01\0\0\0\0\0\0\0\x01z", 17, "dimension 1 is 0"},
        {"train-images-idx3-ubyte", "\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16, "overflow"},
        {"train-images-idx3-ubyte", "\0\0\x08\x03\0\xff\xff\xff\0\xff\xff\xff\0\0\0\x01", 16, "ends after 16 bytes"},
        {"train-images-idx3-ubyte", "\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x02xyz", 19,
         "expected 20 for shape (2, 1, 2)"},
        {"train-images-idx3-ubyte", "\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x01xyz", 19, "bytes follow the 18"},
        {"train-labels-idx1-ubyte", "\0\0\x08\x01\0\0\0\x03xyz", 11, "3 labels, expected 2"},
        {"t10k-labels-idx1-ubyte", "\0\0\x08\x01\0\0\0\x01xyz", 11, "bytes follow the 9"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_idx(*state, '-', "");
        free(put(*state, bad[i].name, bad[i].bytes, bad[i].size));
        open_bad(&(struct wk_data_spec){.kind = WK_IDX, .path = *state, .labels = true}, bad[i].name, bad[i].message);
    }
}

static void idx_missing_file(void **state)
{
    put_idx(*state, '-', "");
    char *path = ps_printf("%s/t10k-images-idx3-ubyte", (char *)*state);
    unlink(path);
    free(path);
    open_bad(&(struct wk_data_spec){.kind = WK_IDX, .path = *state}, "t10k-images.idx3-ubyte", *state);
}

static void idx_splits_of_different_shapes(void **state)
{
    put_idx(*state, '-', "");
    free(put(*state, "t10k-images-idx3-ubyte", "\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x02wxyz", 20));
    open_bad(&(struct wk_data_spec){.kind = WK_IDX, .path = *state}, "shape (1, 2)", "expected (2, 3)");
}

static void gzip_cut_short(void **state)
{
    put_idx(*state, '-', ".gz");
    char *path = ps_printf("%s/train-images-idx3-ubyte.gz", (char *)*state);
    assert_int_equal(truncate(path, 30), 0);
    open_bad(&(struct wk_data_spec){.kind = WK_IDX, .path = *state}, path, "breaks off");
    free(path);
}

static void gzip_corrupt(void **state)
{
    char *path = put(*state, "train.csv", "\x1f\x8b\x08\0\0\0\0\0\0\x03\xff\xff\xff\xff\xff\xff\xff\xff", 18);
    open_bad(&(struct wk_data_spec){.kind = WK_CSV, .path = path}, path, "invalid block type");
    free(path);
}

static void a_folder_is_no_file(void **state)
{
    open_bad(&(struct wk_data_spec){.kind = WK_CSV, .path = *state}, *state, "directory");
}

// CSV.

static struct wk_data *open_csv(const char *folder, const char *train, const char *test, bool as_labels)
{
    char *a = put(folder, "train.csv", train, strlen(train));
    char *b = test ? put(folder, "test.csv", test, strlen(test)) : NULL;
    struct wk_data_spec spec = {.kind = WK_CSV, .path = a, .test_path = b, .labels = as_labels};
    struct wk_data *data = open_good(&spec);
    free(a);
    free(b);
    return data;
}

static void csv_same_numbers_in_many_spellings(void **state)
{
    static const char *const spelling[] = {
        "1,-2.5,0\n3e2,.5,2\n",
        "1,-2.5,0\n3e2,.5,2",
        "a,b,label\r\n1,-2.5,0\r\n3e2,.5,2\r\n\r\n",
        " 1 ,\t-2.5, 0\n+300,0.5,2.0\n\n",
        "\xef\xbb\xbf"
        "1,-2.50,0\n300,0.5,2\n",
        "\xef\xbb\xbf"
        "a,,label\n1,-2.50,0\n300,0.5,2\n",
    };
    for (size_t i = 0; i < sizeof spelling / sizeof *spelling; i++) {
        struct wk_data *data = open_csv(*state, spelling[i], NULL, true);
        const struct wk_split *split = wk_data_train(data);
        assert_int_equal(split->examples, 2);
        assert_int_equal(split->rank, 1);
        assert_int_equal(split->shape[0], 2);
        assert_int_equal(split->inputs, 2);
        assert_int_equal(split->classes, 3);
        assert_memory_equal(data->train.floats, ((float[]){1, -2.5f, 300, .5f}), 16);
        assert_memory_equal(data->train.label, ((int32_t[]){0, 2}), 8);
        assert_int_equal(wk_data_test(data)->examples, 0);
        wk_data_free(data);
    }
}

static void csv_targets_and_test_file(void **state)
{
    struct wk_data *data = open_csv(*state, "1,2,-0.5\n", "x,y,z\n3,4,1e-3\n5,6,7\n", false);
    assert_int_equal(wk_data_train(data)->examples, 1);
    assert_int_equal(wk_data_test(data)->examples, 2);
    assert_int_equal(wk_data_test(data)->targets, 1);
    assert_memory_equal(data->train.target, ((float[]){-.5f}), 4);
    assert_memory_equal(data->test.floats, ((float[]){3, 4, 5, 6}), 16);
    assert_memory_equal(data->test.target, ((float[]){1e-3f, 7}), 8);
    wk_data_free(data);
}

static void csv_bad_files(void **state)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "is empty"},
        {"\xef\xbb\xbf\n", "is empty"},
        {"1,2..5,0\n1,2,0\n", "line 1, field 2 is \"2..5\", expected a number as in field 1, or names alone"},
        {"x,y,0\n1,2,0\n", "line 1, field 1 is \"x\", expected a number as in field 3"},
        {"1,,0\n1,2,0\n", "line 1, field 2 is empty"},
        {"\n\n", "is empty"},
        {"a,b,c\n", "only a header line"},
        {"1\n2\n", "line 1 has one field"},
        {"1,2,0\n1,2\n", "line 2 has 2 fields, expected 3"},
        {"1,2,0\n\n1,2,0\n", "line 2 has 1 fields, expected 3"},
        {"a,b,c\n1,2,3,4\n", "line 2 has 4 fields, expected 3"},
        {"1,2,0\n1,,0\n", "line 2, field 2 is empty"},
        {"1, ,0\n", "line 1, field 2 is empty"},
        {"1,2,0\n1,nan,0\n", "line 2, field 2 is \"nan\", expected a finite number"},
        {"1,-inf,0\n", "line 1, field 2 is \"-inf\""},
        {"1,1e39,0\n", "line 1, field 2 is \"1e39\""},
        {"a,b,c\n1,2,0\n1,2x,0\n", "line 3, field 2 is \"2x\""},
        {"1,2,0\n1,\x01\xff,0\n", "line 2, field 2 is \"??\""},
        {"1,2,0\n1,2,-1\n", "line 2, field 3: label -1 is not a class number"},
        {"1,2,0\n1,2,1.5\n", "line 2, field 3: label 1.5 is not"},
        {"1,2,2147483647\n", "line 1, field 3: label 2147483647 is not"},
        {"1,2,0\n1,2,\n", "line 2, field 3 is empty"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *path = put(*state, "train.csv", bad[i].text, strlen(bad[i].text));
        open_bad(&(struct wk_data_spec){.kind = WK_CSV, .path = path, .labels = true}, path, bad[i].message);
        free(path);
    }
    open_bad(&(struct wk_data_spec){.kind = WK_CSV, .path = "/nowhere/train.csv"}, "/nowhere/train.csv",
             "No such file");
}

static void csv_field_longer_than_a_number(void **state)
{
    char text[200];
    snprintf(text, sizeof text, "1,2\n%0100d,3\n", 1);
    char *path = put(*state, "train.csv", text, strlen(text));
    open_bad(&(struct wk_data_spec){.kind = WK_CSV, .path = path}, "line 2, field 1", "expected a finite number");
    free(path);
}

// npy.

// A file of version 1 (2, 3: 32-bit length) with this dict and these elements.
static char *put_npy(const char *folder, const char *name, int version, const char *dict, const void *elements,
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

static void npy_bytes_and_labels_of_every_type(void **state)
{
    const struct {
        const char *dict;
        const void *elements;
        size_t size;
    } y[] = {
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }  \n", (uint8_t[]){3, 1}, 2},
        {"{'descr': '|i1', 'fortran_order': False, 'shape': (2,)}", (int8_t[]){3, 1}, 2},
        {"{'shape': (2, 1), 'fortran_order': False, 'descr': '<u2'}", (uint16_t[]){3, 1}, 4},
        {"{'descr':'<i2','fortran_order':False,'shape':(2,)}", (int16_t[]){3, 1}, 4},
        {"{'descr': '<u4', 'fortran_order': False, 'shape': (2,)}", (uint32_t[]){3, 1}, 8},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}", (int32_t[]){3, 1}, 8},
        {"{'descr': '<u8', 'fortran_order': False, 'shape': (2,)}", (uint64_t[]){3, 1}, 16},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}", (int64_t[]){3, 1}, 16},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", (float[]){3, 1}, 8},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}", (double[]){3, 1}, 16},
    };
    char *x =
        put_npy(*state, "x.npy", 2, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2, 1)}", "\0\1\2\xff", 4);
    for (size_t i = 0; i < sizeof y / sizeof *y; i++) {
        char *path = put_npy(*state, "y.npy", (int)i % 3 + 1, y[i].dict, y[i].elements, y[i].size);
        struct wk_data *data = open_good(&(struct wk_data_spec){.kind = WK_NPY, .x = x, .y = path, .labels = true});
        assert_int_equal(wk_data_train(data)->examples, 2);
        assert_int_equal(wk_data_train(data)->rank, 2);
        assert_int_equal(wk_data_train(data)->inputs, 2);
        assert_int_equal(wk_data_train(data)->classes, 4);
        assert_memory_equal(data->train.bytes, "\0\1\2\xff", 4);
        assert_memory_equal(data->train.label, ((int32_t[]){3, 1}), 8);
        wk_data_free(data);
        free(path);
    }
    free(x);
}

static void npy_negative_targets_of_every_type(void **state)
{
    const struct {
        const char *descr;
        const void *elements;
        size_t size;
    } y[] = {
        {"|i1", (int8_t[]){-3, -1}, 2},   {"<i2", (int16_t[]){-3, -1}, 4}, {"<i4", (int32_t[]){-3, -1}, 8},
        {"<i8", (int64_t[]){-3, -1}, 16}, {"<f4", (float[]){-3, -1}, 8},   {"<f8", (double[]){-3, -1}, 16},
    };
    char *x = put_npy(*state, "x.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 1)}", "x", 1);
    for (size_t i = 0; i < sizeof y / sizeof *y; i++) {
        char *dict = ps_printf("{'descr': '%s', 'fortran_order': False, 'shape': (1, 2)}", y[i].descr);
        char *path = put_npy(*state, "y.npy", 3, dict, y[i].elements, y[i].size);
        struct wk_data *data = open_good(&(struct wk_data_spec){.kind = WK_NPY, .x = x, .y = path});
        assert_int_equal(wk_data_train(data)->targets, 2);
        assert_memory_equal(data->train.target, ((float[]){-3, -1}), 8);
        wk_data_free(data);
        free(path);
        free(dict);
    }
    free(x);
}

static void npy_float_x_and_test_data(void **state)
{
    char *x = put_npy(*state, "x.npy", 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2)}",
                      (double[]){.1, -2}, 16);
    char *y = put_npy(*state, "y.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", "\5", 1);
    char *test = put_npy(*state, "xt.npy.gz", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2)}",
                         (float[]){3, 4}, 8);
    struct wk_data *data =
        open_good(&(struct wk_data_spec){.kind = WK_NPY, .x = x, .y = y, .x_test = test, .y_test = y, .labels = true});
    assert_memory_equal(data->train.floats, ((float[]){.1f, -2}), 8);
    assert_memory_equal(data->test.floats, ((float[]){3, 4}), 8);
    assert_int_equal(data->test.label[0], 5);
    wk_data_free(data);
    free(x);
    free(y);
    free(test);
}

// Files of 4 bytes of elements, as x or as y beside an x of two examples.
static const struct {
    bool y;
    const char *dict, *message;
} bad_npy[] = {
    {0, "", "expected '{'"},
    {0, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2)}", "fortran_order of False"},
    {0, "{'descr': '<c8', 'fortran_order': False, 'shape': (2, 1)}", "byte 10 of the header dict: expected a descr"},
    {0, "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 1)}", "its elements are of type f2"},
    {0, "{'descr': '>f4', 'fortran_order': False, 'shape': (1, 1)}", "expected a descr"},
    {0, "{'descr': '|u1', 'shape': (2, 2)}", "the next of 'descr', 'fortran_order' and 'shape'"},
    {0, "{'descr': '|u1', 'descr': '|u1', 'shape': (2, 2)}", "each once"},
    {0, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2), 'more': 1}", "'}' after the three keys"},
    {0, "{'descr': '|u1' 'fortran_order': False, 'shape': (2, 2)}", "',' and the next of"},
    {0, "{'descr' '|u1', 'fortran_order': False, 'shape': (2, 2)}", "':' after a key"},
    {0, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2)} x", "blanks up to its end"},
    {0, "{'descr': '|u1', 'fortran_order': False, 'shape': 4}", "a shape such as"},
    {0, "{'descr': '|u1', 'fortran_order': False, 'shape': (2 2)}", "',' or ')'"},
    {0, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, -2)}", "a dimension that"},
    {0, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2", "',' or ')'"},
    {0, "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 99999999999999999999)}", "a dimension that"},
    {0, "{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,4)}", "at most 8"},
    {0, "{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "overflow"},
    {0, "{'descr': '|u1', 'fortran_order': False, 'shape': (0, 4)}", "dimension 0 is 0"},
    {0, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3)}", "4 bytes follow the header, expected 6"},
    {0, "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 3)}", "4 bytes follow the header, expected 3"},
    {0, "{'descr': '|u1', 'fortran_order': False, 'shape': (4,)}", "rank 1"},
    {0, "{'descr': '|i1', 'fortran_order': False, 'shape': (2, 2)}", "x is of type i1"},
    {0, "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 1)}", "x is of type u2"},
    {0, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1)}", "element 0 of example 0 is"},
    {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4,)}", "y has 4 rows, expected 2"},
    {1, "{'descr': '<i4', 'fortran_order': False, 'shape': ()}", "y has 1 rows, expected 2"},
    {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2)}", "2 elements per example"},
    {1, "{'descr': '<i2', 'fortran_order': False, 'shape': (2,)}", "row 0: label -1 is not a class number"},
};

static void npy_bad_files(void **state)
{
    char *good = put_npy(*state, "x.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1)}", "xy", 2);
    for (size_t i = 0; i < sizeof bad_npy / sizeof *bad_npy; i++) {
        char *bad = put_npy(*state, "bad.npy", 1, bad_npy[i].dict, "\xff\xff\xff\xff", 4);
        struct wk_data_spec spec = {
            .kind = WK_NPY, .x = bad_npy[i].y ? good : bad, .y = bad_npy[i].y ? bad : good, .labels = true};
        open_bad(&spec, bad, bad_npy[i].message);
        free(bad);
    }
    free(good);
}

static void npy_bad_preamble(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *message;
    } bad[] = {
        {"", 0, "does not begin with"},
        {"\x93NUMPX\1\0\2\0{}", 12, "does not begin with"},
        {"\x93NUMPY\4\0\2\0\0\0{}", 14, "version 4"},
        {"\x93NUMPY\1\0\2", 9, "inside its header"},
        {"\x93NUMPY\1\0\3\0{}", 12, "inside its header (expected 13"},
        {"\x93NUMPY\2\0\xff\xff\xff\xff{}", 14, "inside its header"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *path = put(*state, "x.npy", bad[i].bytes, bad[i].size);
        open_bad(&(struct wk_data_spec){.kind = WK_NPY, .x = path, .y = path}, path, bad[i].message);
        free(path);
    }
}

// Digits. They are drawn when first needed.

static void draw_all(const struct wk_data *data)
{
    for (uint64_t i = 0; i < wk_data_train(data)->examples; i++)
        wk_part_need(&data->train, i);
    for (uint64_t i = 0; i < wk_data_test(data)->examples; i++)
        wk_part_need(&data->test, i);
}

static void digits_are_the_same_bytes_everywhere(void **state)
{
    (void)state;
    struct wk_data_spec spec = {
        .kind = WK_DIGITS, .train_examples = 500, .test_examples = 50, .seed = 1, .labels = true};
    struct wk_data *data = open_good(&spec);
    assert_int_equal(wk_data_train(data)->inputs, 784);
    assert_int_equal(wk_data_train(data)->classes, 10);
    draw_all(data);
    assert_int_equal(crc32(0, data->train.bytes, 500 * 784), 0xc1394654);
    assert_int_equal(crc32(0, data->test.bytes, 50 * 784), 0x6f4099b3);
    assert_int_equal(crc32(0, (const uint8_t *)data->train.label, 500 * 4), 0x798b5984);
    wk_data_free(data);
}

static void digits_depend_on_seed_and_example_alone(void **state)
{
    uint8_t a[WK_DIGIT_PIXELS], b[WK_DIGIT_PIXELS];
    (void)state;
    struct wk_data *data =
        open_good(&(struct wk_data_spec){.kind = WK_DIGITS, .train_examples = 3, .test_examples = 1, .seed = 9});
    draw_all(data);
    wk_digit_draw(9, 2, a);
    assert_memory_equal(a, data->train.bytes + 2 * WK_DIGIT_PIXELS, WK_DIGIT_PIXELS);
    wk_digit_draw(8, 2, b);
    assert_memory_not_equal(a, b, WK_DIGIT_PIXELS);
    wk_digit_draw(9, 0, a);
    assert_memory_not_equal(a, data->test.bytes, WK_DIGIT_PIXELS);
    wk_data_free(data);
}

static void digits_default_sizes_and_balance(void **state)
{
    int count[10] = {0};
    (void)state;
    struct wk_data *data = open_good(&(struct wk_data_spec){.kind = WK_DIGITS, .labels = true});
    assert_int_equal(wk_data_train(data)->examples, 20000);
    assert_int_equal(wk_data_test(data)->examples, 2000);
    draw_all(data);
    for (int i = 0; i < 20000; i++)
        count[data->train.label[i]]++;
    for (int i = 0; i < 10; i++)
        assert_in_range(count[i], 1830, 2170);  // 2,000, four standard deviations of 42
    wk_data_free(data);
}

static void digits_too_many(void **state)
{
    (void)state;
    open_bad(&(struct wk_data_spec){.kind = WK_DIGITS, .train_examples = UINT64_MAX}, "at most 4294967296", NULL);
}

// Shuffle.

static void shuffle_is_a_permutation(void **state)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000, 1024, 1025, 60000};
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            uint8_t *seen = ps_alloc(sizes[k]);
            for (uint64_t i = 0; i < sizes[k]; i++) {
                uint64_t to = wk_shuffle(42, epoch, sizes[k], i);
                assert_true(to < sizes[k]);
                assert_false(seen[to]);
                seen[to] = 1;
            }
            free(seen);
        }
}

static int same_places(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t other_seed, uint64_t other_epoch)
{
    int same = 0;
    for (uint64_t i = 0; i < n; i++)
        same += wk_shuffle(seed, epoch, n, i) == wk_shuffle(other_seed, other_epoch, n, i);
    return same;
}

// Two random permutations agree in one place on average, whatever n is.
static void shuffle_differs_between_epochs_and_seeds(void **state)
{
    (void)state;
    assert_int_equal(same_places(60000, 1, 0, 1, 0), 60000);
    assert_in_range(same_places(60000, 1, 0, 1, 1), 0, 8);
    assert_in_range(same_places(60000, 1, 0, 2, 0), 0, 8);
    assert_in_range(same_places(1000, 1, 5, 1, 6), 0, 8);
    assert_in_range(same_places(1000, 1, 5, UINT64_C(1) << 40, 5), 0, 8);
}

// Each of three places holds each of three examples in about a third of the epochs.
static void shuffle_of_few_is_fair(void **state)
{
    int count[3][3] = {{0}};
    (void)state;
    for (uint64_t epoch = 0; epoch < 3000; epoch++)
        for (uint64_t i = 0; i < 3; i++)
            count[i][wk_shuffle(7, epoch, 3, i)]++;
    for (int i = 0; i < 9; i++)
        assert_in_range(count[i / 3][i % 3], 870, 1130);  // five standard deviations of 26
}

static void shuffle_of_very_many(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100; i++) {
        assert_true(wk_shuffle(1, 2, (UINT64_C(1) << 40) + 1, i) <= UINT64_C(1) << 40);
        assert_int_not_equal(wk_shuffle(1, 2, UINT64_MAX, i), wk_shuffle(1, 2, UINT64_MAX, i + 1));
    }
}

// Feed.

enum { FEED_EXAMPLES = 50, ROWS = 8, PER_EPOCH = (FEED_EXAMPLES + ROWS - 1) / ROWS, BATCHES = 2 * PER_EPOCH };

static struct wk_data *feed_digits(bool as_labels)
{
    return open_good(&(struct wk_data_spec){.kind = WK_DIGITS,
                                            .train_examples = FEED_EXAMPLES,
                                            .test_examples = 7,
                                            .scale = 1.0 / 255,
                                            .seed = 3,
                                            .labels = as_labels});
}

static struct wk_feed *feed_of(const struct wk_data *data, bool test, int rows, bool shuffle)
{
    struct ps_error e = {0};
    struct wk_feed *feed = NULL;
    if (wk_feed_create(data, test, rows, shuffle, 11, &feed, &e) != PS_OK)
        fail_msg("%s", e.text);
    return feed;
}

static void check_batch(const struct nn_batch *b, const struct wk_part *part, bool shuffle, uint64_t epoch,
                        uint64_t first, int rows)
{
    size_t inputs = part->split.inputs;
    const float *x = b->input[0], *target = b->target[0];
    const int32_t *label = b->target[0];
    assert_int_equal(b->rows, rows);
    for (int i = 0; i < rows; i++) {
        uint64_t at = first + (uint64_t)i, n = part->split.examples;
        uint64_t example = shuffle ? wk_shuffle(11, epoch, n, at) : at;
        assert_int_equal(b->example[i], example);
        for (size_t j = 0; j < inputs; j++)
            assert_true(x[(size_t)i * inputs + j] == (float)part->bytes[example * inputs + j] / 255);
        if (part->label)
            assert_int_equal(label[i], part->label[example]);
        else
            assert_true(target[i] == part->target[example]);
    }
}

static uint64_t batch_first(int batch)
{
    return (uint64_t)(batch % PER_EPOCH * ROWS);
}

static int batch_rows(int batch)
{
    return batch % PER_EPOCH == PER_EPOCH - 1 ? FEED_EXAMPLES - (PER_EPOCH - 1) * ROWS : ROWS;
}

static void request_batch(struct wk_feed *feed, int batch)
{
    wk_feed_request(feed, (uint64_t)(batch / PER_EPOCH), batch_first(batch), batch_rows(batch));
}

// Two epochs, always as far ahead as allowed; the last batch of an epoch has 2 rows. A batch stays as it is
// while the thread makes those after it.
static void check_feed(bool as_labels, bool shuffle)
{
    struct wk_data *data = feed_digits(as_labels);
    struct wk_feed *feed = feed_of(data, false, ROWS, shuffle);
    for (int taken = 0, asked = 0; taken < BATCHES; taken++) {
        while (asked < BATCHES && asked < taken + WK_FEED_AHEAD)
            request_batch(feed, asked++);
        const struct nn_batch *b = wk_feed_take(feed);
        if (asked < BATCHES)
            request_batch(feed, asked++);
        usleep(2000);
        check_batch(b, &data->train, shuffle, (uint64_t)(taken / PER_EPOCH), batch_first(taken), batch_rows(taken));
    }
    wk_feed_free(feed);
    wk_data_free(data);
}

static void feed_in_order(void **state)
{
    (void)state;
    check_feed(true, false);
}

static void feed_shuffled(void **state)
{
    (void)state;
    check_feed(true, true);
}

static void feed_targets(void **state)
{
    (void)state;
    check_feed(false, true);
}

static void feed_of_test_data(void **state)
{
    (void)state;
    struct wk_data *data = feed_digits(true);
    struct wk_feed *feed = feed_of(data, true, 100, false);
    wk_feed_request(feed, 0, 0, 7);
    check_batch(wk_feed_take(feed), &data->test, false, 0, 0, 7);
    wk_feed_free(feed);
    wk_data_free(data);
}

static void feed_of_floats(void **state)
{
    struct wk_data *data = open_csv(*state, "1,2,0\n3,4,1\n5,6,2\n", NULL, true);
    struct wk_feed *feed = feed_of(data, false, 2, false);
    wk_feed_request(feed, 0, 1, 2);
    const struct nn_batch *b = wk_feed_take(feed);
    assert_memory_equal(b->input[0], ((float[]){3, 4, 5, 6}), 16);
    assert_memory_equal(b->target[0], ((int32_t[]){1, 2}), 8);
    wk_feed_free(feed);
    wk_data_free(data);
}

static void check_scale(const struct wk_data_spec *spec, size_t n, const float *expected)
{
    struct wk_data *data = open_good(spec);
    struct wk_feed *feed = feed_of(data, false, 1, false);
    wk_feed_request(feed, 0, 0, 1);
    assert_memory_equal(wk_feed_take(feed)->input[0], expected, n * sizeof *expected);
    wk_feed_free(feed);
    wk_data_free(data);
}

// Bytes and floats are as they were given unless a scale is said; 1/255 of a byte is the float nearest to it.
static void feed_scales_as_asked(void **state)
{
    uint8_t bytes[256];
    float given[256], scaled[256];
    for (int i = 0; i < 256; i++) {
        bytes[i] = (uint8_t)i;
        given[i] = (float)i;
        scaled[i] = (float)i / 255;
    }
    char *y = put_npy(*state, "y.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", "\5", 1);
    char *x = put_npy(*state, "x.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 256)}", bytes, 256);
    char *f = put_npy(*state, "f.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 256)}", given, 1024);
    check_scale(&(struct wk_data_spec){.kind = WK_NPY, .x = x, .y = y}, 256, given);
    check_scale(&(struct wk_data_spec){.kind = WK_NPY, .x = x, .y = y, .scale = 1.0 / 255}, 256, scaled);
    check_scale(&(struct wk_data_spec){.kind = WK_NPY, .x = f, .y = y}, 256, given);
    check_scale(&(struct wk_data_spec){.kind = WK_NPY, .x = f, .y = y, .scale = 1.0 / 255}, 256, scaled);
    open_bad(&(struct wk_data_spec){.kind = WK_NPY, .x = x, .y = y, .x_test = f, .y_test = y, .scale = 1e37},
             "test data: element 35 of example 0 is 35, which times scale 1e+37 is no float32", NULL);
    free(x);
    free(f);
    free(y);
}

static void feed_freed_with_requests_queued(void **state)
{
    (void)state;
    struct wk_data *data = feed_digits(true);
    for (int queued = 0; queued <= WK_FEED_AHEAD; queued++) {
        struct wk_feed *feed = feed_of(data, false, FEED_EXAMPLES, true);
        for (int i = 0; i < queued; i++)
            wk_feed_request(feed, (uint64_t)i, 0, FEED_EXAMPLES);
        wk_feed_free(feed);
    }
    wk_data_free(data);
}

static void feed_needs_examples(void **state)
{
    struct ps_error e;
    struct wk_feed *feed;
    struct wk_data *data = open_csv(*state, "1,2\n", NULL, true);
    assert_int_equal(wk_feed_create(data, true, 1, false, 0, &feed, &e), PS_FAILED_PRECONDITION);
    assert_non_null(strstr(e.text, "no test data"));
    wk_data_free(data);
}

// Data against a model.

static void check_accepts_equal_shapes(void **state)
{
    static const struct ps_loss xent = PS_LOSS(.kind = PS_LOSS_SPARSE_XENT), mse = PS_LOSS(.kind = PS_LOSS_MSE);
    static const struct nn_model image = {{NN_FLOAT, 3, {28, 28, 1}}, {NN_FLOAT, 1, {10}}},
                                 flat = {{NN_FLOAT, 1, {784}}, {NN_FLOAT, 1, {10}}},
                                 first = {{NN_FLOAT, 3, {1, 28, 28}}, {NN_FLOAT, 1, {10}}},
                                 one = {{NN_FLOAT, 1, {784}}, {NN_FLOAT, 2, {1, 1}}};
    struct ps_error e;
    (void)state;
    struct wk_data *data = feed_digits(true), *targets = feed_digits(false);
    assert_int_equal(wk_data_check(data, &image, &xent, &e), PS_OK);
    assert_int_equal(wk_data_check(data, &flat, &xent, &e), PS_OK);
    assert_int_equal(wk_data_check(data, &first, &xent, &e), PS_OK);
    assert_int_equal(wk_data_check(targets, &one, &mse, &e), PS_OK);
    wk_data_free(data);
    wk_data_free(targets);
    // A line of a table for an image.
    struct wk_data *line = open_csv(*state, "1,2,3,4,0\n", NULL, true);
    assert_int_equal(wk_data_check(line, &(struct nn_model){{NN_FLOAT, 3, {2, 2, 1}}, {NN_FLOAT, 1, {10}}}, &xent, &e),
                     PS_OK);
    wk_data_free(line);
}

static void check_names_what_does_not_fit(void **state)
{
    static const struct {
        bool labels;
        struct nn_model model;
        struct ps_loss loss;
        const char *message;
    } bad[] = {
        {1,
         {{NN_FLOAT, 3, {32, 32, 3}}, {NN_FLOAT, 1, {10}}},
         PS_LOSS(.kind = PS_LOSS_SPARSE_XENT),
         "an example of the data has shape (28, 28), the model's input is (32, 32, 3)"},
        {1,
         {{NN_FLOAT, 3, {14, 56, 1}}, {NN_FLOAT, 1, {10}}},
         PS_LOSS(.kind = PS_LOSS_SPARSE_XENT),
         "an example of the data has shape (28, 28), the model's input is (14, 56, 1): expected the same, but for "
         "dimensions of 1 at the ends, or one of the two flat"},
        {1,
         {{NN_FLOAT, 1, {784}}, {NN_FLOAT, 1, {9}}},
         PS_LOSS(.kind = PS_LOSS_SPARSE_XENT),
         "label of the data is 9, but the model has 9 outputs"},
        {0, {{NN_FLOAT, 1, {784}}, {NN_FLOAT, 1, {10}}}, PS_LOSS(.kind = PS_LOSS_SPARSE_XENT), "was read as targets"},
        {1, {{NN_FLOAT, 1, {784}}, {NN_FLOAT, 1, {1}}}, PS_LOSS(.kind = PS_LOSS_MSE), "was read as class numbers"},
        {0,
         {{NN_FLOAT, 1, {784}}, {NN_FLOAT, 1, {10}}},
         PS_LOSS(.kind = PS_LOSS_MSE),
         "a target of the data has shape (), the model's output is (10,)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ps_error e;
        struct wk_data *data = feed_digits(bad[i].labels);
        assert_int_equal(wk_data_check(data, &bad[i].model, &bad[i].loss, &e), PS_FAILED_PRECONDITION);
        if (!strstr(e.text, bad[i].message))
            fail_msg("\"%s\" lacks \"%s\"", e.text, bad[i].message);
        wk_data_free(data);
    }
}

// Channels first where the model has them last, in x and in y.
static void check_refuses_equal_elements(void **state)
{
    static const struct ps_loss mse = PS_LOSS(.kind = PS_LOSS_MSE);
    static const struct nn_model last = {{NN_FLOAT, 3, {2, 3, 4}}, {NN_FLOAT, 3, {2, 1, 2}}},
                                 first = {{NN_FLOAT, 3, {4, 2, 3}}, {NN_FLOAT, 3, {2, 1, 2}}},
                                 good = {{NN_FLOAT, 3, {4, 2, 3}}, {NN_FLOAT, 3, {1, 2, 2}}};
    const float elements[24] = {0};
    struct ps_error e;
    char *x =
        put_npy(*state, "x.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4, 2, 3)}", elements, 96);
    char *y = put_npy(*state, "y.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 2)}", elements, 16);
    struct wk_data *data = open_good(&(struct wk_data_spec){.kind = WK_NPY, .x = x, .y = y});
    assert_int_equal(wk_data_check(data, &last, &mse, &e), PS_FAILED_PRECONDITION);
    assert_non_null(strstr(e.text, "an example of the data has shape (4, 2, 3), the model's input is (2, 3, 4)"));
    assert_int_equal(wk_data_check(data, &first, &mse, &e), PS_FAILED_PRECONDITION);
    assert_non_null(strstr(e.text, "a target of the data has shape (2, 2), the model's output is (2, 1, 2)"));
    assert_int_equal(wk_data_check(data, &good, &mse, &e), PS_OK);
    wk_data_free(data);
    free(x);
    free(y);
}

static void check_looks_at_test_data(void **state)
{
    struct ps_error e;
    struct nn_model model = {{NN_FLOAT, 1, {1}}, {NN_FLOAT, 1, {2}}};
    struct wk_data *data = open_csv(*state, "1,0\n2,1\n", "3,2\n", true);
    assert_int_equal(wk_data_check(data, &model, &(struct ps_loss)PS_LOSS(.kind = PS_LOSS_SPARSE_XENT), &e),
                     PS_FAILED_PRECONDITION);
    assert_non_null(strstr(e.text, "test data: the greatest label"));
    wk_data_free(data);
}

// The real MNIST: sizes, and its first labels.
static void mnist(void **state)
{
    const char *folder = getenv("PS_MNIST");
    (void)state;
    if (!folder) {
        puts("# PS_MNIST not set");
        return;
    }
    struct wk_data *data = open_good(&(struct wk_data_spec){.kind = WK_IDX, .path = folder, .labels = true});
    assert_int_equal(wk_data_train(data)->examples, 60000);
    assert_int_equal(wk_data_test(data)->examples, 10000);
    assert_int_equal(wk_data_train(data)->inputs, 784);
    assert_int_equal(wk_data_train(data)->classes, 10);
    assert_memory_equal(data->train.label, ((int32_t[]){5, 0, 4, 1, 9}), 20);
    assert_memory_equal(data->test.label, ((int32_t[]){7, 2, 1, 0, 4}), 20);
    wk_data_free(data);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(idx_plain_as_labels),
        WITH_FOLDER(idx_plain_as_targets),
        WITH_FOLDER(idx_gzip),
        WITH_FOLDER(idx_dotted),
        WITH_FOLDER(idx_dotted_gzip),
        WITH_FOLDER(idx_bad_files),
        WITH_FOLDER(idx_missing_file),
        WITH_FOLDER(idx_splits_of_different_shapes),
        WITH_FOLDER(gzip_cut_short),
        WITH_FOLDER(gzip_corrupt),
        WITH_FOLDER(a_folder_is_no_file),
        WITH_FOLDER(csv_same_numbers_in_many_spellings),
        WITH_FOLDER(csv_targets_and_test_file),
        WITH_FOLDER(csv_bad_files),
        WITH_FOLDER(csv_field_longer_than_a_number),
        WITH_FOLDER(npy_bytes_and_labels_of_every_type),
        WITH_FOLDER(npy_negative_targets_of_every_type),
        WITH_FOLDER(npy_float_x_and_test_data),
        WITH_FOLDER(npy_bad_files),
        WITH_FOLDER(npy_bad_preamble),
        cmocka_unit_test(digits_are_the_same_bytes_everywhere),
        cmocka_unit_test(digits_depend_on_seed_and_example_alone),
        cmocka_unit_test(digits_default_sizes_and_balance),
        cmocka_unit_test(digits_too_many),
        cmocka_unit_test(shuffle_is_a_permutation),
        cmocka_unit_test(shuffle_differs_between_epochs_and_seeds),
        cmocka_unit_test(shuffle_of_few_is_fair),
        cmocka_unit_test(shuffle_of_very_many),
        cmocka_unit_test(feed_in_order),
        cmocka_unit_test(feed_shuffled),
        cmocka_unit_test(feed_targets),
        cmocka_unit_test(feed_of_test_data),
        WITH_FOLDER(feed_of_floats),
        WITH_FOLDER(feed_scales_as_asked),
        cmocka_unit_test(feed_freed_with_requests_queued),
        WITH_FOLDER(feed_needs_examples),
        WITH_FOLDER(check_accepts_equal_shapes),
        WITH_FOLDER(check_refuses_equal_elements),
        cmocka_unit_test(check_names_what_does_not_fit),
        WITH_FOLDER(check_looks_at_test_data),
        cmocka_unit_test(mnist),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("data", tests, NULL, NULL);
}

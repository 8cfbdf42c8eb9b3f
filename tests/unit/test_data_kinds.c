// SPDX-License-Identifier: Apache-2.0
//
// workerd/data: CIFAR, text, TFRecord and folders of images, against good files and bad ones. What TensorFlow wrote and
// decodes is in tests/golden/data.
#include "config.h"
#include "tests/golden/data/images.h"
#include "tests/unit/data_files.h"

#include <arpa/inet.h>
#include <sys/stat.h>

#include "workerd/data/image.h"
#include "workerd/data/tfrecord.h"

static char *golden(const char *name)
{
    const char *top = getenv("top_srcdir");
    return ps_printf("%s/tests/golden/data/%s", top ? top : ".", name);
}

static uint8_t *golden_bytes(const char *name, size_t *size)
{
    struct ps_error e;
    uint8_t *bytes;
    char *path = golden(name);
    if (wk_file_read(path, SIZE_MAX, &bytes, size, &e))
        fail_msg("%s", e.text);
    free(path);
    return bytes;
}

// ---- CIFAR --------------------------------------------------------------------------------------------------------

enum { PLANE = 32 * 32, IMAGE = 3 * PLANE };

// Two records; the label bytes, then each channel's first pixels count up from first, 64 apart.
static void put_cifar(const char *folder, const char *name, const char *labels, size_t n_labels, uint8_t first)
{
    uint8_t file[2 * (2 + IMAGE)] = {0};
    size_t record = n_labels + IMAGE;
    for (size_t i = 0; i < 2; i++) {
        memcpy(file + i * record, labels + i * n_labels, n_labels);
        for (size_t c = 0; c < 3; c++)
            for (size_t p = 0; p < 10; p++)
                file[i * record + n_labels + c * PLANE + p] = (uint8_t)(first + 64 * c + p);
    }
    free(put(folder, name, file, 2 * record));
}

static void check_cifar(const struct wk_data *data, const struct wk_part *part, uint64_t example, uint8_t first)
{
    float *x = values_of(part, &part->input[0]);
    assert_int_equal(data->train.input[0].count, IMAGE);
    for (size_t p = 0; p < 10; p++)
        for (size_t c = 0; c < 3; c++)
            assert_int_equal(x[example * IMAGE + 3 * p + c], first + 64 * c + p);
    free(x);
}

static void cifar_10(void **state)
{
    char *inner = ps_printf("%s/cifar-10-batches-bin", (char *)*state);
    mkdir(inner, 0755);
    for (int i = 0; i < 5; i++) {
        char name[32], labels[2] = {(char)i, 9};
        snprintf(name, sizeof name, "data_batch_%d.bin", i + 1);
        put_cifar(i % 2 ? *state : inner, name, labels, 1, (uint8_t)(10 * i));
    }
    put_cifar(inner, "test_batch.bin", "\7\1", 1, 50);
    struct ps_job_data spec = {.kind = PS_DATA_CIFAR, .path = *state, .classes = 10};
    struct wk_data *data = open_flat(&spec, 10);
    EXPECT(&data->train, &data->train.target[0], 0, 9, 1, 9, 2, 9, 3, 9, 4, 9);
    EXPECT(&data->test, &data->test.target[0], 7, 1);
    check_cifar(data, &data->train, 1, 0);
    check_cifar(data, &data->train, 6, 30);
    check_cifar(data, &data->test, 1, 50);
    wk_data_free(data);
    free(put(*state, "data_batch_4.bin", "abc", 3));
    open_bad(&spec, 10, "data_batch_4.bin: the file has 3 bytes, expected records of 3073 as CIFAR-10 has", NULL);
    put_cifar(*state, "data_batch_4.bin", "\1\12", 1, 0);
    open_bad(&spec, 10, "data_batch_4.bin: row 1: the label is 10, expected an integer from 0 to 9", NULL);
    put_cifar(inner, "data_batch_4.bin", "\1\2", 1, 0);
    free(put(inner, "data_batch_3.bin", "", 0));
    open_bad(&spec, 10, "data_batch_3.bin: the file has 0 bytes", NULL);
    free(inner);
}

static void cifar_100(void **state)
{
    put_cifar(*state, "train.bin", "\3\143\4\0", 2, 1);
    put_cifar(*state, "test.bin", "\23\1\2\3", 2, 2);
    struct ps_job_data spec = {.kind = PS_DATA_CIFAR, .path = *state, .classes = 100};
    struct wk_data *data = open_flat(&spec, 100);
    EXPECT(&data->train, &data->train.target[0], 99, 0);
    check_cifar(data, &data->train, 1, 1);
    wk_data_free(data);
    spec.classes = 20;
    data = open_flat(&spec, 20);
    EXPECT(&data->train, &data->train.target[0], 3, 4);
    EXPECT(&data->test, &data->test.target[0], 19, 2);
    wk_data_free(data);
}

// ---- text ---------------------------------------------------------------------------------------------------------

static const struct nn_model text_model = {.input = {NN_INT32, 1, {3}}, .output = {NN_FLOAT, 2, {3, 5}}};

static void expect_text(struct ps_job_data spec, size_t n, const float *x, const float *y)
{
    struct ps_error e = {0};
    spec.kind = PS_DATA_TEXT;
    spec.window = 3;
    struct wk_data *data = open_good(&spec);
    if (wk_data_bind(data, &text_model, data_xent, &e))
        fail_msg("%s", e.text);
    expect_values(&data->train, &data->train.input[0], n, x);
    expect_values(&data->train, &data->train.target[0], n, y);
    wk_data_free(data);
}

// Characters have numbers in the order of their code points: newline, a, b, e with an accent, the clef.
static void text_of_characters(void **state)
{
    char *path = put_text(*state, "t.txt",
                          "ab\n\xc3\xa9"
                          "a\xf0\x9d\x84\x9e"
                          "ba");
    char *test = put_text(*state, "test.txt", "aaaab");
    struct ps_job_data spec = {.path = path, .test_path = test};
    expect_text(spec, 6, (float[]){1, 2, 0, 3, 1, 4}, (float[]){2, 0, 3, 1, 4, 2});
    spec.stride = 2;
    expect_text(spec, 9, (float[]){1, 2, 0, 0, 3, 1, 1, 4, 2}, (float[]){2, 0, 3, 3, 1, 4, 4, 2, 1});
    free(path);
    free(test);
}

static void text_of_words(void **state)
{
    char *words = put_text(*state, "words.txt", "the\ncat\n[UNK]\nsat\n");
    char *path = put_text(*state, "t.txt", "the cat\n\nsat  the\tdog ");
    expect_text((struct ps_job_data){.path = path, .vocabulary = words, .stride = 1}, 6, (float[]){0, 1, 3, 1, 3, 0},
                (float[]){1, 3, 0, 3, 0, 2});
    free(words);
    free(path);
}

static uint64_t numbering_of(const struct ps_job_data *spec)
{
    struct wk_data *data = open_good(spec);
    const uint64_t numbering = wk_data_numbering(data);
    wk_data_free(data);
    return numbering;
}

// A character more moves the numbers of those behind it; a vocabulary's words have theirs by their order.
static void text_numbering_is_of_tokens(void **state)
{
    char *path = put_text(*state, "t.txt", "cat act tac"), *words = put_text(*state, "w.txt", "cat\nact\ntac\n");
    struct ps_job_data letters = {.kind = PS_DATA_TEXT, .path = path, .window = 1}, by_words = letters;
    by_words.vocabulary = words;
    const uint64_t of_letters = numbering_of(&letters), of_words = numbering_of(&by_words);
    free(put_text(*state, "t.txt", "tac act cat"));
    assert_true(of_letters && of_letters == numbering_of(&letters));
    assert_true(of_words && of_words == numbering_of(&by_words));
    free(put_text(*state, "t.txt", "tac act cab"));
    assert_true(of_letters != numbering_of(&letters));
    free(put_text(*state, "t.txt", "tac act cat"));
    free(put_text(*state, "w.txt", "act\ncat\ntac\n"));
    assert_true(of_words != numbering_of(&by_words));
    free(path);
    free(words);
}

// Editors put a byte-order mark before UTF-8; errors count it.
static void text_after_a_byte_order_mark(void **state)
{
    char *words = put_text(*state, "words.txt", "\xef\xbb\xbfthe\ncat\n[UNK]\n");
    char *path = put_text(*state, "t.txt", "\xef\xbb\xbfthe cat cat the");
    char *letters = put_text(*state, "letters.txt",
                             "\xef\xbb\xbf"
                             "abba");
    char *latin = put_text(*state, "latin.txt",
                           "\xef\xbb\xbf"
                           "ab\xe9");
    expect_text((struct ps_job_data){.path = path, .vocabulary = words, .stride = 1}, 3, (float[]){0, 1, 1},
                (float[]){1, 1, 0});
    expect_text((struct ps_job_data){.path = letters, .test_path = letters}, 3, (float[]){0, 1, 1}, (float[]){1, 1, 0});
    open_bad(&(struct ps_job_data){.kind = PS_DATA_TEXT, .path = latin, .window = 3}, 5,
             "latin.txt: byte 5 is 0xe9, expected UTF-8", NULL);
    free(words), free(path), free(letters), free(latin);
}

static void text_bad_files(void **state)
{
    char *words = put_text(*state, "words.txt", "the\ncat\n"), *path = put_text(*state, "t.txt", "the cat\nthe dog\n");
    char *test = put_text(*state, "test.txt", "the Cat"), *latin = put_text(*state, "latin.txt", "caf\xe9 the");
    char *overlong = put_text(*state, "overlong.txt", "ab\xc0\x80"), *cut = put_text(*state, "cut.txt", "ab\xe2\x82");
    struct ps_job_data spec = {.kind = PS_DATA_TEXT, .path = path, .window = 3};
    spec.vocabulary = words;
    open_bad(&spec, 5, "t.txt: line 2: \"dog\" is not in the vocabulary", NULL);
    spec.vocabulary = NULL;
    spec.window = 16;
    open_bad(&spec, 5, "t.txt: 16 tokens, expected more than data.window, 16", NULL);
    spec.window = 3;
    open_bad(&spec, 5, "t.txt: row 0: the label is 7, expected an integer from 0 to 4: the model has so many classes",
             NULL);
    spec.test_path = test;
    open_bad(&spec, 10, "test.txt: byte 4: the character U+0043 is not in the training text", NULL);
    spec.path = latin;
    open_bad(&spec, 10, "latin.txt: byte 3 is 0xe9, expected UTF-8", NULL);
    spec.path = overlong;
    open_bad(&spec, 10, "overlong.txt: byte 2 is 0xc0, expected UTF-8", NULL);
    spec.path = cut;
    open_bad(&spec, 10, "cut.txt: byte 2 is 0xe2, expected UTF-8", NULL);
    free(words), free(path), free(test), free(latin), free(overlong), free(cut);
}

// ---- TFRecord -----------------------------------------------------------------------------------------------------

static char *numbers_of[] = {"numbers", "raw"}, *label_of[] = {"label"};
static struct ps_job_port numbers_port = {.name = "in", .column = numbers_of, .n = 2};

static void tfrecord_numbers_and_bytes(void **state)
{
    static const struct nn_model model = {.input = {NN_FLOAT, 1, {6}}, .output = {NN_FLOAT, 1, {2}}};
    struct ps_error e = {0};
    char *path = golden("three.tfrecord");
    (void)state;
    struct ps_job_data spec = {.kind = PS_DATA_TFRECORD, .path = path, .image_size = {2, 3}};
    struct ps_job_column skip = {.name = "image", .type = PS_COLUMN_SKIP};
    spec.columns = (struct ps_job_columns){&skip, 1};
    spec.inputs = (struct ps_job_ports){&numbers_port, 1};
    struct wk_data *data = open_good(&spec);
    if (wk_data_bind(data, &model, data_xent, &e))
        fail_msg("%s", e.text);
    EXPECT(&data->train, &data->train.input[0], .5f, 0, 0, 1, 2, 255, 1.5f, -1, 1, 1, 2, 255, 2.5f, -2, 2, 1, 2, 255);
    EXPECT(&data->train, &data->train.target[0], 0, 1, 0);
    wk_data_free(data);
    free(path);
}

static void tfrecord_says_what_does_not_fit(void **state)
{
    char *path = golden("three.tfrecord");
    struct ps_job_column of[] = {{.name = "image", .type = PS_COLUMN_SKIP},
                                 {.name = "numbers", .shape = {3}, .rank = 1}};
    struct ps_job_data spec = {.kind = PS_DATA_TFRECORD, .path = path, .columns = {of, 2}};
    (void)state;
    open_bad(&spec, 2, "three.tfrecord: feature \"numbers\" has 2 elements, expected as many as data.columns says",
             NULL);
    free(path);
}

// A file that differs in any one bit is an error, of opening or of reading an example.
static void tfrecord_notices_every_bit(void **state)
{
    struct ps_job_column skip = {.name = "image", .type = PS_COLUMN_SKIP};
    size_t size;
    uint8_t *bytes = golden_bytes("three.tfrecord", &size);
    for (size_t bit = 0; bit < 8 * size; bit += 5) {
        struct ps_error e = {0};
        struct wk_data *data = NULL;
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        char *path = put(*state, "bad.tfrecord", bytes, size);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        struct ps_job_data spec = {.kind = PS_DATA_TFRECORD, .path = path, .columns = {&skip, 1}};
        enum ps_code code = wk_data_open(&spec, NULL, 0, &data, &e);
        for (uint64_t i = 0; i < 3 && code == PS_OK; i++) {
            int32_t label;
            int column = wk_source_find(data->train.source, "label");
            code = data->train.source->class->read(data->train.source, i, (size_t)column, &label, &e);
        }
        if (code == PS_OK)
            fail_msg("bit %zu made no difference", bit);
        wk_data_free(data);
        free(path);
    }
    char *cut = put(*state, "cut.tfrecord", bytes, size - 1), *few = put(*state, "few.tfrecord", bytes, 5);
    open_bad(&(struct ps_job_data){.kind = PS_DATA_TFRECORD, .path = cut}, 2, "but the file ends after", cut);
    open_bad(&(struct ps_job_data){.kind = PS_DATA_TFRECORD, .path = few}, 2, "5 bytes are left at byte 0", few);
    free(cut);
    free(few);
    free(bytes);
}

// Features of a record, in protobuf's encoding; all of it takes less than 128 bytes.
struct record {
    uint8_t bytes[128];
    uint8_t n;
};

// value: n bytes of a string, of packed floats or of packed integers; n = 0: a list without elements.
static void record_add(struct record *r, const char *name, enum wk_feature_kind kind, const void *value, uint8_t n)
{
    const uint8_t name_n = (uint8_t)strlen(name), list = n ? n + 2 : 0;
    const uint8_t head[] = {0x0a, (uint8_t)(name_n + list + 6), 0x0a, name_n};
    const uint8_t middle[] = {0x12, (uint8_t)(list + 2), (uint8_t)(kind << 3 | 2), list, 0x0a, n};
    const size_t rest = n ? 6 : 4;
    assert_true(r->n + sizeof head + name_n + rest + n < sizeof r->bytes);
    memcpy(r->bytes + r->n, head, sizeof head);
    memcpy(r->bytes + r->n + sizeof head, name, name_n);
    memcpy(r->bytes + r->n + sizeof head + name_n, middle, rest);
    if (n)
        memcpy(r->bytes + r->n + sizeof head + name_n + rest, value, n);
    r->n = (uint8_t)(r->n + sizeof head + name_n + rest + n);
}

static void record_add_float(struct record *r, const char *name, float value)
{
    record_add(r, name, WK_FEATURE_FLOAT, &value, sizeof value);
}

static void record_add_int(struct record *r, const char *name, uint8_t value)
{
    record_add(r, name, WK_FEATURE_INT, &value, 1);
}

static char *put_records(const char *folder, const char *name, const struct record *r, size_t n)
{
    uint8_t file[1024];
    size_t size = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t length = r[i].n + 2u;
        uint8_t *data = file + size + PS_TFRECORD_HEAD;
        data[0] = 0x0a;
        data[1] = r[i].n;
        memcpy(data + 2, r[i].bytes, r[i].n);
        ps_tfrecord_frame(data, length, file + size, data + length);
        size += PS_TFRECORD_HEAD + length + PS_TFRECORD_TAIL;
    }
    return put(folder, name, file, size);
}

// Of the second example.
static void expect_unread(const struct ps_job_data *spec, const char *message)
{
    struct ps_error e = {0};
    float raw[4], to[4];
    struct wk_data *data = open_flat(spec, 2);
    if (wk_port_read(&data->train, &data->train.input[0], 1, raw, to, &e) == PS_OK)
        fail_msg("no error; expected \"%s\"", message);
    if (!strstr(e.text, message))
        fail_msg("\"%s\" lacks \"%s\"", e.text, message);
    wk_data_free(data);
}

static void tfrecord_numbers_of_another_kind(void **state)
{
    struct record r[2] = {0};
    record_add_int(&r[0], "p", 1);
    record_add_float(&r[1], "p", 2.5f);
    for (int i = 0; i < 2; i++)
        record_add_int(&r[i], "y", (uint8_t)i);
    char *ints = put_records(*state, "ints.tfrecord", r, 2);
    struct record swapped[2] = {r[1], r[0]};
    char *floats = put_records(*state, "floats.tfrecord", swapped, 2);
    expect_unread(&(struct ps_job_data){.kind = PS_DATA_TFRECORD, .path = ints},
                  "ints.tfrecord: record 1: feature \"p\" has floats, expected integers as in the first record");
    expect_unread(&(struct ps_job_data){.kind = PS_DATA_TFRECORD, .path = floats},
                  "floats.tfrecord: record 1: feature \"p\" has integers, expected floats as in the first record");
    free(ints);
    free(floats);
}

// A feature that the model does not take may differ in length between the records, or have no elements in the first.
static void tfrecord_features_that_nobody_takes(void **state)
{
    static char *x_of[] = {"x"};
    static struct ps_job_port port = {.name = "in", .column = x_of, .n = 1};
    static const struct nn_model model = {.input = {NN_FLOAT, 1, {1}}, .output = {NN_FLOAT, 1, {2}}};
    static const char *const names[] = {"a.png", "longer.png"};
    struct ps_error e = {0};
    struct record r[2] = {0};
    for (uint8_t i = 0; i < 2; i++) {
        record_add(&r[i], "file", WK_FEATURE_BYTES, names[i], (uint8_t)strlen(names[i]));
        record_add(&r[i], "none", WK_FEATURE_BYTES, "", 0);
        record_add(&r[i], "some", WK_FEATURE_FLOAT, (float[]){1}, i * 4);
        record_add_float(&r[i], "x", 1.5f * i);
        record_add_int(&r[i], "y", i);
    }
    char *path = put_records(*state, "t.tfrecord", r, 2);
    struct ps_job_data spec = {.kind = PS_DATA_TFRECORD, .path = path, .inputs = {&port, 1}};
    struct wk_data *data = open_good(&spec);
    if (wk_data_bind(data, &model, data_xent, &e))
        fail_msg("%s", e.text);
    EXPECT(&data->train, &data->train.input[0], 0, 1.5f);
    EXPECT(&data->train, &data->train.target[0], 0, 1);
    wk_data_free(data);
    free(path);
}

// The test data need the columns that the model takes, and these are as the training data's.
static void tfrecord_test_data_without_what_nobody_takes(void **state)
{
    static char *x_of[] = {"x"};
    static struct ps_job_port port = {.name = "in", .column = x_of, .n = 1};
    static const struct nn_model model = {.input = {NN_FLOAT, 1, {1}}, .output = {NN_FLOAT, 1, {2}}};
    static const struct nn_model file_model = {.input = {NN_FLOAT, 1, {5}}, .output = {NN_FLOAT, 1, {2}}};
    struct ps_error e = {0};
    struct record train = {0}, test = {0};
    record_add(&train, "file", WK_FEATURE_BYTES, "a.png", 5);
    record_add(&test, "file", WK_FEATURE_BYTES, "longer.png", 10);
    record_add_float(&train, "only", 3);
    record_add_float(&train, "x", .5f);
    record_add_float(&test, "x", 1.5f);
    record_add_int(&train, "y", 0);
    record_add_int(&test, "y", 1);
    char *path = put_records(*state, "train.tfrecord", &train, 1);
    char *test_path = put_records(*state, "test.tfrecord", &test, 1);
    struct ps_job_data spec = {.kind = PS_DATA_TFRECORD, .path = path, .test_path = test_path, .inputs = {&port, 1}};
    struct wk_data *data = open_good(&spec);
    if (wk_data_bind(data, &model, data_xent, &e))
        fail_msg("%s", e.text);
    EXPECT(&data->test, &data->test.input[0], 1.5f);
    wk_data_free(data);
    x_of[0] = "file";
    data = open_good(&spec);
    assert_int_equal(wk_data_bind(data, &file_model, data_xent, &e), PS_INVALID_ARGUMENT);
    assert_string_equal(e.text, "test data: file of an example has shape (10,), expected (5,) as in the training data");
    wk_data_free(data);
    spec.inputs.n = 0;
    open_bad(&spec, 2, "test data: no column \"only\", which the training data have", NULL);
    free(path);
    free(test_path);
}

// ---- images -------------------------------------------------------------------------------------------------------

static void expect_image(const char *name, enum ps_color color, const unsigned char *expected, size_t n)
{
    struct ps_error e = {0};
    struct wk_image image;
    size_t size;
    uint64_t shape[2];
    uint8_t *bytes = golden_bytes(name, &size);
    if (wk_image_size(bytes, size, shape, &e) || wk_image_decode(bytes, size, color, &image, &e))
        fail_msg("%s: %s", name, e.text);
    assert_int_equal(shape[0], 4);
    assert_int_equal(shape[1], 6);
    assert_int_equal(image.height * image.width * image.channels, n);
    for (size_t i = 0; i < n; i++)
        if (image.pixels[i] != expected[i])
            fail_msg("%s: byte %zu is %d, TensorFlow's %d", name, i, image.pixels[i], expected[i]);
    free(image.pixels);
    // Cut short anywhere, it is an error or has no pixels to offer.
    for (size_t k = 0; k < size - 12; k++) {
        uint8_t *part = memcpy(ps_alloc(k + 1), bytes, k);
        assert_int_not_equal(wk_image_decode(part, k, color, &image, &e), PS_OK);
        free(part);
    }
    free(bytes);
}

static void three_channels_of(const unsigned char *gray, uint8_t rgb[72])
{
    for (int i = 0; i < 72; i++)
        rgb[i] = gray[i / 3];
}

static void png_of_every_type(void **state)
{
    uint8_t grays[72];
    (void)state;
#ifndef HAVE_LIBPNG
    skip();
#endif
    three_channels_of(golden_gray, grays);
    expect_image("rgb.png", PS_COLOR_RGB, golden_rgb, 72);
    expect_image("palette.png", PS_COLOR_RGB, golden_rgb, 72);
    expect_image("alpha16.png", PS_COLOR_RGB, golden_rgb, 72);
    expect_image("gray.png", PS_COLOR_RGB, grays, 72);
    expect_image("gray.png", PS_COLOR_GRAYSCALE, golden_gray, 24);
}

static size_t png_chunk(uint8_t *to, const char *type, const void *data, uint32_t n)
{
    const uint32_t length = htonl(n);
    memcpy(to, &length, 4);
    memcpy(to + 4, type, 4);
    if (n)
        memcpy(to + 8, data, n);
    const uint32_t crc = htonl((uint32_t)crc32(0, to + 4, n + 4));
    memcpy(to + 8 + n, &crc, 4);
    return n + 12;
}

// Of 4 colours, and what the file says of them.
static size_t make_png(uint8_t to[256], const char *chunk, const void *data, uint32_t size)
{
    static const uint8_t header[] = {0, 0, 0, 4, 0, 0, 0, 1, 8, 2, 0, 0, 0};
    static const uint8_t row[] = {0, 200, 30, 30, 0, 255, 0, 0, 0, 255, 9, 9, 9};
    uint8_t packed[64];
    uLongf packed_n = sizeof packed;
    size_t n = 8;
    memcpy(to, "\x89PNG\r\n\x1a\n", 8);
    n += png_chunk(to + n, "IHDR", header, sizeof header);
    if (chunk)
        n += png_chunk(to + n, chunk, data, size);
    assert_int_equal(compress(packed, &packed_n, row, sizeof row), Z_OK);
    n += png_chunk(to + n, "IDAT", packed, (uint32_t)packed_n);
    return n + png_chunk(to + n, "IEND", NULL, 0);
}

// What PIL's convert("L") makes of these colours.
static void png_colours_to_gray(void **state)
{
    static const uint8_t gray[] = {81, 150, 29, 9};
    static const struct {
        const char *chunk;
        const char *data;
        uint32_t n;
    } said[] = {{NULL, NULL, 0}, {"sRGB", "\0", 1}, {"gAMA", "\0\0\xb1\x8f", 4}, {"gAMA", "\0\1\x86\xa0", 4}};
    (void)state;
#ifndef HAVE_LIBPNG
    skip();
#endif
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        uint8_t png[256];
        struct wk_image image;
        struct ps_error e = {0};
        const size_t n = make_png(png, said[i].chunk, said[i].data, said[i].n);
        if (wk_image_decode(png, n, PS_COLOR_GRAYSCALE, &image, &e))
            fail_msg("%s", e.text);
        assert_int_equal(image.channels, 1);
        assert_memory_equal(image.pixels, gray, sizeof gray);
        free(image.pixels);
    }
    uint8_t luma[24];
    for (size_t i = 0; i < 24; i++)
        luma[i] = (uint8_t)((19595 * golden_rgb[3 * i] + 38470 * golden_rgb[3 * i + 1] + 7471 * golden_rgb[3 * i + 2] +
                             0x8000) >>
                            16);
    expect_image("rgb.png", PS_COLOR_GRAYSCALE, luma, 24);
    expect_image("palette.png", PS_COLOR_GRAYSCALE, luma, 24);
    expect_image("alpha16.png", PS_COLOR_GRAYSCALE, luma, 24);
}

static void jpeg_of_every_type(void **state)
{
    uint8_t grays[72];
    (void)state;
#ifndef HAVE_LIBJPEG
    skip();
#endif
    three_channels_of(golden_jpeg_gray, grays);
    expect_image("rgb.jpg", PS_COLOR_RGB, golden_jpeg, 72);
    expect_image("gray.jpg", PS_COLOR_RGB, grays, 72);
    expect_image("gray.jpg", PS_COLOR_GRAYSCALE, golden_jpeg_gray, 24);
}

static void expect_jpeg(const uint8_t *bytes, size_t size)
{
    struct wk_image image;
    struct ps_error e = {0};
    if (wk_image_decode(bytes, size, PS_COLOR_RGB, &image, &e))
        fail_msg("%s", e.text);
    assert_memory_equal(image.pixels, golden_jpeg, 72);
    free(image.pixels);
}

// What other decoders only warn of: a version of JFIF and a colour transform of Adobe's that are not known, stray bytes
// before the end. Bytes that are missing are no such thing.
static void jpeg_with_harmless_faults(void **state)
{
    static const uint8_t adobe[] = {0xff, 0xee, 0, 14, 'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 5};
    size_t size;
    struct wk_image image;
    struct ps_error e = {0};
    (void)state;
#ifndef HAVE_LIBJPEG
    skip();
#endif
    uint8_t *bytes = golden_bytes("rgb.jpg", &size), *more = ps_alloc(size + 64);
    assert_memory_equal(bytes + 6, "JFIF", 5);
    bytes[11] = bytes[12] = 0;
    expect_jpeg(bytes, size);
    memcpy(more, bytes, size - 2);
    memset(more + size - 2, 0, 10);
    memcpy(more + size + 8, bytes + size - 2, 2);
    expect_jpeg(more, size + 10);
    bytes[6] = 'X';
    memcpy(more, bytes, 2);
    memcpy(more + 2, adobe, sizeof adobe);
    memcpy(more + 2 + sizeof adobe, bytes + 2, size - 2);
    expect_jpeg(more, size + sizeof adobe);
    memcpy(more + size - 12, bytes + size - 2, 2);
    assert_int_equal(wk_image_decode(more, size - 10, PS_COLOR_RGB, &image, &e), PS_DATA_LOSS);
    free(more);
    free(bytes);
}

static void expect_inks(const uint8_t *bytes, size_t size, const uint8_t rgb[3], uint8_t gray)
{
    for (int channels = 1; channels <= 3; channels += 2) {
        struct wk_image image;
        struct ps_error e = {0};
        if (wk_image_decode(bytes, size, channels == 1 ? PS_COLOR_GRAYSCALE : PS_COLOR_RGB, &image, &e))
            fail_msg("%s", e.text);
        assert_int_equal(image.channels, channels);
        for (int pixel = 0; pixel < 2; pixel++)
            assert_memory_equal(image.pixels + pixel * channels, channels == 1 ? &gray : rgb, (size_t)channels);
        free(image.pixels);
    }
}

// Two pixels of four inks, (200, 100, 50, 128), as libjpeg writes them: with Adobe's marker, whose last byte says that
// it is CMYK or (2) YCCK, and without it. Expected: TensorFlow's jpeg_mem.cc.
static void jpeg_of_four_inks(void **state)
{
    static const uint8_t adobe[] = {0xff, 0xee, 0, 14, 'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 0};
    static const uint8_t quantization[] = {0xff, 0xdb, 0, 67, 0};  // and 64 times 1
    static const uint8_t rest[] = {0xff, 0xc0, 0,    20, 8,    0,    1,    0,    2,    4,    'C', 0x11,
                                   0,    'M',  0x11, 0,  'Y',  0x11, 0,    'K',  0x11, 0,  // (1, 2), 4
                                   0xff, 0xc4, 0,    22, 0,    1,    1,    1,    0,    0,    0,   0,
                                   0,    0,    0,    0,  0,    0,    0,    0,    0,    10,   0,   8,  // Huffman codes
                                   0xff, 0xc4, 0,    20, 16,   1,    0,    0,    0,    0,    0,   0,
                                   0,    0,    0,    0,  0,    0,    0,    0,    0,    0,  //
                                   0xff, 0xda, 0,    14, 4,    'C',  0,    'M',  0,    'Y',  0,   'K',
                                   0,    0,    63,   0,  0x48, 0x0c, 0x3e, 0x31, 0xe9, 0xff, 0xd9};
    uint8_t bytes[256] = {0xff, 0xd8}, plain[256] = {0xff, 0xd8};
    size_t n = 2;
    (void)state;
#ifndef HAVE_LIBJPEG
    skip();
#endif
    memcpy(bytes + n, adobe, sizeof adobe), n += sizeof adobe;
    memcpy(bytes + n, quantization, sizeof quantization), n += sizeof quantization;
    memset(bytes + n, 1, 64), n += 64;
    memcpy(bytes + n, rest, sizeof rest), n += sizeof rest;
    expect_inks(bytes, n, (const uint8_t[]){100, 50, 25}, 62);
    bytes[2 + sizeof adobe - 1] = 2;
    expect_inks(bytes, n, (const uint8_t[]){82, 0, 52}, 30);
    memcpy(plain + 2, bytes + 2 + sizeof adobe, n - 2 - sizeof adobe);
    expect_inks(plain, n - sizeof adobe, (const uint8_t[]){27, 77, 102}, 65);
}

static void image_resized_as_tensorflow_does(void **state)
{
    struct wk_image image = {4, 6, 3, (uint8_t *)golden_rgb};
    uint8_t to[72];
    (void)state;
    wk_image_resize(&image, 3, 5, to);
    assert_memory_equal(to, golden_resized, 45);
    wk_image_resize(&image, 4, 6, to);
    assert_memory_equal(to, golden_rgb, 72);
}

static void put_copy(const char *folder, const char *class, const char *name, const char *from)
{
    size_t size;
    uint8_t *bytes = golden_bytes(from, &size);
    char *inner = ps_printf("%s/%s", folder, class);
    mkdir(inner, 0755);
    free(put(inner, name, bytes, size));
    free(inner);
    free(bytes);
}

// Two classes, in the order of their names; other files are not looked at.
static void images_by_class(void **state)
{
#if !defined HAVE_LIBPNG || !defined HAVE_LIBJPEG
    skip();
#endif
    char *train = ps_printf("%s/train", (char *)*state), *test = ps_printf("%s/test", (char *)*state);
    mkdir(train, 0755);
    mkdir(test, 0755);
    put_copy(train, "dog", "1.PNG", "rgb.png");
    put_copy(train, "cat", "2.jpeg", "rgb.jpg");
    put_copy(train, "cat", "10.png", "palette.png");
    put_copy(train, "cat", ".hidden.png", "rgb.png");
    put_copy(train, "cat", "notes.txt", "gray.png");
    free(put_text(train, "top.txt", "no class"));
    put_copy(test, "dog", "x.png", "gray.png");
    struct ps_job_data spec = {.kind = PS_DATA_IMAGES, .path = train, .test_path = test};
    struct wk_data *data = open_flat(&spec, 2);
    EXPECT(&data->train, &data->train.target[0], 0, 0, 1);
    EXPECT(&data->test, &data->test.target[0], 1);
    float *x = values_of(&data->train, &data->train.input[0]);
    for (int i = 0; i < 72; i++) {
        assert_int_equal(x[i], golden_rgb[i]);
        assert_int_equal(x[72 + i], golden_jpeg[i]);
    }
    free(x);
    wk_data_free(data);
    spec.image_size[0] = 3;
    spec.image_size[1] = 5;
    data = open_flat(&spec, 2);
    x = values_of(&data->train, &data->train.input[0]);
    for (int i = 0; i < 45; i++)
        assert_int_equal(x[i], golden_resized[i]);
    free(x);
    wk_data_free(data);
    put_copy(test, "bird", "x.png", "gray.png");
    open_bad(&spec, 2, "test/bird: the training data have no folder of that name", NULL);
    free(train);
    free(test);
}

// A split of 30 files of three classes in halves, drawn from the seed: the classes of the test data, and where each
// example is.
static void split_images(const char *folder, uint64_t seed, int tests[3], char where[30][64])
{
    struct ps_job_data spec = {
        .kind = PS_DATA_IMAGES, .path = (char *)folder, .image_size = {4, 6}, .validation_split = .5};
    struct ps_error e = {0};
    struct wk_data *data = NULL;
    if (wk_data_open(&spec, NULL, seed, &data, &e))
        fail_msg("%s", e.text);
    const struct wk_source *s = data->train.source;
    assert_int_equal(data->train.split.examples, 15);
    assert_int_equal(data->test.first, 15);
    memset(tests, 0, 3 * sizeof *tests);
    for (uint64_t i = 0; i < 30; i++) {
        int32_t label;
        assert_int_equal(s->class->read(s, i, 1, &label, &e), PS_OK);
        s->class->where(s, i, 0, where[i], sizeof where[i]);
        assert_int_equal(where[i][strlen(folder) + 1], "abc"[label]);
        tests[label] += i >= 15;
    }
    wk_data_free(data);
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

// Every file once, and the same for all workers of a job; not the last classes.
static void images_split_by_the_seed(void **state)
{
    char first[30][64] = {0}, again[30][64] = {0}, other[30][64] = {0}, name[16];
    int tests[3];
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "%d.png", 10 + i);
        put_copy(*state, (const char *[]){"a", "b", "c"}[i / 10], name, "rgb.png");
    }
    split_images(*state, 1, tests, first);
    for (int i = 0; i < 3; i++)
        if (tests[i] < 1 || tests[i] > 9)
            fail_msg("%d of 10 images of class %d are test data", tests[i], i);
    split_images(*state, 1, tests, again);
    assert_memory_equal(first, again, sizeof first);
    split_images(*state, 2, tests, other);
    assert_memory_not_equal(first, other, sizeof first);
    qsort(first, 30, sizeof first[0], compare_text);
    for (int i = 0; i < 30; i++)
        if (!strstr(first[i], (snprintf(name, sizeof name, "/%d.png", 10 + i), name)))
            fail_msg("%s, expected %s", first[i], name);
}

static char *log_of_images(const char *folder)
{
    return log_of(&(struct ps_job_data){.kind = PS_DATA_IMAGES, .path = (char *)folder, .image_size = {4, 6}});
}

// Who has images of another kind, or in folders of a class's folder, hears that they are not trained on, once.
static void images_that_are_passed_over(void **state)
{
    char *inner = ps_printf("%s/b", (char *)*state);
    put_copy(*state, "a", "1.png", "rgb.png");
    put_copy(*state, "a", ".hidden", "rgb.png");
    put_copy(*state, "b", "1.png", "rgb.png");
    free(put_text(*state, "labels.txt", "of no class"));
    char *log = log_of_images(*state);
    assert_string_equal(log, "");
    free(log);
    put_copy(*state, "a", "2.bmp", "rgb.png");
    log = log_of_images(*state);
    assert_non_null(
        strstr(log, "/a/2.bmp is passed over: expected .png, .jpg and .jpeg files in the folder of a class"));
    free(log);
    put_copy(inner, "more", "1.png", "rgb.png");
    log = log_of_images(*state);
    assert_non_null(strstr(log, "/a/2.bmp is passed over, and 1 more like it: expected"));
    assert_null(strchr(strchr(log, '\n') + 1, '\n'));
    free(log);
    char *empty = ps_printf("%s/0", (char *)*state);
    assert_int_equal(mkdir(empty, 0755), 0);
    log = log_of_images(*state);
    assert_non_null(strstr(log, "/0 has no .png, .jpg or .jpeg file: it counts as a class, which no example is of"));
    free(log);
    free(empty);
    free(inner);
}

// The folders of the classes number them, also one without an image.
static void images_numbering_is_of_classes(void **state)
{
    const struct ps_job_data spec = {.kind = PS_DATA_IMAGES, .path = *state, .image_size = {4, 6}};
    put_copy(*state, "a", "1.png", "rgb.png");
    put_copy(*state, "c", "1.png", "rgb.png");
    const uint64_t two = numbering_of(&spec);
    put_copy(*state, "c", "2.png", "rgb.png");
    assert_true(two && two == numbering_of(&spec));
    char *empty = ps_printf("%s/b", (char *)*state);
    assert_int_equal(mkdir(empty, 0755), 0);
    assert_true(two != numbering_of(&spec));
    free(empty);
}

static void images_bad_folders(void **state)
{
    struct ps_error e = {0};
    struct ps_job_data spec = {.kind = PS_DATA_IMAGES, .path = "/nowhere/images"};
    open_bad(&spec, 2, "/nowhere/images: No such file", NULL);
    spec.path = *state;
    open_bad(&spec, 2, "no .png, .jpg or .jpeg file, expected a folder of them for each class", *state);
    char *above = put_text(*state, "1.png", "no image");
    open_bad(&spec, 2, "its images lie in no folder of a class, expected a folder of them for each class", *state);
    unlink(above);
    free(above);
#ifdef HAVE_LIBPNG
    uint8_t to[72];
    put_copy(*state, "a", "1.png", "rgb.png");
    char *inner = ps_printf("%s/a", (char *)*state);
    free(put_text(inner, "2.png", "no image"));
    struct wk_data *data = open_flat(&spec, 2);
    assert_int_equal(wk_port_read(&data->train, &data->train.input[0], 1, to, to, &e), PS_DATA_LOSS);
    assert_non_null(strstr(e.text, "a/2.png: it is neither a PNG nor a JPEG image"));
    wk_data_free(data);
    data = open_flat(&spec, 2);
    char *gone = ps_printf("%s/2.png", inner), *text = ps_printf("%s: No such file or directory", gone);
    unlink(gone);
    assert_int_equal(wk_port_read(&data->train, &data->train.input[0], 1, to, to, &e), PS_NOT_FOUND);
    assert_string_equal(e.text, text);
    wk_data_free(data);
    free(text);
    free(gone);
    free(inner);
#endif
    (void)e;
}

// A class that cannot be looked into is not left out, which would give those after it other numbers.
static void images_class_that_cannot_be_opened(void **state)
{
    struct ps_job_data spec = {.kind = PS_DATA_IMAGES, .path = *state, .image_size = {4, 6}};
    char *loop = ps_printf("%s/b", (char *)*state), *dangling = ps_printf("%s/d", (char *)*state);
    put_copy(*state, "a", "1.png", "rgb.png");
    put_copy(*state, "c", "1.png", "rgb.png");
    assert_int_equal(symlink("/nowhere/d", dangling), 0);
    struct wk_data *data = open_good(&spec);
    assert_int_equal(data->train.source->column[1].classes, 2);
    wk_data_free(data);
    assert_int_equal(symlink("b", loop), 0);
    open_bad(&spec, 2, loop, "/b: Too many levels of symbolic links");
    free(loop);
    free(dangling);
}

static void images_in_records(void **state)
{
#ifndef HAVE_LIBPNG
    skip();
#endif
    static char *image_of[] = {"image"};
    static struct ps_job_port port = {.name = "in", .column = image_of, .n = 1};
    static const struct nn_model model = {.input = {NN_FLOAT, 3, {2, 3, 3}}, .output = {NN_FLOAT, 1, {2}}};
    struct ps_error e = {0};
    char *path = golden("three.tfrecord");
    (void)state;
    struct ps_job_data spec = {.kind = PS_DATA_TFRECORD, .path = path, .inputs = {&port, 1}};
    spec.label = (struct ps_job_port){.column = label_of, .n = 1};
    struct wk_data *data = open_good(&spec);
    if (wk_data_bind(data, &model, data_xent, &e))
        fail_msg("%s", e.text);
    float *x = values_of(&data->train, &data->train.input[0]);
    for (int n = 0; n < 3; n++)
        for (int p = 0; p < 6; p++) {
            assert_int_equal(x[18 * n + 3 * p], 10 * (p / 3) + n);
            assert_int_equal(x[18 * n + 3 * p + 1], 20 * (p % 3));
        }
    free(x);
    wk_data_free(data);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(cifar_10),
        WITH_FOLDER(cifar_100),
        WITH_FOLDER(text_of_characters),
        WITH_FOLDER(text_of_words),
        WITH_FOLDER(text_numbering_is_of_tokens),
        WITH_FOLDER(text_after_a_byte_order_mark),
        WITH_FOLDER(text_bad_files),
        cmocka_unit_test(tfrecord_numbers_and_bytes),
        cmocka_unit_test(tfrecord_says_what_does_not_fit),
        WITH_FOLDER(tfrecord_notices_every_bit),
        WITH_FOLDER(tfrecord_numbers_of_another_kind),
        WITH_FOLDER(tfrecord_features_that_nobody_takes),
        WITH_FOLDER(tfrecord_test_data_without_what_nobody_takes),
        cmocka_unit_test(png_of_every_type),
        cmocka_unit_test(png_colours_to_gray),
        cmocka_unit_test(jpeg_of_every_type),
        cmocka_unit_test(jpeg_with_harmless_faults),
        cmocka_unit_test(jpeg_of_four_inks),
        cmocka_unit_test(image_resized_as_tensorflow_does),
        WITH_FOLDER(images_by_class),
        WITH_FOLDER(images_split_by_the_seed),
        WITH_FOLDER(images_that_are_passed_over),
        WITH_FOLDER(images_numbering_is_of_classes),
        WITH_FOLDER(images_bad_folders),
        WITH_FOLDER(images_class_that_cannot_be_opened),
        cmocka_unit_test(images_in_records),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("data_kinds", tests, NULL, NULL);
}

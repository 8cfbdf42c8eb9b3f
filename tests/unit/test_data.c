// SPDX-License-Identifier: Apache-2.0
//
// workerd/data: the drawn digits against a golden checksum, the shuffle, the feed, and data against a model. PS_MNIST
// names a folder with MNIST's four files; without it the test of the real data is empty.
#include "tests/unit/data_files.h"

#include <math.h>
#include <semaphore.h>
#include <signal.h>

#include "workerd/data/source.h"

// Digits. They are drawn when first needed.

// All examples of a column, as they are read; to be freed.
static void *column_of(const struct wk_part *part, const char *name)
{
    const struct wk_source *s = part->source;
    struct ps_error e;
    int column = wk_source_find(s, name);
    assert_true(column >= 0);
    size_t bytes = s->column[column].count * wk_dtype_size(s->column[column].dtype);
    uint8_t *all = ps_alloc(s->examples * bytes);
    for (uint64_t i = 0; i < s->examples; i++)
        assert_int_equal(s->class->read(s, i, (size_t)column, all + i * bytes, &e), PS_OK);
    return all;
}

static struct wk_data *open_digits(uint64_t train, uint64_t test, uint64_t seed)
{
    struct ps_error e;
    struct wk_data *data = NULL;
    struct ps_job_data spec = {.kind = PS_DATA_DIGITS, .train_examples = train, .test_examples = test};
    assert_int_equal(wk_data_open(&spec, NULL, seed, &data, &e), PS_OK);
    return data;
}

static void digits_are_the_same_bytes_everywhere(void **state)
{
    (void)state;
    struct wk_data *data = open_digits(500, 50, 1);
    uint8_t *x = column_of(&data->train, "x"), *test = column_of(&data->test, "x"), *y = column_of(&data->train, "y");
    assert_int_equal(data->train.source->column[1].classes, 10);
    assert_int_equal(crc32(0, x, 500 * 784), 0xc1394654);
    assert_int_equal(crc32(0, test, 50 * 784), 0x6f4099b3);
    assert_int_equal(crc32(0, y, 500 * 4), 0x798b5984);
    free(x);
    free(test);
    free(y);
    wk_data_free(data);
}

static void digits_depend_on_seed_and_example_alone(void **state)
{
    uint8_t a[WK_DIGIT_PIXELS], b[WK_DIGIT_PIXELS];
    (void)state;
    struct wk_data *data = open_digits(3, 1, 9);
    uint8_t *x = column_of(&data->train, "x"), *test = column_of(&data->test, "x");
    wk_digit_draw(9, 2, a);
    assert_memory_equal(a, x + 2 * WK_DIGIT_PIXELS, WK_DIGIT_PIXELS);
    wk_digit_draw(8, 2, b);
    assert_memory_not_equal(a, b, WK_DIGIT_PIXELS);
    wk_digit_draw(9, 0, a);
    assert_memory_not_equal(a, test, WK_DIGIT_PIXELS);
    free(x);
    free(test);
    wk_data_free(data);
}

static void digits_default_sizes_and_balance(void **state)
{
    int count[10] = {0};
    (void)state;
    struct wk_data *data = open_digits(0, 0, 0);
    assert_int_equal(wk_data_train(data)->examples, 20000);
    assert_int_equal(wk_data_test(data)->examples, 2000);
    int32_t *label = column_of(&data->train, "y");
    for (int i = 0; i < 20000; i++)
        count[label[i]]++;
    for (int i = 0; i < 10; i++)
        assert_in_range(count[i], 1830, 2170);  // 2,000, four standard deviations of 42
    free(label);
    wk_data_free(data);
}

static void digits_too_many(void **state)
{
    (void)state;
    open_bad(&(struct ps_job_data){.kind = PS_DATA_DIGITS, .train_examples = UINT64_MAX}, 0, "at most 4294967296",
             NULL);
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

static struct wk_data *feed_digits(bool labels, struct ps_job_data spec)
{
    spec.kind = PS_DATA_DIGITS;
    spec.train_examples = FEED_EXAMPLES;
    spec.test_examples = spec.validation_split > 0 ? 0 : 7;
    spec.scale = spec.scale != 0 ? spec.scale : 1.0 / 255;
    return open_flat(&spec, labels ? 10 : 0);
}

static struct wk_feed *feed_of(struct wk_data *data, bool test, int rows, bool shuffle)
{
    struct ps_error e = {0};
    struct wk_feed *feed = NULL;
    if (wk_feed_create(data, test, rows, shuffle, 11, &feed, &e) != PS_OK)
        fail_msg("%s", e.text);
    return feed;
}

static const struct nn_batch *take(struct wk_feed *feed)
{
    struct ps_error e = {0};
    const struct nn_batch *b = wk_feed_take(feed, &e);
    if (!b)
        fail_msg("%s", e.text);
    return b;
}

static void check_batch(const struct nn_batch *b, const struct wk_part *part, bool labels, bool shuffle, uint64_t epoch,
                        uint64_t first, int rows)
{
    size_t inputs = part->input[0].count;
    const float *x = b->input[0], *target = b->target[0];
    const int32_t *label = b->target[0];
    assert_int_equal(b->rows, rows);
    assert_null(b->weight);
    for (int i = 0; i < rows; i++) {
        uint64_t at = first + (uint64_t)i, n = part->split.examples;
        uint64_t example = shuffle ? wk_shuffle(11, epoch, n, at) : at;
        uint8_t pixels[WK_DIGIT_PIXELS];
        int32_t drawn = wk_digit_draw(3, example + (n == 7 ? UINT64_C(1) << 32 : 0), pixels);
        assert_int_equal(b->example[i], example);
        for (size_t j = 0; j < inputs; j++)
            assert_true(x[(size_t)i * inputs + j] == (float)pixels[j] / 255);
        if (labels)
            assert_int_equal(label[i], drawn);
        else
            assert_true(target[i] == (float)drawn);
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
// while the threads make those after it.
static void check_feed(bool labels, bool shuffle, int threads)
{
    struct wk_data *data = feed_digits(labels, (struct ps_job_data){.threads = threads});
    struct wk_feed *feed = feed_of(data, false, ROWS, shuffle);
    for (int taken = 0, asked = 0; taken < BATCHES; taken++) {
        while (asked < BATCHES && asked < taken + WK_FEED_AHEAD)
            request_batch(feed, asked++);
        const struct nn_batch *b = take(feed);
        if (asked < BATCHES)
            request_batch(feed, asked++);
        usleep(2000);
        check_batch(b, &data->train, labels, shuffle, (uint64_t)(taken / PER_EPOCH), batch_first(taken),
                    batch_rows(taken));
    }
    wk_feed_free(feed);
    wk_data_free(data);
}

static void feed_in_order(void **state)
{
    (void)state;
    check_feed(true, false, 1);
}

static void feed_shuffled(void **state)
{
    (void)state;
    check_feed(true, true, 1);
}

static void feed_targets(void **state)
{
    (void)state;
    check_feed(false, true, 1);
}

static void feed_by_many_threads(void **state)
{
    (void)state;
    check_feed(true, true, 3);
    check_feed(true, false, 8);
}

static void feed_of_test_data(void **state)
{
    (void)state;
    struct wk_data *data = feed_digits(true, (struct ps_job_data){0});
    struct wk_feed *feed = feed_of(data, true, 100, false);
    wk_feed_request(feed, 0, 0, 7);
    check_batch(take(feed), &data->test, true, false, 0, 0, 7);
    wk_feed_free(feed);
    wk_data_free(data);
}

static struct wk_data *open_table(const char *folder, const char *text, struct ps_job_data spec, int classes)
{
    spec.kind = PS_DATA_CSV;
    spec.path = put(folder, "train.csv", text, strlen(text));
    struct wk_data *data = open_flat(&spec, classes);
    free(spec.path);
    return data;
}

static void feed_of_floats(void **state)
{
    struct wk_data *data = open_table(*state, "1,2,0\n3,4,1\n5,6,2\n", (struct ps_job_data){0}, 3);
    struct wk_feed *feed = feed_of(data, false, 2, false);
    wk_feed_request(feed, 0, 1, 2);
    const struct nn_batch *b = take(feed);
    assert_memory_equal(b->input[0], ((float[]){3, 4, 5, 6}), 16);
    assert_memory_equal(b->target[0], ((int32_t[]){1, 2}), 8);
    wk_feed_free(feed);
    wk_data_free(data);
}

// The weights are no input, by whichever name the job has them.
static void check_weights(char *path, char *weight)
{
    struct ps_error e;
    struct ps_job_data spec = {.kind = PS_DATA_CSV, .path = path, .weight = weight};
    struct nn_model model = {.input = {NN_FLOAT, 1, {2}}, .output = {NN_FLOAT, 1, {2}}};
    struct wk_data *data = open_good(&spec);
    assert_int_equal(wk_data_bind(data, &model, data_xent, &e), PS_OK);
    struct wk_feed *feed = feed_of(data, false, 2, false);
    wk_feed_request(feed, 0, 0, 2);
    const struct nn_batch *b = take(feed);
    assert_memory_equal(b->input[0], ((float[]){1, 2, 3, 4}), 16);
    assert_memory_equal(b->weight, ((float[]){.5f, 2}), 8);
    wk_feed_free(feed);
    wk_data_free(data);
}

static void feed_of_weights(void **state)
{
    char *path = put_text(*state, "train.csv", "a,w,b,y\n1,.5,2,0\n3,2,4,1\n");
    check_weights(path, "w");
    check_weights(path, "2");
    free(path);
}

// The targets are in the order of data.label, as data.outputs has them in its own.
static void feed_of_labels_in_their_order(void **state)
{
    char *label_of[] = {"y2", "y1"};
    struct ps_error e = {0};
    char *path = put_text(*state, "train.csv", "y1,x,y2\n1,2,3\n4,5,6\n");
    struct ps_job_data spec = {
        .kind = PS_DATA_CSV, .path = path, .test_path = path, .label = {.column = label_of, .n = 2}};
    static const struct nn_model model = {.input = {NN_FLOAT, 1, {1}}, .output = {NN_FLOAT, 1, {2}}};
    struct wk_data *data = open_good(&spec);
    if (wk_data_bind(data, &model, data_mse, &e))
        fail_msg("%s", e.text);
    EXPECT(&data->train, &data->train.input[0], 2, 5);
    EXPECT(&data->train, &data->train.target[0], 3, 1, 6, 4);
    EXPECT(&data->test, &data->test.target[0], 3, 1, 6, 4);
    wk_data_free(data);
    free(path);
}

static void expect_autoencoder(const char *path, char **in, char **out, size_t n, const float *x, const float *y)
{
    struct ps_error e = {0};
    struct ps_job_port input = {.name = "in", .column = in, .n = n}, output = {.name = "out", .column = out, .n = n};
    struct ps_job_data spec = {
        .kind = PS_DATA_CSV, .path = (char *)path, .scale = .5, .inputs = {&input, 1}, .outputs = {&output, 1}};
    struct nn_model model = {.input = {NN_FLOAT, 1, {(int64_t)n}}, .output = {NN_FLOAT, 1, {(int64_t)n}}};
    struct wk_data *data = open_good(&spec);
    if (wk_data_bind(data, &model, data_mse, &e))
        fail_msg("%s", e.text);
    expect_values(&data->train, &data->train.input[0], 2 * n, x);
    expect_values(&data->train, &data->train.target[0], 2 * n, y);
    wk_data_free(data);
}

// A target is scaled where its columns are an input's, whether they lie side by side in the file or not.
static void feed_scales_autoencoders_targets(void **state)
{
    char *abc[] = {"a", "b", "c"}, *ca[] = {"c", "a"}, *ac[] = {"a", "c"};
    char *path = put_text(*state, "train.csv", "a,b,c\n2,4,6\n8,10,12\n");
    expect_autoencoder(path, abc, abc, 1, (float[]){1, 4}, (float[]){1, 4});
    expect_autoencoder(path, abc, abc, 3, (float[]){1, 2, 3, 4, 5, 6}, (float[]){1, 2, 3, 4, 5, 6});
    expect_autoencoder(path, ca, ca, 2, (float[]){3, 1, 6, 4}, (float[]){3, 1, 6, 4});
    expect_autoencoder(path, ca, ac, 2, (float[]){3, 1, 6, 4}, (float[]){2, 6, 8, 12});
    free(path);
}

// Keras's: the last examples, in their order.
static void feed_of_a_validation_split(void **state)
{
    struct wk_data *data =
        open_table(*state, "1,0\n2,1\n3,0\n4,1\n5,0\n", (struct ps_job_data){.validation_split = .4}, 2);
    assert_int_equal(wk_data_train(data)->examples, 3);
    assert_int_equal(wk_data_test(data)->examples, 2);
    struct wk_feed *feed = feed_of(data, true, 2, false);
    wk_feed_request(feed, 0, 0, 2);
    const struct nn_batch *b = take(feed);
    assert_memory_equal(b->input[0], ((float[]){4, 5}), 8);
    assert_memory_equal(b->example, ((uint64_t[]){3, 4}), 16);
    wk_feed_free(feed);
    wk_data_free(data);
    char *path = put_text(*state, "train.csv", "1,0\n");
    struct ps_job_data spec = {.kind = PS_DATA_CSV, .path = path, .validation_split = .4};
    open_bad(&spec, 2, "data.validation_split 0.4 leaves 0 of 1 examples to train", NULL);
    spec.test_path = path;
    open_bad(&spec, 2, "but there are test data", NULL);
    free(path);
}

// Of the whole training split, one batch an epoch. To be freed.
static float *augmented(struct ps_job_data spec, uint64_t epoch, bool test)
{
    struct wk_data *data = feed_digits(true, spec);
    struct wk_feed *feed = feed_of(data, test, FEED_EXAMPLES, false);
    int rows = test ? 7 : FEED_EXAMPLES;
    wk_feed_request(feed, epoch, 0, rows);
    float *x = ps_alloc((size_t)rows * 784 * sizeof *x);
    memcpy(x, take(feed)->input[0], (size_t)rows * 784 * sizeof *x);
    wk_feed_free(feed);
    wk_data_free(data);
    return x;
}

// Is image b the image a with rows moved by top, columns by left, mirrored first?
static bool is_moved(const float *a, const float *b, bool across, long top, long left)
{
    for (long i = 0; i < 28; i++)
        for (long j = 0; j < 28; j++) {
            long from_i = i + top, from_j = j + left;
            bool inside = from_i >= 0 && from_i < 28 && from_j >= 0 && from_j < 28;
            long column = across ? 27 - from_j : from_j;
            if (b[i * 28 + j] != (inside ? a[from_i * 28 + column] : 0))
                return false;
        }
    return true;
}

// Each augmented image is the original after a mirroring or not, and one of 25 moves; all of them come up as often as
// they should, and another epoch has others.
static void feed_flips_and_crops(void **state)
{
    (void)state;
    struct ps_job_data spec = {.flip = PS_FLIP_HORIZONTAL, .crop = 2};
    float *plain = augmented((struct ps_job_data){0}, 5, false), *x = augmented(spec, 5, false);
    spec.threads = 4;
    float *again = augmented(spec, 5, false), *other = augmented(spec, 6, false);
    int mirrored = 0, moved = 0;
    for (int n = 0; n < FEED_EXAMPLES; n++) {
        int found = 0;
        for (int way = 0; way < 50; way++)
            if (is_moved(plain + n * 784, x + n * 784, way >= 25, way % 25 / 5 - 2, way % 5 - 2)) {
                found++;
                mirrored += way >= 25;
                moved += way % 25 != 12;
            }
        assert_int_equal(found, 1);
    }
    assert_in_range(mirrored, 11, 39);  // 25, four standard deviations of 3.5
    assert_in_range(moved, 42, 50);     // 48, of 1.4
    assert_memory_equal(x, again, FEED_EXAMPLES * 784 * sizeof *x);
    assert_memory_not_equal(x, other, FEED_EXAMPLES * 784 * sizeof *x);
    free(plain);
    free(x);
    free(again);
    free(other);
}

static void feed_adds_noise_to_training_data_alone(void **state)
{
    (void)state;
    struct ps_job_data spec = {.noise = .5};
    float *plain = augmented((struct ps_job_data){0}, 0, false), *x = augmented(spec, 0, false);
    float *plain_test = augmented((struct ps_job_data){0}, 0, true), *test = augmented(spec, 0, true);
    double sum = 0, squares = 0;
    enum { N = FEED_EXAMPLES * 784 };
    for (int i = 0; i < N; i++) {
        double d = (double)x[i] - (double)plain[i];
        sum += d;
        squares += d * d;
    }
    assert_true(sum / N > -0.0101 && sum / N < 0.0101);  // four standard deviations of 0.5 / sqrt(N)
    assert_true(squares / N > 0.243 && squares / N < 0.257);
    assert_memory_equal(plain_test, test, 7 * 784 * sizeof *test);
    free(plain);
    free(x);
    free(plain_test);
    free(test);
}

static void feed_augments_images_alone(void **state)
{
    char *path = put_text(*state, "train.csv", "1,2,0\n");
    open_bad(&(struct ps_job_data){.kind = PS_DATA_CSV, .path = path, .crop = 1}, 2,
             "data.augment: no input is an image", NULL);
    free(path);
}

static void check_scale(const struct ps_job_data *spec, size_t n, const float *expected)
{
    struct wk_data *data = open_flat(spec, 0);
    struct wk_feed *feed = feed_of(data, false, 1, false);
    wk_feed_request(feed, 0, 0, 1);
    assert_memory_equal(take(feed)->input[0], expected, n * sizeof *expected);
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
    check_scale(&(struct ps_job_data){.kind = PS_DATA_NPY, .x = x, .y = y}, 256, given);
    check_scale(&(struct ps_job_data){.kind = PS_DATA_NPY, .x = x, .y = y, .scale = 1.0 / 255}, 256, scaled);
    check_scale(&(struct ps_job_data){.kind = PS_DATA_NPY, .x = f, .y = y}, 256, given);
    check_scale(&(struct ps_job_data){.kind = PS_DATA_NPY, .x = f, .y = y, .scale = 1.0 / 255}, 256, scaled);
    open_bad(&(struct ps_job_data){.kind = PS_DATA_NPY, .x = x, .y = y, .x_test = f, .y_test = y, .scale = 1e37}, 0,
             "f.npy: row 0: element 35 is 35, which times scale 1e+37 is no float32", "test data: ");
    free(x);
    free(f);
    free(y);
}

static void feed_freed_with_requests_queued(void **state)
{
    (void)state;
    struct wk_data *data = feed_digits(true, (struct ps_job_data){.threads = 2});
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
    struct wk_data *data = open_table(*state, "1,2\n", (struct ps_job_data){0}, 3);
    assert_int_equal(wk_feed_create(data, true, 1, false, 0, &feed, &e), PS_FAILED_PRECONDITION);
    assert_non_null(strstr(e.text, "no test data"));
    wk_data_free(data);
}

// A large file is read when an example is needed: what is wrong in it is an error of that batch, and no other.
static void feed_says_what_it_cannot_read(void **state)
{
    static const char dict[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 4194305)}\n";
    const float nan = NAN;
    struct ps_error e = {0};
    char *y = put_npy(*state, "y.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4,)}", "\1\1\1\1", 4);
    char *x = put_npy(*state, "x.npy", 1, dict, "", 0);
    size_t row = 4194305 * sizeof(float), head = 10 + sizeof dict - 1;
    assert_int_equal(truncate(x, (off_t)(head + 4 * row)), 0);
    FILE *file = fopen(x, "r+");
    fseek(file, (long)(head + 2 * row + 8), SEEK_SET);
    fwrite(&nan, sizeof nan, 1, file);
    fclose(file);
    struct wk_data *data = open_flat(&(struct ps_job_data){.kind = PS_DATA_NPY, .x = x, .y = y}, 2);
    assert_null(((const struct wk_source *)data->train.source)->quick ? "in memory" : NULL);
    struct wk_feed *feed = feed_of(data, false, 2, false);
    wk_feed_request(feed, 0, 0, 2);
    wk_feed_request(feed, 0, 2, 2);
    wk_feed_request(feed, 0, 3, 1);
    assert_non_null(wk_feed_take(feed, &e));
    assert_null(wk_feed_take(feed, &e));
    assert_non_null(strstr(e.text, "x.npy: row 2: element 2 is nan, expected a finite float32"));
    assert_non_null(wk_feed_take(feed, &e));
    assert_int_equal(truncate(x, (off_t)(head + row)), 0);
    wk_feed_request(feed, 0, 1, 1);
    assert_null(wk_feed_take(feed, &e));
    assert_non_null(strstr(e.text, "x.npy: row 1: the file ends at byte"));
    wk_feed_free(feed);
    wk_data_free(data);
    free(x);
    free(y);
}

// A source that hangs in one example, as a network file system does, until it is let go.
static struct hung {
    struct wk_source_class class;
    const struct wk_source_class *of;
    sem_t read, go;
    struct wk_feed *feed;  // which stays
    struct wk_data *data;
} hung;

static enum ps_code hung_read(const struct wk_source *s, uint64_t example, size_t column, void *to, struct ps_error *e)
{
    if (example == 2) {
        sem_post(&hung.read);
        sem_wait(&hung.go);
        sem_post(&hung.go);
    }
    return hung.of->read(s, example, column, to, e);
}

// After a signal nobody waits for what does not come: neither who takes the batch nor who frees the feed.
static void feed_hears_a_signal(void **state)
{
    (void)state;
    volatile sig_atomic_t stop = 0;
    struct ps_error e = {0};
    struct wk_data *data = feed_digits(true, (struct ps_job_data){.threads = 2});
    struct wk_source *source = data->train.source;
    hung.of = source->class;
    hung.class = *source->class;
    hung.class.read = hung_read;
    source->class = &hung.class;
    sem_init(&hung.read, 0, 0);
    sem_init(&hung.go, 0, 0);
    wk_data_stop(data, &stop);
    wk_feed_free(feed_of(data, false, 2, false));
    struct wk_feed *feed = feed_of(data, false, 2, false);
    wk_feed_request(feed, 0, 0, 2);
    wk_feed_request(feed, 0, 2, 2);
    assert_non_null(take(feed));
    sem_wait(&hung.read);
    assert_false(wk_data_held(data));
    stop = SIGTERM;
    assert_null(wk_feed_take(feed, &e));
    assert_int_equal(e.code, PS_CANCELLED);
    assert_string_equal(e.text, "stopped by SIGTERM while it waited for a batch");
    wk_feed_free(feed);
    assert_true(wk_data_held(data));
    wk_data_free(data);
    hung.feed = feed;
    hung.data = data;
    sem_post(&hung.go);
}

// Data against a model.

static void check_accepts_equal_shapes(void **state)
{
    static const struct nn_model image = {.input = {NN_FLOAT, 3, {28, 28, 1}}, .output = {NN_FLOAT, 1, {10}}},
                                 flat = {.input = {NN_FLOAT, 1, {784}}, .output = {NN_FLOAT, 1, {10}}},
                                 first = {.input = {NN_FLOAT, 3, {1, 28, 28}}, .output = {NN_FLOAT, 1, {10}}},
                                 one = {.input = {NN_FLOAT, 1, {784}}, .output = {NN_FLOAT, 2, {1, 1}}};
    static const struct {
        const struct nn_model *model;
        const struct ps_loss *loss;
    } good[] = {{&image, data_xent}, {&flat, data_xent}, {&first, data_xent}, {&one, data_mse}};
    struct ps_error e;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct ps_job_data spec = {.kind = PS_DATA_DIGITS, .train_examples = 9};
        struct wk_data *data = open_good(&spec);
        assert_int_equal(wk_data_bind(data, good[i].model, good[i].loss, &e), PS_OK);
        wk_data_free(data);
    }
}

// A line of a table for an image.
static void check_takes_a_line_for_an_image(void **state)
{
    struct ps_error e;
    char *path = put_text(*state, "train.csv", "1,2,3,4,0\n");
    struct ps_job_data spec = {.kind = PS_DATA_CSV, .path = path};
    struct wk_data *line = open_good(&spec);
    assert_int_equal(wk_data_bind(line,
                                  &(struct nn_model){.input = {NN_FLOAT, 3, {2, 2, 1}}, .output = {NN_FLOAT, 1, {10}}},
                                  data_xent, &e),
                     PS_OK);
    wk_data_free(line);
    free(path);
}

static void expect_bind_error(struct ps_job_data spec, const struct nn_model *model, const struct ps_loss *loss,
                              const char *message)
{
    struct ps_error e = {0};
    struct wk_data *data = open_good(&spec);
    assert_int_not_equal(wk_data_bind(data, model, loss, &e), PS_OK);
    if (!strstr(e.text, message))
        fail_msg("\"%s\" lacks \"%s\"", e.text, message);
    wk_data_free(data);
}

static void check_names_what_does_not_fit(void **state)
{
    static const struct {
        struct nn_model model;
        const struct ps_loss *loss;
        const char *message;
    } bad[] = {
        {{.input = {NN_FLOAT, 3, {32, 32, 3}}, .output = {NN_FLOAT, 1, {10}}},
         data_xent,
         "an example of the data has shape (28, 28), the model's input is (32, 32, 3)"},
        {{.input = {NN_FLOAT, 3, {14, 56, 1}}, .output = {NN_FLOAT, 1, {10}}},
         data_xent,
         "an example of the data has shape (28, 28), the model's input is (14, 56, 1): expected the same, but for "
         "dimensions of 1 at the ends, or one of the two flat"},
        {{.input = {NN_FLOAT, 1, {784}}, .output = {NN_FLOAT, 1, {10}}},
         data_mse,
         "a target of the data has shape (), the model's output is (10,): expected the same, but for dimensions of 1 "
         "at "
         "the ends, or one of the two flat; the numbers of classes go with the loss sparse_categorical_crossentropy"},
        {{.input = {NN_FLOAT, 1, {784}}, .output = {NN_FLOAT, 2, {7, 10}}},
         data_xent,
         "a label of the data has shape (), the model's labels' shape is (7,)"},
        {{.inputs = 2, .input = {NN_FLOAT, 1, {784}}, .input2_name = "b", .output = {NN_FLOAT, 1, {10}}},
         data_xent,
         "no column for the model's input \"in\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_bind_error((struct ps_job_data){.kind = PS_DATA_DIGITS, .train_examples = 9}, &bad[i].model, bad[i].loss,
                          bad[i].message);
}

static void check_refuses_ports_the_model_lacks(void **state)
{
    static const struct nn_model model = {.input = {NN_FLOAT, 1, {784}}, .output = {NN_FLOAT, 1, {10}}};
    char *x[] = {"x"};
    struct ps_job_port port = {.name = "inn", .column = x, .n = 1};
    (void)state;
    expect_bind_error((struct ps_job_data){.kind = PS_DATA_DIGITS, .inputs = {&port, 1}}, &model, data_xent,
                      "data.inputs.inn: the model has no input of that name; its input is in");
    expect_bind_error((struct ps_job_data){.kind = PS_DATA_DIGITS, .outputs = {&port, 1}}, &model, data_xent,
                      "data.outputs.inn: the model has no output of that name; its output is out");
}

// Channels first where the model has them last, in x and in y.
static void check_refuses_equal_elements(void **state)
{
    static const struct nn_model last = {.input = {NN_FLOAT, 3, {2, 3, 4}}, .output = {NN_FLOAT, 3, {2, 1, 2}}},
                                 first = {.input = {NN_FLOAT, 3, {4, 2, 3}}, .output = {NN_FLOAT, 3, {2, 1, 2}}},
                                 good = {.input = {NN_FLOAT, 3, {4, 2, 3}}, .output = {NN_FLOAT, 3, {1, 2, 2}}};
    const float elements[24] = {0};
    struct ps_error e;
    char *x =
        put_npy(*state, "x.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4, 2, 3)}", elements, 96);
    char *y = put_npy(*state, "y.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 2)}", elements, 16);
    struct ps_job_data spec = {.kind = PS_DATA_NPY, .x = x, .y = y};
    expect_bind_error(spec, &last, data_mse,
                      "an example of the data has shape (4, 2, 3), the model's input is (2, 3, 4)");
    expect_bind_error(spec, &first, data_mse, "a target of the data has shape (2, 2), the model's output is (2, 1, 2)");
    struct wk_data *data = open_good(&spec);
    assert_int_equal(wk_data_bind(data, &good, data_mse, &e), PS_OK);
    wk_data_free(data);
    free(x);
    free(y);
}

static void check_looks_at_test_data(void **state)
{
    char *path = put_text(*state, "train.csv", "1,0\n2,1\n"), *test = put_text(*state, "test.csv", "3,1\n3,2\n");
    open_bad(&(struct ps_job_data){.kind = PS_DATA_CSV, .path = path, .test_path = test}, 2,
             "test.csv: line 2, field 2 (2): the label is 2, expected an integer from 0 to 1", "test data: ");
    free(path);
    free(test);
}

// The real MNIST: sizes, and its first labels.
static void mnist(void **state)
{
    char *folder = getenv("PS_MNIST");
    (void)state;
    if (!folder) {
        puts("# PS_MNIST not set");
        return;
    }
    struct wk_data *data = open_flat(&(struct ps_job_data){.kind = PS_DATA_IDX, .path = folder}, 10);
    assert_int_equal(wk_data_train(data)->examples, 60000);
    assert_int_equal(wk_data_test(data)->examples, 10000);
    assert_int_equal(data->train.input[0].count, 784);
    float *train = values_of(&data->train, &data->train.target[0]),
          *test = values_of(&data->test, &data->test.target[0]);
    assert_memory_equal(train, ((float[]){5, 0, 4, 1, 9}), 20);
    assert_memory_equal(test, ((float[]){7, 2, 1, 0, 4}), 20);
    free(train);
    free(test);
    wk_data_free(data);
}

// Each kind of the job file has a name and a line.
static void every_kind_is_described(void **state)
{
    (void)state;
    for (int i = 0; i < PS_DATA_KINDS; i++)
        assert_true(wk_data_kinds[i].name && strlen(wk_data_kinds[i].text) > 10);
    assert_null(wk_data_kinds[PS_DATA_KINDS].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
        cmocka_unit_test(feed_by_many_threads),
        cmocka_unit_test(feed_of_test_data),
        WITH_FOLDER(feed_of_floats),
        WITH_FOLDER(feed_of_weights),
        WITH_FOLDER(feed_of_labels_in_their_order),
        WITH_FOLDER(feed_scales_autoencoders_targets),
        WITH_FOLDER(feed_of_a_validation_split),
        cmocka_unit_test(feed_flips_and_crops),
        cmocka_unit_test(feed_adds_noise_to_training_data_alone),
        WITH_FOLDER(feed_augments_images_alone),
        WITH_FOLDER(feed_scales_as_asked),
        cmocka_unit_test(feed_freed_with_requests_queued),
        cmocka_unit_test(feed_hears_a_signal),
        WITH_FOLDER(feed_needs_examples),
        WITH_FOLDER(feed_says_what_it_cannot_read),
        cmocka_unit_test(check_accepts_equal_shapes),
        WITH_FOLDER(check_takes_a_line_for_an_image),
        WITH_FOLDER(check_refuses_equal_elements),
        cmocka_unit_test(check_names_what_does_not_fit),
        cmocka_unit_test(check_refuses_ports_the_model_lacks),
        WITH_FOLDER(check_looks_at_test_data),
        cmocka_unit_test(every_kind_is_described),
        cmocka_unit_test(mnist),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("data", tests, NULL, NULL);
}

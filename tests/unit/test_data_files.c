// SPDX-License-Identifier: Apache-2.0
//
// workerd/data: the readers of files against good and bad ones.
#include "tests/unit/data_files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/file/zip.h"

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

static void check_idx(const char *folder, int classes)
{
    struct wk_data *data = open_flat(&(struct ps_job_data){.kind = PS_DATA_IDX, .path = (char *)folder}, classes);
    const struct wk_part *part[] = {&data->train, &data->test};
    for (int i = 0; i < 2; i++) {
        assert_int_equal((i ? wk_data_test(data) : wk_data_train(data))->examples, 2);
        assert_int_equal(part[i]->source->column[0].rank, 2);
        assert_int_equal(part[i]->source->column[0].shape[1], 3);
        EXPECT(part[i], &part[i]->input[0], 0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 255);
        EXPECT(part[i], &part[i]->target[0], 7, 3);
    }
    wk_data_free(data);
}

static void idx_plain_as_labels(void **state)
{
    put_idx(*state, '-', "");
    check_idx(*state, 8);
}

static void idx_plain_as_targets(void **state)
{
    put_idx(*state, '-', "");
    check_idx(*state, 0);
}

static void idx_gzip(void **state)
{
    put_idx(*state, '-', ".gz");
    check_idx(*state, 8);
}

static void idx_dotted(void **state)
{
    put_idx(*state, '.', "");
    check_idx(*state, 8);
}

static void idx_dotted_gzip(void **state)
{
    put_idx(*state, '.', ".gz");
    check_idx(*state, 8);
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
        open_bad(&(struct ps_job_data){.kind = PS_DATA_IDX, .path = *state}, 10, bad[i].name, bad[i].message);
    }
}

static void idx_missing_file(void **state)
{
    put_idx(*state, '-', "");
    char *path = ps_printf("%s/t10k-images-idx3-ubyte", (char *)*state);
    unlink(path);
    free(path);
    open_bad(&(struct ps_job_data){.kind = PS_DATA_IDX, .path = *state}, 0, "t10k-images.idx3-ubyte", *state);
}

static void idx_splits_of_different_shapes(void **state)
{
    put_idx(*state, '-', "");
    free(put(*state, "t10k-images-idx3-ubyte", "\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x02wxyz", 20));
    open_bad(&(struct ps_job_data){.kind = PS_DATA_IDX, .path = *state}, 0, "shape (1, 2)", "expected (2, 3)");
}

static void gzip_cut_short(void **state)
{
    put_idx(*state, '-', ".gz");
    char *path = ps_printf("%s/train-images-idx3-ubyte.gz", (char *)*state);
    assert_int_equal(truncate(path, 30), 0);
    open_bad(&(struct ps_job_data){.kind = PS_DATA_IDX, .path = *state}, 0, path, "breaks off");
    free(path);
}

static void gzip_corrupt(void **state)
{
    char *path = put(*state, "train.csv", "\x1f\x8b\x08\0\0\0\0\0\0\x03\xff\xff\xff\xff\xff\xff\xff\xff", 18);
    open_bad(&(struct ps_job_data){.kind = PS_DATA_CSV, .path = path}, 0, path, "invalid block type");
    free(path);
}

// Writes what a pipe does not hold at once. A reader that has closed it is told by the end of an empty file.
static void __attribute__((noreturn)) write_to_pipe(const char *path, const void *bytes, size_t size)
{
    signal(SIGPIPE, SIG_IGN);
    const int fd = open(path, O_WRONLY);
    const bool all = write(fd, bytes, size) == (ssize_t)size;
    close(fd);
    if (!all)
        close(open(path, O_WRONLY));
    _exit(0);
}

// How often a file that is watched was closed by readers. Between two times it was opened, so that none is left out.
static size_t count_closed(int events)
{
    char buffer[4096] __attribute__((aligned(8)));
    size_t closed = 0;
    const ssize_t n = read(events, buffer, sizeof buffer);
    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *event = (const void *)(buffer + at);
        closed += (event->mask & IN_CLOSE_NOWRITE) != 0;
        at += (ssize_t)(sizeof *event + event->len);
    }
    return closed;
}

static void pipes_are_opened_once(void **state)
{
    enum { HEADER = 128, ELEMENTS = 1 << 20 };
    static const char dict[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 1048576)}";
    static uint8_t file[HEADER + ELEMENTS] = "\x93NUMPY\1\0\x76";
    char *x = ps_printf("%s/x.npy", (char *)*state);
    char *y = put_npy(*state, "y.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", "\5", 1);
    memset(file + 10, ' ', HEADER - 10);
    memcpy(file + 10, dict, strlen(dict));
    memset(file + HEADER, 7, ELEMENTS);
    assert_int_equal(mkfifo(x, 0600), 0);
    const int events = inotify_init1(IN_NONBLOCK);
    assert_true(inotify_add_watch(events, x, IN_OPEN | IN_CLOSE_NOWRITE) >= 0);
    const pid_t writer = fork();
    if (writer == 0)
        write_to_pipe(x, file, sizeof file);
    struct wk_data *data = open_flat(&(struct ps_job_data){.kind = PS_DATA_NPY, .x = x, .y = y}, 6);
    assert_int_equal(waitpid(writer, NULL, 0), writer);
    assert_int_equal(wk_data_train(data)->examples, 1);
    assert_int_equal(data->train.source->column[0].shape[0], ELEMENTS);
    assert_int_equal(count_closed(events), 1);
    close(events);
    wk_data_free(data);
    free(x);
    free(y);
}

static void a_folder_is_no_file(void **state)
{
    open_bad(&(struct ps_job_data){.kind = PS_DATA_CSV, .path = *state}, 0, *state, "directory");
}

static void fails_with(enum ps_code code, enum ps_data_kind kind, char *path)
{
    struct ps_job_data spec = {.kind = kind, .path = path, .x = path, .y = path};
    struct ps_error e = {0};
    struct wk_data *data;
    assert_int_equal(wk_data_open(&spec, NULL, 0, &data, &e), code);
    if (!strstr(e.text, path) || strstr(strstr(e.text, path) + 1, path))
        fail_msg("\"%s\": expected %s, once", e.text, path);
}

// Whether it may help to try again says the code: what starts a worker anew goes by it.
static void says_why_it_cannot_be_read(void **state)
{
    static const enum ps_data_kind kinds[] = {PS_DATA_CSV, PS_DATA_NPY, PS_DATA_NPZ, PS_DATA_TFRECORD, PS_DATA_IMAGES};
    const bool root = geteuid() == 0;
    const rlim_t none = 0;
    char *file = put_text(*state, "file", "1,2\n"), *missing = ps_printf("%s/missing", (char *)*state);
    char *beyond = ps_printf("%s/beyond", file), *closed = ps_printf("%s/closed", (char *)*state);
    struct rlimit before;
    assert_int_equal(chmod(*state, 0755), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        fails_with(PS_NOT_FOUND, kinds[i], missing);
        fails_with(PS_NOT_FOUND, kinds[i], beyond);
        assert_int_equal(mkdir(closed, 0), 0);
        assert_int_equal(root ? seteuid(65534) : 0, 0);
        fails_with(PS_PERMISSION_DENIED, kinds[i], closed);
        assert_int_equal(root ? seteuid(0) : 0, 0);
        assert_int_equal(rmdir(closed), 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){none, before.rlim_max}), 0);
        fails_with(PS_RESOURCE_EXHAUSTED, kinds[i], kinds[i] == PS_DATA_IMAGES ? *state : file);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        if (kinds[i] != PS_DATA_IMAGES)
            fails_with(PS_INVALID_ARGUMENT, kinds[i], *state);
    }
    fails_with(PS_UNAVAILABLE, PS_DATA_CSV, "/proc/self/mem");
    free(file);
    free(missing);
    free(beyond);
    free(closed);
}

// ---- CSV ----------------------------------------------------------------------------------------------------------

// The fields of "name: type" pairs, NULL at the end.
static struct ps_job_columns csv_columns(struct ps_job_column *of, size_t n)
{
    return (struct ps_job_columns){of, n};
}

static struct wk_data *open_csv(const char *folder, const char *train, const char *test, int classes,
                                struct ps_job_data spec)
{
    spec.kind = PS_DATA_CSV;
    spec.path = put(folder, "train.csv", train, strlen(train));
    spec.test_path = test ? put(folder, "test.csv", test, strlen(test)) : NULL;
    struct wk_data *data = open_flat(&spec, classes);
    free(spec.path);
    free(spec.test_path);
    return data;
}

static void csv_same_numbers_in_many_spellings(void **state)
{
    static const struct {
        const char *text, *separator;
    } spelling[] = {
        {"1,-2.5,0\n3e2,.5,2\n"},
        {"1,-2.5,0\n3e2,.5,2"},
        {"a,b,label\r\n1,-2.5,0\r\n3e2,.5,2\r\n\r\n"},
        {" 1 ,\t-2.5, 0\n+300,0.5,2.0\n\n"},
        {"\xef\xbb\xbf"
         "1,-2.50,0\n300,0.5,2\n"},
        {"\xef\xbb\xbf\"a\",,label\n1,-2.50,0\n300,0.5,2\n"},
        {"\"1\",\"-2.5\" , \"0\"\r\n3e2,\".5\",2"},
        {"\"a, or so\",\"b \"\"b\"\"\",\"and\r\na line\"\n1,-2.5,0\n3e2,.5,2\n"},
        {"1;-2.5;0\n3e2;.5;2\n", ";"},
        {"1\t-2.5\t0\n3e2\t .5\t2\n", "tab"},
        {"1 -2.5 0\n3e2 .5 2\n", " "},
    };
    for (size_t i = 0; i < sizeof spelling / sizeof *spelling; i++) {
        struct wk_data *data = open_csv(*state, spelling[i].text, NULL, 3,
                                        (struct ps_job_data){.separator = (char *)spelling[i].separator});
        EXPECT(&data->train, &data->train.input[0], 1, -2.5f, 300, .5f);
        EXPECT(&data->train, &data->train.target[0], 0, 2);
        assert_int_equal(wk_data_test(data)->examples, 0);
        wk_data_free(data);
    }
}

static void csv_targets_and_test_file(void **state)
{
    struct wk_data *data = open_csv(*state, "1,2,-0.5\n", "x,y,z\n3,4,1e-3\n5,6,7\n", 0, (struct ps_job_data){0});
    EXPECT(&data->train, &data->train.target[0], -.5f);
    EXPECT(&data->test, &data->test.input[0], 3, 4, 5, 6);
    EXPECT(&data->test, &data->test.target[0], 1e-3f, 7);
    wk_data_free(data);
}

// Words become numbers in the order in which they appear, a label in the middle is found by its name, and what is
// skipped may be anything. The test file has the training file's categories.
static void csv_categories(void **state)
{
    struct ps_job_column of[] = {{.name = "city", .type = PS_COLUMN_CATEGORY},
                                 {.name = "kind", .type = PS_COLUMN_CATEGORY},
                                 {.name = "note", .type = PS_COLUMN_SKIP}};
    char *label[] = {"kind"};
    struct wk_data *data =
        open_csv(*state, "city,kind,age,note\n\"New York, NY\",dog,3,\nOslo,cat,4,\"a\nb\"\n\"New York, NY\",cat,5,-\n",
                 "city,kind,age,note\nOslo,dog,6,x\n", 2,
                 (struct ps_job_data){.columns = csv_columns(of, 3), .label = {.column = label, .n = 1}});
    EXPECT(&data->train, &data->train.input[0], 0, 3, 1, 4, 0, 5);
    EXPECT(&data->train, &data->train.target[0], 0, 1, 1);
    EXPECT(&data->test, &data->test.input[0], 1, 6);
    EXPECT(&data->test, &data->test.target[0], 0);
    wk_data_free(data);
}

// An input of strings has the places of a column's words in the model's list; others are -1, or an error.
static void csv_words(void **state)
{
    struct nn_words *words = ps_alloc(sizeof *words + 3 * sizeof *words->word);
    const struct nn_model model = {
        2, 1, {NN_INT32, 1, {1}}, {NN_FLOAT, 1, {1}}, {NN_FLOAT, 1, {1}}, {0}, "city", "age", "out", NULL, words};
    char *path = put_text(*state, "train.csv", "city,age,y\nOslo,3,1\nParis,4,2\n\"\",5,0\n,6,1\nRome,7,0\n");
    char *test = put_text(*state, "test.csv", "city,age,y\nBonn,3,1\nRome,4,2\n");
    struct ps_job_data spec = {.kind = PS_DATA_CSV, .path = path, .test_path = test};
    struct wk_data *data = NULL;
    struct ps_error e = {0};
    words->n = 3;
    words->word[0] = "Rome";
    words->word[1] = "Oslo";
    words->word[2] = "";
    assert_int_equal(wk_data_open(&spec, &model, 0, &data, &e), PS_OK);
    assert_int_equal(wk_data_bind(data, &model, data_mse, &e), PS_OK);
    EXPECT(&data->train, &data->train.input[0], 1, -1, 2, 2, 0);
    EXPECT(&data->test, &data->test.input[0], -1, 0);
    wk_data_free(data);
    words->closed = true;
    assert_int_equal(wk_data_open(&spec, &model, 0, &data, &e), PS_INVALID_ARGUMENT);
    assert_non_null(strstr(e.text, "line 3, field 1 (city) is \"Paris\", expected one of the column's 3 categories"));
    // Words that were numbered without the model's list are none of its words.
    struct ps_job_column of[] = {{.name = "city", .type = PS_COLUMN_CATEGORY}};
    spec = (struct ps_job_data){.kind = PS_DATA_CSV, .path = test, .columns = csv_columns(of, 1)};
    assert_int_equal(wk_data_open(&spec, NULL, 0, &data, &e), PS_OK);
    assert_int_equal(wk_data_bind(data, &model, data_mse, &e), PS_FAILED_PRECONDITION);
    assert_non_null(strstr(e.text, "input \"city\" takes words, which are read from CSV; column \"city\" has numbers"));
    wk_data_free(data);
    free(words);
    free(path);
    free(test);
}

// Blanks at the ends of a field belong to its word, as RFC 4180 has it, but not to a number or to a header's name.
static void csv_words_with_blanks(void **state)
{
    struct nn_words *words = ps_alloc(sizeof *words + 4 * sizeof *words->word);
    const struct nn_model model = {
        2, 1, {NN_INT32, 1, {1}}, {NN_FLOAT, 1, {1}}, {NN_FLOAT, 1, {1}}, {0}, "city", "age", "out", NULL, words};
    static const char text[] = " age , city, y\n3,Oslo,1\n4, Oslo, 2\n 5 ,Oslo\t,0\n6,\t\"Oslo\" ,1 \n";
    struct ps_error e = {0};
    struct wk_data *data = NULL;
    char *label[] = {"y"};
    char *path = put_text(*state, "train.csv", text);
    char *ends = put_text(*state, "ends.csv", "y,age,city\n1,2,Rome \r\n1,2,Oslo\t\r\n \r\n");
    struct ps_job_data spec = {.kind = PS_DATA_CSV, .path = path, .label = {.column = label, .n = 1}};
    memcpy(words->word, (const char *[]){"Oslo", " Oslo", "Oslo\t", "Rome "}, 4 * sizeof *words->word);
    words->n = 4;
    assert_int_equal(wk_data_open(&spec, &model, 0, &data, &e), PS_OK);
    assert_int_equal(wk_data_bind(data, &model, data_mse, &e), PS_OK);
    EXPECT(&data->train, &data->train.input[0], 0, 1, 2, 0);
    EXPECT(&data->train, &data->train.input[1], 3, 4, 5, 6);
    EXPECT(&data->train, &data->train.target[0], 1, 2, 0, 1);
    wk_data_free(data);
    // At the very end of a file.
    spec.path = ends;
    words->closed = true;
    assert_int_equal(wk_data_open(&spec, &model, 0, &data, &e), PS_OK);
    assert_int_equal(wk_data_bind(data, &model, data_mse, &e), PS_OK);
    EXPECT(&data->train, &data->train.input[0], 3, 2);
    wk_data_free(data);
    words->word[3] = "Rome";
    assert_int_equal(wk_data_open(&spec, &model, 0, &data, &e), PS_INVALID_ARGUMENT);
    if (!strstr(e.text, "is \"Rome \", expected one of the column's 4 categories; the blanks at its ends belong to it"))
        fail_msg("%s", e.text);
    free(path);
    free(ends);
    free(words);
}

// Numbers of things are exact up to 32 bits where the model takes integers; floats are rounded once.
static void csv_whole_numbers(void **state)
{
    const struct nn_model model = {
        2, 1, {NN_INT32, 1, {2}}, {NN_FLOAT, 1, {1}}, {NN_FLOAT, 1, {2}}, {0}, "ids", "x", "out", NULL, NULL};
    static const int32_t ids[3][2] = {{7, 1}, {INT32_MIN, 2}, {INT32_MAX, 16777219}};
    char *path = put_text(*state, "train.csv",
                          "user,item,size,big,y\n7,1,16777217.5,3000000001,0\n-2147483648,2,1,5,16777219\n"
                          "2147483647,16777219,2,6,1\n");
    char *bad = put_text(*state, "bad.csv", "user,item,size,big,y\n16777217,1,1,1,0\n16777217.5,2,1,1,1\n");
    char *user[] = {"user", "item"}, *size[] = {"size", "big"};
    struct ps_job_port ports[] = {{.name = "ids", .column = user, .n = 2}, {.name = "x", .column = size, .n = 2}};
    struct ps_job_data spec = {.kind = PS_DATA_CSV, .path = path, .inputs = {ports, 2}};
    struct wk_data *data = NULL;
    struct ps_error e = {0};
    assert_int_equal(wk_data_open(&spec, &model, 0, &data, &e), PS_OK);
    if (wk_data_bind(data, &model, data_mse, &e))
        fail_msg("%s", e.text);
    for (uint64_t i = 0; i < 3; i++) {
        int32_t raw[2], to[2];
        assert_int_equal(wk_port_read(&data->train, &data->train.input[0], i, raw, to, &e), PS_OK);
        assert_memory_equal(to, ids[i], sizeof to);
    }
    EXPECT(&data->train, &data->train.input[1], 16777218, 3000000000.0, 1, 5, 2, 6);
    EXPECT(&data->train, &data->train.target[0], 0, 16777220, 1);
    wk_data_free(data);
    spec.path = bad;
    assert_int_equal(wk_data_open(&spec, &model, 0, &data, &e), PS_OK);
    assert_int_equal(wk_data_bind(data, &model, data_mse, &e), PS_INVALID_ARGUMENT);
    assert_non_null(
        strstr(e.text, "bad.csv: line 3, field 1 (user): the value is no integer of 32 bits, as input \"ids\" takes"));
    wk_data_free(data);
    free(path);
    free(bad);
}

static void csv_vocabulary(void **state)
{
    char *words = put_text(*state, "cities.txt", "Rome\r\nOslo\nNew York, \"NY\"");
    struct ps_job_column of[] = {{.name = "1", .type = PS_COLUMN_CATEGORY, .vocabulary = words}};
    struct wk_data *data = open_csv(*state, "Oslo,1\n\"New York, \"\"NY\"\"\",2\n", NULL, 0,
                                    (struct ps_job_data){.columns = csv_columns(of, 1)});
    EXPECT(&data->train, &data->train.input[0], 1, 2);
    wk_data_free(data);
    free(put_text(*state, "cities.txt", "Rome\nOslo\nRome \n"));
    data = open_csv(*state, "Rome,1\nRome ,2\n\"Rome \",3\nOslo,4\n", NULL, 0,
                    (struct ps_job_data){.columns = csv_columns(of, 1)});
    EXPECT(&data->train, &data->train.input[0], 0, 2, 2, 1);
    wk_data_free(data);
    // So it is with words that the file itself numbers; one of blanks alone is missing.
    free(put_text(*state, "cities.txt", "Rome\r\nOslo\nNew York, \"NY\""));
    of[0].vocabulary = NULL;
    data = open_csv(*state, "Rome,1\n Rome,2\nRome,3\n", NULL, 0, (struct ps_job_data){.columns = csv_columns(of, 1)});
    EXPECT(&data->train, &data->train.input[0], 0, 1, 0);
    wk_data_free(data);
    char *bad = put_text(*state, "bad.csv", "Oslo,1\n ,2\n");
    open_bad(&(struct ps_job_data){.kind = PS_DATA_CSV, .path = bad, .columns = csv_columns(of, 1)}, 0,
             "line 2, field 1 is empty, expected a word", bad);
    free(bad);
    of[0].vocabulary = words;
    bad = put_text(*state, "bad.csv", "Oslo,1\nParis,2\n");
    open_bad(&(struct ps_job_data){.kind = PS_DATA_CSV, .path = bad, .columns = csv_columns(of, 1)}, 0,
             "line 2, field 1 is \"Paris\", expected one of the column's 3 categories", bad);
    free(put_text(*state, "cities.txt", "Rome\nRome\n"));
    open_bad(&(struct ps_job_data){.kind = PS_DATA_CSV, .path = bad, .columns = csv_columns(of, 1)}, 0,
             "line 2 is \"Rome\" a second time", words);
    free(bad);
    free(words);
}

static const struct {
    const char *text, *message;
} bad_csv[] = {
    {"", "is empty"},
    {"\xef\xbb\xbf\n", "is empty"},
    {"1,2..5,0\n1,2,0\n", "line 1, field 2 is \"2..5\", expected a number as in field 1, or names alone"},
    {"x,y,0\n1,2,0\n", "line 1, field 1 is \"x\", expected a number as in field 3"},
    {"1,,0\n1,2,0\n", "line 1, field 2 is empty"},
    {"\n\n", "is empty"},
    {"a,b,c\n", "only a header line"},
    {"1;3\n2;4\n", "line 1 has one field, as fields end at ',' (data.separator)"},
    {"1,2,0\n1,2\n", "line 2 has 2 fields, expected 3"},
    {"1,2,0\n\n1,2,0\n", "line 2 has 1 fields, expected 3"},
    {"a,b,c\n1,2,3,4\n", "line 2 has 4 fields, expected 3"},
    {"1,2,0\n1,,0\n", "line 2, field 2 is empty"},
    {"a,age,c\n1,2,0\n1,,0\n", "line 3, field 2 (age) is empty, expected a number"},
    {"1, ,0\n", "line 1, field 2 is empty"},
    {"1,2,0\n1,nan,0\n", "line 2, field 2 is \"nan\", expected a finite number"},
    {"1,-inf,0\n", "line 1, field 2 is \"-inf\""},
    {"1,1e39,0\n", "line 1, field 2 is \"1e39\""},
    {"a,b,c\n1,2,0\n1,2x,0\n", "line 3, field 2 (b) is \"2x\", expected a finite number; words need data.columns"},
    {"1,2,0\n1,0x10,0\n", "line 2, field 2 is \"0x10\", expected a finite number; words need data.columns"},
    {"1,2,0\n1,\x01\xff,0\n", "line 2, field 2 is \"??\""},
    {"1,2,0\n1,2,-1\n", "line 2, field 3 (3): the label is -1, expected an integer from 0 to 9"},
    {"a,b,c\n\"1\",\"2\",0\n1,2,1.5\n", "line 3, field 3 (c): the label is 1.5, expected an integer from 0 to 9"},
    {"1,2,10\n",
     "line 1, field 3 (3): the label is 10, expected an integer from 0 to 9: the model has so many classes"},
    {"1,2,0\n1,2,\n", "line 2, field 3 is empty"},
    {"1,2,0\n1,\"2,0\n1,2,0\n", "line 2, field 2 opens a quote that nothing closes"},
    {"1,2,0\n1,2\"3\",0\n", "line 2, field 2 has a quote inside"},
    {"1,2,0\n1,\"2\"3,0\n", "line 2, field 2: something follows the closing quote, expected ','"},
    {"a,a,c\n1,2,3\n", "fields 1 and 2 are both called \"a\""},
};

// Names are looked up, not compared with each other: 10^10 comparisons take minutes.
static void csv_many_columns(void **state)
{
    enum { COLUMNS = 300000, WIDTH = 8 };
    char *text = ps_alloc(COLUMNS * WIDTH + 1);
    for (int i = 0; i < COLUMNS; i++)
        sprintf(text + i * WIDTH, "c%06d,", i == COLUMNS - 1 ? 4 : i);
    text[COLUMNS * WIDTH - 1] = '\n';
    char *path = put(*state, "train.csv", text, COLUMNS * WIDTH);
    open_bad(&(struct ps_job_data){.kind = PS_DATA_CSV, .path = path}, 10, path,
             "line 1: fields 5 and 300000 are both called \"c000004\"");
    free(path);
    free(text);
}

static void csv_bad_files(void **state)
{
    for (size_t i = 0; i < sizeof bad_csv / sizeof *bad_csv; i++) {
        char *path = put(*state, "train.csv", bad_csv[i].text, strlen(bad_csv[i].text));
        open_bad(&(struct ps_job_data){.kind = PS_DATA_CSV, .path = path}, 10, path, bad_csv[i].message);
        free(path);
    }
    open_bad(&(struct ps_job_data){.kind = PS_DATA_CSV, .path = "/nowhere/train.csv"}, 0, "/nowhere/train.csv",
             "No such file");
}

static void csv_bad_settings(void **state)
{
    char *path = put_text(*state, "train.csv", "a,b,c\n1,2,0\n"), *gone[] = {"gone"};
    struct ps_job_column none = {.name = "d", .type = PS_COLUMN_SKIP}, image = {.name = "b", .type = PS_COLUMN_IMAGE};
    struct ps_job_data spec = {.kind = PS_DATA_CSV, .path = path};
    spec.columns = csv_columns(&none, 1);
    open_bad(&spec, 0, "data.columns says what \"d\" is, but line 1 has no such field", path);
    spec.columns = csv_columns(&image, 1);
    open_bad(&spec, 0, "data.columns.b: expected a number, a category or skip", path);
    spec.columns.n = 0;
    spec.weight = "w";
    open_bad(&spec, 0, "data.weight: no column \"w\"; the data have the columns a, b, c", NULL);
    spec.weight = NULL;
    spec.header = PS_HEADER_NO;
    open_bad(&spec, 0, "line 1, field 1 is \"a\", expected a finite number", NULL);
    spec.header = PS_HEADER_AUTO;
    struct ps_job_column all[] = {{.name = "1", .type = PS_COLUMN_CATEGORY},
                                  {.name = "2", .type = PS_COLUMN_SKIP},
                                  {.name = "3", .type = PS_COLUMN_CATEGORY}};
    spec.columns = csv_columns(all, 3);
    free(put_text(*state, "train.csv", "odor,gill,class\na,x,e\nb,x,p\n"));
    open_bad(&spec, 0, "line 1 has words alone, as all lines may have: expected data.header: true or false", path);
    free(put_text(*state, "train.csv", "a,7,e\nb,x,p\n"));
    struct wk_data *data = open_good(&spec);
    assert_int_equal(wk_data_train(data)->examples, 2);
    wk_data_free(data);
    free(put_text(*state, "train.csv", "a,b,c\n1,2,0\n"));
    spec.columns.n = 0;
    spec.label = (struct ps_job_port){.column = gone, .n = 1};
    open_bad(&spec, 0, "data.label: no column \"gone\"; the data have the columns a, b, c", NULL);
    free(path);
}

// What it numbers, of these words as a column's categories; the other column is numbers.
static uint64_t csv_numbering(const char *folder, const char *text, char *vocabulary)
{
    struct ps_job_column category = {.name = "1", .type = PS_COLUMN_CATEGORY, .vocabulary = vocabulary};
    char *path = put_text(folder, "train.csv", text);
    struct ps_job_data spec = {.kind = PS_DATA_CSV, .path = path, .header = PS_HEADER_NO};
    spec.columns = csv_columns(&category, text[0] != '1');
    struct wk_data *data = open_good(&spec);
    const uint64_t numbering = wk_data_numbering(data);
    wk_data_free(data);
    free(path);
    return numbering;
}

// That words have other numbers is told by a hash, wherever they are from.
static void csv_numbering_is_of_words_in_their_order(void **state)
{
    const uint64_t one = csv_numbering(*state, "cat,1\ndog,2\n", NULL);
    assert_true(one != 0);
    assert_true(one == csv_numbering(*state, "cat,5\ndog,6\ncat,7\n", NULL));
    assert_true(one != csv_numbering(*state, "dog,2\ncat,1\n", NULL));
    assert_true(one != csv_numbering(*state, "ca,1\ntdog,2\n", NULL));
    assert_true(one != csv_numbering(*state, "cat,1\ndog,2\ncow,3\n", NULL));
    assert_int_equal(csv_numbering(*state, "1,1\n2,2\n", NULL), 0);
    char *vocabulary = put_text(*state, "v.txt", "cat\ndog\n"), *elsewhere = put_text(*state, "w.txt", "cat\ndog\n");
    assert_true(one == csv_numbering(*state, "dog,1\ncat,2\n", vocabulary));
    assert_true(one == csv_numbering(*state, "cat,1\n", elsewhere));
    free(put_text(*state, "w.txt", "dog\ncat\n"));
    assert_true(one != csv_numbering(*state, "cat,1\n", elsewhere));
    free(vocabulary);
    free(elsewhere);
}

// Two columns' words are not one's.
static void csv_numbering_is_of_each_column(void **state)
{
    struct ps_job_column both[] = {{.name = "1", .type = PS_COLUMN_CATEGORY},
                                   {.name = "2", .type = PS_COLUMN_CATEGORY}};
    static const char *const text[] = {"a,c\nb,c\n", "a,b\na,c\n"};
    uint64_t numbering[2];
    for (int i = 0; i < 2; i++) {
        char *path = put_text(*state, "train.csv", text[i]);
        struct ps_job_data spec = {.kind = PS_DATA_CSV, .path = path, .header = PS_HEADER_NO};
        spec.columns = csv_columns(both, 2);
        struct wk_data *data = open_good(&spec);
        numbering[i] = wk_data_numbering(data);
        wk_data_free(data);
        free(path);
    }
    assert_true(numbering[0] != numbering[1]);
}

static void expect_place(const struct wk_source *s, const char *said, const char *name)
{
    const int column = wk_source_find(s, said);
    if (!name ? column >= 0 : column < 0 || strcmp(s->column[column].name, name) != 0)
        fail_msg("%s is %s, expected %s", said, column < 0 ? "none" : s->column[column].name, name ? name : "none");
}

// A name that is a number is a name; a place is that in the file, whatever is skipped.
static void csv_columns_by_their_places(void **state)
{
    char *path = put_text(*state, "train.csv", "a,b,1,c\n1,2,3,0\n4,5,6,1\n"), *label[] = {"2"};
    struct ps_job_column skip = {.name = "a", .type = PS_COLUMN_SKIP};
    struct ps_job_data spec = {.kind = PS_DATA_CSV, .path = path, .header = PS_HEADER_YES};
    struct wk_data *data;
    struct ps_error e;
    spec.columns = csv_columns(&skip, 1);
    spec.label = (struct ps_job_port){.column = label, .n = 1};
    if (wk_data_open(&spec, NULL, 0, &data, &e))
        fail_msg("%s", e.text);
    const struct wk_source *s = data->train.source;
    expect_place(s, "b", "b");
    expect_place(s, "1", "1");
    expect_place(s, "2", "b");
    expect_place(s, "3", "1");
    expect_place(s, "4", "c");
    expect_place(s, "5", NULL);
    expect_place(s, "0", NULL);
    expect_place(s, "02", NULL);
    expect_place(s, "2x", NULL);
    wk_data_free(data);
    free(path);
}

static void csv_field_longer_than_a_number(void **state)
{
    char text[200];
    snprintf(text, sizeof text, "1,2\n%0100d,3\n", 1);
    char *path = put(*state, "train.csv", text, strlen(text));
    open_bad(&(struct ps_job_data){.kind = PS_DATA_CSV, .path = path}, 0, "line 2, field 1",
             "expected a finite number");
    free(path);
}

// ---- npy and npz --------------------------------------------------------------------------------------------------

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
        struct wk_data *data = open_flat(&(struct ps_job_data){.kind = PS_DATA_NPY, .x = x, .y = path}, 4);
        EXPECT(&data->train, &data->train.input[0], 0, 1, 2, 255);
        EXPECT(&data->train, &data->train.target[0], 3, 1);
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
        struct wk_data *data = open_flat(&(struct ps_job_data){.kind = PS_DATA_NPY, .x = x, .y = path}, 0);
        EXPECT(&data->train, &data->train.target[0], -3, -1);
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
        open_flat(&(struct ps_job_data){.kind = PS_DATA_NPY, .x = x, .y = y, .x_test = test, .y_test = y}, 6);
    EXPECT(&data->train, &data->train.input[0], .1f, -2);
    EXPECT(&data->test, &data->test.input[0], 3, 4);
    EXPECT(&data->test, &data->test.target[0], 5);
    wk_data_free(data);
    free(x);
    free(y);
    free(test);
}

// What no float32 or int32 can be is found before training starts, in the row where it stands.
static void npy_values_that_do_not_fit(void **state)
{
    char *y = put_npy(*state, "y.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}", "\5\5", 2);
    const struct {
        const char *dict;
        const void *elements;
        size_t size;
        const char *message;
    } bad[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", (uint32_t[]){0, 0, 0, 0x7fc00000}, 16,
         "row 1: element 1 is nan, expected a finite float32"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 1)}", (double[]){1, 1e39}, 16,
         "row 1: the value is 1e+39, expected a finite float32"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *x = put_npy(*state, "x.npy", 1, bad[i].dict, bad[i].elements, bad[i].size);
        open_bad(&(struct ps_job_data){.kind = PS_DATA_NPY, .x = x, .y = y, .scale = 1}, 10, x, bad[i].message);
        free(x);
    }
    free(y);
    // Labels are integers of 32 bits.
    char *x = put_npy(*state, "x.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 1)}", "\5", 1);
    y = put_npy(*state, "y.npy", 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}", (int64_t[]){5094572997},
                8);
    open_bad(&(struct ps_job_data){.kind = PS_DATA_NPY, .x = x, .y = y}, 10, y,
             "row 0: the value is 5094572997, expected an integer of 32 bits");
    free(x);
    free(y);
}

// Integers of 64 bits are floats where the model takes floats, as pandas' columns are; bools are 0 and 1.
static void npy_wide_integers(void **state)
{
    char *x = put_npy(*state, "x.npy", 1, "{'descr': '<u4', 'fortran_order': False, 'shape': (2, 1)}",
                      (uint32_t[]){1, 3000000000}, 8);
    char *y = put_npy(*state, "y.npy", 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}",
                      (int64_t[]){5094572997, -2711162624}, 16);
    char *b = put_npy(*state, "b.npy", 1, "{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", "\1\0", 2);
    struct wk_data *data = open_flat(&(struct ps_job_data){.kind = PS_DATA_NPY, .x = x, .y = y}, 0);
    EXPECT(&data->train, &data->train.input[0], 1, 3e9f);
    EXPECT(&data->train, &data->train.target[0], 5094572997.f, -2711162624.f);
    wk_data_free(data);
    data = open_flat(&(struct ps_job_data){.kind = PS_DATA_NPY, .x = x, .y = b}, 2);
    EXPECT(&data->train, &data->train.target[0], 1, 0);
    wk_data_free(data);
    free(x);
    free(y);
    free(b);
}

// So are ids that stand beside floats, or that pandas has made floats.
static void npy_doubles_as_integers(void **state)
{
    const struct nn_model model = {.input = {NN_INT32, 1, {2}}, .output = {NN_FLOAT, 1, {1}}};
    static const char dict[] = "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2)}";
    static const double bad[] = {0.5, 2147483648.0, (double)NAN};
    char *x = put_npy(*state, "x.npy", 1, dict, (double[]){16777217, -2147483648.0}, 16);
    char *y = put_npy(*state, "y.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", "\1", 1);
    const struct ps_job_data spec = {.kind = PS_DATA_NPY, .x = x, .y = y};
    struct ps_error e = {0};
    int32_t raw[2], to[2];
    struct wk_data *data = open_good(&spec);
    assert_int_equal(wk_data_bind(data, &model, data_mse, &e), PS_OK);
    assert_int_equal(wk_port_read(&data->train, &data->train.input[0], 0, raw, to, &e), PS_OK);
    assert_int_equal(to[0], 16777217);
    assert_int_equal(to[1], INT32_MIN);
    wk_data_free(data);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        free(put_npy(*state, "x.npy", 1, dict, (double[]){16777217, bad[i]}, 16));
        data = open_good(&spec);
        assert_int_equal(wk_data_bind(data, &model, data_mse, &e), PS_INVALID_ARGUMENT);
        char *text = ps_printf("row 0: element 1 is %.15g, expected an integer of 32 bits", bad[i]);
        assert_non_null(strstr(e.text, text));
        free(text);
        wk_data_free(data);
    }
    free(x);
    free(y);
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
    {0, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1)}", "y has 2 rows, expected 1 as x has"},
    {1, "{'descr': '<f2', 'fortran_order': False, 'shape': (2,)}", "its elements are of type f2"},
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "y has 1 rows, expected 2"},
    {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4,)}", "y has 4 rows, expected 2"},
    {1, "{'descr': '<i4', 'fortran_order': False, 'shape': ()}", "y is a single number"},
    {1, "{'descr': '<i2', 'fortran_order': False, 'shape': (2,)}",
     "row 0: the label is -1, expected an integer from 0 to 9"},
};

static void npy_bad_files(void **state)
{
    char *good = put_npy(*state, "good.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}", "\1\2", 2);
    for (size_t i = 0; i < sizeof bad_npy / sizeof *bad_npy; i++) {
        char *bad = put_npy(*state, "bad.npy", 1, bad_npy[i].dict, "\xff\xff\xff\xff", 4);
        struct ps_job_data spec = {.kind = PS_DATA_NPY, .x = bad_npy[i].y ? good : bad, .y = bad_npy[i].y ? bad : good};
        // What does not fit is said of y, whichever is wrong.
        bool of_y = strstr(bad_npy[i].message, "y has 2");
        open_bad(&spec, 10, of_y ? good : bad, bad_npy[i].message);
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
        open_bad(&(struct ps_job_data){.kind = PS_DATA_NPY, .x = path, .y = path}, 0, path, bad[i].message);
        free(path);
    }
}

static char *golden(const char *name)
{
    const char *top = getenv("top_srcdir");
    return ps_printf("%s/tests/golden/data/%s", top ? top : ".", name);
}

// Files of numpy.savez and savez_compressed: two inputs by name, int32 for one of them.
static void npz_two_inputs(void **state)
{
    static const char *const names[] = {"stored.npz", "deflated.npz"};
    static const struct nn_model model = {.inputs = 2,
                                          .input = {NN_FLOAT, 2, {2, 3}},
                                          .input_name = "numbers",
                                          .input2 = {NN_INT32, 1, {2}},
                                          .input2_name = "words",
                                          .output = {NN_FLOAT, 1, {4}}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct ps_error e = {0};
        char *path = golden(names[i]);
        struct wk_data *data = open_good(&(struct ps_job_data){.kind = PS_DATA_NPZ, .path = path, .scale = 2});
        if (wk_data_bind(data, &model, data_xent, &e))
            fail_msg("%s", e.text);
        EXPECT(&data->train, &data->train.input[0], 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22);
        EXPECT(&data->train, &data->train.input[1], 0, -1, 2, 3);
        EXPECT(&data->train, &data->train.target[0], 3, 0);
        EXPECT(&data->test, &data->test.input[1], 5, 6);
        wk_data_free(data);
        free(path);
    }
}

static void npz_says_which_columns_there_are(void **state)
{
    static const struct nn_model model = {.inputs = 2,
                                          .input = {NN_FLOAT, 2, {2, 3}},
                                          .input_name = "numbers",
                                          .input2 = {NN_INT32, 1, {2}},
                                          .input2_name = "tokens",
                                          .output = {NN_FLOAT, 1, {4}}};
    struct ps_error e = {0};
    char *path = golden("stored.npz"), *words[] = {"words"}, *wrong[] = {"word"};
    struct ps_job_port port = {.name = "tokens", .column = words, .n = 1};
    struct ps_job_data spec = {.kind = PS_DATA_NPZ, .path = path, .scale = 1};
    (void)state;
    struct wk_data *data = open_good(&spec);
    assert_int_equal(wk_data_bind(data, &model, data_xent, &e), PS_FAILED_PRECONDITION);
    assert_string_equal(e.text, "no column for the model's input \"tokens\": expected one of its name, or data.inputs: "
                                "{tokens: COLUMN}; the data have the columns numbers, words, y");
    wk_data_free(data);
    spec.inputs = (struct ps_job_ports){&port, 1};
    data = open_good(&spec);
    assert_int_equal(wk_data_bind(data, &model, data_xent, &e), PS_OK);
    EXPECT(&data->train, &data->train.input[1], 0, -1, 2, 3);
    wk_data_free(data);
    port.column = wrong;
    data = open_good(&spec);
    assert_int_equal(wk_data_bind(data, &model, data_xent, &e), PS_FAILED_PRECONDITION);
    assert_non_null(strstr(e.text, "data.inputs.tokens: no column \"word\"; the data have"));
    wk_data_free(data);
    free(path);
}

// An npy of one byte. Returns its size.
static size_t make_npy(uint8_t npy[128], uint8_t value)
{
    static const char dict[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}";
    memcpy(npy, "\x93NUMPY\1", 8);
    npy[8] = sizeof dict - 1;
    npy[9] = 0;
    memcpy(npy + 10, dict, sizeof dict - 1);
    npy[10 + sizeof dict - 1] = value;
    return 10 + sizeof dict;
}

static void add_bytes(struct ps_zip_writer *w, const char *name, uint8_t value)
{
    uint8_t npy[128];
    struct ps_error e;
    assert_int_equal(ps_zip_add(w, name, npy, make_npy(npy, value), &e), PS_OK);
}

// The k-th is of the value k.
static void write_arrays(const char *path, const char *const *names, uint8_t n)
{
    struct ps_zip_writer w;
    struct ps_error e = {0};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    ps_zip_begin(&w, file);
    for (uint8_t i = 0; i < n; i++)
        add_bytes(&w, names[i], i);
    assert_int_equal(ps_zip_end(&w, &e), PS_OK);
    fclose(file);
}

// Side by side in the order of the training arrays, whatever the order of the test arrays, and without those that
// only the test data have.
static void npz_test_arrays_in_another_order(void **state)
{
    static const struct nn_model model = {.input = {NN_FLOAT, 1, {2}}, .output = {NN_FLOAT, 1, {2}}};
    static const char *const names[] = {"a_train.npy", "b_train.npy", "p_train.npy", "q_train.npy", "c_test.npy",
                                        "q_test.npy",  "b_test.npy",  "a_test.npy",  "p_test.npy"};
    char *path = ps_printf("%s/order.npz", (char *)*state), *target_of[] = {"p", "q"};
    struct ps_error e = {0};
    write_arrays(path, names, 9);
    struct ps_job_data spec = {.kind = PS_DATA_NPZ, .path = path, .label = {.column = target_of, .n = 2}};
    struct wk_data *data = open_good(&spec);
    if (wk_data_bind(data, &model, data_mse, &e))
        fail_msg("%s", e.text);
    EXPECT(&data->train, &data->train.input[0], 0, 1);
    EXPECT(&data->test, &data->test.input[0], 7, 6);
    EXPECT(&data->train, &data->train.target[0], 2, 3);
    EXPECT(&data->test, &data->test.target[0], 8, 5);
    wk_data_free(data);
    free(path);
}

// numpy.savez(file, x, y), without names: there is no y, which is said before the shape of both side by side.
static void npz_without_names(void **state)
{
    static const char *const names[] = {"arr_0.npy", "arr_1.npy"};
    char *path = ps_printf("%s/unnamed.npz", (char *)*state);
    const struct nn_model model = {.input = {NN_FLOAT, 1, {1}}, .output = {NN_FLOAT, 1, {1}}};
    struct ps_error e = {0};
    write_arrays(path, names, 2);
    struct wk_data *data = open_good(&(struct ps_job_data){.kind = PS_DATA_NPZ, .path = path});
    assert_int_equal(wk_data_bind(data, &model, data_mse, &e), PS_FAILED_PRECONDITION);
    if (!strstr(e.text, "no column for the model's output") ||
        !strstr(e.text, "the data have the columns arr_0, arr_1"))
        fail_msg("%s", e.text);
    wk_data_free(data);
    free(path);
}

// Test data need no weights; training data do.
static void npz_without_weights_to_test(void **state)
{
    static const char *const names[] = {"x_train.npy", "y_train.npy", "w_train.npy", "x_test.npy", "y_test.npy"};
    char *path = ps_printf("%s/weights.npz", (char *)*state);
    struct ps_error e = {0};
    write_arrays(path, names, 5);
    struct ps_job_data spec = {.kind = PS_DATA_NPZ, .path = path, .weight = "w"};
    const struct nn_model model = {.input = {NN_FLOAT, 1, {1}}, .output = {NN_FLOAT, 1, {1}}};
    struct wk_data *data = open_good(&spec);
    if (wk_data_bind(data, &model, data_mse, &e))
        fail_msg("%s", e.text);
    EXPECT(&data->train, &data->train.weight, 2);
    EXPECT(&data->test, &data->test.input[0], 3);
    EXPECT(&data->test, &data->test.target[0], 4);
    assert_int_equal(data->test.weight.n, 0);
    wk_data_free(data);
    spec.weight = "v";
    open_bad(&spec, 0, "data.weight: no column \"v\"", NULL);
    free(path);
}

// Who calls test data _val hears that they are not evaluated, once; not so where each file has a split.
static void npz_arrays_that_are_passed_over(void **state)
{
    static const char *const names[] = {"x_train.npy", "y_train.npy", "x_test.npy",
                                        "y_test.npy",  "x_val.npy",   "y_val.npy"};
    char *path = ps_printf("%s/splits.npz", (char *)*state);
    const struct ps_job_data spec = {.kind = PS_DATA_NPZ, .path = path};
    write_arrays(path, names, 4);
    char *log = log_of(&spec);
    assert_string_equal(log, "");
    free(log);
    write_arrays(path, names, 6);
    log = log_of(&spec);
    assert_non_null(strstr(log, "/splits.npz: x_val.npy is passed over, and 1 more like it: expected arrays whose "
                                "names end in _train or _test\n"));
    assert_null(strchr(strchr(log, '\n') + 1, '\n'));
    free(log);
    write_arrays(path, names + 2, 4);
    log = log_of(&spec);
    assert_string_equal(log, "");
    free(log);
    free(path);
}

static void patch_file(FILE *file, uint64_t at, uint64_t value, size_t n)
{
    fseek(file, (long)at, SEEK_SET);
    for (size_t i = 0; i < n; i++)
        putc((int)(value >> 8 * i & 0xff), file);
}

// A file that is not read into memory, with a hole before its two arrays, of one byte each: x, deflated, and y, as it
// is, to which `damage` was done.
static void put_large_npz(const char *path, uint8_t damage)
{
    uint8_t npy[128], packed[256];
    struct ps_zip_writer w;
    struct ps_error e;
    uLongf n = sizeof packed;
    const size_t size = make_npy(npy, 7);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    ps_zip_begin(&w, file);
    w.at = WK_IN_MEMORY;
    fseek(file, WK_IN_MEMORY, SEEK_SET);
    assert_int_equal(compress(packed, &n, npy, size), Z_OK);
    assert_int_equal(ps_zip_add(&w, "x.npy", packed + 2, n - 6, &e), PS_OK);  // without what zlib puts around it
    add_bytes(&w, "y.npy", 3);
    assert_int_equal(ps_zip_end(&w, &e), PS_OK);
    patch_file(file, w.at + 10, 8, 2);  // deflated, in the directory
    patch_file(file, w.at + 16, crc32_z(0, npy, size), 4);
    patch_file(file, w.at + 24, size, 4);
    patch_file(file, w.at - 1, 3 ^ damage, 1);
    fclose(file);
}

static const char *cut_short;  // when a deflated array is about to be read; NULL: nothing is

int inflateInit2_(z_streamp z, int bits, const char *version, int size)
{
    int (*next)(z_streamp z, int bits, const char *version, int size);
    *(void **)&next = dlsym(RTLD_NEXT, "inflateInit2_");
    if (cut_short)
        assert_int_equal(truncate(cut_short, WK_IN_MEMORY), 0);
    return next(z, bits, version, size);
}

// A file that is not in memory, and that somebody writes anew meanwhile, is an error instead of a signal.
static void npz_cut_short_while_it_is_read(void **state)
{
    char *path = ps_printf("%s/large.npz", (char *)*state);
    struct ps_job_data spec = {.kind = PS_DATA_NPZ, .path = path};
    put_large_npz(path, 0);
    struct wk_data *data = open_flat(&spec, 0);
    EXPECT(&data->train, &data->train.input[0], 7);
    EXPECT(&data->train, &data->train.target[0], 3);
    wk_data_free(data);
    cut_short = path;
    open_bad(&spec, 0, path, "x.npy: the file ends at byte 67108899");
    cut_short = NULL;
    free(path);
}

// An array that is not in memory is read once, before it is trained on.
static void npz_damaged_where_it_lies(void **state)
{
    char *path = ps_printf("%s/large.npz", (char *)*state);
    put_large_npz(path, 1);
    open_bad(&(struct ps_job_data){.kind = PS_DATA_NPZ, .path = path}, 0, path,
             "y.npy: entry 'y.npy' is damaged: its checksum differs");
    free(path);
}

static void npz_bad_files(void **state)
{
    char *none = put(*state, "none.npz", "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);
    open_bad(&(struct ps_job_data){.kind = PS_DATA_NPZ, .path = none}, 0, none, "no member is an .npy");
    char *text = put(*state, "text.npz", "no zip", 6);
    open_bad(&(struct ps_job_data){.kind = PS_DATA_NPZ, .path = text}, 0, text, "zip");
    char *path = golden("stored.npz");
    uint8_t *bytes;
    size_t size;
    struct ps_error e;
    assert_int_equal(wk_file_read(path, SIZE_MAX, &bytes, &size, &e), PS_OK);
    bytes[200] ^= 1;
    char *bad = put(*state, "bad.npz", bytes, size);
    open_bad(&(struct ps_job_data){.kind = PS_DATA_NPZ, .path = bad}, 0, bad, "numbers_train.npy");
    free(bytes);
    free(bad);
    free(path);
    free(text);
    free(none);
}

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
        WITH_FOLDER(pipes_are_opened_once),
        WITH_FOLDER(a_folder_is_no_file),
        WITH_FOLDER(says_why_it_cannot_be_read),
        WITH_FOLDER(csv_same_numbers_in_many_spellings),
        WITH_FOLDER(csv_targets_and_test_file),
        WITH_FOLDER(csv_categories),
        WITH_FOLDER(csv_words),
        WITH_FOLDER(csv_words_with_blanks),
        WITH_FOLDER(csv_whole_numbers),
        WITH_FOLDER(csv_vocabulary),
        WITH_FOLDER(csv_bad_files),
        WITH_FOLDER(csv_many_columns),
        WITH_FOLDER(csv_bad_settings),
        WITH_FOLDER(csv_columns_by_their_places),
        WITH_FOLDER(csv_numbering_is_of_words_in_their_order),
        WITH_FOLDER(csv_numbering_is_of_each_column),
        WITH_FOLDER(csv_field_longer_than_a_number),
        WITH_FOLDER(npy_bytes_and_labels_of_every_type),
        WITH_FOLDER(npy_negative_targets_of_every_type),
        WITH_FOLDER(npy_float_x_and_test_data),
        WITH_FOLDER(npy_values_that_do_not_fit),
        WITH_FOLDER(npy_wide_integers),
        WITH_FOLDER(npy_doubles_as_integers),
        WITH_FOLDER(npy_bad_files),
        WITH_FOLDER(npy_bad_preamble),
        cmocka_unit_test(npz_two_inputs),
        cmocka_unit_test(npz_says_which_columns_there_are),
        WITH_FOLDER(npz_test_arrays_in_another_order),
        WITH_FOLDER(npz_without_names),
        WITH_FOLDER(npz_without_weights_to_test),
        WITH_FOLDER(npz_arrays_that_are_passed_over),
        WITH_FOLDER(npz_cut_short_while_it_is_read),
        WITH_FOLDER(npz_damaged_where_it_lies),
        WITH_FOLDER(npz_bad_files),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("data_files", tests, NULL, NULL);
}

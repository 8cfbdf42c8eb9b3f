// SPDX-License-Identifier: Apache-2.0
//
// common/file/shards, and what of common/file/safetensors it needs: a checkpoint's tensors come together from the files
// of all ps tasks, bit for bit; what does not fit together is refused, and says which file.
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/alloc.h"
#include "common/file/shards.h"

static char folder[] = "/tmp/test_shards.XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) && mkdir(in_folder("job"), 0777) == 0 ? 0 : -1;
}

static void remove_all(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (d->d_name[0] != '.')
            unlinkat(dirfd(dir), d->d_name, 0);
    if (dir)
        closedir(dir);
}

static int remove_folder(void **state)
{
    (void)state;
    remove_all(in_folder("job"));
    rmdir(in_folder("job"));
    remove_all(folder);
    return rmdir(folder);
}

// ---- a checkpoint of two ps tasks ---------------------------------------------------------------------------------

static const float w[6] = {1, -2, 3.5f, 1e-40f, -0.0f, 1e30f}, bias[2] = {7, 8}, own[1] = {42};
static const struct ps_shards_of of = {"job", "job-0000000020", 0xabcdef, 2};
// In shards; the shapes are what counts.
static const struct ps_safetensor sharded[] = {{.name = "w", .rank = 2, .shape = {3, 2}},
                                               {.name = "b", .rank = 1, .shape = {2}}};
static const struct ps_safetensor slices[2][2] = {
    {{.name = "w[0:4]", .rank = 1, .shape = {4}, .data = w}, {.name = "b", .rank = 1, .shape = {2}, .data = bias}},
    {{.name = "w[4:6]", .rank = 1, .shape = {2}, .data = w + 4}}};

static void write_shard(uint32_t task, const struct ps_safetensor *tensors, size_t n, uint64_t id)
{
    struct ps_error e;
    char *path = ps_shards_path(&of, task), *text = ps_shards_id(id);
    const struct ps_safetensors_text metadata = {PS_SHARD_KEY, text};
    assert_int_equal(ps_safetensors_write_sealed(in_folder(path), tensors, n, &metadata, 1, NULL, &e), PS_OK);
    free(path);
    free(text);
}

static void write_index(const char *index)
{
    const struct ps_safetensor step = {.name = "step", .data = own};
    const struct ps_safetensors_text texts[] = {{"paramserver", "{}"}, {PS_SHARDS_KEY, index}};
    struct ps_error e;
    assert_int_equal(ps_safetensors_write_sealed(in_folder("a"), &step, 1, texts, 2, NULL, &e), PS_OK);
}

static void write_checkpoint(void)
{
    char *index = ps_shards_index(&of, sharded, 2);
    write_shard(0, slices[0], 2, of.id);
    write_shard(1, slices[1], 1, of.id);
    write_index(index);
    free(index);
}

static void refuses(enum ps_code code, const char *says)
{
    struct ps_safetensors *s = NULL;
    struct ps_error e = {0};
    const enum ps_code found = ps_safetensors_read(in_folder("a"), &s, &e);
    if (found != code || !strstr(e.text, says))
        fail_msg("%s \"%s\", expected %s \"... %s ...\"", ps_code_name(found), e.text, ps_code_name(code), says);
}

// ---- reading ------------------------------------------------------------------------------------------------------

static void shards_are_read_together(void **state)
{
    struct ps_safetensors *s;
    struct ps_shards_of found = {0};
    struct ps_error e;
    (void)state;
    write_checkpoint();
    assert_int_equal(ps_safetensors_read(in_folder("a"), &s, &e), PS_OK);
    assert_int_equal(s->n, 3);
    const struct ps_safetensor *t = ps_safetensors_find(s, "w");
    assert_non_null(t);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->shape[0], 3);
    assert_memory_equal(t->data, w, sizeof w);
    assert_memory_equal(ps_safetensors_find(s, "b")->data, bias, sizeof bias);
    assert_memory_equal(ps_safetensors_find(s, "step")->data, own, sizeof own);
    assert_true(ps_shards_get(s, &found));
    assert_string_equal(found.name, of.name);
    assert_true(found.id == of.id && found.tasks == of.tasks);
    assert_int_equal(ps_shards_elements(s), 8);
    ps_safetensors_free(s);
    uint64_t id;
    assert_int_equal(ps_shards_peek(in_folder("a"), &id, &e), PS_OK);
    assert_true(id == of.id);
}

static void other_files_have_none(void **state)
{
    const struct ps_safetensor step = {.name = "step", .data = own};
    struct ps_safetensors *s;
    struct ps_shards_of found;
    struct ps_error e;
    (void)state;
    assert_int_equal(ps_safetensors_write(in_folder("a"), &step, 1, &e), PS_OK);
    assert_int_equal(ps_safetensors_read(in_folder("a"), &s, &e), PS_OK);
    assert_false(ps_shards_get(s, &found));
    ps_safetensors_free(s);
    uint64_t id = 7;
    assert_int_equal(ps_safetensors_write_sealed(in_folder("a"), &step, 1, NULL, 0, NULL, &e), PS_OK);
    assert_int_equal(ps_shards_peek(in_folder("a"), &id, &e), PS_OK);
    assert_int_equal(id, 0);
    assert_int_equal(ps_shards_peek(in_folder("none"), &id, &e), PS_NOT_FOUND);
}

static size_t count_shards(void)
{
    size_t n = 0;
    DIR *dir = opendir(in_folder("job"));
    for (struct dirent *d; dir && (d = readdir(dir));)
        n += d->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return n;
}

static void expect_removed_first(int events, const char *name)
{
    char buffer[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    const struct inotify_event *first = (const struct inotify_event *)buffer;
    assert_true(read(events, buffer, sizeof buffer) > (ssize_t)sizeof *first);
    assert_string_equal(first->name, name);
}

// The file, so that none is there without its shards; then those of this checkpoint, and of no other one. Some may lie
// elsewhere.
static void shards_are_removed(void **state)
{
    const struct ps_shards_of another = {"job", "job-0000000020", 0xfedcba, 1};
    struct ps_error e;
    (void)state;
    remove_all(in_folder("job"));
    write_checkpoint();
    char *stays = ps_shards_path(&another, 0);
    assert_int_equal(ps_safetensors_write(in_folder(stays), slices[0], 2, &e), PS_OK);
    assert_int_equal(count_shards(), 3);
    const int events = inotify_init1(IN_NONBLOCK);
    assert_true(events >= 0 && inotify_add_watch(events, folder, IN_DELETE) >= 0 &&
                inotify_add_watch(events, in_folder("job"), IN_DELETE) >= 0);
    assert_true(ps_shards_remove(in_folder("a")));
    expect_removed_first(events, "a");
    close(events);
    assert_int_equal(count_shards(), 1);
    assert_int_equal(access(in_folder(stays), F_OK), 0);
    assert_int_equal(access(in_folder("a"), F_OK), -1);
    free(stays);
    write_checkpoint();
    remove_all(in_folder("job"));
    assert_true(ps_shards_remove(in_folder("a")));
    assert_int_equal(ps_safetensors_write(in_folder("a"), slices[0], 2, &e), PS_OK);
    assert_false(ps_shards_remove(in_folder("a")));
    assert_int_equal(access(in_folder("a"), F_OK), -1);
    assert_false(ps_shards_remove(in_folder("none")));
}

// Those who have written them read them.
static void an_index_is_read_without_its_shards(void **state)
{
    struct ps_safetensors *s;
    struct ps_shards_of found;
    struct ps_error e;
    (void)state;
    write_checkpoint();
    unlink(in_folder("job/job-0000000020-0000000000abcdef-ps-1-of-2.safetensors"));
    refuses(PS_NOT_FOUND, "job/job-0000000020-0000000000abcdef-ps-1-of-2.safetensors");
    assert_int_equal(ps_safetensors_read_index(in_folder("a"), &s, &e), PS_OK);
    assert_true(ps_shards_get(s, &found));
    assert_int_equal(found.tasks, 2);
    assert_int_equal(ps_shards_elements(s), 8);
    assert_null(ps_safetensors_find(s, "w")->data);
    assert_int_equal(ps_safetensors_find(s, "w")->count, 6);
    assert_null(ps_safetensors_find(s, "b")->data);
    assert_memory_equal(ps_safetensors_find(s, "step")->data, own, sizeof own);
    ps_safetensors_free(s);
}

// Of a tensor in so many slices, in whatever order they are, beside those of tensors whose names begin alike.
static void many_slices_are_joined(void **state)
{
    enum { MANY = 20000 };
    static char name[MANY][24];
    static float value[MANY];
    static struct ps_safetensor slice[MANY + 3];
    const struct ps_safetensor others[] = {{.name = "w", .rank = 1, .shape = {MANY}},
                                           {.name = "w[0]", .rank = 1, .shape = {1}},
                                           {.name = "ww", .rank = 1, .shape = {2}}};
    struct ps_safetensors *s;
    struct ps_error e;
    (void)state;
    for (size_t i = 0; i < MANY; i++) {
        const size_t first = i * 7919 % MANY;  // a prime, which shuffles them
        value[i] = (float)i;
        snprintf(name[i], sizeof name[i], "w[%zu:%zu]", first, first + 1);
        slice[i] = (struct ps_safetensor){.name = name[i], .rank = 1, .shape = {1}, .data = &value[first]};
        value[first] = (float)first;
    }
    slice[MANY] = (struct ps_safetensor){.name = "w[0][0:1]", .rank = 1, .shape = {1}, .data = own};
    slice[MANY + 1] = (struct ps_safetensor){.name = "ww[0:1]", .rank = 1, .shape = {1}, .data = bias};
    slice[MANY + 2] = (struct ps_safetensor){.name = "ww[1:2]", .rank = 1, .shape = {1}, .data = bias + 1};
    char *index = ps_shards_index(&of, others, 3);
    write_checkpoint();
    write_shard(0, slice, MANY / 2, of.id);
    write_shard(1, slice + MANY / 2, MANY / 2 + 3, of.id);
    write_index(index);
    free(index);
    if (ps_safetensors_read(in_folder("a"), &s, &e))
        fail_msg("%s", e.text);
    assert_memory_equal(ps_safetensors_find(s, "w")->data, value, sizeof value);
    assert_memory_equal(ps_safetensors_find(s, "w[0]")->data, own, sizeof own);
    assert_memory_equal(ps_safetensors_find(s, "ww")->data, bias, sizeof bias);
    ps_safetensors_free(s);
}

// A shard that is there, and cannot be opened, is not said to be missing.
static void a_shard_that_cannot_be_read_says_why(void **state)
{
    static const char shard[] = "job/job-0000000020-0000000000abcdef-ps-1-of-2.safetensors";
    (void)state;
    write_checkpoint();
    unlink(in_folder(shard));
    assert_int_equal(symlink(strrchr(shard, '/') + 1, in_folder(shard)), 0);
    refuses(PS_INVALID_ARGUMENT, "ps-1-of-2.safetensors: Too many levels of symbolic links");
    assert_int_equal(unlink(in_folder(shard)), 0);
}

// A ps task that keeps nothing has no shard.
static void an_empty_task_is_not_missed(void **state)
{
    const struct ps_safetensor whole[] = {{.name = "w", .rank = 2, .shape = {3, 2}, .data = w}, slices[0][1]};
    struct ps_safetensors *s;
    struct ps_error e;
    (void)state;
    write_checkpoint();
    write_shard(0, whole, 2, of.id);
    unlink(in_folder("job/job-0000000020-0000000000abcdef-ps-1-of-2.safetensors"));
    assert_int_equal(ps_safetensors_read(in_folder("a"), &s, &e), PS_OK);
    assert_memory_equal(ps_safetensors_find(s, "w")->data, w, sizeof w);
    ps_safetensors_free(s);
}

// ---- what does not fit together -----------------------------------------------------------------------------------

static void a_shard_of_another_checkpoint_is_refused(void **state)
{
    (void)state;
    write_checkpoint();
    write_shard(1, slices[1], 1, of.id + 1);
    refuses(PS_INVALID_ARGUMENT,
            "job-0000000020-0000000000abcdef-ps-1-of-2.safetensors: is a shard of another checkpoint");
}

static void a_damaged_shard_is_refused(void **state)
{
    char *path = NULL;
    (void)state;
    write_checkpoint();
    path = ps_strdup(in_folder("job/job-0000000020-0000000000abcdef-ps-0-of-2.safetensors"));
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, -20, SEEK_END);
    const int c = fgetc(f);
    fseek(f, -20, SEEK_END);
    fputc(c ^ 1, f);
    fclose(f);
    refuses(PS_DATA_LOSS, "job-0000000020-0000000000abcdef-ps-0-of-2.safetensors: is damaged");
    free(path);
}

static void slices_have_neither_holes_nor_ends_beyond(void **state)
{
    const struct ps_safetensor late = {.name = "w[5:6]", .rank = 1, .shape = {1}, .data = w};
    const struct ps_safetensor wrong = {.name = "w[4:6]", .rank = 1, .shape = {1}, .data = w};
    const struct ps_safetensor longer = {.name = "w[4:7]", .rank = 1, .shape = {3}, .data = w};
    const struct ps_safetensor *const all[] = {&late, &wrong, &longer};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        write_checkpoint();
        write_shard(1, all[i], 1, of.id);
        refuses(PS_INVALID_ARGUMENT, "tensor \"w\" is in none of its shards, or not all of it");
    }
}

static void no_index_is_believed(void **state)
{
#define FILES(files) "{\"name\":\"job-1\",\"checkpoint\":\"0000000000000007\",\"files\":" files ",\"tensors\":{}}"
#define FIRST "\"job/job-1-0000000000000007-ps-0-of-"
    static const char *const indexes[] = {
        "",
        "[]",
        "{}",
        FILES("{}"),
        FILES("[]"),
        FILES("[\"../a\"]"),
        FILES("[\"/etc/passwd\"]"),
        FILES("[\"job/../a\"]"),
        FILES("[\"job\"]"),
        FILES("[7]"),
        FILES("[" FIRST "2.safetensors\"]"),
        FILES("[" FIRST "2.safetensors\"," FIRST "2.safetensors\"]"),
        FILES("[" FIRST "2.safetensors\",7]"),
        FILES("[\"../job-1-0000000000000007-ps-0-of-1.safetensors\"]"),
        "{\"name\":\"../x\",\"checkpoint\":\"0000000000000007\",\"files\":[" FIRST "1.safetensors\"],\"tensors\":{}}",
        "{\"name\":\"job-1\",\"checkpoint\":7,\"files\":[" FIRST "1.safetensors\"],\"tensors\":{}}",
        "{\"name\":\"job-1\",\"checkpoint\":\"7\",\"files\":[" FIRST "1.safetensors\"],\"tensors\":{}}",
        "{\"name\":\"job-1\",\"checkpoint\":\"00000000000000078\",\"files\":[" FIRST
        "1.safetensors\"],\"tensors\":{}}"};
    (void)state;
    write_checkpoint();
    for (size_t i = 0; i < sizeof indexes / sizeof *indexes; i++) {
        write_index(indexes[i]);
        refuses(PS_INVALID_ARGUMENT, "its index of shards is none");
    }
    static const struct {
        const char *tensors, *says;
    } wrong[] = {{"{\"w\":7}", "expected a shape"},
                 {"{\"w\":[-1]}", "expected a shape"},
                 {"{\"w\":[1,1,1,1,1,1,1,1,1,1,1,1]}", "expected a shape"},
                 {"{\"step\":[]}", "\"step\" is there, and in its shards"},
                 {"{\"w\":[1000000000,1000000000,1000000000]}", "\"w\" of its shards"},
                 {"{\"w\":[1000000000]}", "\"w\" is in none of its shards, or not all of it"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *index = ps_printf("{\"name\":\"job-0000000020\",\"checkpoint\":\"0000000000abcdef\",\"files\":[\"job/"
                                "job-0000000020-0000000000abcdef-ps-0-of-2.safetensors\",\"job/"
                                "job-0000000020-0000000000abcdef-ps-1-of-2.safetensors\"],\"tensors\":%s}",
                                wrong[i].tensors);
        write_index(index);
        refuses(PS_INVALID_ARGUMENT, wrong[i].says);
        free(index);
    }
}

static void names_are_checked(void **state)
{
    static const char *const bad[] = {"", ".", "..", ".x", "a/b", "a b", "a\n", "\xc3\xa4"};
    static const struct {
        const char *file;
        bool is;
        uint64_t id;
    } files[] = {{"job-0000000020-00000000000000af-ps-0-of-2.safetensors", true, 0xaf},
                 {"job-12345678901-fedcba9876543210-ps-7-of-9.safetensors", true, 0xfedcba9876543210},
                 {"job-0000000020-00000000000000af-ps-0-of-2.safetensors.0123456789abcdef.tmp", true, 0xaf},
                 {"job-0000000020-ps-0-of-2.safetensors", false, 0},
                 {"job-0000000020-0af-ps-0-of-2.safetensors", false, 0},
                 {"job-backup-0000000020-00000000000000af-ps-0-of-2.safetensors", false, 0},
                 {"job-0000000020.safetensors", false, 0},
                 {"job-0000000020-00000000000000af-ps-0-of-2.safetensorsx", false, 0},
                 {"other-0000000020-00000000000000af-ps-0-of-2.safetensors", false, 0}};
    char longest[162];
    uint64_t id;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(ps_shards_is_name(bad[i]));
    memset(longest, 'a', 161);
    longest[161] = '\0';
    assert_false(ps_shards_is_name(longest));
    assert_true(ps_shards_is_name(longest + 1));
    assert_true(ps_shards_is_name("mnist_2.0-x"));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assert_int_equal(ps_shards_is_of(files[i].file, "job", &id), files[i].is);
        assert_true(!files[i].is || id == files[i].id);
    }
}

// ---- in parts,  written and read ----------------------------------------------------------------------------------

enum { N = 5 << 17, MIB = 1 << 20 };  // two MiB and a half of float32

static float *some_data(void)
{
    float *data = ps_alloc(N * sizeof *data);
    for (size_t i = 0; i < N; i++)
        data[i] = (float)i;
    return data;
}

static char *file_bytes(const char *path, size_t *size)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    char *bytes = ps_alloc((size_t)st.st_size);
    FILE *f = fopen(path, "r");
    assert_int_equal(fread(bytes, 1, (size_t)st.st_size, f), st.st_size);
    fclose(f);
    *size = (size_t)st.st_size;
    return bytes;
}

static void data_in_parts_makes_the_same_file(void **state)
{
    float *data = some_data();
    struct iovec part[] = {{data, 12}, {data + 3, 0}, {data + 3, MIB}, {data + 3 + MIB / 4, (N - 3 - MIB / 4) * 4}};
    const struct ps_safetensor whole = {.name = "w", .rank = 1, .shape = {N}, .data = data};
    const struct ps_safetensor cut = {.name = "w", .rank = 1, .shape = {N}, .parts = part, .n_parts = 4};
    const struct ps_safetensors_text text = {"key", "text"};
    struct ps_error e;
    size_t n_a, n_b;
    (void)state;
    assert_int_equal(ps_safetensors_write_sealed(in_folder("a"), &whole, 1, &text, 1, NULL, &e), PS_OK);
    char *a = file_bytes(in_folder("a"), &n_a);
    assert_int_equal(ps_safetensors_write_sealed(in_folder("a"), &cut, 1, &text, 1, NULL, &e), PS_OK);
    char *b = file_bytes(in_folder("a"), &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    free(a);
    free(b);
    free(data);
}

static void what_is_stopped_leaves_nothing(void **state)
{
    const struct ps_safetensor step = {.name = "step", .data = own};
    const atomic_bool stop = true;
    struct ps_error e;
    (void)state;
    unlink(in_folder("a"));
    assert_int_equal(ps_safetensors_write_sealed(in_folder("a"), &step, 1, NULL, 0, &stop, &e), PS_CANCELLED);
    assert_int_not_equal(access(in_folder("a"), F_OK), 0);
}

static enum ps_code stream_all(float *to, struct ps_error *e)
{
    struct ps_safetensors_stream *s = NULL;
    enum ps_code code = ps_safetensors_stream_open(in_folder("a"), &s, e);
    for (size_t at = 0, n; code == PS_OK && at < N; at += n) {
        n = N - at < 100003 ? N - at : 100003;
        code = ps_safetensors_stream_read(s, to + at, n, e);
    }
    if (code == PS_OK) {
        struct ps_error more;
        float beyond;
        assert_int_equal(ps_safetensors_stream_read(s, &beyond, 1, &more), PS_DATA_LOSS);
    }
    ps_safetensors_stream_close(s);
    return code;
}

static void a_stream_hands_out_what_is_as_it_was_written(void **state)
{
    float *data = some_data(), *to = ps_alloc(N * sizeof *to);
    const struct ps_safetensor whole = {.name = "w", .rank = 1, .shape = {N}, .data = data};
    const struct ps_safetensors_text text = {"key", "text"};
    struct ps_error e = {0};
    size_t size;
    (void)state;
    assert_int_equal(ps_safetensors_write_sealed(in_folder("a"), &whole, 1, &text, 1, NULL, &e), PS_OK);
    assert_int_equal(stream_all(to, &e), PS_OK);
    assert_memory_equal(data, to, N * sizeof *to);

    char *bytes = file_bytes(in_folder("a"), &size);
    for (size_t k = 0; k < 60; k++) {
        const size_t at = k < 20 ? k : k < 40 ? size - 1 - (k - 20) : k * 48611 % size;
        FILE *f = fopen(in_folder("a"), "r+");
        fseek(f, (long)at, SEEK_SET);
        fputc(bytes[at] ^ 4, f);
        fclose(f);
        const enum ps_code code = stream_all(to, &e);
        if (code != PS_DATA_LOSS && code != PS_INVALID_ARGUMENT)
            fail_msg("byte %zu: %s", at, ps_code_name(code));
        assert_true(strncmp(e.text, folder, strlen(folder)) == 0);
        f = fopen(in_folder("a"), "r+");
        fseek(f, (long)at, SEEK_SET);
        fputc(bytes[at], f);
        fclose(f);
    }
    for (size_t cut = 0; cut < size; cut += cut < 300 ? 7 : 400009) {
        assert_int_equal(truncate(in_folder("a"), (off_t)cut), 0);
        assert_int_not_equal(stream_all(to, &e), PS_OK);
        FILE *f = fopen(in_folder("a"), "w");
        fwrite(bytes, 1, size, f);
        fclose(f);
    }
    free(bytes);
    free(data);
    free(to);
}

static void a_stream_is_of_sealed_float32(void **state)
{
    const struct ps_safetensor step = {.name = "step", .data = own};
    struct ps_safetensors_stream *s;
    struct ps_error e;
    (void)state;
    assert_int_equal(ps_safetensors_write(in_folder("a"), &step, 1, &e), PS_OK);
    assert_int_equal(ps_safetensors_stream_open(in_folder("a"), &s, &e), PS_INVALID_ARGUMENT);
    assert_non_null(strstr(e.text, "has no checksums"));
    assert_int_equal(ps_safetensors_stream_open(in_folder("none"), &s, &e), PS_NOT_FOUND);
    assert_int_equal(ps_safetensors_stream_open(folder, &s, &e), PS_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_are_read_together),
        cmocka_unit_test(other_files_have_none),
        cmocka_unit_test(shards_are_removed),
        cmocka_unit_test(an_index_is_read_without_its_shards),
        cmocka_unit_test(many_slices_are_joined),
        cmocka_unit_test(a_shard_that_cannot_be_read_says_why),
        cmocka_unit_test(an_empty_task_is_not_missed),
        cmocka_unit_test(a_shard_of_another_checkpoint_is_refused),
        cmocka_unit_test(a_damaged_shard_is_refused),
        cmocka_unit_test(slices_have_neither_holes_nor_ends_beyond),
        cmocka_unit_test(no_index_is_believed),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(data_in_parts_makes_the_same_file),
        cmocka_unit_test(what_is_stopped_leaves_nothing),
        cmocka_unit_test(a_stream_hands_out_what_is_as_it_was_written),
        cmocka_unit_test(a_stream_is_of_sealed_float32),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

// SPDX-License-Identifier: Apache-2.0
//
// common/safetensors: what is written comes back, the bytes are determined, and no file is believed.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/alloc.h"
#include "common/file/safetensors.h"

static char folder[] = "/tmp/test_safetensors.XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

// Nothing but the two files that the tests name may be left: a temporary one is a leak.
static int remove_folder(void **state)
{
    (void)state;
    unlink(in_folder("a"));
    unlink(in_folder("b"));
    return rmdir(folder);
}

static size_t read_bytes(const char *path, char *to, size_t size)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(to, 1, size, f);
    fclose(f);
    return n;
}

static const float kernel[6] = {1, -2, 3.5f, 1e-40f, -0.0f, 1e30f}, bias[3] = {7, 8, 9}, step[1] = {42};
static const struct ps_safetensor three[] = {
    {.name = "net/dense/kernel", .shape = {2, 3}, .rank = 2, .data = kernel},
    {.name = "net/dense/bias", .shape = {3}, .rank = 1, .data = bias},
    {.name = "step", .rank = 0, .data = step},
};

static void round_trip(void **state)
{
    (void)state;
    struct ps_error e = {0};
    struct ps_safetensors *s = NULL;
    assert_int_equal(ps_safetensors_write(in_folder("a"), three, 3, &e), PS_OK);
    assert_int_equal(ps_safetensors_read(in_folder("a"), &s, &e), PS_OK);
    assert_int_equal(s->n, 3);
    for (int i = 0; i < 3; i++) {
        const struct ps_safetensor *t = ps_safetensors_find(s, three[i].name);
        assert_non_null(t);
        assert_int_equal(t->rank, three[i].rank);
        assert_memory_equal(t->shape, three[i].shape, sizeof t->shape);
        assert_memory_equal(t->data, three[i].data, t->count * sizeof(float));
    }
    assert_int_equal(ps_safetensors_find(s, "step")->count, 1);
    assert_null(ps_safetensors_find(s, "net/dense"));
    ps_safetensors_free(s);
}

// In the file they come first, so that each lies where a double may.
static void doubles_stay_what_they_are(void **state)
{
    (void)state;
    static const double wide[2] = {0.1, -1e300};
    const struct ps_safetensor mixed[] = {three[1], {.name = "wide", .shape = {2}, .rank = 1, .doubles = wide}};
    struct ps_error e = {0};
    struct ps_safetensors *s = NULL;
    for (int sealed = 0; sealed < 2; sealed++) {
        assert_int_equal(sealed ? ps_safetensors_write_sealed(in_folder("a"), mixed, 2, NULL, 0, NULL, &e)
                                : ps_safetensors_write(in_folder("a"), mixed, 2, &e),
                         PS_OK);
        if (ps_safetensors_read(in_folder("a"), &s, &e))
            fail_msg("%s", e.text);
        assert_int_equal(s->n, 2);
        const struct ps_safetensor *t = ps_safetensors_find(s, "wide"), *b = ps_safetensors_find(s, "net/dense/bias");
        assert_ptr_equal(t, &s->tensor[0]);
        assert_string_equal(t->dtype, "F64");
        assert_int_equal(t->count, 2);
        assert_non_null(t->doubles);
        assert_memory_equal(t->doubles, wide, sizeof wide);
        assert_true(t->data[0] == 0.1f && t->data[1] == -INFINITY);
        assert_null(b->doubles);
        assert_memory_equal(b->data, bias, sizeof bias);
        ps_safetensors_free(s);
    }
}

static void bytes_are_determined(void **state)
{
    (void)state;
    const struct ps_safetensor turned[] = {three[2], three[0], three[1]};
    struct ps_error e = {0};
    char a[1024], b[1024];
    assert_int_equal(ps_safetensors_write(in_folder("a"), three, 3, &e), PS_OK);
    assert_int_equal(ps_safetensors_write(in_folder("b"), turned, 3, &e), PS_OK);
    size_t n = read_bytes(in_folder("a"), a, sizeof a);
    assert_int_equal(read_bytes(in_folder("b"), b, sizeof b), n);
    assert_memory_equal(a, b, n);
    uint64_t header;
    memcpy(&header, a, sizeof header);
    assert_int_equal(header % 8, 0);
    assert_int_equal(n, 8 + header + 10 * sizeof(float));
    const char *expected = "{\"net/dense/bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
                           "\"net/dense/kernel\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[12,36]},"
                           "\"step\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[36,40]}}";
    assert_memory_equal(a + 8, expected, strlen(expected));
}

static void nothing_is_a_file_too(void **state)
{
    (void)state;
    struct ps_error e = {0};
    struct ps_safetensors *s = NULL;
    assert_int_equal(ps_safetensors_write(in_folder("a"), NULL, 0, &e), PS_OK);
    assert_int_equal(ps_safetensors_read(in_folder("a"), &s, &e), PS_OK);
    assert_int_equal(s->n, 0);
    ps_safetensors_free(s);
}

static void large_tensor(void **state)
{
    (void)state;
    size_t n = 300001;
    float *data = ps_alloc(n * sizeof *data);
    for (size_t i = 0; i < n; i++)
        data[i] = (float)i * 0.5f;
    struct ps_safetensor t = {.name = "large", .shape = {n}, .rank = 1, .data = data};
    struct ps_error e = {0};
    struct ps_safetensors *s = NULL;
    assert_int_equal(ps_safetensors_write(in_folder("a"), &t, 1, &e), PS_OK);
    assert_int_equal(ps_safetensors_read(in_folder("a"), &s, &e), PS_OK);
    assert_int_equal(s->tensor[0].count, n);
    assert_int_equal((uintptr_t)s->tensor[0].data % 64, 0);
    assert_memory_equal(s->tensor[0].data, data, n * sizeof *data);
    ps_safetensors_free(s);
    free(data);
}

static void refuses_to_write(void **state)
{
    (void)state;
    const struct ps_safetensor twice[] = {three[0], three[0]};
    const struct ps_safetensor reserved = {.name = "__metadata__", .shape = {1}, .rank = 1, .data = step};
    const struct ps_safetensor empty = {.name = "none", .shape = {0}, .rank = 1, .data = step};
    const struct ps_safetensor latin = {.name = "caf\xe9", .shape = {1}, .rank = 1, .data = step};
    const struct {
        const struct ps_safetensor *t;
        size_t n;
        const char *says;
    } cases[] = {
        {twice, 2, "tensor \"net/dense/kernel\": expected a name that is not taken"},
        {&reserved, 1, "tensor \"__metadata__\": expected a name that is not taken"},
        {&empty, 1, "tensor \"none\": dimension 0 is 0"},
        {&latin, 1, "tensor 0: expected a name in UTF-8"},
    };
    assert_int_equal(ps_safetensors_write(in_folder("a"), three, 3, NULL), PS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ps_error e = {0};
        assert_int_equal(ps_safetensors_write(in_folder("a"), cases[i].t, cases[i].n, &e), PS_INVALID_ARGUMENT);
        assert_non_null(strstr(e.text, cases[i].says));
    }
    struct ps_error e = {0};
    struct ps_safetensors *s = NULL;
    assert_int_equal(ps_safetensors_read(in_folder("a"), &s, &e), PS_OK);  // what was there still is
    assert_int_equal(s->n, 3);
    ps_safetensors_free(s);
    assert_int_equal(ps_safetensors_write(in_folder("no/such"), three, 3, &e), PS_CANNOT_CREATE);
    assert_non_null(strstr(e.text, "no/such"));
    assert_int_equal(ps_safetensors_write(folder, three, 3, &e), PS_CANNOT_CREATE);  // a folder is in the way
    assert_non_null(strstr(e.text, "it is a folder"));
    DIR *d = opendir("/tmp");
    for (struct dirent *entry; (entry = readdir(d));)
        if (strncmp(entry->d_name, folder + 5, strlen(folder + 5)) == 0)
            assert_string_equal(entry->d_name, folder + 5);
    closedir(d);
}

// A file of this header (with its true length before it unless given) and as many bytes of data.
static void make_file(const char *header, uint64_t length, size_t data)
{
    FILE *f = fopen(in_folder("b"), "w");
    assert_non_null(f);
    fwrite(&length, sizeof length, 1, f);
    fputs(header, f);
    for (size_t i = 0; i < data; i++)
        fputc('\1', f);
    fclose(f);
}

static void check_refused(const char *says)
{
    struct ps_error e = {0};
    struct ps_safetensors *s = NULL;
    enum ps_code code = ps_safetensors_read(in_folder("b"), &s, &e);
    if (code == PS_OK)
        fail_msg("was read, but expected: %s", says);
    assert_null(s);
    assert_int_equal(code, e.code);
    if (!strstr(e.text, says) || strncmp(e.text, in_folder("b"), strlen(in_folder("b"))) != 0)
        fail_msg("\"%s\" does not name the file or does not say \"%s\"", e.text, says);
}

#define TENSOR(shape, from, to) "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

static void corrupt_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *says;
    } cases[] = {
        {"{\"a\":1", 0, "header, bytes 0 to 13: it is not JSON: "},
        {"{\"a\":1,\"a\":1}", 0, "it is not JSON: duplicate"},
        {"[]", 0, "header, bytes 0 to 9: expected a JSON object"},
        {"{\"a\":1}", 0, "tensor \"a\": expected a dtype"},
        {"{\"a\":{\"dtype\":\"F31\"}}", 0, "tensor \"a\": expected a shape of at most 8 dimensions"},
        {"{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,8]}}", 4,
         "tensor \"a\" ends at byte 70, but the file ends at byte 66"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "data_offsets span 4 bytes, but shape (1,) of F64 takes 8"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[1152921504606846976],\"data_offsets\":[0,0]}}", 0,
         "data_offsets span 0 bytes, but shape (1152921504606846976,) of F64 takes 9223372036854775808"},
        {"{\"a\":{\"dtype\":\"F32\"}}", 0, "tensor \"a\": expected a shape of at most 8 dimensions"},
        {"{\"a\":" TENSOR("[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "expected a shape of at most 8 dimensions"},
        {"{\"a\":" TENSOR("[0]", "0", "4") "}", 4, "data_offsets span 4 bytes, but shape (0,) of F32 takes 0"},
        {"{\"a\":" TENSOR("[0,-1]", "0", "0") "}", 0, "expected dimension 1 to be a whole number of 0 or more"},
        {"{\"a\":" TENSOR("[2,-1]", "0", "0") "}", 0, "expected dimension 1 to be"},
        {"{\"a\":" TENSOR("[1.5]", "0", "4") "}", 4, "expected dimension 0 to be"},
        {"{\"a\":" TENSOR("[4294967296,4294967296]", "0", "0") "}", 0, "tensor \"a\": the product"},
        {"{\"a\":" TENSOR("[4611686018427387904]", "0", "0") "}", 0, "tensor \"a\": 4611686018427387904 elements"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor \"a\": expected data_offsets"},
        {"{\"a\":" TENSOR("[1]", "-4", "0") "}", 4, "expected data_offsets [begin, end]"},
        {"{\"a\":" TENSOR("[1]", "4", "0") "}", 4, "expected data_offsets [begin, end]"},
        {"{\"a\":" TENSOR("[1]", "0", "\"4\"") "}", 4, "expected data_offsets [begin, end]"},
        {"{\"a\":" TENSOR("[2]", "0", "4") "}", 4, "data_offsets span 4 bytes, but shape (2,) of F32 takes 8"},
        {"{\"a\":" TENSOR("[2]", "0", "8") "}", 4, "tensor \"a\" ends at byte 70, but the file ends at byte 66"},
        {"{\"a\":" TENSOR("[2]", "0", "8") ",\"b\":" TENSOR("[2]", "4", "12") "}", 12,
         "tensor \"b\" begins at byte 120, inside \"a\", which ends at byte 124"},
        {"{\"a\":" TENSOR("[1]", "0", "4") ",\"b\":" TENSOR("[1]", "8", "12") "}", 12,
         "tensor \"b\" begins at byte 124, but expected it at byte 120: a hole"},
        {"{\"a\":" TENSOR("[1]", "0", "4") "}", 7, "bytes 66 to 68, the file's last, are of no tensor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make_file(cases[i].header, strlen(cases[i].header), cases[i].data);
        check_refused(cases[i].says);
    }
}

// Types that the format got later, and tensors without elements, do not keep others from being read.
static void what_is_not_known_is_passed_over(void **state)
{
    static const char header[] = "{\"a\":" TENSOR("[1]", "8", "12") ",\"e\":" TENSOR(
        "[3,0]", "8", "8") ","
                           "\"c\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}";
    struct ps_safetensors *s;
    struct ps_error e = {0};
    (void)state;
    make_file(header, sizeof header - 1, 12);
    if (ps_safetensors_read(in_folder("b"), &s, &e))
        fail_msg("%s", e.text);
    assert_int_equal(s->n, 2);
    assert_non_null(ps_safetensors_find(s, "a")->data);
    assert_null(ps_safetensors_find(s, "e"));
    assert_null(ps_safetensors_find(s, "c")->data);
    assert_string_equal(ps_safetensors_find(s, "c")->dtype, "C64");
    ps_safetensors_free(s);
}

static void corrupt_lengths(void **state)
{
    (void)state;
    make_file("{}", 3, 0);
    check_refused("bytes 0 to 7 say that the header ends at byte 11, but the file ends at byte 10");
    make_file("{}", 100000001, 0);
    check_refused("expected a safetensors header of at most 100000000 bytes");
    make_file("{}", 0x0a1a0a0d46444889, 0);
    check_refused("expected safetensors, but it is HDF5");
    make_file("{}", UINT64_MAX, 0);
    check_refused("expected a safetensors header of at most");
    make_file("{}", 0, 0);
    check_refused("header, bytes 0 to 7: it is not JSON");
    assert_int_equal(truncate(in_folder("b"), 7), 0);
    check_refused("expected 8 bytes of header length, but the file ends at byte 7");
    unlink(in_folder("b"));
    check_refused("No such file");
}

// Cut anywhere, the file is refused; with any bit turned over, it is read or refused, and never more.
static void cuts_and_flips(void **state)
{
    (void)state;
    char bytes[1024];
    assert_int_equal(ps_safetensors_write(in_folder("a"), three, 3, NULL), PS_OK);
    size_t n = read_bytes(in_folder("a"), bytes, sizeof bytes);
    for (size_t cut = 0; cut < n; cut++) {
        FILE *f = fopen(in_folder("b"), "w");
        fwrite(bytes, 1, cut, f);
        fclose(f);
        check_refused("");
    }
    for (size_t bit = 0; bit < (n - 40) * 8; bit++) {
        struct ps_safetensors *s = NULL;
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        FILE *f = fopen(in_folder("b"), "w");
        fwrite(bytes, 1, n, f);
        fclose(f);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        if (ps_safetensors_read(in_folder("b"), &s, NULL) == PS_OK)
            ps_safetensors_free(s);
    }
}

// As other writers make them: metadata, no padding, tensors in any order.
static void foreign_file(void **state)
{
    (void)state;
    const char *header =
        "{\"__metadata__\":{\"format\":\"pt\"},\"z\":" TENSOR("[1]", "8", "12") ",\"a\":" TENSOR("[2]", "0", "8") "}";
    struct ps_error e = {0};
    struct ps_safetensors *s = NULL;
    make_file(header, strlen(header), 12);
    assert_int_equal(ps_safetensors_read(in_folder("b"), &s, &e), PS_OK);
    assert_int_equal(s->n, 2);
    assert_string_equal(s->tensor[0].name, "a");
    assert_ptr_equal(s->tensor[1].data, s->tensor[0].data + 2);
    ps_safetensors_free(s);
}

#define ENTRY(name, dtype, shape, from, to) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

// Floats of every width become float32; what holds no floats has a name, a dtype and no data.
static void every_dtype(void **state)
{
    (void)state;
    static const char header[] =
        "{" ENTRY("flag", "BOOL", "[3]", 0, 3) "," ENTRY("half", "F16", "[7]", 3, 17) "," ENTRY(
            "brain", "BF16", "[2,1]", 17, 21) "," ENTRY("double", "F64", "[2]", 21,
                                                        37) "," ENTRY("single", "F32", "[1]", 37,
                                                                      41) "," ENTRY("seed", "U32", "[2]", 41, 49) "}";
    const uint16_t half[7] = {0x3c00, 0xc000, 0x0001, 0x83ff, 0x7bff, 0xfc00, 0x7e01}, brain[2] = {0x3f80, 0xc049};
    const double wide[2] = {0.1, -1e300};
    const float one = 1.5f;
    char data[49] = {0};
    memcpy(data + 3, half, 14);
    memcpy(data + 17, brain, 4);
    memcpy(data + 21, wide, 16);
    memcpy(data + 37, &one, 4);
    make_file(header, strlen(header), 0);
    FILE *f = fopen(in_folder("b"), "a");
    fwrite(data, 1, sizeof data, f);
    fclose(f);
    struct ps_error e = {0};
    struct ps_safetensors *s = NULL;
    if (ps_safetensors_read(in_folder("b"), &s, &e) != PS_OK)
        fail_msg("%s", e.text);
    assert_int_equal(s->n, 6);
    const float *h = ps_safetensors_find(s, "half")->data, *d = ps_safetensors_find(s, "double")->data;
    assert_memory_equal(h, ((float[]){1, -2, 0x1p-24f, -0x3ffp-24f, 65504, -INFINITY}), 24);
    assert_true(isnan(h[6]));
    assert_memory_equal(ps_safetensors_find(s, "brain")->data, ((float[]){1, -3.140625f}), 8);
    assert_true(d[0] == 0.1f && d[1] == -INFINITY);
    assert_true(ps_safetensors_find(s, "single")->data[0] == 1.5f);
    assert_null(ps_safetensors_find(s, "flag")->data);
    assert_null(ps_safetensors_find(s, "seed")->data);
    assert_string_equal(ps_safetensors_find(s, "seed")->dtype, "U32");
    assert_string_equal(ps_safetensors_find(s, "half")->dtype, "F16");
    ps_safetensors_free(s);
}

// ---- sealed files -------------------------------------------------------------------------------------------------

static void write_bytes(const char *path, const char *from, size_t size)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(from, 1, size, f), size);
    fclose(f);
}

static const struct ps_safetensors_text key = {"key", "text"};

static size_t write_three_sealed(char *bytes, size_t room)
{
    struct ps_error e;
    assert_int_equal(ps_safetensors_write_sealed(in_folder("a"), three, 3, &key, 1, NULL, &e), PS_OK);
    return read_bytes(in_folder("a"), bytes, room);
}

static void a_sealed_file_reads_as_any_other(void **state)
{
    struct ps_safetensors *s;
    struct ps_error e;
    char bytes[2048];
    (void)state;
    write_three_sealed(bytes, sizeof bytes);
    assert_int_equal(ps_safetensors_read(in_folder("a"), &s, &e), PS_OK);
    assert_true(s->sealed);
    assert_int_equal(s->n, 3);
    assert_memory_equal(ps_safetensors_find(s, "net/dense/kernel")->data, kernel, sizeof kernel);
    assert_null(ps_safetensors_find(s, PS_SAFETENSORS_CHECKSUMS));
    assert_string_equal(ps_safetensors_metadata(s, "key"), "text");
    ps_safetensors_free(s);
    assert_int_equal(ps_safetensors_write(in_folder("a"), three, 3, &e), PS_OK);
    assert_int_equal(ps_safetensors_read(in_folder("a"), &s, &e), PS_OK);
    assert_false(s->sealed);
    ps_safetensors_free(s);
}

// Does the text say "bytes A to B", and is this one of them?
static bool names_byte(const char *text, size_t byte)
{
    unsigned long first, last;
    while ((text = strstr(text, "bytes "))) {
        text += strlen("bytes ");
        if (sscanf(text, "%lu to %lu", &first, &last) == 2 && first <= byte && byte <= last)
            return true;
    }
    return false;
}

// Flips bits of one byte in the file that fd has open, and back again. The file is refused, and the message names it
// and the byte.
static void check_flip(int fd, const char *bytes, size_t at, unsigned bits)
{
    struct ps_safetensors *s = NULL;
    struct ps_error e = {0};
    const char flipped = (char)(bytes[at] ^ bits);
    assert_int_equal(pwrite(fd, &flipped, 1, (off_t)at), 1);
    const enum ps_code code = ps_safetensors_read_sealed(in_folder("a"), &s, &e);
    assert_int_equal(pwrite(fd, &bytes[at], 1, (off_t)at), 1);
    if (code != PS_DATA_LOSS && code != PS_INVALID_ARGUMENT)
        fail_msg("byte %zu, bits %#x: %s: %s", at, bits, ps_code_name(code), e.text);
    if (strncmp(e.text, in_folder("a"), strlen(in_folder("a"))) != 0 || !names_byte(e.text, at))
        fail_msg("byte %zu, bits %#x: \"%s\" does not name the file or the byte", at, bits, e.text);
    assert_null(s);
}

static void every_flipped_byte_of_the_header_is_placed(void **state)
{
    char bytes[2048];
    uint64_t length;
    (void)state;
    write_three_sealed(bytes, sizeof bytes);
    memcpy(&length, bytes, sizeof length);
    const int fd = open(in_folder("a"), O_WRONLY);
    assert_true(fd >= 0 && length > 250);
    for (size_t at = 0; at < sizeof length + length; at++) {
        for (unsigned bit = 0; bit < 8; bit++)
            check_flip(fd, bytes, at, 1U << bit);
        check_flip(fd, bytes, at, 0xff);
    }
    close(fd);
}

// Of any byte, of its checksums too.
static void random_flips_are_placed(void **state)
{
    char bytes[2048];
    const size_t size = write_three_sealed(bytes, sizeof bytes);
    uint64_t seed = 1;
    (void)state;
    const int fd = open(in_folder("a"), O_WRONLY);
    assert_true(fd >= 0 && size > 300 && size < sizeof bytes);
    for (int i = 0; i < 10000; i++) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX
        check_flip(fd, bytes, (seed >> 33) % size, 1U << (seed >> 29) % 8);
    }
    close(fd);
    struct ps_safetensors *s = NULL;
    assert_int_equal(ps_safetensors_read_sealed(in_folder("a"), &s, NULL), PS_OK);  // each was flipped back
    ps_safetensors_free(s);
}

static void every_cut_is_placed(void **state)
{
    char bytes[2048], says[64];
    const size_t size = write_three_sealed(bytes, sizeof bytes);
    (void)state;
    for (size_t cut = size; cut-- > 0;) {
        struct ps_safetensors *s = NULL;
        struct ps_error e = {0};
        assert_int_equal(truncate(in_folder("a"), (off_t)cut), 0);
        assert_int_equal(ps_safetensors_read_sealed(in_folder("a"), &s, &e), PS_DATA_LOSS);
        snprintf(says, sizeof says, "the file ends at byte %zu", cut);
        const char *const said = strstr(e.text, says);
        if (!said || said[strlen(says)] || strncmp(e.text, in_folder("a"), strlen(in_folder("a"))) != 0)
            fail_msg("\"%s\" does not name the file or does not say \"%s\"", e.text, says);
    }
}

// Checksums are asked for, and not there.
static void a_file_without_checksums_is_no_sealed_one(void **state)
{
    struct ps_safetensors *s = NULL;
    struct ps_error e = {0};
    (void)state;
    assert_int_equal(ps_safetensors_write(in_folder("a"), three, 3, &e), PS_OK);
    assert_int_equal(ps_safetensors_read_sealed(in_folder("a"), &s, &e), PS_INVALID_ARGUMENT);
    assert_non_null(strstr(e.text, "has no checksums: expected a checkpoint"));
}

// Two MiB and a half of data: a flip is found in its MiB, and the message has the place in the file.
static void damage_is_placed(void **state)
{
    enum { N = 5 << 17, MIB = 1 << 20 };
    float *data = ps_alloc(N * sizeof *data);
    char *bytes = ps_alloc(N * sizeof *data + 4096), says[64];
    const struct ps_safetensor one = {.name = "w", .shape = {N}, .rank = 1, .data = data};
    struct ps_safetensors *s;
    struct ps_error e;
    uint64_t header;
    (void)state;
    for (size_t i = 0; i < N; i++)
        data[i] = (float)i;
    assert_int_equal(ps_safetensors_write_sealed(in_folder("a"), &one, 1, &key, 1, NULL, &e), PS_OK);
    const size_t size = read_bytes(in_folder("a"), bytes, N * sizeof *data + 4096);
    memcpy(&header, bytes, sizeof header);
    header += sizeof header;
    assert_int_equal(size, header + N * sizeof *data + 4 * sizeof(uint32_t));
    for (size_t mib = 0; mib < 3; mib++) {
        const size_t first = header + mib * MIB, last = mib < 2 ? first + MIB : size - 4 * sizeof(uint32_t);
        const size_t at[] = {first, last - 1, first + 4711};
        snprintf(says, sizeof says, "is damaged: bytes %zu to %zu are not", first, last - 1);
        for (size_t k = 0; k < 3; k++) {
            bytes[at[k]] ^= 16;
            write_bytes(in_folder("b"), bytes, size);
            bytes[at[k]] ^= 16;
            assert_int_equal(ps_safetensors_read(in_folder("b"), &s, &e), PS_DATA_LOSS);
            assert_non_null(strstr(e.text, says));
        }
    }
    free(bytes);
    free(data);
}

static int read_errno;  // 0: the system decides

ssize_t read(int fd, void *to, size_t n)
{
    if (read_errno) {
        errno = read_errno;
        return -1;
    }
    return syscall(SYS_read, fd, to, n);
}

static void is_not_readable(enum ps_code code, const char *says)
{
    struct ps_safetensors *s = NULL;
    struct ps_safetensors_stream *stream = NULL;
    struct ps_error e = {0};
    assert_int_equal(ps_safetensors_read_sealed(in_folder("a"), &s, &e), code);
    assert_non_null(strstr(e.text, says));
    assert_int_equal(ps_safetensors_stream_open(in_folder("a"), &stream, &e), code);
    assert_non_null(strstr(e.text, says));
}

// A file that cannot be read at the moment is neither missing nor damaged: it may well be read later.
static void what_cannot_be_read_now_is_not_lost(void **state)
{
    struct ps_error e;
    struct rlimit before;
    (void)state;
    assert_int_equal(ps_safetensors_write_sealed(in_folder("a"), three, 3, NULL, 0, NULL, &e), PS_OK);
    read_errno = EIO;
    is_not_readable(PS_UNAVAILABLE, "reading at byte 0: Input/output error");
    read_errno = ESTALE;
    is_not_readable(PS_UNAVAILABLE, "reading at byte 0: Stale file handle");
    read_errno = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, before.rlim_max}), 0);
    is_not_readable(PS_RESOURCE_EXHAUSTED, "Too many open files");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(unlink(in_folder("a")), 0);
    is_not_readable(PS_NOT_FOUND, "No such file or directory");
    assert_int_equal(symlink("a", in_folder("a")), 0);
    is_not_readable(PS_INVALID_ARGUMENT, "Too many levels of symbolic links");
    assert_int_equal(unlink(in_folder("a")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(doubles_stay_what_they_are),
        cmocka_unit_test(bytes_are_determined),
        cmocka_unit_test(nothing_is_a_file_too),
        cmocka_unit_test(large_tensor),
        cmocka_unit_test(refuses_to_write),
        cmocka_unit_test(corrupt_headers),
        cmocka_unit_test(what_is_not_known_is_passed_over),
        cmocka_unit_test(corrupt_lengths),
        cmocka_unit_test(cuts_and_flips),
        cmocka_unit_test(foreign_file),
        cmocka_unit_test(every_dtype),
        cmocka_unit_test(a_sealed_file_reads_as_any_other),
        cmocka_unit_test(every_flipped_byte_of_the_header_is_placed),
        cmocka_unit_test(random_flips_are_placed),
        cmocka_unit_test(every_cut_is_placed),
        cmocka_unit_test(a_file_without_checksums_is_no_sealed_one),
        cmocka_unit_test(damage_is_placed),
        cmocka_unit_test(what_cannot_be_read_now_is_not_lost),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

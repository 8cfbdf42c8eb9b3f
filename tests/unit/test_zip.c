// SPDX-License-Identifier: Apache-2.0
//
// common/file/zip: what Python's zipfile writes is read, what is written is read again, and what is damaged says so.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/file/zip.h"

enum { MOST = 4096 };

static const char *golden(const char *name)
{
    static char path[512];
    const char *top = getenv("top_srcdir");
    snprintf(path, sizeof path, "%s/tests/golden/%s", top ? top : ".", name);
    return path;
}

static size_t read_golden(const char *name, uint8_t bytes[MOST])
{
    FILE *f = fopen(golden(name), "r");
    assert_non_null(f);
    size_t n = fread(bytes, 1, MOST, f);
    fclose(f);
    assert_true(n > 0 && n < MOST);
    return n;
}

static void expect_entry(const struct ps_zip *zip, const char *name, const char *content)
{
    uint8_t have[MOST] = {0};
    struct ps_error e = {0};
    const struct ps_zip_entry *entry = ps_zip_find(zip, name);
    assert_non_null(entry);
    assert_true(entry->size == strlen(content));
    if (ps_zip_unpack(entry, have, &e) != PS_OK)
        fail_msg("%s", e.text);
    assert_memory_equal(have, content, entry->size);
}

static void python_files(void **state)
{
    struct ps_zip *zip;
    struct ps_error e = {0};
    char again[1025] = "";
    (void)state;
    for (int i = 0; i < 64; i++)
        strcat(again, "again and again ");
    if (ps_zip_open(golden("python.zip"), &zip, &e) != PS_OK)
        fail_msg("%s", e.text);
    assert_true(zip->n == 5);
    expect_entry(zip, "stored", "as it is");
    expect_entry(zip, "folder/deflated", again);
    expect_entry(zip, "wide", "64 bits");
    expect_entry(zip, "empty", "");
    expect_entry(zip, "empty, deflated", "");
    assert_null(ps_zip_find(zip, "deflated"));
    ps_zip_free(zip);
    if (ps_zip_open(golden("wide.zip"), &zip, &e) != PS_OK)  // every field in its form of 64 bits
        fail_msg("%s", e.text);
    expect_entry(zip, "x.npy", "0123456789");
    ps_zip_free(zip);
}

static void written_files(void **state)
{
    char path[] = "/tmp/test_zip.XXXXXX";
    struct ps_zip_writer w;
    struct ps_zip *zip;
    struct ps_error e = {0};
    (void)state;
    FILE *f = fdopen(mkstemp(path), "w");
    ps_zip_begin(&w, f);
    assert_int_equal(ps_zip_add(&w, "one", "1", 1, &e), PS_OK);
    assert_int_equal(ps_zip_add(&w, "none", NULL, 0, &e), PS_OK);
    assert_int_equal(ps_zip_add(&w, "folder/two", "22", 2, &e), PS_OK);
    assert_int_equal(ps_zip_add(&w, "one", "again", 5, &e), PS_OK);
    assert_int_equal(ps_zip_end(&w, &e), PS_OK);
    fclose(f);
    if (ps_zip_open(path, &zip, &e) != PS_OK)
        fail_msg("%s", e.text);
    assert_true(zip->n == 4);
    expect_entry(zip, "folder/two", "22");
    expect_entry(zip, "none", "");
    expect_entry(zip, "one", "again");  // the later one, as Python has it
    ps_zip_free(zip);
    assert_int_equal(unlink(path), 0);
}

// Writes to a file, in which what is long becomes a hole.
static ssize_t write_sparsely(void *fd, const char *bytes, size_t n)
{
    if (n < 1 << 20)
        return write(*(int *)fd, bytes, n);
    return lseek(*(int *)fd, (off_t)n, SEEK_CUR) < 0 ? -1 : (ssize_t)n;
}

// What is larger, or lies further behind, than 32 bits say.
static void written_in_64_bits(void **state)
{
    const size_t size = (size_t)UINT32_MAX + 10;
    char path[] = "/tmp/test_zip.XXXXXX";
    struct ps_zip_writer w;
    struct ps_zip *zip;
    struct ps_error e = {0};
    int fd = mkstemp(path);
    void *zeros = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    (void)state;
    assert_true(fd >= 0 && zeros != MAP_FAILED);
    madvise(zeros, size, MADV_HUGEPAGE);  // which makes it faster
    FILE *f = fopencookie(&fd, "w", (cookie_io_functions_t){.write = write_sparsely});
    ps_zip_begin(&w, f);
    assert_int_equal(ps_zip_add(&w, "before", "1", 1, &e), PS_OK);
    assert_int_equal(ps_zip_add(&w, "large", zeros, size, &e), PS_OK);
    assert_int_equal(ps_zip_add(&w, "after", "22", 2, &e), PS_OK);
    assert_int_equal(ps_zip_end(&w, &e), PS_OK);
    assert_int_equal(fclose(f), 0);
    if (ps_zip_open(path, &zip, &e) != PS_OK)
        fail_msg("%s", e.text);
    assert_true(zip->n == 3);
    expect_entry(zip, "before", "1");
    expect_entry(zip, "after", "22");
    assert_true(ps_zip_find(zip, "large")->size == size);
    ps_zip_free(zip);
    munmap(zeros, size);
    close(fd);
    assert_int_equal(unlink(path), 0);
}

// More than 16 bits count.
static void written_many(void **state)
{
    enum { MANY = 65537 };
    char path[] = "/tmp/test_zip.XXXXXX", name[16];
    struct ps_zip_writer w;
    struct ps_zip *zip;
    struct ps_error e = {0};
    (void)state;
    FILE *f = fdopen(mkstemp(path), "w");
    ps_zip_begin(&w, f);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(ps_zip_add(&w, name, name, strlen(name), &e), PS_OK);
    }
    assert_int_equal(ps_zip_end(&w, &e), PS_OK);
    fclose(f);
    if (ps_zip_open(path, &zip, &e) != PS_OK)
        fail_msg("%s", e.text);
    assert_true(zip->n == MANY);
    expect_entry(zip, "65536", "65536");
    ps_zip_free(zip);
    assert_int_equal(unlink(path), 0);
}

// A file that becomes shorter once it is open is an error of what is unpacked after that.
static void cut_files(void **state)
{
    enum { SIZE = 1 << 18, LEFT = 1 << 14 };
    static uint8_t content[SIZE], to[SIZE];
    char path[] = "/tmp/test_zip.XXXXXX";
    struct ps_zip_writer w;
    struct ps_zip *zip;
    struct ps_error e = {0};
    (void)state;
    FILE *f = fdopen(mkstemp(path), "w");
    ps_zip_begin(&w, f);
    assert_int_equal(ps_zip_add(&w, "large", content, SIZE, &e), PS_OK);
    assert_int_equal(ps_zip_end(&w, &e), PS_OK);
    fclose(f);
    if (ps_zip_open(path, &zip, &e) != PS_OK)
        fail_msg("%s", e.text);
    assert_int_equal(ps_zip_unpack(ps_zip_find(zip, "large"), to, &e), PS_OK);
    assert_int_equal(truncate(path, LEFT), 0);
    assert_int_equal(ps_zip_unpack(ps_zip_find(zip, "large"), to, &e), PS_DATA_LOSS);
    assert_non_null(strstr(e.text, "the file ends at byte 16384; it had 2"));
    assert_int_equal(ps_zip_verify(ps_zip_find(zip, "large"), &e), PS_DATA_LOSS);
    ps_zip_free(zip);
    assert_int_equal(unlink(path), 0);
}

static void empty_zip(void **state)
{
    static const uint8_t end[22] = "PK\5\6";
    struct ps_zip *zip;
    (void)state;
    assert_int_equal(ps_zip_parse(end, sizeof end, &zip, NULL), PS_OK);
    assert_true(zip->n == 0);
    assert_null(ps_zip_find(zip, ""));
    ps_zip_free(zip);
}

static void refused_paths(void **state)
{
    struct ps_zip *zip;
    struct ps_error e = {0};
    (void)state;
    assert_int_equal(ps_zip_open("/no/such", &zip, &e), PS_NOT_FOUND);
    assert_string_equal(e.text, "/no/such: No such file or directory");
    assert_int_equal(ps_zip_open("/tmp", &zip, &e), PS_INVALID_ARGUMENT);
    assert_string_equal(e.text, "/tmp: expected a zip file, not a folder");
    assert_int_equal(ps_zip_open("/dev/null", &zip, &e), PS_INVALID_ARGUMENT);
}

// The place in python.zip of byte `at` of the entry's record in the directory (dir), or of its own header.
static uint8_t *field(uint8_t *bytes, size_t n, const char *name, bool dir, size_t at)
{
    const size_t fixed = dir ? 46 : 30;
    for (size_t i = 0; i + fixed + strlen(name) < n; i++)
        if (memcmp(bytes + i, dir ? "PK\1\2" : "PK\3\4", 4) == 0 && memcmp(bytes + i + fixed, name, strlen(name)) == 0)
            return bytes + i + at;
    fail_msg("no %s", name);
    return NULL;
}

static void damaged_entries(void **state)
{
    static const struct {
        const char *name;
        bool dir;
        size_t at;
        uint8_t value;
        const char *says;
    } bad[] = {
        {"stored", true, 8, 1, "entry 'stored' is encrypted"},
        {"stored", true, 10, 12, "entry 'stored' is packed by method 12; those known are 0 (stored) and 8 (deflate)"},
        {"stored", true, 24, 9, "entry 'stored' is said to have 9 bytes, which 8 packed ones cannot hold"},
        {"folder/deflated", true, 27, 1, "cannot hold"},
        {"wide", true, 24, 8, "entry 'wide' is damaged: it does not unpack to 8 bytes"},
        {"wide", true, 24, 6, "entry 'wide' is damaged: it does not unpack to 6 bytes"},
        {"stored", true, 20, 255, "entry 'stored' is said to have 8 bytes, which 255 packed ones cannot hold"},
        {"wide", true, 22, 1, "entry 'wide' should have 655"},
        {"stored", true, 16, 0, "entry 'stored' is damaged: its checksum differs"},
        {"stored", true, 42, 1, "entry 'stored' should be at byte 1, but no entry begins there"},
        {"stored", true, 28, 255, "entry 0 of the zip directory is damaged"},
        {"stored", true, 29, 255, "entry 0 of the zip directory is damaged"},
        {"folder/deflated", true, 0, 0, "entry 1 of the zip directory is damaged"},
        {"stored", false, 0, 0, "entry 'stored' should be at byte 0, but no entry begins there"},
        {"stored", false, 29, 255, "entry 'stored' should have 8 bytes from byte 65316 on, but the entries end at"},
        {"stored", false, 30 + 6, 'A', "entry 'stored' is damaged: its checksum differs"},
        {"wide", false, 30 + 4 + 20, 255, "entry 'wide' is damaged: it does not unpack to 7 bytes"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        uint8_t bytes[MOST], to[MOST];
        size_t n = read_golden("python.zip", bytes);
        struct ps_zip *zip = NULL;
        struct ps_error e = {0};
        *field(bytes, n, bad[k].name, bad[k].dir, bad[k].at) = bad[k].value;
        enum ps_code code = ps_zip_parse(bytes, n, &zip, &e);
        if (code == PS_OK)
            code = ps_zip_unpack(ps_zip_find(zip, bad[k].name), to, &e);
        ps_zip_free(zip);
        if (code == PS_OK || !strstr(e.text, bad[k].says))
            fail_msg("%zu: no \"%s\" in \"%s\"", k, bad[k].says, e.text);
    }
}

// Every file that ends early, and every file with one byte changed, is refused or read: never more than that.
static void damaged_files(void **state)
{
    static const char *const names[] = {"python.zip", "wide.zip"};
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        uint8_t bytes[MOST];
        size_t n = read_golden(names[k], bytes);
        for (size_t i = 0; i < 2 * n; i++) {
            const size_t size = i < n ? i : n;
            uint8_t *copy = malloc(size ? size : 1), to[MOST];
            struct ps_zip *zip = NULL;
            struct ps_error e = {0};
            memcpy(copy, bytes, size);
            if (i >= n)
                copy[i - n] ^= 0xff;
            enum ps_code code = ps_zip_parse(copy, size, &zip, &e);
            assert_true(i >= n || code != PS_OK);
            for (size_t j = 0; code == PS_OK && j < zip->n; j++)
                if (zip->entry[j].size <= sizeof to)
                    (void)ps_zip_unpack(&zip->entry[j], to, &e);
            if (code == PS_OK)
                ps_zip_free(zip);
            free(copy);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(python_files),  cmocka_unit_test(written_files),   cmocka_unit_test(written_in_64_bits),
        cmocka_unit_test(written_many),  cmocka_unit_test(cut_files),       cmocka_unit_test(empty_zip),
        cmocka_unit_test(refused_paths), cmocka_unit_test(damaged_entries), cmocka_unit_test(damaged_files),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

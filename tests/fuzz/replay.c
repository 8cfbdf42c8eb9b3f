// SPDX-License-Identifier: Apache-2.0
//
// A fuzz target's main where libFuzzer is not: runs the target over its corpus, each file as it is and then mutated
// some thousand times, the same ones on every run. TAP, one point per file.
//
//   fuzz_NAME             every file of $top_srcdir/tests/fuzz/corpus/NAME
//   fuzz_NAME FILE ...    these files, as they are
//
// The input under way always lies in ./fuzz_NAME.input; what is left there was too much for the target: hand it that
// file to see it again. A target that takes longer than INPUT_SECONDS is ended by SIGALRM.
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/hash.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    MUTATIONS = 4096,          // of the whole corpus together
    MUTATIONS_PER_FILE = 128,  // at least
    INPUT_SECONDS = 20,
    INPUT_MAX = 1 << 20,
};

struct bytes {
    uint8_t *data;  // room for INPUT_MAX
    size_t len;
};

// ---- the target ---------------------------------------------------------------------------------------------------

static void keep(int input, const struct bytes *b)
{
    if (ftruncate(input, (off_t)b->len) || pwrite(input, b->data, b->len, 0) != (ssize_t)b->len) {
        perror("cannot keep the input");
        exit(1);
    }
}

// The target gets a copy of exactly its size, so that sanitizers see the first byte read past it.
static void run(int input, const struct bytes *b)
{
    uint8_t *exact = malloc(b->len ? b->len : 1);
    if (!exact)
        exit(1);
    memcpy(exact, b->data, b->len);
    if (input >= 0)
        keep(input, b);
    alarm(INPUT_SECONDS);
    LLVMFuzzerTestOneInput(exact, b->len);
    alarm(0);
    free(exact);
}

// ---- mutations ----------------------------------------------------------------------------------------------------

// splitmix64 (Steele, Lea, Flood 2014)
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static size_t below(uint64_t *state, size_t n)
{
    return n ? next(state) % n : 0;
}

// Numbers that lengths, counts and shapes are compared with, in both byte orders.
static void put_number(struct bytes *b, uint64_t *state)
{
    static const uint64_t numbers[] = {0,          1,          0x7f,       0x80,          0xff,       0x7fff,
                                       0xffff,     0x7fffffff, 0x80000000, 0xffffffff,    1ull << 32, INT64_MAX,
                                       UINT64_MAX, 1ull << 62, 1ull << 20, 0xfffffffffull};
    uint64_t number = numbers[below(state, sizeof numbers / sizeof *numbers)];
    size_t width = (size_t)1 << below(state, 4);
    if (b->len < width)
        return;
    bool big = next(state) & 1;
    uint8_t *at = b->data + below(state, b->len - width + 1);
    for (size_t i = 0; i < width; i++)
        at[i] = (uint8_t)(number >> 8 * (big ? width - 1 - i : i));
}

static void insert(struct bytes *b, uint64_t *state)
{
    size_t n = 1 + below(state, 16);
    if (b->len + n > INPUT_MAX)
        return;
    size_t at = below(state, b->len + 1);
    memmove(b->data + at + n, b->data + at, b->len - at);
    for (size_t i = 0; i < n; i++)
        b->data[at + i] = (uint8_t)next(state);
    b->len += n;
}

static void cut_out(struct bytes *b, uint64_t *state)
{
    size_t at = below(state, b->len);
    size_t n = 1 + below(state, b->len - at);
    memmove(b->data + at, b->data + at + n, b->len - at - n);
    b->len -= n;
}

// A range once more, somewhere else: over what is there, or pushed in between.
static void repeat(struct bytes *b, uint64_t *state)
{
    size_t from = below(state, b->len);
    size_t n = 1 + below(state, b->len - from < 256 ? b->len - from : 256);
    size_t to = below(state, b->len);
    if (next(state) & 1) {
        memmove(b->data + to, b->data + from, n < b->len - to ? n : b->len - to);
        return;
    }
    if (b->len + n > INPUT_MAX)
        return;
    uint8_t piece[256];
    memcpy(piece, b->data + from, n);
    memmove(b->data + to + n, b->data + to, b->len - to);
    memcpy(b->data + to, piece, n);
    b->len += n;
}

static void mutate(struct bytes *b, uint64_t *state)
{
    for (size_t n = 1 + below(state, 4); n; n--) {
        if (!b->len) {
            insert(b, state);
            continue;
        }
        switch (below(state, 7)) {
        case 0:
            b->data[below(state, b->len)] ^= (uint8_t)(1u << below(state, 8));
            break;
        case 1:
            b->data[below(state, b->len)] = (uint8_t)next(state);
            break;
        case 2:
            put_number(b, state);
            break;
        case 3:
            insert(b, state);
            break;
        case 4:
            cut_out(b, state);
            break;
        case 5:
            repeat(b, state);
            break;
        case 6:
            b->len = below(state, b->len);
            break;
        }
    }
}

// ---- the corpus ---------------------------------------------------------------------------------------------------

static bool read_file(const char *path, struct bytes *b)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    b->len = fread(b->data, 1, INPUT_MAX, f);
    bool ok = !ferror(f);
    fclose(f);
    return ok;
}

// Seeds by what the file holds, so that a new file in the corpus changes nothing for the others.
static uint64_t seed_of(const struct bytes *b)
{
    return ps_hash(PS_HASH_SEED, b->data, b->len);
}

static bool replay(const char *path, int mutations, int input)
{
    struct bytes original = {malloc(INPUT_MAX), 0}, b = {malloc(INPUT_MAX), 0};
    bool ok = original.data && b.data && read_file(path, &original);
    if (ok) {
        run(input, &original);
        uint64_t state = seed_of(&original);
        for (int i = 0; i < mutations; i++) {
            memcpy(b.data, original.data, original.len);
            b.len = original.len;
            mutate(&b, &state);
            run(input, &b);
        }
    }
    free(b.data);
    free(original.data);
    return ok;
}

static int is_file(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static int replay_corpus(const char *name)
{
    char folder[4096];
    const char *top = getenv("top_srcdir");
    snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/%s", top ? top : ".", name);
    struct dirent **files = NULL;
    int n = scandir(folder, &files, is_file, alphasort);
    if (n <= 0) {
        printf("1..1\nnot ok 1 - %s: has no file\n", folder);
        free(files);
        return 1;
    }

    char kept[512];
    snprintf(kept, sizeof kept, "fuzz_%s.input", name);
    int input = open(kept, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (input < 0) {
        perror(kept);
        exit(1);
    }
    int mutations = MUTATIONS / n > MUTATIONS_PER_FILE ? MUTATIONS / n : MUTATIONS_PER_FILE, failed = 0;
    printf("1..%d\n", n);
    for (int i = 0; i < n; i++) {
        char path[sizeof folder + 256];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]->d_name);
        bool ok = replay(path, mutations, input);
        failed += !ok;
        printf("%sok %d - %s and %d mutations\n", ok ? "" : "not ", i + 1, files[i]->d_name, mutations);
        fflush(stdout);
        free(files[i]);
    }
    free(files);
    close(input);
    unlink(kept);
    return failed ? 1 : 0;
}

static int replay_files(char **paths, int n)
{
    int failed = 0;
    printf("1..%d\n", n);
    for (int i = 0; i < n; i++) {
        bool ok = replay(paths[i], 0, -1);
        failed += !ok;
        printf("%sok %d - %s\n", ok ? "" : "not ", i + 1, paths[i]);
        fflush(stdout);
    }
    return failed ? 1 : 0;
}

// The target's name: what follows fuzz_ in the program's.
static const char *target_name(const char *program)
{
    const char *slash = strrchr(program, '/');
    const char *base = slash ? slash + 1 : program;
    if (!strncmp(base, "lt-", 3))  // libtool's
        base += 3;
    return strncmp(base, "fuzz_", 5) ? NULL : base + 5;
}

int main(int argc, char **argv)
{
    const char *name = target_name(argv[0]);
    if (!name) {
        fprintf(stderr, "%s: is not called fuzz_NAME\n", argv[0]);
        return 64;
    }
    return argc > 1 ? replay_files(argv + 1, argc - 1) : replay_corpus(name);
}

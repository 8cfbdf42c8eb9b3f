// SPDX-License-Identifier: Apache-2.0
//
// The data calls of the psd core: what they do to values of every dtype, to parts of blocks, to rounds, all at once or
// not at all; and that what is wrong with a request changes nothing.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/plan/cost.h"
#include "psd/job/staging.h"
#include "tests/unit/psd_store.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

// ---- allocations that fail ----------------------------------------------------------------------------------------

// Allocations of this thread that are still to succeed; below 0: all do.
static _Thread_local long allocations_left = -1;

// What this thread gets from aligned_alloc is full of this byte; 0: of whatever there is.
static _Thread_local int allocation_fill;

static bool may_allocate(void)
{
    return allocations_left < 0 || allocations_left-- > 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

// A pool, and how many pages have been allocated while its lock was free.
static struct psd_pool *unlocked_pool;
static int pages_unlocked;

void *__wrap_malloc(size_t size)
{
    return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_allocate() ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *p, size_t size)
{
    return may_allocate() ? __real_realloc(p, size) : NULL;
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    if (unlocked_pool && pthread_mutex_trylock(&unlocked_pool->lock) == 0) {
        pages_unlocked++;
        pthread_mutex_unlock(&unlocked_pool->lock);
    }
    void *p = may_allocate() ? __real_aligned_alloc(alignment, size) : NULL;
    return p && allocation_fill ? memset(p, allocation_fill, size) : p;
}

// ---- what happens in between ---------------------------------------------------------------------------------------

// Called once when this thread is about to change or pin a block, with no lock of one held.
static _Thread_local void (*before_update)(void *arg);
static _Thread_local void *before_update_arg;

int __real_pthread_rwlock_rdlock(pthread_rwlock_t *lock);
int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t *lock);

int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
    void (*fn)(void *) = before_update;
    before_update = NULL;
    if (fn)
        fn(before_update_arg);
    return __real_pthread_rwlock_rdlock(lock);
}

// How often this thread has kept all others out of a lock.
static _Thread_local int kept_out;

int __real_pthread_rwlock_wrlock(pthread_rwlock_t *lock);
int __wrap_pthread_rwlock_wrlock(pthread_rwlock_t *lock);

int __wrap_pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
    kept_out++;
    return __real_pthread_rwlock_wrlock(lock);
}

// ---- dtypes -------------------------------------------------------------------------------------------------------

static const struct spec numbers[] = {
    {"f", D(FLOAT32), 5, false},  {"d", D(FLOAT64), 5, false}, {"i", D(INT32), 5, false}, {"l", D(INT64), 5, false},
    {"b", D(BFLOAT16), 5, false}, {"h", D(FLOAT16), 5, false}, {"u", D(UINT8), 5, false}, {"s", D(STRING), 5, false},
};

// Five elements of a value, in a dtype that is a number.
static void number_bytes(struct change *c, Paramserver__V1__DType dtype, int value)
{
    for (int k = 0; k < 5; k++) {
        float f = (float)value;
        double d = value;
        int32_t i = value;
        int64_t l = value;
        if (dtype == D(FLOAT32))
            change_bytes(c, &f, sizeof f);
        else if (dtype == D(FLOAT64))
            change_bytes(c, &d, sizeof d);
        else if (dtype == D(INT32))
            change_bytes(c, &i, sizeof i);
        else
            change_bytes(c, &l, sizeof l);
    }
}

// put 7, + 4, - 13, push 5: 3, however the payload is cut.
static void test_arithmetic(void **state)
{
    const struct {
        int method, value;
    } steps[] = {{M(PUT), 7}, {M(ASSIGN_ADD), 4}, {M(ASSIGN_SUB), 13}, {M(PUSH), 5}};
    struct store s;
    uint64_t sequence = 0;
    (void)state;
    store_open(&s, ASYNC, "sgd", 8 << 20, numbers, COUNT(numbers));
    for (int i = 0; i < 4; i++) {
        struct change c, expected;
        for (size_t k = 0; k < COUNT(steps); k++) {
            change_init(&c, 0, ++sequence);
            change_range(&c, numbers[i].name, numbers[i].dtype, 0, 5);
            number_bytes(&c, numbers[i].dtype, steps[k].value);
            c.cut = k * 3;
            change_ok(&s, &c, steps[k].method, OUTCOME(APPLIED));
            assert_int_equal(c.results[0].version, k + 1);
            change_fini(&c);
        }
        uint8_t got[40];
        change_init(&expected, 0, 1);
        number_bytes(&expected, numbers[i].dtype, 3);
        get_values(&s, numbers[i].name, 0, 5, got, expected.len);
        assert_memory_equal(got, expected.bytes, expected.len);
        change_fini(&expected);
    }
    psd_core_destroy(s.core);
}

static void test_integers_wrap(void **state)
{
    const int32_t least[5] = {INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN}, one[5] = {1, 1, 1, 1, 1};
    struct store s;
    struct change c;
    int32_t got[5];
    (void)state;
    store_open(&s, ASYNC, "sgd", 8 << 20, numbers, COUNT(numbers));
    for (uint64_t k = 0; k < 2; k++) {
        change_init(&c, 0, k + 1);
        change_range(&c, "i", D(INT32), 0, 5);
        change_bytes(&c, k ? one : least, sizeof least);
        change_ok(&s, &c, k ? M(ASSIGN_SUB) : M(PUT), OUTCOME(APPLIED));
        change_fini(&c);
    }
    get_values(&s, "i", 0, 5, got, sizeof got);
    assert_int_equal(got[4], INT32_MAX);
    psd_core_destroy(s.core);
}

// What cannot be added to can be put and got, bit by bit, in parts too.
static void test_put_only(void **state)
{
    static const int methods[] = {M(ASSIGN_ADD), M(ASSIGN_SUB), M(PUSH), M(PUSH_PULL)};
    const uint8_t bits[10] = {0, 0x80, 0xff, 0x7f, 1, 0xc0, 0x7e, 9, 0x55, 0xaa};
    struct store s;
    (void)state;
    store_open(&s, ASYNC, "sgd", 8 << 20, numbers, COUNT(numbers));
    for (size_t i = 4; i < 7; i++) {
        size_t size = numbers[i].dtype == D(UINT8) ? 1 : 2;
        uint8_t got[10];
        struct change c;
        change_init(&c, 0, i);
        change_range(&c, numbers[i].name, numbers[i].dtype, 0, 5);
        change_bytes(&c, bits, 5 * size);
        for (size_t k = 0; k < COUNT(methods); k++) {
            char text[64];
            snprintf(text, sizeof text, "variable '%s' is %s", numbers[i].name, ps_dtype_name((int)numbers[i].dtype));
            change_refused(&s, &c, methods[k], PS_INVALID_ARGUMENT, text);
        }
        change_ok(&s, &c, M(PUT), OUTCOME(APPLIED));
        get_values(&s, numbers[i].name, 0, 5, got, 5 * size);
        assert_memory_equal(got, bits, 5 * size);
        get_values(&s, numbers[i].name, 3, 2, got, 2 * size);
        assert_memory_equal(got, bits + 3 * size, 2 * size);
        change_fini(&c);
    }
    psd_core_destroy(s.core);
}

static void test_trainable_is_float32(void **state)
{
    (void)state;
    for (int dtype = D(FLOAT64); dtype <= (int)D(STRING) + 1; dtype++) {
        const struct spec spec = {"x", (Paramserver__V1__DType)dtype, 5, true};
        struct store s = {.core = core_new(1 << 20)};
        join(s.core, 0, ASYNC);
        struct answer a = store_declare(&s, ASYNC, "sgd", &spec, 1);
        assert_int_equal(a.code, PS_INVALID_ARGUMENT);
        assert_non_null(strstr(a.text, dtype > (int)D(STRING) ? "not one of float32" : "must be float32"));
        assert_int_equal(pages_used(s.core), 0);
        psd_core_destroy(s.core);
    }
}

// ---- strings ------------------------------------------------------------------------------------------------------

enum { STRINGS = 2500 };  // two blocks and a part of one

// The i-th string: its length and first byte depend on i and on which text it is.
static uint32_t string_length(uint64_t i, uint32_t text)
{
    return (uint32_t)((i * 7 + text) % 13);
}

// Strings [first, first + count) of a text as a range of an update.
static void change_strings(struct change *c, const char *name, uint64_t first, uint64_t count, uint32_t text)
{
    size_t before = c->len;
    for (uint64_t i = first; i < first + count; i++)
        change_bytes(c, &(uint32_t){string_length(i, text)}, 4);
    for (uint64_t i = first; i < first + count; i++)
        for (uint32_t k = 0; k < string_length(i, text); k++)
            change_bytes(c, &(uint8_t){(uint8_t)(i + k + text)}, 1);
    change_range(c, name, D(STRING), first, count)->bytes = c->len - before;
}

static void check_strings(struct store *s, const char *name, uint64_t first, uint64_t count, uint32_t text)
{
    struct change expected;
    struct reading_of x;
    change_init(&expected, 0, 1);
    change_strings(&expected, name, first, count, text);
    read_init(&x);
    read_range(&x, name, first, count);
    read_ok(s, &x, M(GET));
    assert_int_equal(x.values.len, expected.len);
    assert_int_equal(x.reply->n_tensors, 1);
    assert_int_equal(x.reply->tensors[0]->bytes, expected.len);
    assert_int_equal(x.reply->tensors[0]->count, count);
    uint8_t *got = malloc(expected.len);
    ps_slices_copy_out(&x.values, 0, expected.len, got);
    assert_memory_equal(got, expected.bytes, expected.len);
    free(got);
    read_fini(&x);
    change_fini(&expected);
}

// A client that is no worker changes something before a psd's first tick, loses the answer and repeats it after that.
static void test_update_before_the_first_tick(void **state)
{
    const struct spec specs[] = {{"w", D(FLOAT32), 4, false}};
    struct store s;
    struct change c;
    (void)state;
    store_open(&s, ASYNC, "sgd", 8 << 20, specs, 1);
    change_init(&c, 0, 1);
    c.caller.worker = 0;
    change_floats(&c, "w", 0, 4, 1);
    change_ok(&s, &c, M(ASSIGN_ADD), OUTCOME(APPLIED));
    core_run(s.core, PS_SECOND);
    change_ok(&s, &c, M(ASSIGN_ADD), OUTCOME(DUPLICATE));
    change_fini(&c);
    psd_core_destroy(s.core);
}

static void test_strings(void **state)
{
    const struct spec specs[] = {{"s", D(STRING), STRINGS, false}};
    struct store s;
    struct change c;
    uint32_t lengths[STRINGS];
    (void)state;
    store_open(&s, ASYNC, "sgd", 8 << 20, specs, 1);
    assert_int_equal(s.core->table.newest->partitions[0].n_blocks, 3);
    // Unset elements are empty.
    get_values(&s, "s", 0, STRINGS, lengths, sizeof lengths);
    for (size_t i = 0; i < STRINGS; i++)
        assert_int_equal(lengths[i], 0);
    for (uint32_t text = 1; text < 4; text++) {
        change_init(&c, 0, text);
        change_strings(&c, "s", 0, STRINGS, text);
        c.cut = text == 1 ? 0 : 1000 + text;
        change_ok(&s, &c, M(PUT), OUTCOME(APPLIED));
        change_ok(&s, &c, M(PUT), OUTCOME(DUPLICATE));
        change_fini(&c);
        check_strings(&s, "s", 0, STRINGS, text);
        check_strings(&s, "s", 1000, 1100, text);
        check_strings(&s, "s", 2499, 1, text);
    }
    // One block alone; the others keep theirs.
    change_init(&c, 0, 9);
    change_strings(&c, "s", 1024, 1024, 8);
    change_ok(&s, &c, M(PUT), OUTCOME(APPLIED));
    change_fini(&c);
    check_strings(&s, "s", 0, 1024, 3);
    check_strings(&s, "s", 1024, 1024, 8);
    check_strings(&s, "s", 2048, STRINGS - 2048, 3);
    // The pool has no page more than the blocks have.
    size_t bytes = 0;
    for (uint32_t k = 0; k < 3; k++)
        bytes += store_block(&s, "s", k)->page->bytes;
    assert_int_equal(s.core->table.newest->store.page_bytes, bytes);
    assert_int_equal(pages_used(s.core), bytes + s.core->table.newest->room);
    struct reading_of x;
    read_init(&x);
    read_range(&x, "s", 0, 10);
    read_refused(&s, &x, M(PULL), PS_INVALID_ARGUMENT, "variable 's' is string");
    psd_core_destroy(s.core);
}

static void test_bad_strings(void **state)
{
    const struct spec specs[] = {
        {"s", D(STRING), STRINGS, false}, {"f", D(FLOAT32), 4, false}, {"t", D(STRING), 1, false}};
    struct store s;
    struct change c;
    (void)state;
    store_open(&s, ASYNC, "sgd", 16 << 20, specs, 3);
    const struct {
        uint64_t first, count;
        int64_t more;   // than the bytes there are, in the header
        size_t drop;    // of the payload
        uint32_t grow;  // the last length
        const char *text;
    } bad[] = {
        {0, 1000, 0, 0, 0, "covers whole blocks of 1024"},
        {1, 1024, 0, 0, 0, "covers whole blocks of 1024"},
        {1024, STRINGS - 1025, 0, 0, 0, "covers whole blocks of 1024"},
        {0, 1024, 1, 0, 0, "at most"},
        {0, 1024, -1, 0, 0, "do not make"},
        {0, 1024, INT64_MAX, 0, 0, "at most"},
        {0, 1024, 0, 1, 0, "at most"},
        {0, 1024, -100, 100, 0, "do not make"},
        {0, 1024, 0, 0, 1, "do not make"},
        {0, 1024, 0, 0, UINT32_MAX, "a block of them has at most"},
        {0, STRINGS, -1, 0, 0, "do not make"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        change_init(&c, 0, 1);
        change_strings(&c, "s", bad[i].first, bad[i].count, 1);
        c.t[0].bytes += (uint64_t)bad[i].more;
        c.len -= bad[i].drop;
        uint32_t length;
        memcpy(&length, c.bytes + 4 * (bad[i].count - 1), 4);
        length = bad[i].grow == UINT32_MAX ? UINT32_MAX : length + bad[i].grow;
        memcpy(c.bytes + 4 * (bad[i].count - 1), &length, 4);
        change_refused(&s, &c, M(PUT), PS_INVALID_ARGUMENT, bad[i].text);
        change_fini(&c);
    }
    // No bytes at all, or less than the lengths take.
    for (uint64_t bytes = 0; bytes < 4096; bytes += 4095) {
        change_init(&c, 0, 1);
        change_range(&c, "s", D(STRING), 0, 1024)->bytes = bytes;
        memset(change_room(&c, bytes), 0, bytes);
        change_refused(&s, &c, M(PUT), PS_INVALID_ARGUMENT, "at least 4096");
        change_fini(&c);
    }
    // Strings that leave no bytes to what follows them.
    change_init(&c, 0, 1);
    change_strings(&c, "s", 0, 1024, 1);
    change_range(&c, "f", D(FLOAT32), 0, 4);
    change_refused(&s, &c, M(PUT), PS_INVALID_ARGUMENT, "bytes of payload");
    change_fini(&c);
    // Nor to further strings, whose announced bytes would make up for it once they wrap around.
    change_init(&c, 0, 1);
    change_strings(&c, "s", 0, 1024, 1);
    change_range(&c, "f", D(FLOAT32), 0, 4);
    change_range(&c, "t", D(STRING), 0, 1)->bytes = (uint64_t)-16;
    change_refused(&s, &c, M(PUT), PS_INVALID_ARGUMENT, "at most the 0 that came");
    change_fini(&c);
    psd_core_destroy(s.core);
}

// A block of 1024 strings of which the first is this long.
static void change_long_string(struct change *c, const char *name, uint64_t first, uint32_t length)
{
    uint8_t *text = calloc(1, length + 1);
    memset(text, 'x', length);
    for (uint32_t i = 0; i < 1024; i++)
        change_bytes(c, &(uint32_t){i ? 0 : length}, 4);
    change_bytes(c, text, length);
    change_range(c, name, D(STRING), first, 1024)->bytes = 4096 + length;
    free(text);
}

// A block is as long as can be read back, no longer. Blocks of one size are followed by those of another, and the room
// for that is asked for before anything changes.
static void test_long_strings(void **state)
{
    const struct spec specs[] = {{"s", D(STRING), 2048, false}};
    const uint32_t most = PS_CHUNK_MAX - 1024 - 4096;
    struct store s;
    struct change c;
    struct reading_of x;
    (void)state;
    store_open(&s, ASYNC, "sgd", 12 << 20, specs, 1);
    change_init(&c, 0, 1);
    change_long_string(&c, "s", 0, most + 1);
    change_refused(&s, &c, M(PUT), PS_INVALID_ARGUMENT, "a block of them has at most");
    change_fini(&c);
    for (uint64_t k = 0; k < 2; k++) {
        change_init(&c, 0, 1);
        change_long_string(&c, "s", k * 1024, most);
        change_ok(&s, &c, M(PUT), OUTCOME(APPLIED));
        change_fini(&c);
    }
    // Two messages, of one instant: nobody updates while the blocks are pinned.
    read_init(&x);
    read_range(&x, "s", 0, 0);
    kept_out = 0;
    read_ok(&s, &x, M(GET));
    assert_int_equal(kept_out, 1);
    assert_int_equal(x.values.len, 4096 + most);
    x.r.offset = x.reply->next_offset;
    x.r.snapshot = x.reply->snapshot;
    assert_true(x.r.offset == x.values.len && x.r.snapshot);
    // 8 MiB are held: two more blocks do not fit until the reader has given way.
    change_init(&c, 0, 2);
    change_long_string(&c, "s", 0, 100);
    change_ok(&s, &c, M(PUT), OUTCOME(APPLIED));
    change_fini(&c);
    read_ok(&s, &x, M(GET));
    assert_int_equal(x.values.len, 4096 + most);
    assert_int_equal(x.reply->tensors[0]->first, 1024);
    read_fini(&x);
    change_init(&c, 0, 3);
    change_long_string(&c, "s", 1024, 1 << 20);
    for (uint64_t k = 0; k < 6; k++) {
        change_ok(&s, &c, M(PUT), OUTCOME(APPLIED));
        c.caller.sequence = c.caller.oldest = k + 4;
    }
    change_fini(&c);
    psd_core_destroy(s.core);
    // Where there is no reader to give way it is refused.
    store_open(&s, ASYNC, "sgd", 1 << 20, specs, 1);
    change_init(&c, 0, 1);
    change_long_string(&c, "s", 0, 1 << 20);
    change_refused(&s, &c, M(PUT), PS_RESOURCE_EXHAUSTED, "do not fit the limit");
    change_fini(&c);
    psd_core_destroy(s.core);
}

// ---- slices -------------------------------------------------------------------------------------------------------

static const struct spec floats_of[] = {{"w", D(FLOAT32), 3 * BLOCK, true}, {"n", D(FLOAT32), 3 * BLOCK, false}};

// Two slices of one block, and one over the edge of two, are one update of each block: one sequence, one version, one
// step; the other elements stay.
static void test_slices(void **state)
{
    (void)state;
    for (int pinned = 0; pinned < 2; pinned++) {
        struct store s;
        struct change c;
        struct reading_of x;
        store_open(&s, ASYNC, "momentum", 64 << 20, floats_of, 2);
        change_init(&c, 0, 1);
        change_floats(&c, "w", 0, 3 * BLOCK, 5);
        change_ok(&s, &c, M(PUT), OUTCOME(APPLIED));
        change_fini(&c);
        if (pinned) {
            read_init(&x);
            read_range(&x, "w", 0, 0);
            read_ok(&s, &x, M(GET));
        }
        change_init(&c, 0, 2);
        change_floats(&c, "w", 3, 4, 100);
        change_floats(&c, "w", 9, 1, 200);
        change_floats(&c, "w", BLOCK - 1, 2, 300);
        c.cut = 5;
        change_ok(&s, &c, M(PUSH), OUTCOME(APPLIED));
        assert_int_equal(c.results[0].blocks, 1);
        assert_int_equal(c.results[2].blocks, 2);
        assert_int_equal(c.results[2].version, 2);
        change_ok(&s, &c, M(PUSH), OUTCOME(DUPLICATE));
        const float expected[] = {5, 5, 5, 4, 4, 4, 4, 5, 5, 3, 5};
        float got[COUNT(expected)];
        get_values(&s, "w", 0, COUNT(expected), got, sizeof got);
        assert_memory_equal(got, expected, sizeof got);
        assert_true(get_float(&s, "w", BLOCK - 1) == 2 && get_float(&s, "w", BLOCK) == 2);
        assert_true(get_float(&s, "w", BLOCK - 2) == 5 && get_float(&s, "w", BLOCK + 1) == 5);
        assert_true(get_float(&s, "w", 2 * BLOCK) == 5);
        const uint64_t versions[] = {2, 2, 1}, steps[] = {1, 1, 0};
        for (uint32_t k = 0; k < 3; k++) {
            assert_int_equal(store_block(&s, "w", k)->version, versions[k]);
            assert_int_equal(store_block(&s, "w", k)->steps, steps[k]);
        }
        // The slots of the others have not moved: momentum is of these elements alone.
        change_fini(&c);
        change_init(&c, 0, 3);
        change_floats(&c, "w", 0, 4, 0);
        change_ok(&s, &c, M(PUSH), OUTCOME(APPLIED));
        assert_true(get_float(&s, "w", 2) == 5 && get_float(&s, "w", 3) == 3.5f);
        change_fini(&c);
        if (pinned)
            read_fini(&x);
        psd_core_destroy(s.core);
    }
}

static void test_slices_of_the_rest(void **state)
{
    struct store s;
    struct change c;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    static const int methods[] = {M(PUT), M(ASSIGN_ADD), M(ASSIGN_SUB), M(PUSH)};
    const float expected[] = {8, 16, 8, 16};
    for (uint64_t k = 0; k < COUNT(methods); k++) {
        change_init(&c, 0, k + 1);
        change_floats(&c, "n", 7, 2, 8);
        change_floats(&c, "n", BLOCK + 7, 1, 8);
        change_ok(&s, &c, methods[k], OUTCOME(APPLIED));
        assert_true(get_float(&s, "n", 8) == expected[k] && get_float(&s, "n", BLOCK + 7) == expected[k]);
        assert_true(get_float(&s, "n", 6) == 0 && get_float(&s, "n", 9) == 0);
        change_fini(&c);
    }
    psd_core_destroy(s.core);
}

// Ranges of a variable come one after the other, in order and apart; in updates and in reads.
static void test_order_of_ranges(void **state)
{
    const struct {
        struct {
            const char *name;
            uint64_t first, count;
        } ranges[3];
        const char *text;
    } bad[] = {
        {{{"w", 0, 4}, {"w", 0, 4}, {0}}, "in order, without overlap"},
        {{{"w", 4, 4}, {"w", 0, 4}, {0}}, "in order, without overlap"},
        {{{"w", 0, 5}, {"w", 4, 4}, {0}}, "in order, without overlap"},
        {{{"w", 0, 0}, {"w", 4, 4}, {0}}, "in order, without overlap"},
        {{{"w", BLOCK, 4}, {"w", 0, 4}, {0}}, "in order, without overlap"},
        {{{"w", 0, 4}, {"n", 0, 4}, {"w", 4, 4}}, "'w' comes again"},
        {{{"n", 0, 4}, {"w", 0, 4}, {"n", 0, 4}}, "'n' comes again"},
    };
    struct store s;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct change c;
        struct reading_of x;
        change_init(&c, 0, 1);
        read_init(&x);
        for (int k = 0; k < 3 && bad[i].ranges[k].name; k++) {
            uint64_t count = bad[i].ranges[k].count;
            change_floats(&c, bad[i].ranges[k].name, bad[i].ranges[k].first, count ? count : 3 * BLOCK, 1);
            c.t[k].count = count;
            read_range(&x, bad[i].ranges[k].name, bad[i].ranges[k].first, count);
        }
        change_refused(&s, &c, M(PUSH), PS_INVALID_ARGUMENT, bad[i].text);
        read_refused(&s, &x, M(GET), PS_INVALID_ARGUMENT, bad[i].text);
        read_refused(&s, &x, M(PULL), PS_INVALID_ARGUMENT, bad[i].text);
        change_fini(&c);
    }
    // In another order than they were declared in.
    struct change c;
    change_init(&c, 0, 1);
    change_floats(&c, "n", 0, 4, 1);
    change_floats(&c, "n", 4, 4, 1);
    change_floats(&c, "w", 0, 4, 1);
    change_ok(&s, &c, M(PUSH), OUTCOME(APPLIED));
    assert_int_equal(store_block(&s, "n", 0)->version, 1);
    change_fini(&c);
    psd_core_destroy(s.core);
}

// A push to a round is of whole blocks; what is in no round may be cut.
static void test_rounds_take_whole_blocks(void **state)
{
    struct store s;
    struct change c;
    (void)state;
    store_open(&s, SYNC, "sgd", 64 << 20, floats_of, 2);
    change_init(&c, 0, 1);
    c.r.round = 1;
    change_floats(&c, "w", 0, BLOCK - 1, 1);
    change_refused(&s, &c, M(PUSH), PS_INVALID_ARGUMENT, "a push to a round covers whole blocks");
    change_ok(&s, &c, M(PUT), OUTCOME(APPLIED));
    change_fini(&c);
    change_init(&c, 0, 2);
    change_floats(&c, "n", 1, 2, 1);
    change_ok(&s, &c, M(PUSH), OUTCOME(APPLIED));
    change_fini(&c);
    psd_core_destroy(s.core);
}

// Of many partitions, each element is found in its own.
static void test_partitions(void **state)
{
    enum { PARTITIONS = RANGES };
    const struct spec spec = {"w", D(FLOAT32), 1 + 2 + 4 + 8 + 16 + 32 + 64 + 128, false};
    struct store s;
    struct job j;
    struct declaring x;
    struct change c;
    (void)state;
    s.core = j.core = core_new_task(0, 2, 1 << 20);
    join(s.core, 0, ASYNC);
    declare_init(&x, &j, ASYNC, "sgd");
    paramserver__v1__variable__init(s.variables[0] = &s.v[0]);
    s.shape[0] = spec.count;
    s.v[0].name = (char *)spec.name;
    s.v[0].dtype = spec.dtype;
    s.v[0].n_shape = 1;
    s.v[0].shape = s.shape;
    for (uint32_t i = 0, first = 0; i < PARTITIONS; first += 1U << i++) {
        paramserver__v1__partition__init(s.partitions[i] = &s.p[i]);
        s.p[i].first = first;
        s.p[i].count = 1U << i;
        s.p[i].task = i == 5;
    }
    x.r.variables = s.variables;
    x.r.partitions = s.partitions;
    x.r.n_variables = 1;
    x.r.n_partitions = PARTITIONS;
    assert_int_equal(ask(s.core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    for (uint64_t i = 0; i < spec.count; i++) {
        change_init(&c, 0, i + 1);
        change_floats(&c, "w", i, 1, (float)i);
        if (i >= 31 && i < 63)
            change_refused(&s, &c, M(PUT), PS_FAILED_PRECONDITION, "lie on ps task 1");
        else
            change_ok(&s, &c, M(PUT), OUTCOME(APPLIED));
        change_fini(&c);
    }
    float got[31];
    get_values(&s, "w", 0, 31, got, sizeof got);
    for (int i = 0; i < 31; i++)
        assert_true(got[i] == (float)i);
    assert_true(get_float(&s, "w", 63) == 63 && get_float(&s, "w", 254) == 254);
    change_init(&c, 0, 999);
    change_floats(&c, "w", 30, 2, 1);
    change_refused(&s, &c, M(PUT), PS_FAILED_PRECONDITION, "elements from 31 on lie on ps task 1");
    change_fini(&c);
    psd_core_destroy(s.core);
}

// ---- PushPull -----------------------------------------------------------------------------------------------------

static float value_at(const struct ps_slices *values, size_t i)
{
    float x;
    ps_slices_copy_out(values, i * sizeof x, sizeof x, &x);
    return x;
}

static void test_push_pull(void **state)
{
    struct store s;
    struct change c;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    change_init(&c, 0, 1);
    change_floats(&c, "w", BLOCK - 1, 2, 100);
    change_floats(&c, "n", 5, 1, 7);
    for (int again = 0; again < 2; again++) {
        change_ok(&s, &c, M(PUSH_PULL), again ? OUTCOME(DUPLICATE) : OUTCOME(APPLIED));
        assert_int_equal(c.values.len, 3 * sizeof(float));
        assert_true(value_at(&c.values, 0) == -1 && value_at(&c.values, 1) == -1 && value_at(&c.values, 2) == 7);
    }
    change_fini(&c);
    // What it pulls goes back in one message, whatever it pushes.
    change_init(&c, 0, 2);
    change_floats(&c, "w", 0, 2 * BLOCK, 1);
    change_ok(&s, &c, M(PUSH_PULL), OUTCOME(APPLIED));
    assert_int_equal(c.values.len, 2 * PS_BLOCK_BYTES);
    change_fini(&c);
    psd_core_destroy(s.core);
    const struct spec large = {"w", D(FLOAT32), 8 * BLOCK, true};
    store_open(&s, ASYNC, "sgd", 64 << 20, &large, 1);
    change_init(&c, 0, 1);
    change_floats(&c, "w", 0, 8 * BLOCK, 1);
    change_refused(&s, &c, M(PUSH_PULL), PS_INVALID_ARGUMENT, "the reply would have ");
    change_ok(&s, &c, M(PUSH), OUTCOME(APPLIED));
    change_fini(&c);
    psd_core_destroy(s.core);
}

static void send_later(struct store *s, struct change *c, int method, struct answer *a)
{
    struct ps_slices payload = change_payload(c);
    ask_later(s->core, a, method, &c->r.base, &payload, UINT64_MAX);
}

static void round_push(struct change *c, uint32_t rank, uint64_t sequence, uint64_t round, float value)
{
    change_init(c, rank, sequence);
    c->r.round = round;
    change_floats(c, "w", 0, 3 * BLOCK, value);
}

// In a sync job it waits for its round: the call that closes it lets it go, with what it did at first.
static void test_push_pull_in_rounds(void **state)
{
    struct store s;
    struct change first, second;
    struct answer waiting;
    (void)state;
    store_open(&s, SYNC, "sgd", 64 << 20, floats_of, 2);
    round_push(&first, 0, 1, 1, 100);
    change_floats(&first, "n", 0, 2, NAN);
    send_later(&s, &first, M(PUSH_PULL), &waiting);
    assert_false(waiting.answered);
    assert_true(get_float(&s, "w", 0) == 0);
    // A retry of it waits as well, and is not counted again.
    struct answer retry;
    send_later(&s, &first, M(PUSH_PULL), &retry);
    assert_false(retry.answered);
    round_push(&second, 1, 1, 1, 300);
    change_ok(&s, &second, M(PUSH_PULL), OUTCOME(QUEUED));
    assert_int_equal(second.round, 1);
    assert_true(value_at(&second.values, 0) == -2);
    assert_true(waiting.answered && retry.answered);
    assert_int_equal(waiting.code, PS_OK);
    assert_int_equal(retry.code, PS_OK);
    change_take_reply(&first, M(PUSH_PULL), &waiting.body);
    assert_int_equal(first.results[0].outcome, OUTCOME(QUEUED));
    assert_int_equal(first.results[1].outcome, OUTCOME(APPLIED));
    assert_int_equal(first.results[0].round, 1);
    assert_int_equal(first.results[0].duplicates, 0);
    assert_int_equal(first.results[1].nonfinite, 2);
    assert_int_equal(first.round, 1);
    assert_int_equal(first.values.len, (3 * BLOCK + 2) * sizeof(float));
    assert_true(value_at(&first.values, 3 * BLOCK - 1) == -2 && isnan(value_at(&first.values, 3 * BLOCK)));
    assert_int_equal(s.core->table.newest->nonfinite, 1);
    assert_int_equal(s.core->table.newest->updates, 2);
    ps_slices_clear(&waiting.body);
    ps_slices_clear(&retry.body);
    // Sent again it is a duplicate, and finds the round closed.
    change_ok(&s, &first, M(PUSH_PULL), OUTCOME(DUPLICATE));
    change_fini(&first);
    change_fini(&second);
    // One that comes late is told so at once, and which round is open.
    round_push(&first, 0, 2, 1, 100);
    change_ok(&s, &first, M(PUSH_PULL), OUTCOME(STALE));
    assert_int_equal(first.results[0].round, 2);
    assert_true(value_at(&first.values, 0) == -2);
    change_ok(&s, &first, M(PUSH), OUTCOME(STALE));
    assert_int_equal(first.results[0].round, 2);
    change_fini(&first);
    // What waits when the task stops is told to go elsewhere.
    round_push(&first, 0, 3, 2, 100);
    send_later(&s, &first, M(PUSH_PULL), &waiting);
    assert_false(waiting.answered);
    psd_core_drain(s.core);
    assert_int_equal(waiting.code, PS_UNAVAILABLE);
    change_fini(&first);
    psd_core_destroy(s.core);
}

// ---- atomic updates -----------------------------------------------------------------------------------------------

// The k-th of two requests of an atomic update over "w" (two blocks) and "n": they add `value` to all of it.
static void part_init(struct change *c, uint32_t rank, uint64_t sequence, int k, float value)
{
    change_init(c, rank, sequence);
    if (k == 0) {
        change_floats(c, "w", 0, BLOCK, value);
    } else {
        change_floats(c, "w", BLOCK, 10, value);
        change_floats(c, "w", BLOCK + 20, 10, value);
        change_floats(c, "n", 0, 10, value);
    }
    c->r.atomic_bytes = (BLOCK + 30) * sizeof(float);
}

static void part_ok(struct store *s, uint32_t rank, uint64_t sequence, int k, float value, int method,
                    Paramserver__V1__Outcome outcome)
{
    struct change c;
    part_init(&c, rank, sequence, k, value);
    change_ok(s, &c, method, outcome);
    change_fini(&c);
}

static void test_atomic(void **state)
{
    static const int methods[] = {M(PUT), M(ASSIGN_ADD), M(ASSIGN_SUB), M(PUSH)};
    const float w[] = {64, 128, 64, 63.36f}, n[] = {64, 128, 64, 128};
    struct store s;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    for (uint64_t k = 0; k < COUNT(methods); k++) {
        size_t before = pages_used(s.core);
        float was = get_float(&s, "w", 0);
        uint64_t digest = store_digest(&s);
        for (int again = 0; again < 3; again++) {
            part_ok(&s, 0, k + 1, 0, 64, methods[k], OUTCOME(STAGED));
            assert_true(get_float(&s, "w", 0) == was && store_block(&s, "w", 0)->version == k);
        }
        assert_true(store_digest(&s) != digest && pages_used(s.core) > before + PS_BLOCK_BYTES);
        part_ok(&s, 0, k + 1, 1, 64, methods[k], OUTCOME(APPLIED));
        assert_true(get_float(&s, "w", 0) == w[k] && get_float(&s, "w", BLOCK + 29) == w[k]);
        assert_true(get_float(&s, "n", 9) == n[k]);
        assert_true(get_float(&s, "w", BLOCK + 15) == 0 && get_float(&s, "n", 10) == 0);
        assert_int_equal(store_block(&s, "w", 1)->version, k + 1);
        assert_int_equal(pages_used(s.core), before);
        for (int again = 0; again < 2; again++) {
            part_ok(&s, 0, k + 1, 0, 64, methods[k], OUTCOME(DUPLICATE));
            part_ok(&s, 0, k + 1, 1, 64, methods[k], OUTCOME(DUPLICATE));
        }
        assert_null(s.core->table.newest->staged);
    }
    assert_int_equal(s.core->table.newest->updates, COUNT(methods));
    psd_core_destroy(s.core);
}

// The job comes into its rounds while the last request of an atomic push is on its way to the blocks: none is changed.
static void test_atomic_late(void **state)
{
    struct store s;
    struct change c;
    struct ps_error e;
    struct psd_extents extents = {0};
    Paramserver__V1__Outcome outcome;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    struct psd_job *job = s.core->table.newest;
    part_ok(&s, 0, 1, 0, 64, M(PUSH), OUTCOME(STAGED));
    part_init(&c, 0, 1, 1, 64);
    struct ps_slices payload = change_payload(&c);
    struct psd_feed feed = {.payload = &payload};
    struct psd_atomic a = {.caller = &c.caller,
                           .bytes = c.r.atomic_bytes,
                           .now = test_time,
                           .method = M(PUSH),
                           .extents = &extents,
                           .feed = &feed};
    assert_int_equal(psd_job_client(job, &c.caller, &a.id, &e), PS_OK);
    assert_int_equal(psd_job_locate(job, c.tensors, c.r.n_tensors, PSD_PUSH, payload.len, &extents, &e), PS_OK);
    for (size_t i = 1; i < extents.n; i++)
        extents.v[i].at = extents.v[i - 1].at + extents.v[i - 1].bytes;
    _Atomic(struct psd_round *) *round = &extents.v[0].partition->round;
    *round = (struct psd_round *)(void *)&s;
    assert_int_equal(psd_staging_add(job, &a, &outcome, &e), PS_UNAVAILABLE);
    assert_non_null(strstr(e.text, "has become sync meanwhile"));
    *round = NULL;
    assert_true(get_float(&s, "w", 0) == 0 && get_float(&s, "n", 0) == 0);
    assert_int_equal(psd_staging_add(job, &a, &outcome, &e), PS_OK);
    assert_int_equal(outcome, OUTCOME(APPLIED));
    psd_extents_free(&extents);
    ps_slices_clear(&payload);
    change_fini(&c);
    psd_core_destroy(s.core);
}

// Two clients' updates are apart; one request may be all of it; a pinned block is copied.
static void test_atomic_apart(void **state)
{
    struct store s;
    struct change c;
    struct reading_of x;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    part_ok(&s, 0, 1, 0, 1, M(ASSIGN_ADD), OUTCOME(STAGED));
    part_ok(&s, 1, 1, 1, 2, M(ASSIGN_ADD), OUTCOME(STAGED));
    read_init(&x);
    read_range(&x, "w", 0, 2 * BLOCK);
    read_ok(&s, &x, M(PULL));
    part_ok(&s, 0, 1, 1, 1, M(ASSIGN_ADD), OUTCOME(APPLIED));
    assert_true(get_float(&s, "w", 0) == 1 && get_float(&s, "w", BLOCK) == 1);
    assert_true(value_at(&x.values, 0) == 0 && value_at(&x.values, BLOCK) == 0);
    read_fini(&x);
    part_ok(&s, 1, 1, 0, 2, M(ASSIGN_ADD), OUTCOME(APPLIED));
    assert_true(get_float(&s, "w", 0) == 3 && get_float(&s, "w", BLOCK) == 3);
    change_init(&c, 0, 2);
    change_floats(&c, "w", 0, 4, 1);
    c.r.atomic_bytes = 16;
    change_ok(&s, &c, M(ASSIGN_ADD), OUTCOME(APPLIED));
    change_fini(&c);
    psd_core_destroy(s.core);
}

static void test_atomic_strings(void **state)
{
    const struct spec specs[] = {{"s", D(STRING), STRINGS, false}};
    struct store s;
    struct change whole, c;
    (void)state;
    store_open(&s, ASYNC, "sgd", 8 << 20, specs, 1);
    change_init(&whole, 0, 1);
    change_strings(&whole, "s", 0, 1024, 1);
    change_strings(&whole, "s", 1024, STRINGS - 1024, 1);
    for (int k = 0; k < 2; k++) {
        change_init(&c, 0, 1);
        change_strings(&c, "s", k ? 0 : 1024, k ? 1024 : STRINGS - 1024, 1);
        c.r.atomic_bytes = whole.len;
        c.cut = 999;
        change_ok(&s, &c, M(PUT), k ? OUTCOME(APPLIED) : OUTCOME(STAGED));
        change_fini(&c);
    }
    check_strings(&s, "s", 0, STRINGS, 1);
    change_fini(&whole);
    psd_core_destroy(s.core);
}

static void test_bad_atomic(void **state)
{
    struct store s;
    struct change c;
    (void)state;
    store_open(&s, ASYNC, "sgd", 4 << 20, floats_of, 2);
    part_init(&c, 0, 1, 0, 1);
    change_refused(&s, &c, M(PUSH_PULL), PS_INVALID_ARGUMENT, "PushPull of an atomic update");
    c.r.atomic_bytes = UINT64_C(1) << 63;
    change_refused(&s, &c, M(PUSH), PS_FAILED_PRECONDITION, "exceeds the limit");
    c.r.atomic_bytes = 4;
    change_refused(&s, &c, M(PUSH), PS_INVALID_ARGUMENT, "atomic update of 4 bytes");
    change_fini(&c);
    // What does not go with what is there already.
    part_ok(&s, 0, 1, 0, 1, M(PUSH), OUTCOME(STAGED));
    part_init(&c, 0, 1, 1, 1);
    change_refused(&s, &c, M(PUT), PS_INVALID_ARGUMENT, "by another method");
    c.r.atomic_bytes++;
    change_refused(&s, &c, M(PUSH), PS_INVALID_ARGUMENT, "a request of it says");
    c.r.atomic_bytes--;
    change_floats(&c, "n", 100, 1, 1);
    change_refused(&s, &c, M(PUSH), PS_INVALID_ARGUMENT, "524288 are here already, 124 more came");
    change_fini(&c);
    part_ok(&s, 0, 1, 1, 1, M(PUSH), OUTCOME(APPLIED));
    psd_core_destroy(s.core);
    // Rounds take effect at once anyway.
    store_open(&s, SYNC, "sgd", 16 << 20, floats_of, 2);
    part_init(&c, 0, 1, 0, 1);
    c.r.round = 1;
    change_refused(&s, &c, M(PUSH), PS_INVALID_ARGUMENT, "not as an atomic update");
    change_ok(&s, &c, M(PUT), OUTCOME(STAGED));
    change_fini(&c);
    psd_core_destroy(s.core);
}

// Whose client moves `oldest` past it while a part is still to come has given it up, and is told so.
static void test_atomic_given_up(void **state)
{
    struct store s;
    struct change c;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    part_ok(&s, 0, 1, 0, 1, M(ASSIGN_ADD), OUTCOME(STAGED));
    change_init(&c, 0, 2);
    change_floats(&c, "n", 100, 1, 1);
    change_ok(&s, &c, M(ASSIGN_ADD), OUTCOME(APPLIED));
    change_fini(&c);
    part_init(&c, 0, 1, 1, 1);
    change_refused(&s, &c, M(ASSIGN_ADD), PS_FAILED_PRECONDITION, "524288 are here, and its sequence 1 was given up");
    change_fini(&c);
    for (int k = 0; k < 2; k++)
        part_ok(&s, 0, 3, k, 1, M(ASSIGN_ADD), k ? OUTCOME(APPLIED) : OUTCOME(STAGED));
    assert_null(s.core->table.newest->staged);
    part_ok(&s, 0, 1, 1, 1, M(ASSIGN_ADD), OUTCOME(DUPLICATE));  // nobody knows of it any more
    assert_true(get_float(&s, "w", 0) == 1 && get_float(&s, "n", 0) == 1);
    psd_core_destroy(s.core);
}

// A commit that was refused keeps no place in the tables of the blocks.
static void assert_nothing_promised(struct store *s)
{
    const struct psd_job *job = s->core->table.newest;
    for (uint32_t i = 0; i < job->n_partitions; i++)
        for (uint32_t k = 0; k < job->partitions[i].n_blocks; k++)
            assert_int_equal(job->partitions[i].blocks[k].dedup.promised, 0);
}

// Where there is no room it is refused, and goes on when there is. copies: of so many pinned blocks there is room.
static void atomic_without_room(uint64_t copies)
{
    struct store s;
    struct change c;
    struct reading_of x[2];
    store_open(&s, ASYNC, "sgd", (3 << 20) + (1200 << 10) + copies * PS_BLOCK_BYTES, floats_of, 2);
    size_t before = pages_used(s.core);
    part_ok(&s, 0, 1, 0, 1, M(ASSIGN_ADD), OUTCOME(STAGED));
    // What the transport holds does not give way: no room for copies of what is pinned.
    for (uint32_t k = 0; k < 2; k++) {
        read_init(&x[k]);
        read_range(&x[k], "w", 0, 0);
        read_ok(&s, &x[k], M(PULL));
        if (k == 0) {
            change_init(&c, 1, 1);
            change_floats(&c, "w", 2 * BLOCK, BLOCK, 1);
            change_ok(&s, &c, M(PUT), OUTCOME(APPLIED));
            change_fini(&c);
        }
    }
    uint64_t versions = store_block(&s, "w", 0)->version + store_block(&s, "w", 1)->version;
    part_init(&c, 0, 1, 1, 1);
    for (int again = 0; again < 2; again++) {
        struct answer a = change_send(&s, &c, M(ASSIGN_ADD));
        assert_int_equal(a.code, PS_RESOURCE_EXHAUSTED);
        assert_nothing_promised(&s);
        assert_int_equal(store_block(&s, "w", 0)->version + store_block(&s, "w", 1)->version, versions);
        assert_true(get_float(&s, "w", 0) == 0 && get_float(&s, "n", 0) == 0);
    }
    read_fini(&x[0]);
    read_fini(&x[1]);
    change_ok(&s, &c, M(ASSIGN_ADD), OUTCOME(APPLIED));
    change_fini(&c);
    assert_true(get_float(&s, "w", 0) == 1 && get_float(&s, "w", BLOCK) == 1 && get_float(&s, "n", 0) == 1);
    assert_int_equal(pages_used(s.core), before);
    // More than there is room for altogether: nothing of what did not fit is kept.
    change_init(&c, 0, 2);
    change_floats(&c, "w", 0, 3 * BLOCK, 1);
    change_floats(&c, "n", 0, BLOCK, 1);
    c.r.atomic_bytes = 4 * PS_BLOCK_BYTES;
    change_refused(&s, &c, M(PUT), PS_RESOURCE_EXHAUSTED, "do not fit the limit");
    change_fini(&c);
    assert_int_equal(pages_used(s.core), before);
    psd_core_destroy(s.core);
}

static void test_atomic_without_room(void **state)
{
    (void)state;
    atomic_without_room(0);
    atomic_without_room(1);
}

// Strings that grow need other pages, though nobody reads the old ones.
static void test_atomic_strings_without_room(void **state)
{
    const struct spec specs[] = {{"s", D(STRING), 1024, false}};
    struct store s;
    struct change c;
    (void)state;
    store_open(&s, ASYNC, "sgd", 8 << 20, specs, 1);
    change_init(&c, 0, 1);
    change_strings(&c, "s", 0, 1024, 1);
    c.r.atomic_bytes = c.len;
    s.core->pool.limit = psd_pool_used(&s.core->pool) + c.len * 3 / 2;  // what is staged fits, a page for it does not
    assert_int_equal(change_send(&s, &c, M(PUT)).code, PS_RESOURCE_EXHAUSTED);
    assert_int_equal(store_block(&s, "s", 0)->version, 0);
    s.core->pool.limit = 8 << 20;
    change_ok(&s, &c, M(PUT), OUTCOME(APPLIED));
    check_strings(&s, "s", 0, 1024, 1);
    change_fini(&c);
    psd_core_destroy(s.core);
}

// The copy of a pinned block has room for its slots, too.
static void test_atomic_with_slots(void **state)
{
    struct store s;
    struct change c;
    struct reading_of x;
    (void)state;
    store_open(&s, ASYNC, "momentum", 64 << 20, floats_of, 2);
    const size_t bytes = store_block(&s, "w", 0)->page->bytes;
    read_init(&x);
    read_range(&x, "w", 0, BLOCK);
    read_ok(&s, &x, M(PULL));
    change_init(&c, 0, 1);
    change_floats(&c, "w", 0, BLOCK, 1);
    c.r.atomic_bytes = PS_BLOCK_BYTES;
    change_ok(&s, &c, M(PUSH), OUTCOME(APPLIED));
    assert_true(bytes > PS_BLOCK_BYTES && store_block(&s, "w", 0)->page->bytes == bytes);
    assert_true(get_float(&s, "w", BLOCK - 1) < 0 && value_at(&x.values, BLOCK - 1) == 0);
    change_fini(&c);
    read_fini(&x);
    psd_core_destroy(s.core);
}

static uint64_t staging_tick(struct psd_job *job, uint64_t now)
{
    struct psd_call *ready = NULL;
    return psd_staging_component.tick(job, now, &ready);
}

// A tick does not wait for an update that takes effect: everybody else of the job would wait with it.
static void test_tick_beside_an_atomic_update(void **state)
{
    struct store s;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    struct psd_job *job = s.core->table.newest;
    part_ok(&s, 0, 1, 0, 1, M(PUSH), OUTCOME(STAGED));
    const uint64_t late = test_time + 61 * PS_SECOND;
    pthread_mutex_lock(&job->staging);
    assert_int_equal(staging_tick(job, late), late);  // at the next one
    assert_non_null(job->staged);
    pthread_mutex_unlock(&job->staging);
    assert_true(staging_tick(job, late) == UINT64_MAX);
    assert_null(job->staged);
    psd_core_destroy(s.core);
}

// Memory is asked for when the pool's lock is free: the kernel may take its time, and every job waits for that lock.
static void test_pages_are_allocated_unlocked(void **state)
{
    struct store s;
    struct psd_page *pages[3];
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    pages_unlocked = 0;
    unlocked_pool = &s.core->pool;
    pages[0] = psd_page_new(unlocked_pool, 12345);
    pages[1] = psd_page_try(unlocked_pool, 12345);
    assert_true(psd_pool_take(unlocked_pool, 12345));
    pages[2] = psd_page_reserved(unlocked_pool, 12345);
    assert_int_equal(pages_unlocked, 3);
    assert_int_equal(unlocked_pool->reserved, 12345);
    for (int i = 0; i < 3; i++)
        psd_page_unref(pages[i]);
    assert_int_equal(unlocked_pool->reserved, 0);
    psd_pool_give(unlocked_pool, 12345);
    unlocked_pool = NULL;
    psd_core_destroy(s.core);
}

// What is staged and never finished is forgotten; what is sent later begins anew.
static void test_atomic_forgotten(void **state)
{
    struct store s;
    struct change c;
    struct psd_job *job;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    job = s.core->table.newest;
    size_t before = pages_used(s.core);
    // 60 s without a request.
    part_ok(&s, 0, 1, 0, 1, M(PUSH), OUTCOME(STAGED));
    staging_tick(job, test_time + 59 * PS_SECOND);
    assert_non_null(job->staged);
    test_time += 59 * PS_SECOND;
    part_ok(&s, 0, 1, 0, 1, M(PUSH), OUTCOME(STAGED));
    staging_tick(job, test_time + 59 * PS_SECOND);
    assert_non_null(job->staged);
    staging_tick(job, test_time + 60 * PS_SECOND);
    assert_null(job->staged);
    assert_int_equal(pages_used(s.core), before);
    part_ok(&s, 0, 1, 1, 1, M(PUSH), OUTCOME(STAGED));
    assert_true(get_float(&s, "n", 0) == 0);
    // The client goes on without it.
    part_ok(&s, 0, 2, 0, 1, M(PUSH), OUTCOME(STAGED));
    assert_true(pages_used(s.core) > before + PS_BLOCK_BYTES);
    part_ok(&s, 0, 3, 1, 1, M(PUSH), OUTCOME(STAGED));
    assert_true(job->staged && pages_used(s.core) < before + PS_BLOCK_BYTES);
    // A later incarnation of its worker, and not of another.
    job->incarnations[1] = 2;
    change_init(&c, 1, 1);
    another_process(&c.caller);
    change_floats(&c, "n", 0, 1, 0);
    change_ok(&s, &c, M(PUT), OUTCOME(APPLIED));
    staging_tick(job, test_time);
    assert_non_null(job->staged);
    job->incarnations[0] = 2;
    c.caller.worker = 1;
    another_process(&c.caller);
    change_ok(&s, &c, M(PUT), OUTCOME(APPLIED));
    staging_tick(job, test_time);
    assert_null(job->staged);
    change_fini(&c);
    // Departure, of this worker.
    part_init(&c, 0, 5, 0, 1);
    another_process(&c.caller);
    change_ok(&s, &c, M(PUT), OUTCOME(STAGED));
    psd_staging_drop_worker(job, 1, 2);
    psd_staging_drop_worker(job, 0, 1);
    assert_non_null(job->staged);
    psd_staging_drop_worker(job, 0, 2);
    assert_null(job->staged);
    // The job's end.
    c.caller.sequence = c.caller.oldest = 6;
    change_ok(&s, &c, M(PUT), OUTCOME(STAGED));
    psd_job_fail(job, atomic_load(&job->run), "it was time");
    staging_tick(job, test_time);
    assert_null(job->staged);
    assert_int_equal(pages_used(s.core), before);
    change_fini(&c);
    psd_core_destroy(s.core);
}

enum { ATOMIC_UPDATES = 200 };

static void *update_atomically(void *arg)
{
    for (uint64_t k = 1; k <= ATOMIC_UPDATES; k++)
        for (int part = 0; part < 2; part++)
            part_ok(arg, 0, k, part, 1, M(ASSIGN_ADD), part ? OUTCOME(APPLIED) : OUTCOME(STAGED));
    return NULL;
}

// No reader of one message sees a part of an atomic update: neither a Get, nor a Pull, nor a PushPull.
static void test_atomic_readers(void **state)
{
    struct store s;
    pthread_t thread;
    float last = 0;
    uint64_t sequence = 0;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    assert_int_equal(pthread_create(&thread, NULL, update_atomically, &s), 0);
    while (last < ATOMIC_UPDATES) {
        struct reading_of x;
        struct change c;
        float value[3];
        read_init(&x);
        read_range(&x, "w", BLOCK - 1, 2);
        read_range(&x, "n", 9, 1);
        read_ok(&s, &x, sequence % 2 ? M(PULL) : M(GET));
        for (size_t i = 0; i < 3; i++)
            value[i] = value_at(&x.values, i);
        assert_true(value[0] == value[1] && value[1] == value[2] && value[0] >= last);
        read_fini(&x);
        change_init(&c, 1, ++sequence);
        change_floats(&c, "w", BLOCK - 1, 2, 0);
        change_floats(&c, "n", 9, 1, 0);
        change_ok(&s, &c, M(PUSH_PULL), OUTCOME(APPLIED));
        assert_true(value_at(&c.values, 0) == value_at(&c.values, 1) &&
                    value_at(&c.values, 1) == value_at(&c.values, 2));
        last = value_at(&c.values, 2);
        change_fini(&c);
    }
    pthread_join(thread, NULL);
    psd_core_destroy(s.core);
}

struct waiting_pull {
    struct store *s;
    sem_t reached;  // the lock; without one, the end
    atomic_bool done;
    float values[2];
};

static void pull_reached(void *arg)
{
    sem_post(&((struct waiting_pull *)arg)->reached);
}

static void *pull_once(void *arg)
{
    struct waiting_pull *w = arg;
    struct reading_of x;
    read_init(&x);
    read_range(&x, "w", 0, 2 * BLOCK);
    before_update_arg = w;
    before_update = pull_reached;
    read_ok(w->s, &x, M(PULL));
    before_update = NULL;
    for (size_t k = 0; k < 2; k++)
        w->values[k] = value_at(&x.values, k * BLOCK);
    read_fini(&x);
    atomic_store(&w->done, true);
    pull_reached(w);
    return NULL;
}

// A Pull does not begin while an atomic update is at it, and has all of that.
static void test_pull_waits_for_atomic(void **state)
{
    struct store s;
    struct waiting_pull w = {.s = &s};
    pthread_t thread;
    (void)state;
    sem_init(&w.reached, 0, 0);
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    pthread_rwlock_wrlock(&s.core->table.newest->snapshot_lock);
    assert_int_equal(pthread_create(&thread, NULL, pull_once, &w), 0);
    sem_wait(&w.reached);
    assert_false(atomic_load(&w.done));
    for (uint32_t k = 0; k < 2; k++) {
        struct psd_block *b = store_block(&s, "w", k);
        pthread_mutex_lock(&b->lock);
        psd_block_fill(b);
        *(float *)b->page->data = 7;
        pthread_mutex_unlock(&b->lock);
    }
    pthread_rwlock_unlock(&s.core->table.newest->snapshot_lock);
    pthread_join(thread, NULL);
    assert_true(w.values[0] == 7 && w.values[1] == 7);
    sem_destroy(&w.reached);
    psd_core_destroy(s.core);
}

// ---- numbers that are none ----------------------------------------------------------------------------------------

static void test_nonfinite(void **state)
{
    const struct spec specs[] = {
        {"w", D(FLOAT32), 2 * BLOCK, true}, {"d", D(FLOAT64), 9, false}, {"i", D(INT32), 2, false}};
    const double doubles[9] = {0, 1, NAN, -INFINITY, 0, 5, INFINITY, 1e308, 5e-324};
    const int32_t all_ones[2] = {-1, 0x7f800000};
    struct store s;
    struct change c;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, specs, 3);
    change_init(&c, 0, 1);
    change_floats(&c, "w", 100, BLOCK, 1);
    for (int i = 0; i < 2; i++)
        memcpy(c.bytes + (size_t)(5000 + i * 100000) * 4, &(float[]){NAN, -INFINITY}[i], 4);
    change_range(&c, "d", D(FLOAT64), 0, 9);
    change_bytes(&c, doubles, sizeof doubles);
    change_range(&c, "i", D(INT32), 0, 2);
    change_bytes(&c, all_ones, sizeof all_ones);
    for (size_t cut = 0; cut < 2; cut++) {
        c.cut = cut * 333;
        c.r.refuse_nonfinite = true;
        change_refused(&s, &c, M(PUSH), PS_INVALID_ARGUMENT, "variable 'w': the gradient's element 5100 is not finite");
        change_refused(&s, &c, M(PUSH_PULL), PS_INVALID_ARGUMENT, "element 5100");
    }
    assert_int_equal(s.core->table.newest->nonfinite, 4);
    c.r.refuse_nonfinite = false;
    change_ok(&s, &c, M(PUSH), OUTCOME(APPLIED));
    assert_int_equal(c.results[0].nonfinite, 2);
    assert_int_equal(c.results[1].nonfinite, 3);
    assert_int_equal(c.results[2].nonfinite, 0);
    assert_int_equal(s.core->table.newest->nonfinite, 5);
    change_ok(&s, &c, M(PUSH), OUTCOME(DUPLICATE));
    assert_int_equal(s.core->table.newest->nonfinite, 5);
    // Values that are put are as they are.
    c.caller.sequence = c.caller.oldest = 2;
    c.r.refuse_nonfinite = true;
    change_ok(&s, &c, M(PUT), OUTCOME(APPLIED));
    assert_int_equal(c.results[0].nonfinite, 0);
    change_fini(&c);
    // The second variable is named where the first is fine.
    change_init(&c, 0, 3);
    change_floats(&c, "w", 0, 3, 1);
    change_range(&c, "d", D(FLOAT64), 0, 9);
    change_bytes(&c, doubles, sizeof doubles);
    c.r.refuse_nonfinite = true;
    change_refused(&s, &c, M(PUSH), PS_INVALID_ARGUMENT, "variable 'd': the gradient's element 2 is not finite");
    change_fini(&c);
    psd_core_destroy(s.core);
    // In rounds.
    store_open(&s, SYNC, "sgd", 64 << 20, floats_of, 2);
    round_push(&c, 0, 1, 1, INFINITY);
    change_ok(&s, &c, M(PUSH), OUTCOME(QUEUED));
    assert_int_equal(c.results[0].nonfinite, 3 * BLOCK);
    change_fini(&c);
    round_push(&c, 1, 1, 1, INFINITY);
    c.r.refuse_nonfinite = true;
    change_refused(&s, &c, M(PUSH), PS_INVALID_ARGUMENT, "element 0 is not finite");
    change_fini(&c);
    psd_core_destroy(s.core);
}

// ---- reads --------------------------------------------------------------------------------------------------------

static void add_to(struct store *s, uint64_t sequence, const char *name, uint64_t first, uint64_t count)
{
    struct change c;
    change_init(&c, 0, sequence);
    change_floats(&c, name, first, count, 1);
    change_ok(s, &c, M(ASSIGN_ADD), OUTCOME(APPLIED));
    change_fini(&c);
}

// Ranges that are what the reader knows are left out: by the number of changes of their blocks.
static void test_if_newer(void **state)
{
    struct store s;
    struct reading_of x;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    add_to(&s, 1, "w", 0, 3 * BLOCK);
    add_to(&s, 2, "w", BLOCK, 1);
    add_to(&s, 3, "w", 3 * BLOCK - 1, 1);
    add_to(&s, 4, "n", 0, 1);
    read_init(&x);
    read_range(&x, "w", 0, BLOCK);          // changed once
    read_range(&x, "w", BLOCK, 2 * BLOCK);  // two blocks, four times in all
    read_range(&x, "n", 0, 4);              // once
    read_range(&x, "n", 2 * BLOCK - 1, 1);  // never
    read_ok(&s, &x, M(GET));
    const uint64_t changes[] = {1, 4, 1, 0}, versions[] = {1, 2, 1, 0};
    assert_int_equal(x.reply->n_tensors, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(x.reply->tensors[i]->changes, changes[i]);
        assert_int_equal(x.reply->tensors[i]->version, versions[i]);
    }
    // Without if_newer the numbers do not matter.
    for (size_t i = 0; i < 4; i++)
        x.t[i].changes = changes[i];
    read_ok(&s, &x, M(GET));
    assert_int_equal(x.reply->n_tensors, 4);
    x.r.if_newer = true;
    read_ok(&s, &x, M(GET));
    assert_int_equal(x.reply->n_tensors, 0);
    assert_int_equal(x.values.len + x.reply->next_offset + x.reply->snapshot, 0);
    add_to(&s, 5, "w", 2 * BLOCK, 1);
    read_ok(&s, &x, M(GET));
    assert_int_equal(x.reply->n_tensors, 1);
    assert_int_equal(x.reply->tensors[0]->first, BLOCK);
    assert_int_equal(x.reply->tensors[0]->changes, 5);
    assert_int_equal(x.values.len, 2 * PS_BLOCK_BYTES);
    // A number that is not the present one, be it greater.
    x.t[0].changes = 7;
    read_ok(&s, &x, M(GET));
    assert_int_equal(x.reply->n_tensors, 2);
    read_fini(&x);
    psd_core_destroy(s.core);
}

static uint64_t count_filled(struct store *s, const char *name, uint64_t blocks)
{
    uint64_t filled = 0;
    for (uint64_t k = 0; k < blocks; k++)
        filled += store_block(s, name, (uint32_t)k)->blank == NULL;
    return filled;
}

// A variable that nobody has written is filled as far as messages have gone, not at once; what is written meanwhile is
// not in the snapshot.
static void test_fresh_blocks_are_read_in_parts(void **state)
{
    enum { BLOCKS = 60 };
    const struct spec specs[] = {{"w", D(FLOAT32), (uint64_t)BLOCKS * BLOCK, false}};
    struct store s;
    struct reading_of x;
    size_t got = 0;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, specs, 1);
    read_init(&x);
    read_range(&x, "w", 0, (uint64_t)BLOCKS * BLOCK);
    do {
        read_ok(&s, &x, M(GET));
        assert_true(x.values.len > 0);
        for (size_t i = 0; i < x.values.len / sizeof(float); i += 1000)
            assert_true(value_at(&x.values, i) == 0);
        got += x.values.len;
        assert_int_equal(count_filled(&s, "w", BLOCKS) - (got > x.values.len && got < BLOCKS * PS_BLOCK_BYTES),
                         got / PS_BLOCK_BYTES);
        if (got == x.values.len)
            add_to(&s, 1, "w", (BLOCKS - 1) * (uint64_t)BLOCK, BLOCK);
        x.r.offset = x.reply->next_offset;
        x.r.snapshot = x.reply->snapshot;
    } while (x.r.offset);
    assert_int_equal(got, (size_t)BLOCKS * PS_BLOCK_BYTES);
    x.t[0].first = (BLOCKS - 1) * (uint64_t)BLOCK;
    x.t[0].count = BLOCK;
    x.r.snapshot = 0;
    read_ok(&s, &x, M(GET));
    assert_true(value_at(&x.values, 0) == 1);
    read_fini(&x);
    psd_core_destroy(s.core);
}

// What is left out is decided once: a snapshot goes on without it though it has changed since.
static void test_if_newer_goes_on(void **state)
{
    enum { BLOCKS = 10 };
    const struct spec specs[] = {{"a", D(FLOAT32), BLOCK, false}, {"w", D(FLOAT32), (uint64_t)BLOCKS * BLOCK, false}};
    struct store s;
    struct reading_of x;
    uint64_t sequence = 0;
    size_t got = 0;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, specs, 2);
    for (uint64_t k = 0; k < BLOCKS; k++)
        add_to(&s, ++sequence, "w", k * BLOCK, BLOCK);
    read_init(&x);
    read_range(&x, "a", 0, BLOCK)->changes = 0;
    read_range(&x, "w", 0, 4 * BLOCK)->changes = 3;
    read_range(&x, "w", 4 * BLOCK, BLOCK)->changes = 1;
    read_range(&x, "w", 5 * BLOCK, 5 * BLOCK)->changes = 6;
    x.r.if_newer = true;
    do {
        read_ok(&s, &x, M(GET));
        for (size_t i = 0; i < x.reply->n_tensors; i++) {
            uint64_t first = x.reply->tensors[i]->first;
            assert_string_equal(x.reply->tensors[i]->variable, "w");
            assert_true(first != 4 * BLOCK && x.reply->tensors[i]->changes == x.reply->tensors[i]->count / BLOCK);
        }
        for (size_t i = 0; i < x.values.len / sizeof(float); i += 1000)
            assert_true(value_at(&x.values, i) == 1);
        got += x.values.len;
        x.r.offset = x.reply->next_offset;
        x.r.snapshot = x.reply->snapshot;
        add_to(&s, ++sequence, "a", 0, 1);
        add_to(&s, ++sequence, "w", 4 * BLOCK, 1);
        add_to(&s, ++sequence, "w", 8 * BLOCK, 1);
    } while (x.r.offset);
    assert_int_equal(got, 9 * PS_BLOCK_BYTES);
    // Another request is not of this snapshot.
    x.t[3].changes = 5;
    x.r.offset = PS_BLOCK_BYTES;
    read_refused(&s, &x, M(GET), PS_INVALID_ARGUMENT, "taken for other ranges");
    x.t[3].changes = 6;
    x.r.offset = PS_BLOCK_BYTES + 4;
    read_refused(&s, &x, M(GET), PS_OUT_OF_RANGE, "expected a next_offset");
    x.r.offset = PS_BLOCK_BYTES;
    x.t[2].count--;
    read_refused(&s, &x, M(GET), PS_INVALID_ARGUMENT, "taken for other ranges");
    read_fini(&x);
    psd_core_destroy(s.core);
}

// A Get says between which rounds it lies.
static void test_rounds_of_a_get(void **state)
{
    const struct spec specs[] = {{"w", D(FLOAT32), 4, true}, {"v", D(FLOAT32), 4, true}, {"n", D(FLOAT32), 4, false}};
    struct store s;
    struct reading_of x;
    (void)state;
    store_open(&s, SYNC, "sgd", 64 << 20, specs, 3);
    read_init(&x);
    for (int i = 0; i < 3; i++)
        read_range(&x, specs[i].name, 0, 0);
    const uint64_t rounds[][2] = {{0, 0}, {0, 1}, {1, 1}, {1, 2}};
    for (uint64_t k = 0; k < COUNT(rounds); k++) {
        read_ok(&s, &x, M(GET));
        assert_int_equal(x.reply->round, rounds[k][0]);
        assert_int_equal(x.reply->last_round, rounds[k][1]);
        for (uint32_t rank = 0; rank < 2; rank++) {
            struct change c;
            change_init(&c, rank, k + 1);
            c.r.round = k / 2 + 1;
            change_floats(&c, k % 2 ? "v" : "w", 0, 4, 1);
            change_ok(&s, &c, M(PUSH), OUTCOME(QUEUED));
            change_fini(&c);
        }
    }
    read_fini(&x);
    psd_core_destroy(s.core);
}

// ---- bounds -------------------------------------------------------------------------------------------------------

// A request for whose second block there is no room does not change the first either.
static void test_no_room_for_a_copy(void **state)
{
    struct store s;
    struct change c;
    struct reading_of first, second;
    (void)state;
    store_open(&s, ASYNC, "sgd", (3 << 20) + (700 << 10), floats_of, 2);
    read_init(&first);
    read_range(&first, "w", 0, 0);
    read_ok(&s, &first, M(PULL));
    change_init(&c, 0, 1);
    change_floats(&c, "w", 0, 2 * BLOCK, 1);
    change_refused(&s, &c, M(PUSH), PS_RESOURCE_EXHAUSTED, "do not fit the limit");
    change_refused(&s, &c, M(PUT), PS_RESOURCE_EXHAUSTED, "do not fit the limit");
    change_fini(&c);
    change_init(&c, 0, 1);
    change_floats(&c, "w", 0, BLOCK, 1);
    change_ok(&s, &c, M(PUSH), OUTCOME(APPLIED));
    change_fini(&c);
    read_fini(&first);
    // One slice of one block is a copy of all of it.
    read_init(&second);
    read_range(&second, "w", 0, 0);
    read_ok(&s, &second, M(PULL));
    change_init(&c, 0, 2);
    change_floats(&c, "w", 5, 1, 1);
    change_floats(&c, "w", BLOCK + 5, 1, 1);
    change_refused(&s, &c, M(ASSIGN_SUB), PS_RESOURCE_EXHAUSTED, "do not fit the limit");
    read_fini(&second);
    change_ok(&s, &c, M(ASSIGN_SUB), OUTCOME(APPLIED));
    change_fini(&c);
    psd_core_destroy(s.core);
}

// A reader that comes between the reservation and the update, and takes the last room.
struct intruder {
    struct store *s;
    const char *name;  // its block
    uint32_t block;
    struct psd_page *page;
    size_t limit;
};

static void intrude(void *arg)
{
    struct intruder *x = arg;
    struct psd_block *b = store_block(x->s, x->name, x->block);
    pthread_mutex_lock(&b->lock);
    x->page = psd_block_pin(b);
    pthread_mutex_unlock(&b->lock);
    x->limit = x->s->core->pool.limit;
    x->s->core->pool.limit = psd_pool_used(&x->s->core->pool) + (4 << 10);  // not for a page
}

static void go_away(struct intruder *x)
{
    psd_page_unref(x->page);
    x->s->core->pool.limit = x->limit;
}

// A request that was done by half says so, and is whole when it comes again; a round that it has closed is closed.
static void test_done_by_half(void **state)
{
    struct store s;
    struct change c;
    struct intruder x = {.s = &s, .name = "w", .block = 1};
    (void)state;
    before_update_arg = &x;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    change_init(&c, 0, 1);
    change_floats(&c, "w", 0, 3 * BLOCK, 100);
    before_update = intrude;
    struct answer a = change_send(&s, &c, M(PUSH));
    assert_int_equal(a.code, PS_UNAVAILABLE);
    assert_non_null(strstr(a.text, "send it again under the same sequence"));
    go_away(&x);
    assert_true(get_float(&s, "w", 0) == -1 && get_float(&s, "w", BLOCK) == 0);
    change_ok(&s, &c, M(PUSH), OUTCOME(APPLIED));
    assert_int_equal(c.results[0].duplicates, 1);
    for (uint32_t k = 0; k < 3; k++)
        assert_true(get_float(&s, "w", k * BLOCK) == -1 && store_block(&s, "w", k)->version == 1);
    change_fini(&c);
    psd_core_destroy(s.core);
    store_open(&s, SYNC, "sgd", 64 << 20, floats_of, 2);
    round_push(&c, 1, 1, 1, 100);
    change_ok(&s, &c, M(PUSH), OUTCOME(QUEUED));
    change_fini(&c);
    round_push(&c, 0, 1, 1, 100);
    change_floats(&c, "n", 0, 4, 1);
    x.name = "n";
    x.block = 0;
    before_update = intrude;
    assert_int_equal(change_send(&s, &c, M(PUSH)).code, PS_UNAVAILABLE);
    go_away(&x);
    assert_true(get_float(&s, "w", 0) == -1 && get_float(&s, "n", 0) == 0);
    struct answer again = change_send(&s, &c, M(PUSH));
    assert_int_equal(again.code, PS_OK);
    assert_int_equal(c.results[0].outcome, OUTCOME(DUPLICATE));
    assert_int_equal(c.results[1].outcome, OUTCOME(APPLIED));
    assert_true(get_float(&s, "w", 0) == -1 && get_float(&s, "n", 0) == 1);
    change_fini(&c);
    psd_core_destroy(s.core);
}

struct holder {
    struct store *s;
    atomic_bool stop;
};

// Pins all blocks, and gives them back, again and again.
static void *hold_blocks(void *arg)
{
    struct holder *h = arg;
    while (!atomic_load(&h->stop)) {
        struct reading_of x;
        read_init(&x);
        read_range(&x, "w", 0, 0);
        read_ok(h->s, &x, M(PULL));
        read_fini(&x);
    }
    return NULL;
}

// Where a reader takes the last room between the reservation and the update, a request may be done by half: it is told
// to come again, and is whole then. Each is applied once.
static void test_readers_take_the_room(void **state)
{
    enum { UPDATES = 300 };
    struct store s;
    struct holder h = {.s = &s};
    pthread_t thread;
    (void)state;
    store_open(&s, ASYNC, "sgd", (3 << 20) + (1200 << 10), floats_of, 2);
    assert_int_equal(pthread_create(&thread, NULL, hold_blocks, &h), 0);
    for (uint64_t k = 1; k <= UPDATES; k++) {
        struct change c;
        enum ps_code code;
        change_init(&c, 0, k);
        change_floats(&c, "w", 0, 3 * BLOCK, 1);
        while ((code = change_send(&s, &c, M(ASSIGN_ADD)).code) != PS_OK)
            assert_true(code == PS_RESOURCE_EXHAUSTED || code == PS_UNAVAILABLE);
        change_fini(&c);
    }
    atomic_store(&h.stop, true);
    pthread_join(thread, NULL);
    for (uint32_t k = 0; k < 3; k++) {
        assert_int_equal(store_block(&s, "w", k)->version, UPDATES);
        assert_true(get_float(&s, "w", k * BLOCK) == UPDATES);
    }
    assert_true(pages_used(s.core) <= s.core->pool.limit);
    psd_core_destroy(s.core);
}

// What is kept of clients counts: there is an end to it before the memory's.
static void test_dedup_is_counted(void **state)
{
    const struct spec specs[] = {{"w", D(FLOAT32), 16, false}, {"n", D(FLOAT32), 16, false}};
    struct store s;
    uint8_t id[16] = {0};
    uint32_t clients = 0;
    struct answer a = {0};
    (void)state;
    store_open(&s, ASYNC, "sgd", 160 << 10, specs, 2);
    size_t before = psd_pool_used(&s.core->pool);
    while (a.code == PS_OK) {
        struct change c;
        uint64_t digest = store_digest(&s);
        change_init(&c, 0, 1);
        memcpy(id, &clients, sizeof clients);
        c.caller.worker = 0;
        c.caller.client.data = id;
        change_floats(&c, "w", 0, 16, 1);
        change_floats(&c, "n", 0, 16, 1);
        a = change_send(&s, &c, M(ASSIGN_ADD));
        clients += a.code == PS_OK;
        if (a.code)
            assert_true(store_digest(&s) == digest);
        change_fini(&c);
    }
    assert_int_equal(a.code, PS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(a.text, "do not fit the limit"));
    assert_true(clients > 100 && get_float(&s, "w", 0) == (float)clients && get_float(&s, "n", 0) == (float)clients);
    assert_true(s.core->table.newest->store.dedup_bytes >= 2 * clients * sizeof(struct psd_dedup_entry));
    assert_true(psd_pool_used(&s.core->pool) <= 160 << 10);
    assert_true(psd_pool_used(&s.core->pool) >= before + s.core->table.newest->store.dedup_bytes);
    // Those it knows go on.
    memset(id, 0, sizeof id);
    struct change c;
    change_init(&c, 0, 2);
    c.caller.worker = 0;
    c.caller.client.data = id;
    change_floats(&c, "w", 0, 16, 1);
    change_ok(&s, &c, M(ASSIGN_ADD), OUTCOME(APPLIED));
    change_fini(&c);
    // All of it comes back with the job.
    Paramserver__V1__StopJobRequest stop = PARAMSERVER__V1__STOP_JOB_REQUEST__INIT;
    stop.job = (char *)"job";
    assert_int_equal(ask(s.core, M(STOP_JOB), &stop.base, NULL, NULL, NULL, NULL).code, PS_OK);
    assert_int_equal(psd_pool_used(&s.core->pool), 0);
    psd_core_destroy(s.core);
}

static void one_shot(struct store *s, uint32_t client, uint64_t sequence, uint64_t oldest, Paramserver__V1__Outcome o)
{
    uint8_t id[16] = {1};
    struct change c;
    change_init(&c, 0, sequence);
    memcpy(id + 1, &client, sizeof client);
    c.caller.worker = 0;
    c.caller.oldest = oldest;
    c.caller.client.data = id;
    change_floats(&c, "n", 0, 4, 1);
    change_ok(s, &c, M(ASSIGN_ADD), o);
    change_fini(&c);
}

// A block knows of the requests that may come again, and of no others: however many came, of however many clients.
static void test_dedup_is_what_is_open(void **state)
{
    enum { MANY = 20000, CLIENTS = 100 };
    struct store s;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    const struct psd_block *b = store_block(&s, "n", 0);
    for (uint64_t k = 1; k <= MANY; k++)
        one_shot(&s, (uint32_t)(k % CLIENTS), k, k > CLIENTS ? k - CLIENTS + 1 : 1, OUTCOME(APPLIED));
    assert_in_range(b->dedup.n, CLIENTS, 4 * CLIENTS);
    assert_in_range(b->dedup.cap, CLIENTS, 8 * CLIENTS);
    for (uint64_t k = MANY - CLIENTS + 1; k <= MANY; k++)
        one_shot(&s, (uint32_t)(k % CLIENTS), k, k, OUTCOME(DUPLICATE));
    assert_true(get_float(&s, "n", 0) == MANY);
    psd_core_destroy(s.core);
}

// A whole window of one client stays known, in any order, while others come for whom there must be place.
static void test_dedup_keeps_a_window(void **state)
{
    enum { OTHERS = 500, FROM = 1000 };
    struct store s;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    for (uint64_t k = 0; k < PS_WINDOW; k++)
        one_shot(&s, 0, FROM + k * 77 % PS_WINDOW, FROM, OUTCOME(APPLIED));
    for (uint32_t k = 1; k <= OTHERS; k++)
        one_shot(&s, k, 1, 1, OUTCOME(APPLIED));
    for (uint64_t k = 0; k < PS_WINDOW; k++)
        one_shot(&s, 0, FROM + k, FROM, OUTCOME(DUPLICATE));
    one_shot(&s, 0, FROM - 1, FROM - 1, OUTCOME(DUPLICATE));  // the client has said that it is done with that
    assert_true(get_float(&s, "n", 0) == PS_WINDOW + OTHERS);
    psd_core_destroy(s.core);
}

// Time passes for the clients of the job alone: its workers would be dead.
static void clients_time(struct store *s, uint64_t ns)
{
    struct psd_job *job = s->core->table.newest;
    struct psd_call *ready = NULL;
    test_time += ns;
    psd_clients_component.tick(job, test_time, &ready);
}

// Clients that have been silent for long are forgotten, with what blocks know of them; one that is not goes on.
static void test_clients_are_forgotten(void **state)
{
    enum { CLIENTS = 5000 };
    struct store s;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    const struct psd_clients *clients = &s.core->table.newest->clients;
    const struct psd_block *b = store_block(&s, "n", 0);
    one_shot(&s, 0, 1, 1, OUTCOME(APPLIED));
    for (uint32_t k = 1; k < CLIENTS; k++)
        one_shot(&s, k, 1, 1, OUTCOME(APPLIED));
    assert_int_equal(clients->n, CLIENTS);
    for (int minute = 0; minute < 11; minute++) {
        clients_time(&s, 60 * PS_SECOND);
        one_shot(&s, 0, 1, 1, OUTCOME(DUPLICATE));
    }
    for (int tick = 0; tick < CLIENTS / 32; tick++)
        clients_time(&s, 0);
    assert_int_equal(clients->n, 1);
    one_shot(&s, 0, 1, 1, OUTCOME(DUPLICATE));
    uint32_t n = CLIENTS, before;
    do {  // until there is no place, and the block asks who is still there
        before = b->dedup.n;
        one_shot(&s, n++, 1, 1, OUTCOME(APPLIED));
    } while (b->dedup.n > before);
    assert_in_range(b->dedup.n, 2, n - CLIENTS + 1);
    one_shot(&s, 0, 1, 1, OUTCOME(DUPLICATE));
    psd_core_destroy(s.core);
}

// A worker pushes to "n" under a sequence number that it has used.
static void push_again(struct store *s, Paramserver__V1__Outcome o)
{
    struct change c;
    change_init(&c, 0, 1);
    change_floats(&c, "n", 0, 4, 1);
    change_ok(s, &c, M(PUSH), o);
    change_fini(&c);
}

// A worker that is alive may be silent for as long as it likes; it is forgotten with its incarnation.
static void test_silent_worker_is_known(void **state)
{
    struct store s;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    struct psd_job *job = s.core->table.newest;
    push_again(&s, OUTCOME(APPLIED));
    for (int minute = 0; minute < 11; minute++)
        clients_time(&s, 60 * PS_SECOND);
    assert_int_equal(job->clients.n, 1);
    push_again(&s, OUTCOME(DUPLICATE));
    job->incarnations[0]++;
    for (int minute = 0; minute < 11; minute++)
        clients_time(&s, 60 * PS_SECOND);
    assert_int_equal(job->clients.n, 0);
    psd_core_destroy(s.core);
}

// ---- memory that nobody has asked for yet ---------------------------------------------------------------------------

enum { USED_BEFORE = 0x55 };

// Memory of the kernel's is there from the first touch on, where that is; malloc's has what it had before.
static bool is_untouched(const struct psd_page *page)
{
    static unsigned char resident[4096];
    size_t i = 0, n = page->bytes;
    if (page->zeroed) {
        const size_t each = (size_t)sysconf(_SC_PAGESIZE);
        n = (page->bytes + each - 1) / each;
        assert_true(n <= sizeof resident && mincore(page->data, page->bytes, resident) == 0);
    }
    while (i < n && (page->zeroed ? !(resident[i] & 1) : page->data[i] == USED_BEFORE))
        i++;
    return i == n;
}

// A block begins with what is said of it, whatever its page was used for before.
static void test_fresh_blocks_are_blank(void **state)
{
    enum { COUNT_LARGE = 1 << 18 };
    static const struct psd_blank blank = {.slots = 1, .start = {0.5f}};
    struct psd_pool pool;
    struct psd_store store = {.pool = &pool};
    struct psd_block b;
    struct ps_error e;
    (void)state;
    psd_pool_init(&pool, (size_t)64 << 20);
    for (int use = 0; use < 3; use++) {
        assert_int_equal(psd_block_init(&b, &store, COUNT_LARGE, sizeof(float), &blank, &e), PS_OK);
        psd_block_fill(&b);
        const float *value = (const float *)b.page->data;
        const float *slot = (const float *)(b.page->data + psd_slot_offset(b.value_bytes, 0));
        for (size_t i = 0; i < COUNT_LARGE; i++)
            assert_true(value[i] == 0 && slot[i] == 0.5f);
        memset(b.page->data, USED_BEFORE, b.page->bytes);
        psd_block_fini(&b);
    }
    assert_true(pool.kept > 0);
    psd_pool_fini(&pool);
}

// A declaration takes the room of its blocks and touches none of it: what they hold is written by who comes first,
// wherever the memory was used before.
static void test_declare_touches_nothing(void **state)
{
    enum { COUNT_BIG = (16 << 20) / sizeof(float) };
    const struct spec specs[] = {{"big", D(FLOAT32), COUNT_BIG, true}, {"s", D(STRING), 10, false}};
    struct store s;
    float got[3] = {9, 9, 9};
    (void)state;
    allocation_fill = USED_BEFORE;
    store_open(&s, ASYNC, "adagrad", 64 << 20, specs, 2);
    allocation_fill = 0;
    for (uint32_t k = 0; k < COUNT_BIG / BLOCK; k++) {
        const struct psd_block *blank = store_block(&s, "big", k);
        assert_true(blank->blank && is_untouched(blank->page));
    }
    const struct psd_block *b = store_block(&s, "big", 3);
    get_values(&s, "big", 3 * BLOCK + 7, 1, got, sizeof *got);
    assert_true(got[0] == 0);
    const float *slot = (const float *)(b->page->data + psd_slot_offset(b->value_bytes, 0));
    assert_true(slot[0] == 0.1f && slot[BLOCK - 1] == 0.1f);  // Keras's initial_accumulator_value
    struct change c;
    change_init(&c, 0, 1);
    change_floats(&c, "big", 4 * BLOCK + 1, 1, 1);
    change_ok(&s, &c, M(ASSIGN_ADD), OUTCOME(APPLIED));
    change_fini(&c);
    get_values(&s, "big", 4 * BLOCK, 3, got, sizeof got);
    assert_true(got[0] == 0 && got[1] == 1 && got[2] == 0);
    b = store_block(&s, "big", 4);
    slot = (const float *)(b->page->data + psd_slot_offset(b->value_bytes, 0));
    assert_true(slot[0] == 0.1f && slot[1] == 0.1f);
    assert_non_null(store_block(&s, "big", 5)->blank);
    psd_core_destroy(s.core);
}

// The table of clients counts too.
static void test_clients_count(void **state)
{
    struct store s;
    struct change c;
    (void)state;
    store_open(&s, ASYNC, "sgd", 64 << 20, floats_of, 2);
    s.core->pool.limit = psd_pool_used(&s.core->pool) + 100;
    change_init(&c, 0, 1);
    change_floats(&c, "n", 0, 1, 1);
    change_refused(&s, &c, M(PUSH), PS_RESOURCE_EXHAUSTED, "bytes for the clients of job 'job' do not fit");
    s.core->pool.limit += 1000;
    change_ok(&s, &c, M(PUSH), OUTCOME(APPLIED));
    change_fini(&c);
    psd_core_destroy(s.core);
}

struct declarer {
    struct psd_core *core;
    pthread_barrier_t *start;
    char name[8];
    uint64_t run;
    enum ps_code code;
};

static void *declare_one(void *arg)
{
    struct declarer *d = arg;
    struct job j = {.core = d->core};
    struct declaring x;
    fill_job(&j, 6 << 20);
    declare_init(&x, &j, SYNC, "sgd");
    x.caller.job = d->name;
    x.caller.run = d->run;
    pthread_barrier_wait(d->start);
    d->code = ask(d->core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL).code;
    return NULL;
}

// What a job of small variables takes is less than is planned for it, by all that is counted, and not by much.
static void test_as_planned(void **state)
{
    enum { WORKERS = 300 };
    const struct spec specs[] = {
        {"a", D(FLOAT32), 7, true}, {"b", D(FLOAT32), BLOCK + 1, true}, {"c", D(INT64), 3, false}};
    (void)state;
    for (int sync = 0; sync < 2; sync++) {
        struct store s = {.core = core_new(1 << 30)};
        struct joining x;
        struct ps_memory plan = {.kept = ps_memory_job(&(struct ps_memory_job){
                                     .variables = 3, .partitions = 3, .workers = WORKERS, .tasks = 1, sync, true})};
        join_init(&x, 0, sync ? SYNC : ASYNC);
        x.r.workers = WORKERS;
        assert_int_equal(ask(s.core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
        struct answer a = store_declare_for(&s, x.r.update, "adam", specs, 3, WORKERS);
        if (a.code)
            fail_msg("declare: %s", a.text);
        for (int i = 0; i < 3; i++)
            assert_true(ps_memory_add(
                &plan, &(struct ps_memory_part){.count = specs[i].count,
                                                .dtype = (int)specs[i].dtype,
                                                .slots = specs[i].trainable ? 2 : 0,
                                                .round_workers = sync && specs[i].trainable ? WORKERS : 0}));
        size_t used = psd_pool_used(&s.core->pool), planned = ps_memory_total(&plan);
        assert_in_range(planned, used, used + used / 4);
        assert_true(used > WORKERS * sizeof(struct psd_member));
        assert_true(s.core->table.newest->room > 3 * sizeof(struct psd_variable) + WORKERS * sizeof(uint64_t));
        psd_core_destroy(s.core);
    }
}

// Two jobs that are declared at once, each of which alone would fit, do not both count on the same room.
static void test_declared_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct psd_core *core = core_new(100 << 20);
        struct declarer d[2] = {{.name = "one"}, {.name = "two"}};
        pthread_barrier_t start;
        pthread_t thread[2];
        pthread_barrier_init(&start, NULL, 2);
        for (int k = 0; k < 2; k++) {
            struct joining x;
            join_init(&x, 0, SYNC);
            x.caller.job = d[k].name;
            assert_int_equal(ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
            d[k].core = core;
            d[k].start = &start;
            d[k].run = 1 + (uint64_t)k;
            pthread_create(&thread[k], NULL, declare_one, &d[k]);
        }
        for (int k = 0; k < 2; k++)
            pthread_join(thread[k], NULL);
        assert_true((d[0].code == PS_OK) != (d[1].code == PS_OK));
        assert_true(d[0].code == PS_RESOURCE_EXHAUSTED || d[1].code == PS_RESOURCE_EXHAUSTED);
        assert_true(psd_pool_used(&core->pool) <= core->pool.limit);
        pthread_barrier_destroy(&start);
        psd_core_destroy(core);
    }
}

// ---- bad input ----------------------------------------------------------------------------------------------------

enum { UPDATES = 1, PUSHES = 2, READS = 4, NUMBERS = 8, GETS = 16 };  // NUMBERS: updates that calculate

static const struct {
    int method, kinds;
} data_calls[] = {
    {M(PUT), UPDATES},
    {M(ASSIGN_ADD), UPDATES | NUMBERS},
    {M(ASSIGN_SUB), UPDATES | NUMBERS},
    {M(PUSH), UPDATES | PUSHES | NUMBERS},
    {M(PUSH_PULL), UPDATES | PUSHES | NUMBERS},
    {M(GET), READS | GETS},
    {M(PULL), READS},
};

// A good request of two ranges, as an update and as a read. A row spoils one thing, in whichever is asked.
struct good {
    struct change c;
    struct reading_of x;
    Paramserver__V1__Caller *caller;
    Paramserver__V1__Tensor *t;  // [2]
    uint64_t shape[3];
};

struct bad {
    const char *what;
    int kinds;
    void (*spoil)(struct good *g);
    enum ps_code code;
    const char *text;
};

#define SPOIL(name, statement)       \
    static void name(struct good *g) \
    {                                \
        statement;                   \
    }
SPOIL(no_caller, g->c.r.caller = g->x.r.caller = NULL)
SPOIL(protocol_0, g->caller->protocol = 0)
SPOIL(another_protocol, g->caller->protocol = PS_PROTOCOL + 1)
SPOIL(empty_job, g->caller->job = (char *)"")
SPOIL(long_job, static char name[130]; memset(name, 'x', 129); g->caller->job = name)
SPOIL(other_job, g->caller->job = (char *)"other")
SPOIL(no_client, g->caller->client.len = 0)
SPOIL(long_client, static uint8_t id[17]; g->caller->client.data = id; g->caller->client.len = 17)
SPOIL(old_generation, g->caller->generation = 1)
SPOIL(no_sequence, g->caller->sequence = 0)
SPOIL(no_oldest, g->caller->oldest = 0)
SPOIL(oldest_above, g->caller->oldest = g->caller->sequence + 1)
SPOIL(past_window, g->caller->sequence = 300)
SPOIL(far_future, g->caller->sequence = UINT64_MAX)
SPOIL(rank_above, g->caller->worker = 3)
SPOIL(rank_huge, g->caller->worker = UINT32_MAX)
SPOIL(old_incarnation, g->caller->incarnation = 0)
SPOIL(another_identity, g->caller->worker = 2)
SPOIL(no_worker, g->caller->worker = 0)
SPOIL(no_tensor, g->c.r.n_tensors = g->x.r.n_tensors = 0)
SPOIL(no_name, g->t->variable = (char *)"")
SPOIL(unknown, g->t->variable = (char *)"wx")
SPOIL(second_unknown, g->t[1].variable = (char *)"wx")
SPOIL(no_dtype, g->t[1].dtype = 0)
SPOIL(other_dtype, g->t->dtype = D(FLOAT64))
SPOIL(negative_dtype, g->t->dtype = -1)
SPOIL(huge_dtype, g->t->dtype = INT32_MAX)
SPOIL(other_shape, g->t->n_shape = 1; g->t->shape = g->shape; g->shape[0] = 41)
SPOIL(other_rank, g->t->n_shape = 2; g->t->shape = g->shape; g->shape[0] = 4; g->shape[1] = 10)
SPOIL(huge_shape, g->t->n_shape = 3; g->t->shape = g->shape; g->shape[0] = g->shape[1] = UINT64_C(1) << 32)
SPOIL(count_above, g->t->count = 41)
SPOIL(first_above, g->t->first = 40)
SPOIL(first_far, g->t->first = UINT64_C(1) << 32)
SPOIL(count_far, g->t->count = UINT64_C(1) << 32)
SPOIL(sum_overflows, g->t->first = 8; g->t->count = UINT64_MAX - 7)
SPOIL(both_far, g->t->first = g->t->count = UINT64_MAX)
SPOIL(empty_range, g->t->count = 0)
SPOIL(overlap, g->t[1].variable = g->t->variable; g->t[1].first = 4; g->t[1].dtype = g->t->dtype)
SPOIL(twice, g->t[1] = g->t[0])
SPOIL(short_payload, g->c.len -= 1)
SPOIL(no_payload, g->c.len = 0)
SPOIL(long_payload, change_bytes(&g->c, "x", 1))
SPOIL(bytes_of_another, g->t->bytes = 17)
SPOIL(bytes_far, g->t->bytes = UINT64_C(1) << 32)
SPOIL(a_string, g->t[1].variable = (char *)"s"; g->t[1].dtype = D(STRING); g->t[1].first = 0; g->t[1].count = 1024;
      g->t[1].bytes = 4096; g->c.len = 16; memset(change_room(&g->c, 4096), 0, 4096))
SPOIL(string_far, g->t[1].variable = (char *)"s"; g->t[1].dtype = D(STRING); g->t[1].first = 0; g->t[1].count = 1024;
      g->t[1].bytes = UINT64_MAX; g->c.len = 16; memset(change_room(&g->c, 4096), 0, 4096))
SPOIL(not_finite, memcpy(g->c.bytes + 8, &(float){NAN}, 4); g->c.r.refuse_nonfinite = true)
SPOIL(atomic_less, g->c.r.atomic_bytes = 1)
SPOIL(atomic_far, g->c.r.atomic_bytes = UINT64_MAX)
SPOIL(offset_inside, g->x.r.offset = 4)
SPOIL(offset_end, g->x.r.offset = 24)
SPOIL(offset_far, g->x.r.offset = UINT64_MAX)
SPOIL(no_snapshot, g->x.r.snapshot = 77)

#define ALL (UPDATES | READS)
#define ANY_CODE ((enum ps_code)(-1))
static const struct bad bad_requests[] = {
    {"no caller", ALL, no_caller, PS_INVALID_ARGUMENT, "names no caller"},
    {"protocol 0", ALL, protocol_0, PS_FAILED_PRECONDITION, "protocol 0 is not spoken here"},
    {"another protocol", ALL, another_protocol, PS_FAILED_PRECONDITION, "protocol 3 is not spoken here"},
    {"no job name", ALL, empty_job, PS_INVALID_ARGUMENT, "name of 1 to 128"},
    {"a job name of 129 bytes", ALL, long_job, PS_INVALID_ARGUMENT, "name of 1 to 128"},
    {"unknown job", ALL, other_job, PS_NOT_FOUND, "no job 'other'"},
    {"no client id", ALL, no_client, PS_INVALID_ARGUMENT, "0 bytes, expected 16"},
    {"a client id of 17 bytes", ALL, long_client, PS_INVALID_ARGUMENT, "17 bytes, expected 16"},
    {"old generation", ALL, old_generation, PS_ABORTED, "has restarted"},
    {"sequence 0", UPDATES, no_sequence, PS_INVALID_ARGUMENT, "1 <= oldest <= sequence"},
    {"oldest 0", UPDATES, no_oldest, PS_INVALID_ARGUMENT, "1 <= oldest <= sequence"},
    {"oldest above sequence", UPDATES, oldest_above, PS_INVALID_ARGUMENT, "1 <= oldest <= sequence"},
    {"sequence past the window", UPDATES, past_window, PS_INVALID_ARGUMENT, "at most 256 may be open"},
    {"the last sequence", UPDATES, far_future, PS_INVALID_ARGUMENT, "at most 256 may be open"},
    {"rank past the workers", UPDATES, rank_above, PS_INVALID_ARGUMENT, "worker 2 of job 'job', which has 2"},
    {"the last rank", UPDATES, rank_huge, PS_INVALID_ARGUMENT, "which has 2"},
    {"old incarnation", UPDATES, old_incarnation, PS_ABORTED, "taken for dead"},
    {"another identity", UPDATES, another_identity, PS_INVALID_ARGUMENT, "belongs to another worker"},
    {"no worker any more", UPDATES, no_worker, PS_INVALID_ARGUMENT, "belongs to another worker"},
    {"no tensor", ALL, no_tensor, PS_INVALID_ARGUMENT, "names no tensor"},
    {"no variable name", ALL, no_name, PS_NOT_FOUND, "no variable ''"},
    {"unknown variable", ALL, unknown, PS_NOT_FOUND, "no variable 'wx'"},
    {"second variable unknown", ALL, second_unknown, PS_NOT_FOUND, "no variable 'wx'"},
    {"no dtype", UPDATES, no_dtype, PS_INVALID_ARGUMENT, "'n': the request brings values without a dtype"},
    {"another dtype", ALL, other_dtype, PS_INVALID_ARGUMENT, "is float32, the request says float64"},
    {"dtype -1", ALL, negative_dtype, PS_INVALID_ARGUMENT, "the request says unknown dtype"},
    {"dtype 2^31 - 1", ALL, huge_dtype, PS_INVALID_ARGUMENT, "the request says unknown dtype"},
    {"another shape", ALL, other_shape, PS_INVALID_ARGUMENT, "(40,), the request says (41,)"},
    {"another rank of the shape", ALL, other_rank, PS_INVALID_ARGUMENT, "(40,), the request says (4, 10)"},
    {"a shape of 2^64", ALL, huge_shape, PS_INVALID_ARGUMENT, "the request says (4294967296, 4294967296, 0)"},
    {"count past the end", ALL, count_above, PS_OUT_OF_RANGE, "has 40 elements"},
    {"first at the end", ALL, first_above, PS_OUT_OF_RANGE, "has 40 elements"},
    {"first 2^32", ALL, first_far, PS_OUT_OF_RANGE, "has 40 elements"},
    {"count 2^32", ALL, count_far, PS_OUT_OF_RANGE, "has 40 elements"},
    {"first + count overflows", ALL, sum_overflows, PS_OUT_OF_RANGE, "has 40 elements"},
    {"first and count 2^64 - 1", ALL, both_far, PS_OUT_OF_RANGE, "has 40 elements"},
    {"an empty range", ALL, empty_range, PS_INVALID_ARGUMENT, "the range at 1 is empty"},
    {"overlapping ranges", ALL, overlap, PS_INVALID_ARGUMENT, "comes after one that ends at 5"},
    {"one range twice", ALL, twice, PS_INVALID_ARGUMENT, "comes after one that ends at 5"},
    {"payload too short", UPDATES, short_payload, PS_INVALID_ARGUMENT, "24 bytes of payload, 23 came"},
    {"no payload", UPDATES, no_payload, PS_INVALID_ARGUMENT, "16 bytes of payload, 0 came"},
    {"payload too long", UPDATES, long_payload, PS_INVALID_ARGUMENT, "24 bytes of payload, 25 came"},
    {"bytes of another range", UPDATES, bytes_of_another, PS_INVALID_ARGUMENT, "has 16 bytes, the request says 17"},
    {"bytes 2^32", UPDATES, bytes_far, PS_INVALID_ARGUMENT, "has 16 bytes, the request says 4294967296"},
    {"arithmetic on strings", NUMBERS, a_string, PS_INVALID_ARGUMENT, "'s' is string, which takes no arithmetic"},
    {"strings of 2^64 - 1 bytes", UPDATES, string_far, PS_INVALID_ARGUMENT, "variable 's'"},
    {"NaN, not wanted", PUSHES, not_finite, PS_INVALID_ARGUMENT, "'w': the gradient's element 3 is not finite"},
    {"an atomic update of less", UPDATES, atomic_less, PS_INVALID_ARGUMENT, "tomic update"},
    {"an atomic update of 2^64 - 1", UPDATES, atomic_far, ANY_CODE, "tomic update"},
    {"offset inside", READS, offset_inside, PS_OUT_OF_RANGE, "offset 4 of 24"},
    {"offset at the end", READS, offset_end, PS_OUT_OF_RANGE, "offset 24 of 24"},
    {"a snapshot that is not there", GETS, no_snapshot, PS_ABORTED, "start again"},
    {"offset 2^64 - 1", READS, offset_far, PS_OUT_OF_RANGE, "of 24 bytes"},
};

static const struct spec wanted[] = {
    {"w", D(FLOAT32), 40, true}, {"n", D(FLOAT32), 40, false}, {"s", D(STRING), 1024, false}};

static void good_init(struct good *g, int kinds)
{
    memset(g, 0, sizeof *g);
    change_init(&g->c, 0, 2);
    change_floats(&g->c, "w", 1, 4, 1);
    change_floats(&g->c, "n", 2, 2, 1);
    read_init(&g->x);
    read_range(&g->x, "w", 1, 4);
    read_range(&g->x, "n", 2, 2);
    g->caller = kinds & READS ? &g->x.caller : &g->c.caller;
    g->t = kinds & READS ? g->x.t : g->c.t;
}

static struct answer ask_good(struct store *s, struct good *g, size_t call)
{
    int method = data_calls[call].method;
    return data_calls[call].kinds & READS ? read_send(s, &g->x, method) : change_send(s, &g->c, method);
}

static void good_fini(struct good *g)
{
    change_fini(&g->c);
    read_fini(&g->x);
}

// One sentence: something, on one line, no full stop.
static bool is_sentence(const char *text)
{
    size_t n = strlen(text);
    return n > 10 && !strchr(text, '\n') && text[n - 1] != '.' && !strstr(text, "(null)");
}

static void check_bad(struct store *s, const struct bad *bad, size_t call)
{
    struct good g;
    uint64_t before = store_digest(s);
    size_t used = psd_pool_used(&s->core->pool);
    good_init(&g, data_calls[call].kinds);
    if (bad->spoil == past_window)
        g.caller->oldest = 2;
    if (bad->spoil == far_future)
        g.caller->oldest = 1;
    bad->spoil(&g);
    struct answer a = ask_good(s, &g, call);
    if ((bad->code != ANY_CODE ? a.code != bad->code : a.code == PS_OK) || !strstr(a.text, bad->text) ||
        !is_sentence(a.text))
        fail_msg("%s, method %d: %s: %s", bad->what, data_calls[call].method, ps_code_name(a.code), a.text);
    if (store_digest(s) != before || psd_pool_used(&s->core->pool) != used)
        fail_msg("%s, method %d: something has changed", bad->what, data_calls[call].method);
    good_fini(&g);
}

static void test_bad_requests(void **state)
{
    (void)state;
    for (size_t call = 0; call < COUNT(data_calls); call++) {
        struct store s;
        struct change first;
        struct good g;
        store_open(&s, ASYNC, "momentum", 1 << 20, wanted, COUNT(wanted));
        change_init(&first, 0, 1);  // the client is known, so that another identity is one
        change_floats(&first, "w", 0, 40, 1);
        change_ok(&s, &first, M(PUSH), OUTCOME(APPLIED));
        change_fini(&first);
        for (size_t i = 0; i < COUNT(bad_requests); i++)
            if (bad_requests[i].kinds & data_calls[call].kinds)
                check_bad(&s, &bad_requests[i], call);
        // The sequence that was refused so often.
        good_init(&g, data_calls[call].kinds);
        assert_int_equal(ask_good(&s, &g, call).code, PS_OK);
        if (data_calls[call].kinds & UPDATES)
            assert_int_equal(g.c.results[0].outcome, OUTCOME(APPLIED));
        good_fini(&g);
        psd_core_destroy(s.core);
    }
}

// A sequence of the past changes nothing, and is no error: it has been answered.
static void test_past_sequence(void **state)
{
    struct store s;
    struct change c;
    (void)state;
    store_open(&s, ASYNC, "sgd", 1 << 20, wanted, COUNT(wanted));
    change_init(&c, 0, 500);
    change_floats(&c, "w", 0, 40, 1);
    change_ok(&s, &c, M(PUSH), OUTCOME(APPLIED));
    for (int i = 0; i < 3; i++) {
        const uint64_t past[] = {1, 244, 499};
        uint64_t before = store_digest(&s);
        c.caller.sequence = c.caller.oldest = past[i];
        change_ok(&s, &c, M(PUSH), OUTCOME(DUPLICATE));
        assert_int_equal(c.results[0].duplicates, 1);
        c.r.atomic_bytes = 160;
        change_ok(&s, &c, M(PUSH), OUTCOME(DUPLICATE));
        c.r.atomic_bytes = 0;
        assert_true(store_digest(&s) == before);
    }
    change_fini(&c);
    psd_core_destroy(s.core);
}

// A request that ends anywhere, and one of which any byte is another, is answered; where it is refused nothing changes.
// What is cut off is never taken for an update: its payload is the end of it.
static void test_damaged_requests(void **state)
{
    (void)state;
    for (size_t call = 0; call < COUNT(data_calls); call++) {
        struct store s;
        struct good g;
        struct ps_slices whole = PS_SLICES_EMPTY, payload;
        uint8_t bytes[1024];
        bool reads = data_calls[call].kinds & READS;
        store_open(&s, ASYNC, "sgd", 1 << 20, wanted, COUNT(wanted));
        good_init(&g, data_calls[call].kinds);
        payload = change_payload(&g.c);
        ps_msg_pack(reads ? &g.x.r.base : &g.c.r.base, reads ? NULL : &payload, &whole);
        ps_slices_clear(&payload);
        assert_true(whole.len < sizeof bytes);
        ps_slices_copy_out(&whole, 0, whole.len, bytes);
        for (size_t i = 0; i < 9 * whole.len; i++) {
            size_t n = i < whole.len ? i : whole.len, at = (i - whole.len) / 8;
            struct answer a = {.call = {.method = data_calls[call].method, .deadline = UINT64_MAX, .reply = on_reply}};
            uint64_t before = store_digest(&s);
            if (i >= whole.len)
                bytes[at] ^= (uint8_t)(1U << i % 8);
            ps_slices_add(&a.call.request, ps_slice_copy(bytes, n));
            psd_core_call(s.core, &a.call);
            assert_true(a.answered);
            if (i < whole.len && !reads)
                assert_int_not_equal(a.code, PS_OK);
            if (a.code)
                assert_true(store_digest(&s) == before && a.text[0]);
            ps_slices_clear(&a.body);
            if (i >= whole.len)
                bytes[at] ^= (uint8_t)(1U << i % 8);
        }
        ps_slices_clear(&whole);
        good_fini(&g);
        psd_core_destroy(s.core);
    }
}

// ---- no memory ----------------------------------------------------------------------------------------------------

static const struct spec few[] = {
    {"w", D(FLOAT32), 2 * BLOCK, true}, {"n", D(FLOAT32), 40, false}, {"s", D(STRING), 1024, false}};

// What is asked where allocations fail: a method, and what it does to the request of a fresh client.
static void fill_numbers(struct change *c)
{
    change_floats(c, "w", BLOCK - 4, 8, 1);
    change_floats(c, "n", 0, 4, 1);
    change_floats(c, "n", 8, 4, 1);
    change_floats(c, "n", 16, 4, 1);
    c->cut = 7;
}

static void fill_out_of_order(struct change *c)
{
    change_floats(c, "n", 0, 4, 1);
    change_floats(c, "w", BLOCK - 4, 8, 1);
}

static void fill_strings(struct change *c)
{
    change_strings(c, "s", 0, 1024, 3);
}

static void fill_atomic(struct change *c)
{
    fill_numbers(c);
    c->r.atomic_bytes = c->len;
}

static const struct {
    int method;
    void (*fill)(struct change *c);
} asked[] = {
    {M(PUSH), fill_numbers},       {M(PUT), fill_out_of_order}, {M(PUSH_PULL), fill_numbers},
    {M(ASSIGN_SUB), fill_numbers}, {M(PUT), fill_strings},      {M(ASSIGN_ADD), fill_atomic},
};

// The n-th allocation of a request fails, for every n: it is refused and changes nothing, but for what is staged; sent
// again it is taken. Its blocks are pinned and its client is new, so that it needs all there is to need.
static void test_no_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(asked); i++) {
        long n = 0;
        enum ps_code code = PS_RESOURCE_EXHAUSTED;
        for (; code != PS_OK; n++) {
            struct store s;
            struct change c;
            struct reading_of x;
            struct answer a;
            store_open(&s, ASYNC, "momentum", 16 << 20, few, COUNT(few));
            read_init(&x);
            for (size_t k = 0; k < COUNT(few); k++)
                read_range(&x, few[k].name, 0, 0);
            read_ok(&s, &x, M(GET));
            change_init(&c, 0, 1);
            asked[i].fill(&c);
            uint64_t before = store_digest(&s);
            struct ps_slices payload = change_payload(&c);
            a = (struct answer){.call = {.method = asked[i].method, .deadline = UINT64_MAX, .reply = on_reply}};
            ps_msg_pack(&c.r.base, &payload, &a.call.request);
            allocations_left = n;
            psd_core_call(s.core, &a.call);
            allocations_left = -1;
            code = a.code;
            assert_true(a.answered && (code == PS_OK || code == PS_RESOURCE_EXHAUSTED));
            if (code != PS_OK)
                assert_true(store_digest(&s) == before || s.core->table.newest->staged);
            else
                change_take_reply(&c, asked[i].method, &a.body);
            assert_int_equal(c.values.len, code == PS_OK && asked[i].method == M(PUSH_PULL) ? c.len : 0);
            ps_slices_clear(&a.body);
            change_ok(&s, &c, asked[i].method, code == PS_OK ? OUTCOME(DUPLICATE) : OUTCOME(APPLIED));
            assert_null(s.core->table.newest->staged);
            change_fini(&c);
            read_fini(&x);
            psd_core_destroy(s.core);
        }
        assert_true(n > 10);
    }
}

// Likewise for reads, which pin nothing then.
static void test_no_memory_to_read(void **state)
{
    (void)state;
    for (int pull = 0; pull < 2; pull++) {
        enum ps_code code = PS_RESOURCE_EXHAUSTED;
        struct store s;
        struct reading_of x;
        store_open(&s, ASYNC, "momentum", 16 << 20, few, COUNT(few));
        read_init(&x);
        for (size_t k = 0; k < COUNT(few) - (size_t)pull; k++)
            read_range(&x, few[k].name, 0, 0);
        for (long n = 0; code != PS_OK; n++) {
            struct answer a = {.call = {.method = pull ? M(PULL) : M(GET), .deadline = UINT64_MAX, .reply = on_reply}};
            ps_msg_pack(&x.r.base, NULL, &a.call.request);
            allocations_left = n;
            psd_core_call(s.core, &a.call);
            allocations_left = -1;
            code = a.code;
            assert_true(code == PS_OK || code == PS_RESOURCE_EXHAUSTED);
            ps_slices_clear(&a.body);
            assert_false(psd_block_pinned(store_block(&s, "w", 0)));
        }
        psd_core_destroy(s.core);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_integers_wrap),
        cmocka_unit_test(test_put_only),
        cmocka_unit_test(test_trainable_is_float32),
        cmocka_unit_test(test_update_before_the_first_tick),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_bad_strings),
        cmocka_unit_test(test_long_strings),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_slices_of_the_rest),
        cmocka_unit_test(test_order_of_ranges),
        cmocka_unit_test(test_rounds_take_whole_blocks),
        cmocka_unit_test(test_partitions),
        cmocka_unit_test(test_push_pull),
        cmocka_unit_test(test_push_pull_in_rounds),
        cmocka_unit_test(test_atomic),
        cmocka_unit_test(test_atomic_late),
        cmocka_unit_test(test_atomic_apart),
        cmocka_unit_test(test_atomic_strings),
        cmocka_unit_test(test_bad_atomic),
        cmocka_unit_test(test_atomic_given_up),
        cmocka_unit_test(test_atomic_without_room),
        cmocka_unit_test(test_atomic_strings_without_room),
        cmocka_unit_test(test_atomic_with_slots),
        cmocka_unit_test(test_pages_are_allocated_unlocked),
        cmocka_unit_test(test_atomic_forgotten),
        cmocka_unit_test(test_tick_beside_an_atomic_update),
        cmocka_unit_test(test_atomic_readers),
        cmocka_unit_test(test_pull_waits_for_atomic),
        cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_if_newer),
        cmocka_unit_test(test_fresh_blocks_are_read_in_parts),
        cmocka_unit_test(test_if_newer_goes_on),
        cmocka_unit_test(test_rounds_of_a_get),
        cmocka_unit_test(test_no_room_for_a_copy),
        cmocka_unit_test(test_done_by_half),
        cmocka_unit_test(test_readers_take_the_room),
        cmocka_unit_test(test_dedup_is_counted),
        cmocka_unit_test(test_dedup_is_what_is_open),
        cmocka_unit_test(test_dedup_keeps_a_window),
        cmocka_unit_test(test_clients_are_forgotten),
        cmocka_unit_test(test_silent_worker_is_known),
        cmocka_unit_test(test_fresh_blocks_are_blank),
        cmocka_unit_test(test_declare_touches_nothing),
        cmocka_unit_test(test_clients_count),
        cmocka_unit_test(test_as_planned),
        cmocka_unit_test(test_declared_at_once),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_past_sequence),
        cmocka_unit_test(test_damaged_requests),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_no_memory_to_read),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

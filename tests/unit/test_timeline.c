// SPDX-License-Identifier: Apache-2.0
//
// common/file/timeline: spans of any thread become a Chrome trace that viewers show as it was meant.
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "common/file/timeline.h"

static char folder[64], file[96];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_timeline.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(file, sizeof file, "%s/trace.json", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(file);
    return rmdir(folder);
}

static struct ps_timeline *open_file(void)
{
    struct ps_timeline *t;
    struct ps_error e = {0};
    if (ps_timeline_open(file, &t, &e))
        fail_msg("%s", e.text);
    return t;
}

static json_t *close_file(struct ps_timeline *t)
{
    struct ps_error e = {0};
    json_error_t error;
    if (ps_timeline_close(t, &e))
        fail_msg("%s", e.text);
    json_t *all = json_load_file(file, 0, &error);
    if (!json_is_array(all))
        fail_msg("%d: %s", error.line, error.text);
    return all;
}

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

static int64_t number_of(const json_t *event, const char *key)
{
    const json_t *number = json_object_get(event, key);
    assert_true(json_is_integer(number));
    return json_integer_value(number);
}

// Nanoseconds as a viewer finds them, who has microseconds as a double.
static int64_t time_of(const json_t *event, const char *key)
{
    const json_t *number = json_object_get(event, key);
    assert_true(json_is_real(number));
    const double ns = json_real_value(number) * 1000;
    assert_true(ns >= 0 && ns < 0x1p53 && ns == (double)(int64_t)ns);
    return (int64_t)ns;
}

// The k-th span of a name, or of any where it is NULL.
static const json_t *span_at(const json_t *all, const char *name, size_t k)
{
    size_t i;
    const json_t *event;
    json_array_foreach(all, i, event) if (strcmp(text_of(event, "ph"), "X") == 0 &&
                                          (!name || strcmp(text_of(event, "name"), name) == 0) &&
                                          k-- == 0) return event;
    return NULL;
}

// What a process or a thread is called.
static const char *name_of(const json_t *all, const char *what, int64_t pid, int64_t tid)
{
    size_t i;
    const json_t *event;
    json_array_foreach(all, i, event) if (strcmp(text_of(event, "ph"), "M") == 0 &&
                                          strcmp(text_of(event, "name"), what) == 0 && number_of(event, "pid") == pid &&
                                          (tid == 0 || number_of(event, "tid") ==
                                                           tid)) return text_of(json_object_get(event, "args"), "name");
    return "";
}

static const char *row_of(const json_t *all, const json_t *span)
{
    return name_of(all, "thread_name", number_of(span, "pid"), number_of(span, "tid"));
}

static void add(struct ps_track *track, enum ps_span_kind kind, const char *name, uint64_t start, uint64_t end)
{
    ps_track_add(track, &(struct ps_span){.kind = kind, .name = name, .start = start}, end);
}

// ---- what is in the file ------------------------------------------------------------------------------------------

static void test_spans(void **state)
{
    (void)state;
    struct ps_timeline *t = open_file();
    const uint64_t now = ps_now();
    struct ps_track *track = ps_timeline_track(t, 3, PS_STREAM_COMPUTE);
    for (int kind = 0; kind < PS_SPAN_KINDS; kind++)
        add(track, (enum ps_span_kind)kind, "of a kind", now, now + 1000);
    const struct ps_span span = {PS_SPAN_WAIT, "a\\\"b\n\x01\xc3\xa9", now, "bytes", UINT64_C(1) << 40, "part\t"};
    ps_track_add(track, &span, now + 2000);
    json_t *all = close_file(t);
    for (int kind = 0; kind < PS_SPAN_KINDS; kind++)
        assert_string_equal(text_of(span_at(all, "of a kind", (size_t)kind), "cat"), ps_span_names[kind]);
    assert_null(span_at(all, "of a kind", PS_SPAN_KINDS));
    const json_t *odd = span_at(all, "a\\\"b\n\x01\xc3\xa9 part\t", 0);
    assert_non_null(odd);
    assert_true(number_of(json_object_get(odd, "args"), "bytes") == INT64_C(1) << 40);
    assert_int_equal(time_of(odd, "dur"), 2000);
    assert_string_equal(row_of(all, odd), "compute");
    assert_true(strncmp(name_of(all, "process_name", number_of(odd, "pid"), 0), "replica 3 (", 11) == 0);
    json_decref(all);
}

static void test_nothing(void **state)
{
    (void)state;
    json_t *all = close_file(open_file());
    assert_int_equal(json_array_size(all), 0);
    json_decref(all);
}

// Nobody wants a timeline.
static void test_off(void **state)
{
    (void)state;
    struct ps_error e = {0};
    struct ps_track *track = ps_timeline_track(NULL, 0, PS_STREAM_DATA);
    const struct ps_span span = {.name = "none"};
    assert_null(track);
    assert_int_equal(ps_track_now(track), 0);
    ps_track_add(track, &span, 0);
    ps_track_end(track, &span);
    assert_int_equal(ps_timeline_close(NULL, &e), PS_OK);
}

// ---- times --------------------------------------------------------------------------------------------------------

// Spans that touch, and that end together, still do when a viewer has rounded their times.
static void test_times_are_exact(void **state)
{
    (void)state;
    enum { SPANS = 2000 };
    struct ps_timeline *t = open_file();
    struct ps_track *track = ps_timeline_track(t, 0, PS_STREAM_COMPUTE);
    const uint64_t start = ps_now();
    uint64_t at = start;
    for (uint64_t i = 0; i < SPANS; i++) {
        const uint64_t end = at + i * 7919 % 30011;
        add(track, PS_SPAN_FORWARD, "op", at, end);
        at = end;
    }
    add(track, PS_SPAN_STEP, "step", start, at);
    json_t *all = close_file(t);
    const json_t *step = span_at(all, "step", 0);
    int64_t end = time_of(step, "ts");
    for (size_t i = 0; i < SPANS; i++) {
        const json_t *op = span_at(all, NULL, i);
        assert_int_equal(time_of(op, "ts"), end);
        end += time_of(op, "dur");
    }
    assert_int_equal(time_of(step, "ts") + time_of(step, "dur"), end);
    json_decref(all);
}

// Files of several processes go together: they have the wall clock's time, but for a multiple of 2^52 ns.
static void test_wall_clock(void **state)
{
    (void)state;
    struct timespec wall;
    struct ps_timeline *t = open_file();
    ps_track_end(ps_timeline_track(t, 0, PS_STREAM_COMPUTE), &(struct ps_span){PS_SPAN_STEP, "now", ps_now()});
    json_t *all = close_file(t);
    clock_gettime(CLOCK_REALTIME, &wall);
    const int64_t era = INT64_C(1) << 52, now = (wall.tv_sec * (int64_t)PS_SECOND + wall.tv_nsec) % era;
    const int64_t behind = (now - time_of(span_at(all, "now", 0), "ts") + era) % era;
    assert_true(behind < 600 * (int64_t)PS_SECOND);
    json_decref(all);
}

// ---- rows ---------------------------------------------------------------------------------------------------------

static void test_rows(void **state)
{
    (void)state;
    static const struct {
        const char *name, *row;
        uint64_t start, end;  // microseconds
    } span[] = {{"a", "communication", 0, 10},   {"b", "communication 2", 5, 12},  {"c", "communication 3", 6, 13},
                {"d", "communication", 10, 14},  {"e", "communication 2", 13, 20}, {"f", "communication 3", 13, 30},
                {"g", "communication 4", 1, 31}, {"h", "communication", 15, 16}};
    enum { SPANS = sizeof span / sizeof *span };
    struct ps_timeline *t = open_file();
    struct ps_track *track = ps_timeline_track(t, 0, PS_STREAM_COMMUNICATION);
    const uint64_t now = ps_now() / 1000 * 1000;
    for (size_t i = 0; i < SPANS; i++)
        add(track, PS_SPAN_PUSH, span[i].name, now + 1000 * span[i].start, now + 1000 * span[i].end);
    add(ps_timeline_track(t, 0, PS_STREAM_COMPUTE), PS_SPAN_FORWARD, "in", now + 10, now + 20);
    add(ps_timeline_track(t, 0, PS_STREAM_COMPUTE), PS_SPAN_STEP, "around", now, now + 30);
    json_t *all = close_file(t);
    for (size_t i = 0; i < SPANS; i++)
        assert_string_equal(row_of(all, span_at(all, span[i].name, 0)), span[i].row);
    assert_string_equal(row_of(all, span_at(all, "in", 0)), "compute");
    assert_string_equal(row_of(all, span_at(all, "around", 0)), "compute");
    json_decref(all);
}

// ---- threads ------------------------------------------------------------------------------------------------------

enum { THREADS = 4, EACH = 3000 };

struct writer {
    struct ps_timeline *timeline;
    uint32_t rank;
};

// Each computes for a replica of its own and sends on a stream of all.
static void *write_spans(void *arg)
{
    const struct writer *w = arg;
    for (int i = 0; i < EACH; i++) {
        struct ps_track *own = ps_timeline_track(w->timeline, w->rank, PS_STREAM_COMPUTE);
        struct ps_track *shared = ps_timeline_track(w->timeline, THREADS, PS_STREAM_COMMUNICATION);
        const uint64_t start = ps_track_now(own);
        ps_track_end(shared, &(struct ps_span){PS_SPAN_ALL_REDUCE, "bucket", start, "bytes", (uint64_t)i});
        ps_track_end(own, &(struct ps_span){PS_SPAN_STEP, "step", start, "step", (uint64_t)i});
    }
    return NULL;
}

// Every span of every thread is there, whole, and those of a row are one after the other.
static void test_threads(void **state)
{
    (void)state;
    pthread_t thread[THREADS];
    struct writer writer[THREADS];
    struct ps_timeline *t = open_file();
    for (uint32_t i = 0; i < THREADS; i++) {
        writer[i] = (struct writer){t, i};
        assert_int_equal(pthread_create(&thread[i], NULL, write_spans, &writer[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    json_t *all = close_file(t);
    size_t i, steps[THREADS] = {0}, buckets = 0, names = 0;
    int64_t until[2 * THREADS] = {0};  // of rows: as many as there are threads at most
    const json_t *event;
    json_array_foreach(all, i, event)
    {
        const bool step = strcmp(text_of(event, "name"), "step") == 0;
        names += strcmp(text_of(event, "name"), "process_name") == 0;
        if (strcmp(text_of(event, "ph"), "X") != 0)
            continue;
        if (step) {
            const int64_t rank = number_of(event, "pid") - 1;
            assert_int_equal(number_of(json_object_get(event, "args"), "step"), steps[rank]++);
            continue;
        }
        buckets++;
        const int64_t row = number_of(event, "tid") % 1000 - 1;
        assert_true(row < THREADS && time_of(event, "ts") >= until[row]);
        until[row] = time_of(event, "ts") + time_of(event, "dur");
    }
    for (i = 0; i < THREADS; i++)
        assert_int_equal(steps[i], EACH);
    assert_int_equal(buckets, THREADS * EACH);
    assert_int_equal(names, THREADS + 1);
    json_decref(all);
}

// ---- files --------------------------------------------------------------------------------------------------------

// What a process that is killed now would leave; malloc'd.
static char *left_behind(size_t *length)
{
    char path[512] = "";
    DIR *d = opendir(folder);
    for (struct dirent *entry; (entry = readdir(d));)
        if (strstr(entry->d_name, ".tmp"))
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    closedir(d);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    *length = fread(text, 1, (1 << 20) - 2, f);
    fclose(f);
    return text;
}

// The spans of the first bytes of a file, which lack the array's end alone.
static size_t spans_within(char *text, size_t length)
{
    const char after = text[length];
    size_t n = 0, i;
    const json_t *event;
    text[length] = ']';
    json_t *all = json_loadb(text, length + 1, 0, NULL);
    text[length] = after;
    assert_non_null(all);
    json_array_foreach(all, i, event) n += strcmp(text_of(event, "ph"), "X") == 0;
    json_decref(all);
    return n;
}

static size_t spans_left(void)
{
    size_t length;
    char *text = left_behind(&length);
    const size_t n = spans_within(text, length);
    free(text);
    return n;
}

static void test_killed(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    struct ps_timeline *t = open_file();
    struct ps_track *track = ps_timeline_track(t, 0, PS_STREAM_COMPUTE);
    const uint64_t now = ps_now();
    add(track, PS_SPAN_STEP, "step", now, now + 10);
    add(track, PS_SPAN_STEP, "step", now, now + 2 * PS_SECOND);
    assert_int_equal(spans_left(), 2);
    for (int i = 0; i < MANY; i++)
        add(track, PS_SPAN_STEP, "so many that some are written before there is time to", now, now + 10);
    const size_t n = spans_left();
    assert_true(n > 2 && n < MANY);
    // Where the kernel ends a write of a process that is killed.
    size_t length;
    char *text = left_behind(&length);
    for (size_t page = 4096; page < length; page += 4096)
        assert_true(spans_within(text, page) > 2);
    free(text);
    json_t *all = close_file(t);
    assert_non_null(span_at(all, NULL, MANY + 1));
    json_decref(all);
}

static void test_errors(void **state)
{
    (void)state;
    struct ps_error e = {0};
    struct ps_timeline *t;
    assert_int_equal(ps_timeline_open("/nowhere/trace.json", &t, &e), PS_CANNOT_CREATE);
    assert_int_equal(ps_timeline_open(folder, &t, &e), PS_CANNOT_CREATE);
    if (access("/dev/full", W_OK) != 0)
        return;
    assert_int_equal(ps_timeline_open("/dev/full", &t, &e), PS_OK);
    for (int i = 0; i < 20000; i++)
        ps_track_end(ps_timeline_track(t, 0, PS_STREAM_COMPUTE), &(struct ps_span){PS_SPAN_STEP, "step", ps_now()});
    assert_int_equal(ps_timeline_close(t, &e), PS_CANNOT_WRITE);
    assert_non_null(strstr(e.text, "cannot write /dev/full: No space left on device"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spans),           cmocka_unit_test(test_nothing),    cmocka_unit_test(test_off),
        cmocka_unit_test(test_times_are_exact), cmocka_unit_test(test_wall_clock), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_threads),         cmocka_unit_test(test_killed),     cmocka_unit_test(test_errors),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

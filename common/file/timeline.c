// SPDX-License-Identifier: Apache-2.0
#include "common/file/timeline.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/machine.h"
#include "common/base/utf8.h"
#include "common/file/output.h"

// A killed process's file is read if nothing has cut an element in two. stdio does not: its buffer goes out long before
// it is full. The kernel ends a write of a process that is killed where a page of the file ends: so no element lies
// across two of them, unless it is longer than one.
enum { TIMELINE_BUFFER = 1 << 20, TIMELINE_FLUSH = 1 << 18, TIMELINE_PAGE = 4096 };

// Viewers read times as doubles of microseconds, make nanoseconds of them, and drop a span that overlaps another by as
// little as that rounds. None of it rounds eighths of a microsecond that are less than 2^53 ns. So the file counts from
// the last time that the wall clock was a multiple of 2^52 ns, every 52 days: the same for all processes that begin
// together.
enum { TIMELINE_GRAIN = 125 };
#define TIMELINE_ERA (UINT64_C(1) << 52)

// Rows of a track have numbers that no other track's have.
enum { TIMELINE_ROWS = 1000 };

struct ps_track {
    struct ps_timeline *timeline;
    uint32_t replica;
    enum ps_stream stream;
    uint64_t *until;  // [rows] where the last span of each ends, as the file has it
    size_t rows;
    struct ps_track *next;
};

struct ps_timeline {
    struct ps_output output;
    char *buffer;     // the file's
    uint64_t offset;  // from ps_now() to the file's times; modulo 2^64
    pthread_mutex_t mutex;
    // Guarded by it, as are the rows of all tracks and the file.
    struct ps_track *tracks;
    FILE *element;  // the next of the array, in memory: its text, and how long that is after a flush
    char *text;
    size_t length;
    uint64_t flushed;  // when the file was, last
    size_t pending;    // bytes since then
    size_t written;    // bytes in all
};

const char *const ps_span_names[PS_SPAN_KINDS] = {
    [PS_SPAN_EPOCH] = "epoch",
    [PS_SPAN_STEP] = "step",
    [PS_SPAN_FORWARD] = "forward",
    [PS_SPAN_BACKWARD] = "backward",
    [PS_SPAN_OPTIMIZER] = "optimizer",
    [PS_SPAN_FEED] = "feed",
    [PS_SPAN_PULL] = "pull",
    [PS_SPAN_PUSH] = "push",
    [PS_SPAN_PUSH_PULL] = "push_pull",
    [PS_SPAN_WAIT] = "wait",
    [PS_SPAN_ALL_REDUCE] = "all_reduce",
    [PS_SPAN_EVALUATION] = "evaluation",
    [PS_SPAN_CALLBACK] = "callback",
};

static const char *const timeline_streams[PS_STREAMS] = {"compute", "communication", "data", "at the servers"};

// ---- the file's text; under the mutex ------------------------------------------------------------------------------

static void timeline_put(struct ps_timeline *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void timeline_put(struct ps_timeline *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(t->element, format, args);
    va_end(args);
}

static void timeline_put_text(struct ps_timeline *t, const char *text)
{
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == '"' || *c == '\\')
            timeline_put(t, "\\u%04x", *c);
        else
            putc_unlocked(*c, t->element);
}

// Begins the next element of the array;
static void timeline_begin(struct ps_timeline *t, char phase, const struct ps_track *track, size_t row)
{
    rewind(t->element);
    // Process 0 is the idle process, which Perfetto does not show.
    timeline_put(t, "%s{\"ph\":\"%c\",\"pid\":%" PRIu32 ",\"tid\":%zu", t->written ? ",\n" : "[\n", phase,
                 track->replica + 1, (size_t)track->stream * TIMELINE_ROWS + row + 1);
}

// ends it: it goes to the file, on the next page where it does not fit on this one.
static void timeline_end(struct ps_timeline *t)
{
    timeline_put(t, "}");
    fflush(t->element);
    const size_t left = TIMELINE_PAGE - t->written % TIMELINE_PAGE, skipped = t->length > left ? left : 0;
    fprintf(t->output.file, "%*s", (int)skipped, "");
    fwrite(t->text, 1, t->length, t->output.file);
    t->pending += skipped + t->length;
    t->written += skipped + t->length;
}

static void timeline_flush(struct ps_timeline *t, uint64_t now)
{
    fflush(t->output.file);
    t->pending = 0;
    t->flushed = now;
}

// ---- open and close -----------------------------------------------------------------------------------------------

static uint64_t timeline_ns(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * PS_SECOND + (uint64_t)t->tv_nsec;
}

// Between two looks at one clock lies one at the other: the closest of some.
static uint64_t timeline_offset(void)
{
    uint64_t best = UINT64_MAX, offset = 0;
    for (int i = 0; i < 8; i++) {
        struct timespec wall;
        const uint64_t before = ps_now();
        clock_gettime(CLOCK_REALTIME, &wall);
        const uint64_t after = ps_now();
        if (after - before >= best)
            continue;
        best = after - before;
        offset = timeline_ns(&wall) % TIMELINE_ERA - (before + best / 2);
    }
    return offset;
}

enum ps_code ps_timeline_open(const char *path, struct ps_timeline **timeline, struct ps_error *e)
{
    struct ps_timeline *t = ps_alloc(sizeof *t);
    if (ps_output_open(&t->output, path, e)) {
        free(t);
        return e->code;
    }
    t->buffer = ps_alloc(TIMELINE_BUFFER);
    setvbuf(t->output.file, t->buffer, _IOFBF, TIMELINE_BUFFER);
    t->element = ps_open_memory(&t->text, &t->length);
    t->offset = timeline_offset();
    t->flushed = ps_now();
    pthread_mutex_init(&t->mutex, NULL);
    *timeline = t;
    return PS_OK;
}

enum ps_code ps_timeline_close(struct ps_timeline *t, struct ps_error *e)
{
    if (!t)
        return PS_OK;
    fputs(t->written ? "\n]\n" : "[]\n", t->output.file);
    const enum ps_code code = ps_output_commit(&t->output, e);
    for (struct ps_track *track = t->tracks, *next; track; track = next) {
        next = track->next;
        free(track->until);
        free(track);
    }
    pthread_mutex_destroy(&t->mutex);
    fclose(t->element);
    free(t->text);
    free(t->buffer);
    free(t);
    return code;
}

// ---- tracks -------------------------------------------------------------------------------------------------------

// What a process or a row is called, and where it is shown among the others.
static void track_name(struct ps_track *track, size_t row)
{
    struct ps_timeline *t = track->timeline;
    timeline_begin(t, 'M', track, row);
    timeline_put(t, ",\"name\":\"thread_name\",\"args\":{\"name\":\"%s", timeline_streams[track->stream]);
    if (row)
        timeline_put(t, " %zu", row + 1);
    timeline_put(t, "\"}");
    timeline_end(t);
    timeline_begin(t, 'M', track, row);
    timeline_put(t, ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%zu}",
                 (size_t)track->stream * TIMELINE_ROWS + row);
    timeline_end(t);
}

static void track_name_replica(struct ps_track *track)
{
    struct ps_timeline *t = track->timeline;
    char host[PS_HOST_NAME] = "";
    if (track->stream != PS_STREAM_SERVER)  // which another host may write
        ps_host_name(host);
    ps_utf8_repair(host);
    timeline_begin(t, 'M', track, 0);
    timeline_put(t, ",\"name\":\"process_name\",\"args\":{\"name\":\"replica %" PRIu32 "%s", track->replica,
                 *host ? " (" : "");
    timeline_put_text(t, host);
    timeline_put(t, "%s\"}", *host ? ")" : "");
    timeline_end(t);
    timeline_begin(t, 'M', track, 0);
    timeline_put(t, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%" PRIu32 "}", track->replica);
    timeline_end(t);
}

static size_t track_add_row(struct ps_track *track)
{
    const size_t row = track->rows++;
    track->until = ps_realloc(track->until, track->rows * sizeof *track->until);
    track->until[row] = 0;
    track_name(track, row);
    return row;
}

static struct ps_track *timeline_add_track(struct ps_timeline *t, uint32_t replica, enum ps_stream stream, bool first)
{
    struct ps_track *track = ps_alloc(sizeof *track);
    *track = (struct ps_track){.timeline = t, .replica = replica, .stream = stream, .next = t->tracks};
    t->tracks = track;
    if (first)
        track_name_replica(track);
    track_add_row(track);
    return track;
}

struct ps_track *ps_timeline_track(struct ps_timeline *t, uint32_t replica, enum ps_stream stream)
{
    struct ps_track *found = NULL;
    bool first = true;
    if (!t)
        return NULL;
    pthread_mutex_lock(&t->mutex);
    for (struct ps_track *track = t->tracks; track; track = track->next) {
        first &= track->replica != replica;
        if (track->replica == replica && track->stream == stream)
            found = track;
    }
    if (!found)
        found = timeline_add_track(t, replica, stream, first);
    pthread_mutex_unlock(&t->mutex);
    return found;
}

// ---- spans --------------------------------------------------------------------------------------------------------

// The first row whose spans end where this one begins, or before.
static size_t track_find_row(struct ps_track *track, uint64_t start, uint64_t end)
{
    size_t row = 0;
    if (track->stream == PS_STREAM_COMPUTE)
        return row;
    while (row < track->rows && track->until[row] > start)
        row++;
    if (row == track->rows)
        track_add_row(track);
    track->until[row] = end;
    return row;
}

// What the file has for a time of ps_now().
static uint64_t timeline_time(const struct ps_timeline *t, uint64_t time)
{
    const uint64_t exact = time + t->offset;
    return exact - exact % TIMELINE_GRAIN;
}

static void timeline_put_time(struct ps_timeline *t, const char *key, uint64_t ns)
{
    timeline_put(t, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

static void track_put_span(struct ps_track *track, const struct ps_span *s, uint64_t end)
{
    struct ps_timeline *t = track->timeline;
    const uint64_t from = timeline_time(t, s->start), to = timeline_time(t, end);
    timeline_begin(t, 'X', track, track_find_row(track, from, to));
    timeline_put_time(t, "ts", from);
    timeline_put_time(t, "dur", to - from);
    timeline_put(t, ",\"cat\":\"%s\",\"name\":\"", ps_span_names[s->kind]);
    timeline_put_text(t, s->name);
    if (s->part) {
        timeline_put(t, " ");
        timeline_put_text(t, s->part);
    }
    timeline_put(t, "\"");
    if (s->argument)
        timeline_put(t, ",\"args\":{\"%s\":%" PRIu64 "}", s->argument, s->value);
    timeline_end(t);
}

void ps_track_write(struct ps_track *track, const struct ps_span *span, uint64_t end)
{
    struct ps_timeline *t = track->timeline;
    pthread_mutex_lock(&t->mutex);
    // On a full disk nothing more is written; ps_timeline_close says so.
    if (!t->output.error) {
        track_put_span(track, span, end);
        if (t->pending >= TIMELINE_FLUSH || end >= t->flushed + PS_SECOND)
            timeline_flush(t, end);
    }
    pthread_mutex_unlock(&t->mutex);
}

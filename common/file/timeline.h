// SPDX-License-Identifier: Apache-2.0
//
// A timeline: what took how long, as a Chrome trace (Trace Event Format, a JSON array), which ui.perfetto.dev and
// chrome://tracing open. Each replica is a process of it, each of the replica's streams a track.
//
//     struct ps_track *track = ps_timeline_track(timeline, replica, PS_STREAM_COMPUTE);
//     uint64_t start = ps_track_now(track);
//     ... what is measured ...
//     ps_track_end(track, &(struct ps_span){PS_SPAN_WAIT, "clock", start});
//
// A timeline or a track of NULL is one that nobody wants: all functions take it and do nothing.
//
// Times are ps_now()'s. The file has them by the wall clock, so that the files of several processes, or of several
// hosts whose clocks agree, make one trace when they are joined. Spans go to the file meanwhile, whole ones only, and
// none waits longer than until the first that ends a second later: where the process is killed, the temporary file
// (common/file/output.h) holds an array without its end, which both viewers open.
//
// Threads: any thread may make tracks and add spans, also to the same track. ps_timeline_close comes after that.
#ifndef PS_COMMON_TIMELINE_H
#define PS_COMMON_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/clock.h"
#include "common/base/error.h"

struct ps_timeline;
struct ps_track;

enum ps_stream {
    // Of one thread: a span lies within another or beside it.
    PS_STREAM_COMPUTE,
    // Of these, spans that overlap are shown in rows below each other.
    PS_STREAM_COMMUNICATION,
    PS_STREAM_DATA,
    PS_STREAM_SERVER,  // waits at the ps tasks, as these have seen them
    PS_STREAMS
};

// The category of a span.
enum ps_span_kind {
    PS_SPAN_EPOCH,
    PS_SPAN_STEP,
    PS_SPAN_FORWARD,
    PS_SPAN_BACKWARD,
    PS_SPAN_OPTIMIZER,
    PS_SPAN_FEED,  // a batch is made
    PS_SPAN_PULL,
    PS_SPAN_PUSH,
    PS_SPAN_PUSH_PULL,
    PS_SPAN_ALL_REDUCE,
    PS_SPAN_WAIT,
    PS_SPAN_EVALUATION,
    PS_SPAN_CALLBACK,
    PS_SPAN_KINDS
};
extern const char *const ps_span_names[PS_SPAN_KINDS];

struct ps_span {
    enum ps_span_kind kind;
    const char *name;      // UTF-8
    uint64_t start;        // ps_now()
    const char *argument;  // what `value` is, shown with the span; NULL: it has none
    uint64_t value;
    const char *part;  // follows the name; NULL: nothing does
};

// Errors as ps_output_open's. path lives as long as the timeline does.
enum ps_code ps_timeline_open(const char *path, struct ps_timeline **timeline, struct ps_error *e);
// Ends the file and frees the timeline, its tracks too. CANNOT_WRITE: there is no file, or what was there before.
enum ps_code ps_timeline_close(struct ps_timeline *timeline, struct ps_error *e);

// The track of a replica's stream, made where there is none yet. The timeline's.
struct ps_track *ps_timeline_track(struct ps_timeline *timeline, uint32_t replica, enum ps_stream stream);

static inline uint64_t ps_track_now(const struct ps_track *track)
{
    return track ? ps_now() : 0;
}

void ps_track_write(struct ps_track *track, const struct ps_span *span, uint64_t end);

// Adds a span that ends at `end`;
static inline void ps_track_add(struct ps_track *track, const struct ps_span *span, uint64_t end)
{
    if (track)
        ps_track_write(track, span, end);
}

// that ends now.
static inline void ps_track_end(struct ps_track *track, const struct ps_span *span)
{
    if (track)
        ps_track_write(track, span, ps_now());
}

#endif

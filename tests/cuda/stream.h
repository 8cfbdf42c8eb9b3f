// SPDX-License-Identifier: Apache-2.0
//
// Streams: queues of operations. An operation runs when it is at the head of its stream and what it waits for has
// ended; which of those that can run is next is drawn from the seed. They run when the host waits, and now and then
// when it calls. What is ordered with what is settled when an operation is queued: its task's clock.
#ifndef EMU_STREAM_H
#define EMU_STREAM_H

#include "tests/cuda/runtime.h"
#include "tests/cuda/task.h"
#include <deque>
#include <functional>

struct emu_operation;
typedef std::shared_ptr<emu_operation> emu_operation_ref;

// What is to be done, before it is known when: by a stream, or by each launch of a graph.
struct emu_work {
    std::string what;
    emu_place at;
    std::function<void(uint32_t task)> run;  // empty: nothing
    bool unlocked = false;                   // a function of the program, which runs without the emulator's lock
    // Of a collective.
    std::function<void(const emu_operation_ref &)> queued = nullptr;
    std::function<bool(const emu_operation &)> ready = nullptr;  // may it run, apart from what it waits for?
    std::function<void(const emu_operation &)> move = nullptr;   // instead of run
};

struct emu_operation {
    emu_work work;
    struct emu_stream *stream;
    uint32_t task;
    emu_clock clock;  // what has ended once this has
    std::vector<emu_operation_ref> waits;
    bool running, done;
    std::shared_ptr<struct emu_collective> collective;
};

struct emu_capture;
struct emu_stream {
    uint32_t actor;
    int device, number;
    bool blocking;  // with the default stream
    bool destroyed;
    emu_clock clock;  // what its next task is ordered after
    std::deque<emu_operation_ref> queue;
    emu_operation_ref last;
    emu_place made;
    // While it is captured.
    emu_capture *capture;
    size_t branch;              // of the graph
    std::vector<size_t> after;  // the nodes that its next one waits for
};

struct emu_event {
    emu_operation_ref recorded;  // NULL: never
    int device;
    bool destroyed;
    emu_capture *capture;  // in which it was recorded
    std::vector<size_t> after;
    emu_place recorded_at;
};

// The default stream of this thread's device for NULL. NULL: it is destroyed, or of another device; emu_fail was
// called.
emu_stream *emu_stream_use(cudaStream_t stream, emu_place at, const char *call);
// A stream that no program has: a branch of a graph.
emu_stream *emu_stream_create(int device, int number, bool blocking, emu_place at);

// Adds it to the stream, or to the graph that is captured there.
cudaError_t emu_stream_add(emu_stream *stream, emu_work work);
// The same, whatever device is set.
cudaError_t emu_stream_add_any(emu_stream *stream, emu_work work);
// To the stream itself, after these, too.
emu_operation_ref emu_stream_queue(emu_stream *stream, emu_work work, const std::vector<emu_operation_ref> &waits);

// Runs what can run until this operation has ended; this thread of the host then knows what it knew.
cudaError_t emu_wait_for(const emu_operation_ref &operation, emu_place at, const char *call);

uint64_t emu_steps();  // operations that have ended, and questions whether they have
void emu_streams_reset();
void emu_streams_begin(int devices);

#endif

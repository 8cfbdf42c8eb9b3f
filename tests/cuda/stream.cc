// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/stream.h"
#include "tests/cuda/fiber.h"
#include "tests/cuda/forever.h"
#include "tests/cuda/graph.h"
#include "tests/cuda/host.h"
#include "tests/cuda/kernel.h"
#include "tests/cuda/nccl.h"
#include "tests/cuda/touch.h"

static auto &streams =
    emu_forever<std::vector<std::unique_ptr<emu_stream>>>();  // the devices' default streams come first
static auto &events = emu_forever<std::vector<std::unique_ptr<emu_event>>>();
static uint64_t steps;
static int numbers;  // of streams

// ---- streams -------------------------------------------------------------------------------------------------------

emu_stream *emu_stream_create(int device, int number, bool blocking, emu_place at)
{
    std::unique_ptr<emu_stream> s(new emu_stream{});
    s->actor = emu_actor_create();
    s->device = device;
    s->number = number;
    s->blocking = blocking;
    s->made = at;
    streams.push_back(std::move(s));
    return streams.back().get();
}

void emu_streams_reset()
{
    for (auto &s : streams)
        for (auto &operation : s->queue)
            operation->waits.clear();
    streams.clear();
    events.clear();
    emu_graphs_reset();
    steps = 0;
    numbers = 0;
}

void emu_streams_begin(int devices)
{
    for (int i = 0; i < devices; i++)
        emu_stream_create(i, 0, true, emu_place{"start", 0});
}

uint64_t emu_steps()
{
    return steps;
}

emu_stream *emu_stream_use(cudaStream_t handle, emu_place at, const char *call)
{
    if (emu_callback_task()) {
        emu_fail(emu_format("%s (%s) is called by a host function of a stream: expected no call of CUDA there", call,
                            emu_place_text(at).c_str()));
        return NULL;
    }
    emu_stream *s = handle ? handle : streams[(size_t)emu_device_now()].get();
    if (s->destroyed) {
        emu_fail(emu_format("%s (%s) uses stream %d (%s), which was destroyed: expected one that is not", call,
                            emu_place_text(at).c_str(), s->number, emu_place_text(s->made).c_str()));
        return NULL;
    }
    return s;
}

// Work is queued by a thread whose device is the stream's.
static bool stream_device_right(const emu_stream *s, emu_place at, const std::string &what)
{
    if (s->device == emu_device_now())
        return true;
    emu_fail(emu_format("%s (%s) is queued while device %d is set, on stream %d of device %d (%s): expected "
                        "cudaSetDevice(%d) before it",
                        what.c_str(), emu_place_text(at).c_str(), emu_device_now(), s->number, s->device,
                        emu_place_text(s->made).c_str(), s->device));
    return false;
}

// ---- operations ----------------------------------------------------------------------------------------------------

// The default stream waits for the others of its device that were made to block with it, and they for it.
static void stream_wait_for_default(emu_stream *s, std::vector<emu_operation_ref> &waits)
{
    emu_stream *standard = streams[(size_t)s->device].get();
    if (s != standard) {
        if (s->blocking && standard->last)
            waits.push_back(standard->last);
        return;
    }
    for (auto &other : streams)
        if (other.get() != s && other->device == s->device && other->blocking && other->last)
            waits.push_back(other->last);
}

emu_operation_ref emu_stream_queue(emu_stream *s, emu_work work, const std::vector<emu_operation_ref> &waits)
{
    auto operation = std::make_shared<emu_operation>();
    operation->waits = waits;
    stream_wait_for_default(s, operation->waits);
    emu_clock_join(s->clock, emu_host_clock());
    for (auto &before : operation->waits)
        emu_clock_join(s->clock, before->clock);
    operation->task = emu_task_create(s->actor, s->clock, work.what, work.at, s->device, s->number);
    operation->clock = s->clock;
    operation->stream = s;
    operation->work = std::move(work);
    s->queue.push_back(operation);
    s->last = operation;
    emu_host_calls(operation->work.at);
    if (operation->work.queued)
        operation->work.queued(operation);
    return operation;
}

static bool stream_can_run(const emu_stream *s)
{
    if (s->queue.empty() || s->queue.front()->running)
        return false;
    const emu_operation &operation = *s->queue.front();
    for (auto &before : operation.waits)
        if (!before->done)
            return false;
    return !operation.work.ready || operation.work.ready(operation);
}

static void stream_run_unlocked(const emu_operation_ref &operation)
{
    emu_entry_leave();
    emu_callback_begin(operation->task);
    operation->work.run(operation->task);
    emu_callback_end();
    emu_entry_return();
}

static void operation_run(const emu_operation_ref &operation)
{
    if (operation->work.unlocked)
        stream_run_unlocked(operation);
    else if (operation->work.move)
        operation->work.move(*operation);
    else if (operation->work.run)
        operation->work.run(operation->task);
}

static void stream_run(emu_stream *s)
{
    emu_operation_ref operation = s->queue.front();
    operation->running = true;
    if (emu_device_state(s->device) == cudaSuccess)
        operation_run(operation);
    operation->done = true;
    operation->waits.clear();
    s->queue.pop_front();
    steps++;
    emu_changed();
}

// false: there was nothing that can run.
static bool streams_run_next()
{
    std::vector<emu_stream *> able;
    for (auto &s : streams)
        if (stream_can_run(s.get()))
            able.push_back(s.get());
    if (able.empty())
        return false;
    stream_run(able[emu_random(able.size())]);
    return true;
}

// The same. What is suspected is settled by all that can run.
static bool streams_run_one()
{
    if (!streams_run_next())
        return false;
    if (!emu_suspects(false))
        return true;
    while (!emu_failed() && streams_run_next())
        ;
    emu_suspect_confirm();
    return true;
}

static bool streams_one_runs()
{
    for (auto &s : streams)
        if (!s->queue.empty() && s->queue.front()->running)
            return true;
    return false;
}

// Nothing can run: another thread may change that, or nobody can.
static void streams_wait(const emu_operation_ref &operation, emu_place at, const char *call)
{
    std::shared_ptr<emu_thread> me = emu_thread_me();
    me->waits_for = operation;
    std::string sentence;
    if (!streams_one_runs() && emu_collectives_stuck(&sentence))
        emu_fail(emu_format("%s (%s) waits forever: ", call, emu_place_text(at).c_str()) + sentence);
    else if (!emu_entry_wait())
        emu_fail(emu_format("%s (%s) waits, and nobody calls the runtime for a minute%s", call,
                            emu_place_text(at).c_str(), sentence.empty() ? "" : (": " + sentence).c_str()));
    me->waits_for = nullptr;
}

cudaError_t emu_wait_for(const emu_operation_ref &operation, emu_place at, const char *call)
{
    emu_count()->host_waits += !operation->done;
    std::string sentence;
    while (!operation->done && !emu_failed()) {
        if (!streams_run_one())
            streams_wait(operation, at, call);
        if (emu_collectives_late(&sentence))
            emu_fail(sentence);
    }
    emu_host_learns(operation->clock);
    emu_host_calls(at);
    return emu_device_state(operation->stream->device);
}

cudaError_t emu_stream_add(emu_stream *s, emu_work work)
{
    if (emu_failed())
        return cudaErrorUnknown;
    if (!stream_device_right(s, work.at, work.what))
        return cudaErrorInvalidResourceHandle;
    return emu_stream_add_any(s, std::move(work));
}

cudaError_t emu_stream_add_any(emu_stream *s, emu_work work)
{
    if (s->capture) {
        emu_capture_add(s, std::move(work));
        return emu_device_state(s->device);
    }
    if (emu_capture_forbids_default(s, work.at, work.what.c_str()))
        return cudaErrorStreamCaptureUnsupported;
    emu_stream_queue(s, std::move(work), {});
    while (!emu_failed() && emu_random(3) == 0 && streams_run_one())
        ;
    return emu_device_state(s->device);
}

// ---- the runtime's functions of streams ----------------------------------------------------------------------------

cudaError_t emu_cudaStreamCreate(emu_place at, cudaStream_t *stream, unsigned flags)
{
    emu_entry entry;
    *stream = emu_stream_create(emu_device_now(), ++numbers, !(flags & cudaStreamNonBlocking), at);
    emu_count()->live_streams++;
    return emu_return(emu_device_state(emu_device_now()));
}

// Its work goes on.
cudaError_t emu_cudaStreamDestroy(emu_place at, cudaStream_t stream)
{
    emu_entry entry;
    emu_stream *s = stream ? emu_stream_use(stream, at, "cudaStreamDestroy") : NULL;
    if (!s)
        return emu_return(cudaErrorInvalidResourceHandle);
    s->destroyed = true;
    emu_count()->live_streams--;
    return cudaSuccess;
}

cudaError_t emu_cudaStreamSynchronize(emu_place at, cudaStream_t stream)
{
    emu_entry entry;
    emu_stream *s = emu_stream_use(stream, at, "cudaStreamSynchronize");
    if (!s || emu_capture_forbids(at, "cudaStreamSynchronize", s))
        return emu_return(cudaErrorUnknown);
    return emu_return(s->last ? emu_wait_for(s->last, at, "cudaStreamSynchronize") : emu_device_state(s->device));
}

cudaError_t emu_cudaDeviceSynchronize(emu_place at)
{
    emu_entry entry;
    if (emu_capture_forbids(at, "cudaDeviceSynchronize", NULL))
        return emu_return(cudaErrorUnknown);
    for (size_t i = 0; i < streams.size() && !emu_failed(); i++)
        if (streams[i]->device == emu_device_now() && streams[i]->last)
            emu_wait_for(streams[i]->last, at, "cudaDeviceSynchronize");
    return emu_return(emu_device_state(emu_device_now()));
}

// Has it ended? Something may end before the answer.
static cudaError_t operation_query(const emu_operation_ref &operation, emu_place at)
{
    steps++;
    while (!emu_failed() && emu_random(2) && streams_run_one())
        ;
    std::string sentence;
    if (!emu_config_now().absent_rank && emu_collectives_late(&sentence))
        emu_fail(sentence);
    if (emu_failed())
        return cudaErrorUnknown;
    const cudaError_t state = operation ? emu_device_state(operation->stream->device) : cudaSuccess;
    if (operation && !operation->done)
        return state == cudaSuccess ? cudaErrorNotReady : state;
    if (!operation)
        return cudaSuccess;
    emu_host_learns(operation->clock);
    emu_host_calls(at);
    return emu_device_state(operation->stream->device);
}

cudaError_t emu_cudaStreamQuery(emu_place at, cudaStream_t stream)
{
    emu_entry entry;
    emu_stream *s = emu_stream_use(stream, at, "cudaStreamQuery");
    if (!s || emu_capture_forbids(at, "cudaStreamQuery", s))
        return emu_return(cudaErrorUnknown);
    return emu_return(operation_query(s->last, at));
}

cudaError_t emu_cudaLaunchHostFunc(emu_place at, cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    emu_entry entry;
    emu_stream *s = emu_stream_use(stream, at, "cudaLaunchHostFunc");
    if (!s)
        return emu_return(cudaErrorInvalidResourceHandle);
    emu_work work = {"a host function", at, [function, argument](uint32_t) { function(argument); }};
    work.unlocked = true;
    return emu_return(emu_stream_add(s, std::move(work)));
}

// ---- events --------------------------------------------------------------------------------------------------------

static emu_event *event_use(cudaEvent_t event, emu_place at, const char *call)
{
    if (!event->destroyed)
        return event;
    emu_fail(emu_format("%s (%s) uses an event that was destroyed, recorded at %s: expected one that is not", call,
                        emu_place_text(at).c_str(),
                        event->recorded_at.file ? emu_place_text(event->recorded_at).c_str() : "no place"));
    return NULL;
}

cudaError_t emu_cudaEventCreate(emu_place, cudaEvent_t *event, unsigned)
{
    emu_entry entry;
    events.emplace_back(new emu_event{});
    *event = events.back().get();
    (*event)->device = emu_device_now();
    emu_count()->live_events++;
    return emu_return(emu_device_state(emu_device_now()));
}

cudaError_t emu_cudaEventDestroy(emu_place at, cudaEvent_t event)
{
    emu_entry entry;
    if (!event_use(event, at, "cudaEventDestroy"))
        return emu_return(cudaErrorInvalidResourceHandle);
    event->destroyed = true;
    emu_count()->live_events--;
    return cudaSuccess;
}

cudaError_t emu_cudaEventRecord(emu_place at, cudaEvent_t event, cudaStream_t stream)
{
    emu_entry entry;
    emu_stream *s = emu_stream_use(stream, at, "cudaEventRecord");
    if (!s || !event_use(event, at, "cudaEventRecord"))
        return emu_return(cudaErrorInvalidResourceHandle);
    if (event->device != s->device) {
        emu_fail(emu_format(
            "cudaEventRecord (%s) records an event of device %d on stream %d of device %d (%s): expected "
            "an event of the stream's device",
            emu_place_text(at).c_str(), event->device, s->number, s->device, emu_place_text(s->made).c_str()));
        return emu_return(cudaErrorInvalidResourceHandle);
    }
    event->recorded_at = at;
    event->capture = s->capture;
    event->after = s->after;
    if (!s->capture && !emu_failed())
        event->recorded = emu_stream_queue(s, emu_work{"cudaEventRecord", at, nullptr}, {});
    return emu_return(emu_device_state(s->device));
}

cudaError_t emu_cudaStreamWaitEvent(emu_place at, cudaStream_t stream, cudaEvent_t event, unsigned)
{
    emu_entry entry;
    emu_stream *s = emu_stream_use(stream, at, "cudaStreamWaitEvent");
    if (!s || !event_use(event, at, "cudaStreamWaitEvent") || emu_failed())
        return emu_return(cudaErrorInvalidResourceHandle);
    if (event->capture || s->capture)
        return emu_return(emu_capture_wait(s, event, at));
    if (event->recorded)
        emu_stream_queue(s, emu_work{"cudaStreamWaitEvent", at, nullptr}, {event->recorded});
    return emu_return(emu_device_state(s->device));
}

cudaError_t emu_cudaEventSynchronize(emu_place at, cudaEvent_t event)
{
    emu_entry entry;
    if (!event_use(event, at, "cudaEventSynchronize") || emu_capture_forbids_event(at, "cudaEventSynchronize", event))
        return emu_return(cudaErrorInvalidResourceHandle);
    return emu_return(event->recorded ? emu_wait_for(event->recorded, at, "cudaEventSynchronize")
                                      : emu_device_state(event->device));
}

cudaError_t emu_cudaEventQuery(emu_place at, cudaEvent_t event)
{
    emu_entry entry;
    if (!event_use(event, at, "cudaEventQuery") || emu_capture_forbids_event(at, "cudaEventQuery", event))
        return emu_return(cudaErrorInvalidResourceHandle);
    return emu_return(operation_query(event->recorded, at));
}

// Time does not pass here.
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    emu_entry entry;
    if (!start->recorded || !end->recorded)
        return emu_return(cudaErrorInvalidResourceHandle);
    if (!start->recorded->done || !end->recorded->done)
        return emu_return(cudaErrorNotReady);
    *milliseconds = 1.0f;
    return cudaSuccess;
}

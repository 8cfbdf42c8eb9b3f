// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/graph.h"
#include "tests/cuda/forever.h"
#include <algorithm>
#include <thread>

struct graph_node {
    emu_work work;
    size_t branch;
    std::vector<size_t> after;  // nodes that come first
};

struct emu_graph {
    std::vector<graph_node> nodes;       // each after those that it waits for
    std::vector<emu_stream *> branches;  // the streams that were captured
};

struct emu_capture {
    emu_graph graph;
    emu_place at;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool active;
};

struct emu_graph_exec {
    std::vector<graph_node> nodes;
    std::vector<emu_stream *> branches;  // of its own
    emu_operation_ref last;              // of the launch before
    bool destroyed;
};

static auto &captures = emu_forever<std::vector<std::unique_ptr<emu_capture>>>();
static auto &graphs = emu_forever<std::vector<std::unique_ptr<emu_graph>>>();
static auto &execs = emu_forever<std::vector<std::unique_ptr<emu_graph_exec>>>();

void emu_graphs_reset()
{
    captures.clear();
    graphs.clear();
    execs.clear();
}

// ---- what may not be called ----------------------------------------------------------------------------------------

static void capture_fail(const emu_capture *capture, emu_place at, const char *call)
{
    const emu_stream *origin = capture->graph.branches[0];
    emu_fail(emu_format(
        "%s (%s) is called while stream %d of device %d is captured, since %s: expected it before or after the capture",
        call, emu_place_text(at).c_str(), origin->number, origin->device, emu_place_text(capture->at).c_str()));
}

// Does it keep this thread from calls that no capture can hold?
static bool capture_is_strict(const emu_capture *capture)
{
    if (!capture->active || capture->mode == cudaStreamCaptureModeRelaxed)
        return false;
    return capture->mode == cudaStreamCaptureModeGlobal || capture->thread == std::this_thread::get_id();
}

bool emu_capture_forbids(emu_place at, const char *call, const emu_stream *stream)
{
    if (stream) {
        if (stream->capture)
            capture_fail(stream->capture, at, call);
        return stream->capture;
    }
    for (auto &capture : captures)
        if (capture_is_strict(capture.get())) {
            capture_fail(capture.get(), at, call);
            return true;
        }
    return false;
}

bool emu_capture_forbids_event(emu_place at, const char *call, const emu_event *event)
{
    if (event->capture)
        capture_fail(event->capture, at, call);
    return event->capture;
}

// The default stream waits for streams that block with it, and those that are captured cannot be waited for.
bool emu_capture_forbids_default(const emu_stream *stream, emu_place at, const char *call)
{
    if (stream->number != 0)
        return false;
    for (auto &capture : captures)
        if (capture->active)
            for (const emu_stream *s : capture->graph.branches)
                if (s->blocking && s->device == stream->device) {
                    capture_fail(capture.get(), at, (std::string(call) + " on the default stream").c_str());
                    return true;
                }
    return false;
}

// ---- capture -------------------------------------------------------------------------------------------------------

static void capture_join(emu_capture *capture, emu_stream *stream)
{
    stream->capture = capture;
    stream->branch = capture->graph.branches.size();
    stream->after.clear();
    capture->graph.branches.push_back(stream);
}

void emu_capture_add(emu_stream *stream, emu_work work)
{
    auto &nodes = stream->capture->graph.nodes;
    nodes.push_back(graph_node{std::move(work), stream->branch, stream->after});
    stream->after.assign(1, nodes.size() - 1);
}

cudaError_t emu_capture_wait(emu_stream *stream, const emu_event *event, emu_place at)
{
    if (!event->capture || (stream->capture && stream->capture != event->capture)) {
        emu_fail(
            emu_format("cudaStreamWaitEvent (%s) lets stream %d, captured since %s, wait for an event recorded at %s, "
                       "outside of the capture: expected one recorded in it",
                       emu_place_text(at).c_str(), stream->number, emu_place_text(stream->capture->at).c_str(),
                       event->recorded_at.file ? emu_place_text(event->recorded_at).c_str() : "no place"));
        return cudaErrorStreamCaptureUnsupported;
    }
    if (!event->capture->active) {
        emu_fail(emu_format("cudaStreamWaitEvent (%s) waits for an event recorded at %s in a capture that has ended: "
                            "expected one that was recorded since",
                            emu_place_text(at).c_str(), emu_place_text(event->recorded_at).c_str()));
        return cudaErrorStreamCaptureUnsupported;
    }
    if (!stream->capture)
        capture_join(event->capture, stream);
    for (size_t node : event->after)
        if (std::find(stream->after.begin(), stream->after.end(), node) == stream->after.end())
            stream->after.push_back(node);
    return cudaSuccess;
}

cudaError_t emu_cudaStreamBeginCapture(emu_place at, cudaStream_t stream, cudaStreamCaptureMode mode)
{
    emu_entry entry;
    emu_stream *s = emu_stream_use(stream, at, "cudaStreamBeginCapture");
    if (!s || s->capture || s->number == 0)
        return emu_return(cudaErrorStreamCaptureUnsupported);
    captures.emplace_back(new emu_capture{{}, at, mode, std::this_thread::get_id(), true});
    capture_join(captures.back().get(), s);
    return emu_return(emu_device_state(s->device));
}

// Which nodes come before one of these?
static std::vector<bool> graph_before(const emu_graph &graph, const std::vector<size_t> &last)
{
    std::vector<bool> before(graph.nodes.size());
    for (size_t node : last)
        before[node] = true;
    for (size_t i = graph.nodes.size(); i-- > 0;)
        if (before[i])
            for (size_t node : graph.nodes[i].after)
                before[node] = true;
    return before;
}

// Work of another stream that the first one does not wait for.
static bool capture_is_joined(const emu_capture *capture, emu_place at)
{
    const emu_graph &graph = capture->graph;
    std::vector<bool> before = graph_before(graph, graph.branches[0]->after);
    for (size_t i = 0; i < graph.nodes.size(); i++)
        if (!before[i]) {
            const graph_node &node = graph.nodes[i];
            emu_fail(emu_format(
                "cudaStreamEndCapture (%s) ends a capture, begun at %s, in which nothing waits for %s (%s) on "
                "stream %d: expected an event after it that the first stream waits for",
                emu_place_text(at).c_str(), emu_place_text(capture->at).c_str(), node.work.what.c_str(),
                emu_place_text(node.work.at).c_str(), graph.branches[node.branch]->number));
            return false;
        }
    return true;
}

cudaError_t emu_cudaStreamEndCapture(emu_place at, cudaStream_t stream, cudaGraph_t *graph)
{
    emu_entry entry;
    *graph = NULL;
    emu_stream *s = emu_stream_use(stream, at, "cudaStreamEndCapture");
    if (!s || !s->capture || s->branch != 0)
        return emu_return(cudaErrorStreamCaptureUnsupported);
    emu_capture *capture = s->capture;
    bool joined = !emu_failed() && capture_is_joined(capture, at);
    capture->active = false;
    for (emu_stream *branch : capture->graph.branches) {
        branch->capture = NULL;
        branch->after.clear();
    }
    if (!joined)
        return emu_return(cudaErrorUnknown);
    graphs.emplace_back(new emu_graph(capture->graph));
    emu_count()->live_graphs++;
    *graph = graphs.back().get();
    return emu_return(emu_device_state(s->device));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    emu_entry entry;
    *status = stream && stream->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

// ---- launch --------------------------------------------------------------------------------------------------------

cudaError_t emu_cudaGraphInstantiate(emu_place at, cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    emu_entry entry;
    if (!graph)
        return emu_return(cudaErrorInvalidValue);
    execs.emplace_back(new emu_graph_exec{});
    *exec = execs.back().get();
    (*exec)->nodes = graph->nodes;
    for (const emu_stream *s : graph->branches)
        (*exec)->branches.push_back(emu_stream_create(s->device, s->number, false, at));
    emu_count()->live_graphs++;
    return emu_return(emu_device_state(emu_device_now()));
}

// Each node goes to its branch, after the launch and what the capture said; what follows in the stream waits for all.
static void graph_queue(emu_graph_exec *exec, emu_stream *stream, emu_place at)
{
    std::vector<emu_operation_ref> before;
    if (exec->last)
        before.push_back(exec->last);
    emu_operation_ref begin = emu_stream_queue(stream, emu_work{"cudaGraphLaunch", at, nullptr}, before);
    std::vector<emu_operation_ref> queued;
    for (const graph_node &node : exec->nodes) {
        std::vector<emu_operation_ref> waits(1, begin);
        for (size_t i : node.after)
            waits.push_back(queued[i]);
        queued.push_back(emu_stream_queue(exec->branches[node.branch], node.work, waits));
    }
    exec->last = emu_stream_queue(stream, emu_work{"cudaGraphLaunch", at, nullptr}, queued);
}

cudaError_t emu_cudaGraphLaunch(emu_place at, cudaGraphExec_t exec, cudaStream_t stream)
{
    emu_entry entry;
    emu_stream *s = emu_stream_use(stream, at, "cudaGraphLaunch");
    if (!s || emu_failed() || emu_capture_forbids(at, "cudaGraphLaunch", s))
        return emu_return(cudaErrorUnknown);
    if (exec->destroyed) {
        emu_fail(emu_format("cudaGraphLaunch (%s) launches a graph that was destroyed: expected one that is not",
                            emu_place_text(at).c_str()));
        return emu_return(cudaErrorUnknown);
    }
    graph_queue(exec, s, at);
    return emu_return(emu_device_state(s->device));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t)
{
    emu_entry entry;
    emu_count()->live_graphs--;
    return cudaSuccess;
}

// A launch that has not ended goes on.
cudaError_t emu_cudaGraphExecDestroy(emu_place, cudaGraphExec_t exec)
{
    emu_entry entry;
    exec->destroyed = true;
    emu_count()->live_graphs--;
    return cudaSuccess;
}

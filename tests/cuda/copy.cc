// SPDX-License-Identifier: Apache-2.0
//
// Allocation, copies and fills: the runtime's functions of memory.
#include "tests/cuda/graph.h"
#include "tests/cuda/host.h"
#include "tests/cuda/memory.h"
#include "tests/cuda/nccl.h"
#include "tests/cuda/touch.h"

// ---- allocation ----------------------------------------------------------------------------------------------------

static std::string memory_call(const char *call, emu_place at)
{
    return emu_format("%s (%s)", call, emu_place_text(at).c_str());
}

// These calls may wait until all GPUs of the process have done what is under way: for ever, where that waits for what
// this thread has not queued yet.
static void memory_may_wait(const char *call, emu_place at)
{
    std::string missing;
    if (emu_collectives_await(emu_device_now(), &missing))
        emu_fail(memory_call(call, at) + " may wait for ever: " + missing +
                 ": expected it before the first rank begins, or after this one");
}

static cudaError_t memory_allocate(int device, size_t size, const std::string &by, uint32_t born, void **memory)
{
    *memory = NULL;
    if (emu_device_state(emu_device_now()) != cudaSuccess)
        return emu_device_state(emu_device_now());
    if (size == 0)
        return cudaSuccess;
    bool fails = ++emu_count()->allocations == emu_config_now().fail_allocation;
    emu_allocation *made = fails ? NULL : emu_memory_make(device, size, by, born);
    if (!made)
        return cudaErrorMemoryAllocation;
    *memory = (void *)made->base;
    return cudaSuccess;
}

cudaError_t emu_cudaMalloc(emu_place at, void **memory, size_t size)
{
    emu_entry entry;
    if (emu_capture_forbids(at, "cudaMalloc", NULL))
        return emu_return(cudaErrorUnknown);
    memory_may_wait("cudaMalloc", at);
    return emu_return(memory_allocate(emu_device_now(), size, memory_call("cudaMalloc", at), emu_host_task(), memory));
}

cudaError_t emu_cudaHostAlloc(emu_place at, void **memory, size_t size, unsigned flags)
{
    emu_entry entry;
    if (emu_capture_forbids(at, "cudaHostAlloc", NULL))
        return emu_return(cudaErrorUnknown);
    memory_may_wait("cudaHostAlloc", at);
    cudaError_t error = memory_allocate(EMU_PINNED, size, memory_call("cudaHostAlloc", at), emu_host_task(), memory);
    if (*memory)
        emu_memory_find(*memory)->mapped = flags & cudaHostAllocMapped;
    return emu_return(error);
}

// There from its place in the stream on.
cudaError_t emu_cudaMallocAsync(emu_place at, void **memory, size_t size, cudaStream_t stream)
{
    emu_entry entry;
    emu_stream *s = emu_stream_use(stream, at, "cudaMallocAsync");
    if (!s || emu_failed() || emu_capture_forbids(at, "cudaMallocAsync", s))
        return emu_return(cudaErrorUnknown);
    emu_operation_ref birth = emu_stream_queue(s, emu_work{"cudaMallocAsync", at, nullptr}, {});
    return emu_return(memory_allocate(s->device, size, memory_call("cudaMallocAsync", at), birth->task, memory));
}

// What cudaFree and its like say of a pointer that they do not take.
static emu_allocation *memory_to_free(void *memory, const std::string &by, bool pinned)
{
    emu_allocation *a = emu_memory_find(memory);
    if (!a || a->base != (uintptr_t)memory || (a->device == EMU_PINNED) != pinned) {
        emu_fail(emu_format("%s frees %p, which %s: expected the start of an allocation of %s", by.c_str(), memory,
                            a ? ("belongs to " + a->made_by).c_str() : "no call gave",
                            pinned ? "pinned memory" : "device memory"));
        return NULL;
    }
    if (a->freed) {
        emu_fail(emu_format("%s frees the %zu bytes of %s, which %s has freed: expected one free", by.c_str(), a->size,
                            a->made_by.c_str(), a->freed_by.c_str()));
        return NULL;
    }
    return a;
}

static void memory_free(void *memory, const std::string &by, uint32_t task, bool pinned)
{
    emu_allocation *a = memory_to_free(memory, by, pinned);
    uint32_t user = a ? emu_memory_free(a, by, task) : 0;
    if (user)
        emu_fail(emu_format("%s frees the %zu bytes of %s while %s may use them: expected a wait before it", by.c_str(),
                            a->size, a->made_by.c_str(), emu_task_text(user).c_str()));
}

static cudaError_t memory_free_now(emu_place at, const char *call, void *memory, bool pinned)
{
    if (!memory)
        return emu_device_state(emu_device_now());
    if (emu_failed() || emu_capture_forbids(at, call, NULL))
        return cudaErrorUnknown;
    memory_may_wait(call, at);
    memory_free(memory, memory_call(call, at), emu_host_task(), pinned);
    return emu_device_state(emu_device_now());
}

cudaError_t emu_cudaFree(emu_place at, void *memory)
{
    emu_entry entry;
    return emu_return(memory_free_now(at, "cudaFree", memory, false));
}

cudaError_t emu_cudaFreeHost(emu_place at, void *memory)
{
    emu_entry entry;
    return emu_return(memory_free_now(at, "cudaFreeHost", memory, true));
}

cudaError_t emu_cudaFreeAsync(emu_place at, void *memory, cudaStream_t stream)
{
    emu_entry entry;
    emu_stream *s = emu_stream_use(stream, at, "cudaFreeAsync");
    if (!s || !memory)
        return emu_return(s ? emu_device_state(s->device) : cudaErrorInvalidResourceHandle);
    if (emu_capture_forbids(at, "cudaFreeAsync", s))
        return emu_return(cudaErrorUnknown);
    std::string by = memory_call("cudaFreeAsync", at);
    auto run = [memory, by](uint32_t task) { memory_free(memory, by, task, false); };
    return emu_return(emu_stream_add(s, emu_work{"cudaFreeAsync", at, run}));
}

cudaError_t cudaHostGetDevicePointer(void **there, void *memory, unsigned)
{
    emu_entry entry;
    const emu_allocation *a = emu_memory_find(memory);
    if (!a || !a->mapped)
        return emu_return(cudaErrorInvalidValue);
    *there = memory;
    return cudaSuccess;
}

// There is one pool, and no setting of it can be seen.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int)
{
    *pool = NULL;
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *)
{
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer)
{
    emu_entry entry;
    const emu_allocation *a = emu_memory_find(pointer);
    *attributes = cudaPointerAttributes{cudaMemoryTypeUnregistered, -2, NULL, NULL};
    if (a) {
        attributes->type = a->device == EMU_PINNED ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
        attributes->device = a->device == EMU_PINNED ? 0 : a->device;
        attributes->devicePointer = const_cast<void *>(pointer);
        attributes->hostPointer = a->device == EMU_PINNED ? const_cast<void *>(pointer) : NULL;
    }
    return cudaSuccess;
}

// ---- copies --------------------------------------------------------------------------------------------------------

// Rows of bytes.
struct copy {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, height;
    std::shared_ptr<std::vector<char>> staged;  // what pageable memory held when the copy was called
};

static bool copy_is_device(const void *pointer)
{
    const emu_allocation *a = emu_memory_find(pointer);
    return a && a->device != EMU_PINNED;
}

static void copy_run(const copy &c, uint32_t task)
{
    bool to_device = copy_is_device(c.to), from_device = copy_is_device(c.from);
    for (size_t row = 0; row < c.height; row++) {
        const char *from = c.from + row * c.from_pitch;
        char *to = c.to + row * c.to_pitch;
        if (emu_memory_owns(from) &&
            !emu_touch_any(from, c.width, from_device && !to_device ? EMU_READ : EMU_READ_TO_COPY, task))
            return;
        if (emu_memory_owns(to) && !emu_touch_any(to, c.width, EMU_WRITE, task))
            return;
        const char *bytes = c.staged ? c.staged->data() + row * c.width : (const char *)emu_memory_alias(from);
        memmove(emu_memory_alias(to), bytes, c.width);
        if (to_device && from_device) {
            emu_allocation *a = emu_memory_find(to), *b = emu_memory_find(from);
            emu_shadow_copy_unwritten(a->shadow, (uintptr_t)to - a->base, b->shadow, (uintptr_t)from - b->base,
                                      c.width);
        }
    }
}

// Does the pointer mean what the kind of the copy says?
static bool copy_side_right(const void *pointer, bool device, const char *side, const std::string &by)
{
    if (copy_is_device(pointer) == device)
        return true;
    const emu_allocation *a = emu_memory_find(pointer);
    emu_fail(
        emu_format("%s copies %s %p as memory of %s, and it is %s%s: expected the kind of copy that the pointers are",
                   by.c_str(), side, pointer, device ? "a device" : "the host", device ? "the host's" : "a device's",
                   a ? (", of " + a->made_by).c_str() : ""));
    return false;
}

static bool copy_is_right(const copy &c, cudaMemcpyKind kind, const std::string &by)
{
    if (kind != cudaMemcpyDefault) {
        bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
        bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
        if (!copy_side_right(c.from, from_device, "from", by) || !copy_side_right(c.to, to_device, "to", by))
            return false;
    }
    size_t to_end = c.to_pitch * (c.height - 1) + c.width, from_end = c.from_pitch * (c.height - 1) + c.width;
    if ((uintptr_t)c.to < (uintptr_t)c.from + from_end && (uintptr_t)c.from < (uintptr_t)c.to + to_end) {
        const emu_allocation *a = emu_memory_find(c.to);
        emu_fail(emu_format("%s copies %zu bytes from %p to %p%s, and the two overlap: expected two ranges apart",
                            by.c_str(), from_end, (const void *)c.from, (void *)c.to,
                            a ? (", of " + a->made_by).c_str() : ""));
        return false;
    }
    return true;
}

// Pageable memory is read at once, as the runtime stages it; what comes back into it is waited for.
static cudaError_t copy_add(copy c, cudaMemcpyKind kind, const char *call, emu_place at, emu_stream *s)
{
    if (emu_failed())
        return cudaErrorUnknown;
    if (c.width == 0 || c.height == 0)
        return emu_device_state(s->device);
    if (!copy_is_right(c, kind, memory_call(call, at)))
        return cudaErrorUnknown;
    bool pageable_from = !emu_memory_owns(c.from), pageable_to = !emu_memory_owns(c.to);
    if (s->capture && (pageable_from || pageable_to) &&
        emu_capture_forbids(at, (std::string(call) + " of pageable memory").c_str(), s))
        return cudaErrorStreamCaptureUnsupported;
    if (pageable_from) {
        c.staged = std::make_shared<std::vector<char>>(c.width * c.height);
        for (size_t row = 0; row < c.height; row++)
            memcpy(c.staged->data() + row * c.width, c.from + row * c.from_pitch, c.width);
    }
    emu_count()->copies++;
    cudaError_t error = emu_stream_add(s, emu_work{call, at, [c](uint32_t task) { copy_run(c, task); }});
    return pageable_to && error == cudaSuccess ? emu_wait_for(s->last, at, call) : error;
}

cudaError_t emu_cudaMemcpyAsync(emu_place at, void *to, const void *from, size_t size, cudaMemcpyKind kind,
                                cudaStream_t stream)
{
    emu_entry entry;
    emu_stream *s = emu_stream_use(stream, at, "cudaMemcpyAsync");
    if (!s)
        return emu_return(cudaErrorInvalidResourceHandle);
    return emu_return(
        copy_add(copy{(char *)to, (const char *)from, size, size, size, 1, nullptr}, kind, "cudaMemcpyAsync", at, s));
}

cudaError_t emu_cudaMemcpy2DAsync(emu_place at, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                  size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream)
{
    emu_entry entry;
    emu_stream *s = emu_stream_use(stream, at, "cudaMemcpy2DAsync");
    if (!s || width > to_pitch || width > from_pitch)
        return emu_return(cudaErrorInvalidValue);
    copy c = {(char *)to, (const char *)from, to_pitch, from_pitch, width, height, nullptr};
    return emu_return(copy_add(c, kind, "cudaMemcpy2DAsync", at, s));
}

cudaError_t emu_cudaMemcpyPeerAsync(emu_place at, void *to, int to_device, const void *from, int from_device,
                                    size_t size, cudaStream_t stream)
{
    emu_entry entry;
    emu_stream *s = emu_stream_use(stream, at, "cudaMemcpyPeerAsync");
    if (!s)
        return emu_return(cudaErrorInvalidResourceHandle);
    const emu_allocation *a = emu_memory_find(to), *b = emu_memory_find(from);
    if (a && b && (a->device != to_device || b->device != from_device)) {
        emu_fail(
            emu_format("cudaMemcpyPeerAsync (%s) copies from device %d to device %d what lies on device %d (%s) and on "
                       "device %d (%s): expected the devices that the pointers are of",
                       emu_place_text(at).c_str(), from_device, to_device, b->device, b->made_by.c_str(), a->device,
                       a->made_by.c_str()));
        return emu_return(cudaErrorUnknown);
    }
    copy c = {(char *)to, (const char *)from, size, size, size, 1, nullptr};
    return emu_return(copy_add(c, cudaMemcpyDeviceToDevice, "cudaMemcpyPeerAsync", at, s));
}

cudaError_t emu_cudaMemcpy(emu_place at, void *to, const void *from, size_t size, cudaMemcpyKind kind)
{
    emu_entry entry;
    emu_stream *s = emu_stream_use(NULL, at, "cudaMemcpy");
    if (!s || emu_capture_forbids(at, "cudaMemcpy", NULL))
        return emu_return(cudaErrorUnknown);
    cudaError_t error =
        copy_add(copy{(char *)to, (const char *)from, size, size, size, 1, nullptr}, kind, "cudaMemcpy", at, s);
    if (error == cudaSuccess && s->last)
        error = emu_wait_for(s->last, at, "cudaMemcpy");
    return emu_return(error);
}

// ---- fills ---------------------------------------------------------------------------------------------------------

static cudaError_t memory_fill(emu_place at, const char *call, void *memory, int value, size_t size, emu_stream *s)
{
    if (emu_failed())
        return cudaErrorUnknown;
    if (size && !copy_is_device(memory)) {
        emu_fail(emu_format("%s fills %p, a pointer of the host: expected memory of the device",
                            memory_call(call, at).c_str(), memory));
        return cudaErrorUnknown;
    }
    auto run = [memory, value, size](uint32_t task) {
        if (emu_touch_any(memory, size, EMU_WRITE, task))
            memset(emu_memory_alias(memory), value, size);
    };
    return emu_stream_add(s, emu_work{call, at, run});
}

cudaError_t emu_cudaMemsetAsync(emu_place at, void *memory, int value, size_t size, cudaStream_t stream)
{
    emu_entry entry;
    emu_stream *s = emu_stream_use(stream, at, "cudaMemsetAsync");
    return emu_return(s ? memory_fill(at, "cudaMemsetAsync", memory, value, size, s) : cudaErrorInvalidResourceHandle);
}

cudaError_t emu_cudaMemset(emu_place at, void *memory, int value, size_t size)
{
    emu_entry entry;
    emu_stream *s = emu_stream_use(NULL, at, "cudaMemset");
    if (!s || emu_capture_forbids(at, "cudaMemset", NULL))
        return emu_return(cudaErrorUnknown);
    return emu_return(memory_fill(at, "cudaMemset", memory, value, size, s));
}

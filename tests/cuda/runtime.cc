// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/runtime.h"
#include "tests/cuda/fiber.h"
#include "tests/cuda/graph.h"
#include "tests/cuda/host.h"
#include "tests/cuda/kernel.h"
#include "tests/cuda/memory.h"
#include "tests/cuda/nccl.h"
#include "tests/cuda/stream.h"
#include "tests/cuda/touch.h"
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdio.h>
#include <unistd.h>

// ---- the lock ------------------------------------------------------------------------------------------------------

static std::mutex lock;
static std::condition_variable changed;
static thread_local int depth;

emu_entry::emu_entry()
{
    if (depth++ == 0)
        lock.lock();
}

emu_entry::~emu_entry()
{
    if (depth == 1) {
        emu_memory_close();
        lock.unlock();
    }
    depth--;
}

bool emu_entry_held()
{
    return depth > 0;
}

bool emu_entry_wait()
{
    emu_memory_close();
    std::unique_lock<std::mutex> held(lock, std::adopt_lock);
    const bool abroad = emu_collectives_abroad();
    bool came = changed.wait_for(held, std::chrono::milliseconds(abroad ? 1 : 60000)) == std::cv_status::no_timeout;
    held.release();
    return came || abroad;
}

void emu_changed()
{
    changed.notify_all();
}

static thread_local int depth_left;

void emu_entry_leave()
{
    emu_memory_close();
    depth_left = depth;
    lock.unlock();
    depth = 0;
}

void emu_entry_return()
{
    depth = depth_left;
    lock.lock();
}

// ---- threads -------------------------------------------------------------------------------------------------------

struct thread_note {
    std::shared_ptr<emu_thread> thread = std::make_shared<emu_thread>();
    ~thread_note()
    {
        thread->gone = true;
        emu_changed();
    }
};

std::shared_ptr<emu_thread> emu_thread_me()
{
    static thread_local thread_note note;
    return note.thread;
}

static thread_local uint32_t callback_task;

uint32_t emu_callback_task()
{
    return callback_task;
}

void emu_callback_begin(uint32_t task)
{
    callback_task = task;
}

void emu_callback_end()
{
    callback_task = 0;
}

// ---- configuration -------------------------------------------------------------------------------------------------

static struct emu_config config;
static struct emu_counts counts;
static bool peers[EMU_DEVICES_MAX][EMU_DEVICES_MAX];
static cudaError_t broken[EMU_DEVICES_MAX];
static thread_local int device_now;
static thread_local cudaError_t last_error;

void emu_reset(const struct emu_config *wanted)
{
    emu_entry entry;
    config = *wanted;
    if (!config.devices)
        config.devices = 1;
    if (!config.device_memory)
        config.device_memory = (size_t)1 << 30;
    if (!config.patience)
        config.patience = 10000;
    if (!config.patience_ms)
        config.patience_ms = 60000;
    if (!config.thread_accesses)
        config.thread_accesses = 1 << 24;
    memset(&counts, 0, sizeof counts);
    memset(peers, 0, sizeof peers);
    memset(broken, 0, sizeof broken);
    emu_report_reset();
    emu_random_seed(config.seed);
    emu_collectives_reset();
    emu_launches_reset();
    emu_streams_reset();
    emu_shadows_reset();
    emu_suspects_reset();
    emu_tasks_reset();
    emu_hosts_reset();
    emu_streams_begin(config.devices);
    emu_memory_reset(config.devices, config.device_memory);
    device_now = 0;
    last_error = cudaSuccess;
}

const struct emu_config &emu_config_now()
{
    return config;
}

struct emu_counts *emu_count()
{
    return &counts;
}

struct emu_counts emu_counted(void)
{
    emu_entry entry;
    counts.live_allocations = emu_memory_live();
    return counts;
}

// ---- errors --------------------------------------------------------------------------------------------------------

cudaError_t emu_return(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

cudaError_t emu_device_state(int device)
{
    return emu_failed() ? cudaErrorUnknown : broken[device];
}

void emu_device_breaks(int device, cudaError_t error)
{
    broken[device] = error;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorSystemNotReady, "cudaErrorSystemNotReady", "system not yet initialized"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (auto &e : error_texts)
        if (e.error == error)
            return e.name;
    return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (auto &e : error_texts)
        if (e.error == error)
            return e.text;
    return "unknown error";
}

cudaError_t cudaPeekAtLastError(void)
{
    emu_entry entry;
    cudaError_t state = emu_device_state(device_now);
    return state != cudaSuccess ? state : last_error;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return error;
}

// ---- devices -------------------------------------------------------------------------------------------------------

int emu_device_now()
{
    return device_now;
}

static int device_major()
{
    const int major = config.compute_major ? config.compute_major : 8;
    return config.without & EMU_NO_TENSOR_CORES ? 7 : major;
}

static bool device_is(int device)
{
    return device >= 0 && device < config.devices && !config.no_devices;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    return cudaDriverGetVersion(version);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = config.no_devices ? 0 : config.devices;
    return emu_return((cudaError_t)config.no_devices);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = device_now;
    return cudaSuccess;
}

cudaError_t emu_cudaSetDevice(emu_place, int device)
{
    emu_thread_me();
    if (!device_is(device))
        return emu_return(cudaErrorInvalidDevice);
    if (device + 1 == config.taken)
        return emu_return(cudaErrorDevicesUnavailable);
    device_now = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int device)
{
    if (!device_is(device))
        return emu_return(cudaErrorInvalidDevice);
    switch (which) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = EMU_THREADS_MAX;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = EMU_SHARED_MAX;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = EMU_SHARED_OPTIN_MAX;
        return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *value = 4;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = device_major();
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        return cudaSuccess;
    case cudaDevAttrMemoryPoolsSupported:
        *value = 1;
        return cudaSuccess;
    }
    return emu_return(cudaErrorInvalidValue);
}

void emu_device_uuid(int device, cudaUUID_t *uuid)
{
    *uuid = cudaUUID_t{};
    snprintf(uuid->bytes, sizeof uuid->bytes, "%zu %d", (size_t)(config.uuid ? config.uuid : (uint64_t)getpid()),
             device);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *)
{
    attributes->maxThreadsPerBlock = EMU_THREADS_MAX;
    return emu_return(config.no_kernels ? cudaErrorNoKernelImageForDevice : cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    if (!device_is(device))
        return emu_return(cudaErrorInvalidDevice);
    *p = cudaDeviceProp{};
    snprintf(p->name, sizeof p->name, "Emulated GPU");
    p->totalGlobalMem = config.device_memory;
    p->sharedMemPerBlock = EMU_SHARED_MAX;
    p->sharedMemPerBlockOptin = EMU_SHARED_OPTIN_MAX;
    p->warpSize = 32;
    p->maxThreadsPerBlock = EMU_THREADS_MAX;
    p->major = device_major();
    p->multiProcessorCount = 4;
    p->pciBusID = device + 1;
    emu_device_uuid(device, &p->uuid);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    if (!device_is(device))
        return emu_return(cudaErrorInvalidDevice);
    snprintf(text, (size_t)size, "0000:%02x:00.0", device + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    if (!device_is(device) || !device_is(peer))
        return emu_return(cudaErrorInvalidDevice);
    *can = device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    emu_entry entry;
    if (!device_is(peer) || peer == device_now || flags)
        return emu_return(cudaErrorInvalidDevice);
    if (peers[device_now][peer])
        return emu_return(cudaErrorPeerAccessAlreadyEnabled);
    peers[device_now][peer] = true;
    counts.reaches++;
    return cudaSuccess;
}

bool emu_peer_enabled(int device, int peer)
{
    return peers[device][peer];
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    emu_entry entry;
    *total = config.device_memory;
    *available = config.device_memory - emu_memory_used(device_now);
    return cudaSuccess;
}

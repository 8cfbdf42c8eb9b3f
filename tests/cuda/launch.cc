// SPDX-License-Identifier: Apache-2.0
//
// Launches of kernels: what the launch itself refuses, and the planned failure of one.
#include "tests/cuda/forever.h"
#include "tests/cuda/kernel.h"
#include "tests/cuda/stream.h"
#include <map>

static auto &shared_limits = emu_forever<std::map<const void *, size_t>>();

void emu_launches_reset()
{
    shared_limits.clear();
}

cudaError_t emu_func_set_attribute(const void *kernel, cudaFuncAttribute which, int value)
{
    emu_entry entry;
    if (which != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > EMU_SHARED_OPTIN_MAX)
        return emu_return(cudaErrorInvalidValue);
    shared_limits[kernel] = (size_t)value;
    return cudaSuccess;
}

static bool launch_fits(const void *kernel, dim3 grid, dim3 block, size_t shared)
{
    auto limit = shared_limits.find(kernel);
    if (shared > EMU_SHARED_MAX && (limit == shared_limits.end() || shared > limit->second))
        return false;
    if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z)
        return false;
    if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 || block.z > 64)
        return false;
    return (uint64_t)block.x * block.y * block.z <= EMU_THREADS_MAX;
}

cudaError_t emu_launch_call(emu_place at, const char *name, const void *kernel, std::shared_ptr<const emu_call> call,
                            dim3 grid, dim3 block, size_t shared, cudaStream_t stream)
{
    emu_entry entry;
    std::string what = std::string("kernel ") + name;
    emu_stream *s = emu_stream_use(stream, at, what.c_str());
    if (!s)
        return emu_return(cudaErrorInvalidResourceHandle);
    if (!launch_fits(kernel, grid, block, shared))
        return emu_return(cudaErrorInvalidConfiguration);
    emu_kernel k = {name, at, std::move(call), grid, block, shared};
    auto run = [k](uint32_t task) {
        int device = emu_task_at(task).device;
        if (++emu_count()->launches == emu_config_now().fail_launch)
            emu_device_breaks(device, cudaErrorLaunchFailure);
        else
            emu_kernel_run(k, task);
    };
    return emu_return(emu_stream_add(s, emu_work{what, at, run}));
}

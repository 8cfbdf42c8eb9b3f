// SPDX-License-Identifier: Apache-2.0
//
// The emulated GPUs, as a test sees them. A program that calls the CUDA runtime, cuBLAS, cuDNN and NCCL is compiled
// against tests/cuda/include and linked with libemulator; a test draws an order of execution by a seed, plans faults,
// and learns of the first error.
//
// What is found, in every order:
//   memory     an access out of an allocation, after its end, misaligned, of bytes that nothing has written, of another
//              device's memory or of the host's in a kernel, of a device's memory on the host; a free twice or too early
//   order      two streams, a stream and the host, two threads of a kernel touch the same bytes, one of them writes, and
//              nothing orders them: no event, no barrier
//   threads    a barrier or a shuffle that not all threads reach; an atomic operation on floats; a thread that does not
//              end, as one that waits for another by reading memory
//   capture    a call that is forbidden while a stream is captured; a stream that does not join again
//   ranks      collectives in another order, of another size or type on two ranks; a rank that never comes
//
// An error ends the process with one sentence on stderr, unless a handler is set. After an error every call of the
// runtime returns cudaErrorUnknown until the next emu_reset.
//
// Threads: any thread may call the runtime. What one has waited for is in order for another one only where the
// emulator sees that they are: mutexes, conditions and barriers of pthreads, creation and join, atomic operations in
// code that is compiled to be watched. The functions here are called while no other thread calls any.
#ifndef EMULATOR_H
#define EMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum emu_lack {
    EMU_NO_CUDNN = 1,                // it cannot be used at all
    EMU_NO_FILTERS_OF_NHWC = 2,      // no algorithm takes them
    EMU_NO_PRECOMPUTED_INDICES = 4,  // no CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
    EMU_NO_TENSOR_CORES = 8,         // of compute capability 7; no algorithm with CUDNN_TENSOR_OP_MATH
    EMU_NO_FMA = 16,                 // none with CUDNN_FMA_MATH
};

struct emu_config {
    uint64_t seed;         // of the order in which streams, blocks and threads run
    int devices;           // 0: one
    size_t device_memory;  // bytes per device, 0: 1 GiB
    int compute_major;     // compute capability, 0: 8
    uint64_t uuid;         // of the devices, with their index; 0: of this process
    // Faults. 0: none.
    int no_devices;             // what cudaGetDeviceCount says: cudaErrorNoDevice, cudaErrorSystemNotReady
    int taken;                  // device + 1, of which cudaSetDevice says that another process has it
    bool no_kernels;            // the program has none for these devices
    bool no_blas;               // cublasCreate says that it is not initialized
    uint64_t fail_allocation;   // this allocation of device or pinned memory, from 1, finds no memory
    uint64_t fail_launch;       // this launch of a kernel, from 1, fails when it runs; so does its device from then on
    uint64_t fail_collective;   // this call of a collective, from 1 and of all ranks, returns ncclSystemError
    uint64_t break_collective;  // this collective, from 1, breaks under all its ranks, which ncclCommGetAsyncError says
    int fail_join;              // rank + 1, whose ncclCommInitRankConfig returns ncclSystemError,
    const char *join_says;      // and ncclGetLastError this
    int absent_rank;            // rank + 1, whose collectives from ...
    uint64_t absent_from;       // ... this one of that rank on, from 1 (0: the first), never come
    unsigned without;           // what cuDNN lacks: enum emu_lack
    uint64_t thread_accesses;   // of memory, by a thread of a kernel between two waits; 0: 2^24
    uint64_t patience;          // operations that may end while a collective waits for a rank; 0: 10,000
    uint64_t patience_ms;       // for how long one waits for a rank of another process; 0: a minute
};

// Ends what was there, takes back all memory and starts anew. All handles and pointers of before are invalid.
void emu_reset(const struct emu_config *config);

// Called once, at the first error. NULL: print it and abort.
void emu_on_error(void (*handler)(const char *sentence, void *argument), void *argument);

// The first error since emu_reset, NULL if there was none. Valid until the next emu_reset.
const char *emu_error(void);

struct emu_counts {
    uint64_t allocations, launches, copies, collectives;
    uint64_t host_waits;      // calls that had to wait for the device
    size_t live_allocations;  // not freed: device and pinned memory
    size_t live_streams, live_events, live_graphs;
    size_t live_cudnn;  // handles and descriptors
    size_t reaches;     // cudaDeviceEnablePeerAccess: from one device to another
    size_t workspace;   // cuBLAS's, as it was last set: bytes
};
struct emu_counts emu_counted(void);

#ifdef __cplusplus
}
#endif

#endif

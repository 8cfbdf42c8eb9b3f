// SPDX-License-Identifier: Apache-2.0
//
// The emulated NCCL: the ranks are emulated devices of this process, each driven by a thread of its own or all by one,
// or of several processes of one host.
#ifndef EMULATED_NCCL_H
#define EMULATED_NCCL_H

#include "cuda_runtime.h"

#define NCCL_MAJOR 2
#define NCCL_MINOR 18
#define NCCL_VERSION_CODE 21800

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef enum {
    ncclSuccess,
    ncclUnhandledCudaError,
    ncclSystemError,
    ncclInternalError,
    ncclInvalidArgument,
    ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress
} ncclResult_t;
typedef enum {
    ncclInt8,
    ncclUint8,
    ncclInt32,
    ncclUint32,
    ncclInt64,
    ncclUint64,
    ncclFloat16,
    ncclFloat32,
    ncclFloat64,
    ncclBfloat16,
    ncclFloat = ncclFloat32,
    ncclInt = ncclInt32,
    ncclChar = ncclInt8
} ncclDataType_t;
typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg } ncclRedOp_t;
// blocking 0: a call that has to wait for other ranks returns ncclInProgress, and ncclCommGetAsyncError says so until
// it is done.
typedef struct {
    int blocking;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER \
    {                           \
        1                       \
    }

const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t emu_ncclCommInitRank(struct emu_place at, ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
ncclResult_t emu_ncclCommInitRankConfig(struct emu_place at, ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                        ncclConfig_t *config);
ncclResult_t emu_ncclCommInitAll(struct emu_place at, ncclComm_t *comms, int ranks, const int *devices);
ncclResult_t emu_ncclCommDestroy(struct emu_place at, ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
ncclResult_t ncclCommCount(ncclComm_t comm, int *ranks);
ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t emu_ncclAllReduce(struct emu_place at, const void *send, void *receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t emu_ncclBroadcast(struct emu_place at, const void *send, void *receive, size_t count, ncclDataType_t type,
                               int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t emu_ncclReduce(struct emu_place at, const void *send, void *receive, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t emu_ncclReduceScatter(struct emu_place at, const void *send, void *receive, size_t count,
                                   ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t emu_ncclAllGather(struct emu_place at, const void *send, void *receive, size_t count, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream);
#define ncclCommInitRank(...) emu_ncclCommInitRank(EMU_HERE, __VA_ARGS__)
#define ncclCommInitRankConfig(...) emu_ncclCommInitRankConfig(EMU_HERE, __VA_ARGS__)
#define ncclCommInitAll(...) emu_ncclCommInitAll(EMU_HERE, __VA_ARGS__)
#define ncclCommDestroy(...) emu_ncclCommDestroy(EMU_HERE, __VA_ARGS__)
#define ncclAllReduce(...) emu_ncclAllReduce(EMU_HERE, __VA_ARGS__)
#define ncclBroadcast(...) emu_ncclBroadcast(EMU_HERE, __VA_ARGS__)
#define ncclReduce(...) emu_ncclReduce(EMU_HERE, __VA_ARGS__)
#define ncclReduceScatter(...) emu_ncclReduceScatter(EMU_HERE, __VA_ARGS__)
#define ncclAllGather(...) emu_ncclAllGather(EMU_HERE, __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif

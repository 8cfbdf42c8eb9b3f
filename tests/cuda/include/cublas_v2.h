// SPDX-License-Identifier: Apache-2.0
//
// The emulated cuBLAS: products by plain loops, in a fixed order. Scalars lie in host memory.
#ifndef EMULATED_CUBLAS_H
#define EMULATED_CUBLAS_H

#include "cuda_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct emu_cublas *cublasHandle_t;
typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_NOT_SUPPORTED = 15
} cublasStatus_t;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C } cublasOperation_t;
typedef enum { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE } cublasPointerMode_t;
typedef enum { CUBLAS_ATOMICS_NOT_ALLOWED, CUBLAS_ATOMICS_ALLOWED } cublasAtomicsMode_t;
typedef enum { CUBLAS_DEFAULT_MATH = 0, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3 } cublasMath_t;
typedef enum { CUDA_R_32F = 0, CUDA_R_16BF = 14 } cudaDataType;
typedef cudaDataType cudaDataType_t;
typedef enum {
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_32F_FAST_16BF = 75,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77
} cublasComputeType_t;
typedef enum { CUBLAS_GEMM_DEFAULT = -1 } cublasGemmAlgo_t;

const char *cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasCreate(cublasHandle_t *handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode);
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t size);

// C (m x n) = alpha op(A) op(B) + beta C, all by columns.
cublasStatus_t emu_cublasSgemm(struct emu_place at, cublasHandle_t handle, cublasOperation_t op_a,
                               cublasOperation_t op_b, int m, int n, int k, const float *alpha, const float *a, int lda,
                               const float *b, int ldb, const float *beta, float *c, int ldc);
cublasStatus_t emu_cublasSgemmStridedBatched(struct emu_place at, cublasHandle_t handle, cublasOperation_t op_a,
                                             cublasOperation_t op_b, int m, int n, int k, const float *alpha,
                                             const float *a, int lda, long long stride_a, const float *b, int ldb,
                                             long long stride_b, const float *beta, float *c, int ldc,
                                             long long stride_c, int count);
cublasStatus_t emu_cublasGemmEx(struct emu_place at, cublasHandle_t handle, cublasOperation_t op_a,
                                cublasOperation_t op_b, int m, int n, int k, const void *alpha, const void *a,
                                cudaDataType type_a, int lda, const void *b, cudaDataType type_b, int ldb,
                                const void *beta, void *c, cudaDataType type_c, int ldc, cublasComputeType_t compute,
                                cublasGemmAlgo_t algorithm);
cublasStatus_t emu_cublasGemmStridedBatchedEx(struct emu_place at, cublasHandle_t handle, cublasOperation_t op_a,
                                              cublasOperation_t op_b, int m, int n, int k, const void *alpha,
                                              const void *a, cudaDataType type_a, int lda, long long stride_a,
                                              const void *b, cudaDataType type_b, int ldb, long long stride_b,
                                              const void *beta, void *c, cudaDataType type_c, int ldc,
                                              long long stride_c, int count, cublasComputeType_t compute,
                                              cublasGemmAlgo_t algorithm);
cublasStatus_t emu_cublasSgemv(struct emu_place at, cublasHandle_t handle, cublasOperation_t op, int m, int n,
                               const float *alpha, const float *a, int lda, const float *x, int incx, const float *beta,
                               float *y, int incy);
#define cublasSgemm(...) emu_cublasSgemm(EMU_HERE, __VA_ARGS__)
#define cublasSgemmStridedBatched(...) emu_cublasSgemmStridedBatched(EMU_HERE, __VA_ARGS__)
#define cublasGemmEx(...) emu_cublasGemmEx(EMU_HERE, __VA_ARGS__)
#define cublasGemmStridedBatchedEx(...) emu_cublasGemmStridedBatchedEx(EMU_HERE, __VA_ARGS__)
#define cublasSgemv(...) emu_cublasSgemv(EMU_HERE, __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif

// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/graph.h"
#include "tests/cuda/include/cublas_v2.h"
#include "tests/cuda/touch.h"
#include <math.h>

struct emu_cublas {
    int device;
    cudaStream_t stream;
    emu_place made;
};

// A matrix by columns: rows x columns, the first elements of two columns lie `leading` elements apart.
struct matrix {
    char *data;
    cudaDataType type;
    size_t rows, columns, leading;
    bool transposed;  // when it is multiplied
};

static size_t type_size(cudaDataType type)
{
    return type == CUDA_R_16BF ? 2 : 4;
}

// Every column, of which nothing lies between it and the next one.
static bool matrix_touch(const matrix &a, emu_kind kind, uint32_t task)
{
    size_t size = type_size(a.type);
    for (size_t j = 0; j < a.columns; j++)
        if (!emu_touch_range(a.data + j * a.leading * size, a.rows * size, kind, task))
            return false;
    return true;
}

static float matrix_get(const matrix &a, const char *data, size_t row, size_t column)
{
    size_t i = a.transposed ? row * a.leading + column : column * a.leading + row;
    uint32_t bits = 0;
    if (a.type == CUDA_R_16BF) {
        memcpy((char *)&bits + 2, data + i * 2, 2);
    } else {
        memcpy(&bits, data + i * 4, 4);
    }
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// bf16 is rounded to the nearest, to even between two.
static void matrix_set(const matrix &c, char *data, size_t row, size_t column, float value)
{
    size_t i = column * c.leading + row;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (c.type != CUDA_R_16BF) {
        memcpy(data + i * 4, &bits, 4);
        return;
    }
    if (value == value)
        bits += 0x7fff + (bits >> 16 & 1);
    uint16_t half = (uint16_t)(bits >> 16);
    memcpy(data + i * 2, &half, 2);
}

// To the nearest number of so many bits of mantissa, to even between two.
static float rounded(float value, int mantissa)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    int dropped = 23 - mantissa;
    if (dropped > 0 && isfinite(value)) {
        bits += (1u << (dropped - 1)) - 1 + (bits >> dropped & 1);
        bits &= ~0u << dropped;
    }
    memcpy(&value, &bits, 4);
    return value;
}

static int mantissa_of(cublasComputeType_t compute)
{
    return compute == CUBLAS_COMPUTE_32F_FAST_16BF ? 7 : compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? 10 : 23;
}

struct product {
    matrix a, b, c;
    size_t inner;
    float alpha, beta;
    size_t count, stride_a, stride_b, stride_c;  // of a batch, in bytes
    int mantissa = 23;                           // bits to which factors are rounded
};

static void product_multiply(const product &p)
{
    const char *a = (const char *)emu_memory_alias(p.a.data), *b = (const char *)emu_memory_alias(p.b.data);
    char *c = (char *)emu_memory_alias(p.c.data);
    for (size_t j = 0; j < p.c.columns; j++)
        for (size_t i = 0; i < p.c.rows; i++) {
            float sum = 0;
            for (size_t l = 0; l < p.inner; l++)
                sum = fmaf(rounded(matrix_get(p.a, a, i, l), p.mantissa), rounded(matrix_get(p.b, b, l, j), p.mantissa),
                           sum);
            float before = p.beta != 0 ? p.beta * matrix_get(p.c, c, i, j) : 0;
            matrix_set(p.c, c, i, j, p.alpha * sum + before);
        }
}

static void product_run(product p, uint32_t task)
{
    for (size_t i = 0; i < p.count; i++) {
        if (!matrix_touch(p.a, EMU_READ, task) || !matrix_touch(p.b, EMU_READ, task))
            return;
        if (p.beta != 0 && !matrix_touch(p.c, EMU_READ, task))
            return;
        if (!matrix_touch(p.c, EMU_WRITE, task))
            return;
        product_multiply(p);
        p.a.data += p.stride_a;
        p.b.data += p.stride_b;
        p.c.data += p.stride_c;
    }
}

static matrix matrix_of(const void *data, cudaDataType type, cublasOperation_t op, int rows, int columns, int leading)
{
    bool transposed = op != CUBLAS_OP_N;
    return matrix{
        (char *)data,    type,      (size_t)(transposed ? columns : rows), (size_t)(transposed ? rows : columns),
        (size_t)leading, transposed};
}

static bool matrix_is_valid(const matrix &a)
{
    return a.leading >= a.rows && a.leading > 0 && (a.type == CUDA_R_32F || a.type == CUDA_R_16BF);
}

static cublasStatus_t product_add(emu_place at, const char *call, cublasHandle_t handle, const product &p)
{
    emu_entry entry;
    if (!matrix_is_valid(p.a) || !matrix_is_valid(p.b) || !matrix_is_valid(p.c))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (handle->device != emu_device_now()) {
        emu_fail(emu_format(
            "%s (%s) is called while device %d is set, with a handle of device %d: expected cudaSetDevice(%d) "
            "before it",
            call, emu_place_text(at).c_str(), emu_device_now(), handle->device, handle->device));
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    emu_stream *s = emu_stream_use(handle->stream, at, call);
    if (!s)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    cudaError_t error = emu_stream_add(s, emu_work{call, at, [p](uint32_t task) { product_run(p, task); }});
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

// ---- the library's functions ---------------------------------------------------------------------------------------

const char *cublasGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "an unknown status of cuBLAS";
}

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    if (emu_config_now().no_blas)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new emu_cublas{emu_device_now(), NULL, {}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode(cublasHandle_t, cublasPointerMode_t mode)
{
    return mode == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *workspace, size_t size)
{
    emu_entry entry;
    emu_count()->workspace = size;
    return !size || emu_memory_find(workspace) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t emu_cublasGemmStridedBatchedEx(emu_place at, cublasHandle_t handle, cublasOperation_t op_a,
                                              cublasOperation_t op_b, int m, int n, int k, const void *alpha,
                                              const void *a, cudaDataType type_a, int lda, long long stride_a,
                                              const void *b, cudaDataType type_b, int ldb, long long stride_b,
                                              const void *beta, void *c, cudaDataType type_c, int ldc,
                                              long long stride_c, int count, cublasComputeType_t compute,
                                              cublasGemmAlgo_t)
{
    if (m < 0 || n < 0 || k < 0 || count < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    product p = {matrix_of(a, type_a, op_a, m, k, lda),
                 matrix_of(b, type_b, op_b, k, n, ldb),
                 matrix_of(c, type_c, CUBLAS_OP_N, m, n, ldc),
                 (size_t)k,
                 *(const float *)alpha,
                 *(const float *)beta,
                 (size_t)count,
                 (size_t)stride_a * type_size(type_a),
                 (size_t)stride_b * type_size(type_b),
                 (size_t)stride_c * type_size(type_c),
                 mantissa_of(compute)};
    return product_add(at, "a product of cuBLAS", handle, p);
}

cublasStatus_t emu_cublasSgemmStridedBatched(emu_place at, cublasHandle_t handle, cublasOperation_t op_a,
                                             cublasOperation_t op_b, int m, int n, int k, const float *alpha,
                                             const float *a, int lda, long long stride_a, const float *b, int ldb,
                                             long long stride_b, const float *beta, float *c, int ldc,
                                             long long stride_c, int count)
{
    return emu_cublasGemmStridedBatchedEx(at, handle, op_a, op_b, m, n, k, alpha, a, CUDA_R_32F, lda, stride_a, b,
                                          CUDA_R_32F, ldb, stride_b, beta, c, CUDA_R_32F, ldc, stride_c, count,
                                          CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t emu_cublasGemmEx(emu_place at, cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                                int m, int n, int k, const void *alpha, const void *a, cudaDataType type_a, int lda,
                                const void *b, cudaDataType type_b, int ldb, const void *beta, void *c,
                                cudaDataType type_c, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
    return emu_cublasGemmStridedBatchedEx(at, handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb, 0,
                                          beta, c, type_c, ldc, 0, 1, compute, algorithm);
}

cublasStatus_t emu_cublasSgemm(emu_place at, cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                               int m, int n, int k, const float *alpha, const float *a, int lda, const float *b,
                               int ldb, const float *beta, float *c, int ldc)
{
    return emu_cublasSgemmStridedBatched(at, handle, op_a, op_b, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0,
                                         1);
}

// A product with a matrix of one column, whose elements lie apart as a matrix of one row.
cublasStatus_t emu_cublasSgemv(emu_place at, cublasHandle_t handle, cublasOperation_t op, int m, int n,
                               const float *alpha, const float *a, int lda, const float *x, int incx, const float *beta,
                               float *y, int incy)
{
    if (incx <= 0 || incy <= 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    int rows = op == CUBLAS_OP_N ? m : n, inner = op == CUBLAS_OP_N ? n : m;
    product p = {matrix_of(x, CUDA_R_32F, CUBLAS_OP_N, 1, inner, incx),
                 matrix_of(a, CUDA_R_32F, op == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N, inner, rows, lda),
                 matrix_of(y, CUDA_R_32F, CUBLAS_OP_N, 1, rows, incy),
                 (size_t)inner,
                 *alpha,
                 *beta,
                 1,
                 0,
                 0,
                 0};
    return product_add(at, "cublasSgemv", handle, p);
}

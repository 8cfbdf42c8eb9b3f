// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/cuda/cuda.h"

static cublasOperation_t blas_operation(const struct nn_cuda_matrix *m)
{
    return m->transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

static const cublasComputeType_t blas_types[] = {
    [NN_FLOAT32] = CUBLAS_COMPUTE_32F,
    [NN_TENSORFLOAT32] = CUBLAS_COMPUTE_32F_FAST_TF32,
    [NN_BFLOAT16] = CUBLAS_COMPUTE_32F_FAST_16BF,
};

void nn_cuda_set_precision(struct nn_context *c, enum nn_precision precision)
{
    c->precision = precision;
    c->products = blas_types[precision];
}

// Rows here are cuBLAS's columns: what it sees is Y^T = B^T A^T.
void nn_cuda_multiply(struct nn_context *c, const struct nn_cuda_product *p)
{
    const float before = p->add ? 1 : 0;
    if (c->error.code)
        return;
    nn_cuda_note_blas(c,
                      cublasGemmStridedBatchedEx(
                          c->blas, blas_operation(&p->b), blas_operation(&p->a), (int)p->columns, (int)p->rows,
                          (int)p->inner, &p->scale, p->b.data, CUDA_R_32F, (int)p->b.leading, (long long)p->b.stride,
                          p->a.data, CUDA_R_32F, (int)p->a.leading, (long long)p->a.stride, &before, p->y, CUDA_R_32F,
                          (int)p->leading, (long long)p->stride, (int)p->count, c->products, CUBLAS_GEMM_DEFAULT),
                      "a product of cuBLAS");
}

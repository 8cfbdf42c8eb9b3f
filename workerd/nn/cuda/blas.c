// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/cuda/cuda.h"

static cublasOperation_t blas_operation(const struct nn_cuda_matrix *m)
{
    return m->transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

// Rows here are cuBLAS's columns: what it sees is Y^T = B^T A^T.
void nn_cuda_multiply(struct nn_context *c, const struct nn_cuda_product *p)
{
    const float before = p->add ? 1 : 0;
    if (c->error.code)
        return;
    nn_cuda_note_blas(c,
                      cublasSgemmStridedBatched(c->blas, blas_operation(&p->b), blas_operation(&p->a), (int)p->columns,
                                                (int)p->rows, (int)p->inner, &p->scale, p->b.data, (int)p->b.leading,
                                                (long long)p->b.stride, p->a.data, (int)p->a.leading,
                                                (long long)p->a.stride, &before, p->y, (int)p->leading,
                                                (long long)p->stride, (int)p->count),
                      "a product of cuBLAS");
}

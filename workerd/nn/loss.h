// SPDX-License-Identifier: Apache-2.0
// Softmax and the losses on the host. They see the last layer only, some hundred numbers of a batch: the reference and
// the CPU share them. What each does is said in struct nn_ops.
#ifndef NN_LOSS_H
#define NN_LOSS_H

#include "workerd/nn/op.h"

void nn_softmax_forward(int rows, int classes, const nn_real *x, nn_real *y);
void nn_softmax_backward(int rows, int classes, const nn_real *y, const nn_real *dy, nn_real *dx);
void nn_sparse_xent(int rows, int valid, int classes, int from_logits, const nn_real *x, const int32_t *label,
                    nn_real *loss, nn_real *dx);
void nn_mse(int rows, int valid, int per, const nn_real *x, const nn_real *target, nn_real *loss, nn_real *dx);

#endif

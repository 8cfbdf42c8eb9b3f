// SPDX-License-Identifier: Apache-2.0
// Softmax and the losses in plain loops. They see the last layer only, some hundred numbers of a batch: the CPU has
// code of its own for softmax_xent alone and shares the others with the reference. struct nn_ops says what each does.
#ifndef NN_LOSS_H
#define NN_LOSS_H

#include "workerd/nn/op.h"

void nn_softmax_forward(int rows, int classes, const nn_real *x, nn_real *y);
void nn_softmax_backward(int rows, int classes, const nn_real *y, const nn_real *dy, nn_real *dx);
void nn_softmax_xent(int rows, int valid, int classes, const nn_real *x, const int32_t *label, nn_real *y,
                     nn_real *loss, nn_real *dx);
void nn_sparse_xent(int rows, int valid, int classes, const nn_real *p, const int32_t *label, nn_real *loss,
                    nn_real *dx);
void nn_mse(int rows, int valid, int per, const nn_real *x, const nn_real *target, nn_real *loss, nn_real *dx);

#endif

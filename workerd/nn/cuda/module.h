// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device is a module of its own, so that workerd runs where there is no CUDA: it is loaded when a job asks for
// a GPU.
#ifndef NN_CUDA_MODULE_H
#define NN_CUDA_MODULE_H

#include "workerd/nn/device.h"

// FAILED_PRECONDITION says why it cannot be loaded, and what is needed.
enum ps_code nn_cuda_load(const struct nn_device **device, struct ps_error *e);

#endif

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Keras's models on the emulated GPU where cuDNN cannot be used (EMU_NO_CUDNN): cuBLAS serves, of patches.
CUDA_IMPLICIT=0 CUDA_WITHOUT=1 exec "$top_builddir/tests/cuda/test_nn_cuda_keras"

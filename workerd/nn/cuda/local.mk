# The CUDA device: the module that workerd loads, and the same sources on the emulated GPUs of tests/cuda.
nn_cuda_c = \
	workerd/nn/cuda/blas.c \
	workerd/nn/cuda/device.c \
	workerd/nn/cuda/memory.c
nn_cuda_cu = \
	workerd/nn/cuda/dense.cu
nn_cuda_headers = \
	workerd/nn/cuda/cuda.h \
	workerd/nn/cuda/launch.h \
	workerd/nn/cuda/version.h
EXTRA_DIST += $(nn_cuda_c) $(nn_cuda_cu) $(nn_cuda_headers)

# The CUDA device: the module that workerd loads, and the same sources on the emulated GPUs of tests/cuda.
nn_cuda_c = \
	workerd/nn/cuda/blas.c \
	workerd/nn/cuda/cudnn.c \
	workerd/nn/cuda/cudnn_conv2d.c \
	workerd/nn/cuda/device.c \
	workerd/nn/cuda/error.c \
	workerd/nn/cuda/graph.c \
	workerd/nn/cuda/memory.c \
	workerd/nn/cuda/peers.c \
	workerd/nn/cuda/sums.c
nn_cuda_cu = \
	workerd/nn/cuda/activation.cu \
	workerd/nn/cuda/broadcast.cu \
	workerd/nn/cuda/conv2d.cu \
	workerd/nn/cuda/dense.cu \
	workerd/nn/cuda/dot.cu \
	workerd/nn/cuda/dropout.cu \
	workerd/nn/cuda/embedding.cu \
	workerd/nn/cuda/images.cu \
	workerd/nn/cuda/implicit.cu \
	workerd/nn/cuda/lookup.cu \
	workerd/nn/cuda/losses.cu \
	workerd/nn/cuda/mask.cu \
	workerd/nn/cuda/normalize.cu \
	workerd/nn/cuda/pointwise.cu \
	workerd/nn/cuda/pool2d.cu \
	workerd/nn/cuda/rnn.cu \
	workerd/nn/cuda/rule.cu \
	workerd/nn/cuda/scale.cu \
	workerd/nn/cuda/sequence.cu \
	workerd/nn/cuda/softmax.cu \
	workerd/nn/cuda/transpose.cu
nn_cuda_headers = \
	workerd/nn/cuda/columns.h \
	workerd/nn/cuda/cuda.h \
	workerd/nn/cuda/cudnn.h \
	workerd/nn/cuda/cudnn_inside.h \
	workerd/nn/cuda/implicit.h \
	workerd/nn/cuda/implicit_tile.h \
	workerd/nn/cuda/implicit_ways.h \
	workerd/nn/cuda/launch.h \
	workerd/nn/cuda/normalizer.h \
	workerd/nn/cuda/normalizer_sums.h \
	workerd/nn/cuda/teams.h \
	workerd/nn/cuda/vectors.h \
	workerd/nn/cuda/version.h
EXTRA_DIST += $(nn_cuda_c) $(nn_cuda_cu) $(nn_cuda_headers)

# What the module calls of the program that loads it.
nn_cuda_needs = workerd/nn/cuda/needs.list
EXTRA_DIST += $(nn_cuda_needs)
nn_cuda_ldflags = $(AM_LDFLAGS) -Wl,--dynamic-list=$(top_srcdir)/$(nn_cuda_needs)

if HAVE_CUDA
pkglib_LTLIBRARIES += cuda.la
cuda_la_SOURCES = $(nn_cuda_c)
cuda_la_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
nn_cuda_lo = $(nn_cuda_cu:.cu=.lo)
cuda_la_LIBADD = $(nn_cuda_lo) $(CUDA_LIBS) -lstdc++
EXTRA_cuda_la_DEPENDENCIES = $(nn_cuda_lo)
cuda_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -R $(CUDA_LIBDIR) -export-symbols-regex '^nn_(device_cuda|cuda_version)$$'

nn_cuda_nvcc = $(NVCC) -std=c++17 -forward-unknown-to-host-compiler -I$(top_srcdir) -I$(top_builddir) $(CUDA_CPPFLAGS) $(NVCCFLAGS)
# NAME.d: the headers that NAME.lo was made of, as nvcc writes them down. Without it NAME.lo is made again.
nn_cuda_d = $(nn_cuda_lo:.lo=.d)
%.lo: %.cu %.d
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(LIBTOOL) $(AM_V_lt) --tag=CC --mode=compile $(nn_cuda_nvcc) -MMD -MP -MF $*.d -MT $@ -c -o $@ $<
$(nn_cuda_d):
-include $(wildcard $(nn_cuda_d))
CLEANFILES += $(nn_cuda_d)
endif

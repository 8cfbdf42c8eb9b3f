# libnnops: operators and tapes. libnn: what computes them, the reference and the CPU.
noinst_LTLIBRARIES += libnnops.la libnn.la libnn_vector.la libnn_unrolled.la

libnnops_la_SOURCES = \
	workerd/nn/op.c workerd/nn/op.h \
	workerd/nn/ops/activation.c workerd/nn/ops/activation.h \
	workerd/nn/ops/add.c \
	workerd/nn/ops/avgpool.c workerd/nn/ops/avgpool.h \
	workerd/nn/ops/bias.c workerd/nn/ops/bias.h \
	workerd/nn/ops/axis_function.c \
	workerd/nn/ops/binary.c workerd/nn/ops/binary.h \
	workerd/nn/ops/concat.c workerd/nn/ops/concat.h \
	workerd/nn/ops/conv2d.c \
	workerd/nn/ops/conv2d_pool.c workerd/nn/ops/conv2d_pool.h \
	workerd/nn/ops/copy.c \
	workerd/nn/ops/dense.c \
	workerd/nn/ops/dot.c workerd/nn/ops/dot.h \
	workerd/nn/ops/dropout.c \
	workerd/nn/ops/attention.c workerd/nn/ops/attention.h \
	workerd/nn/ops/both_ways.c workerd/nn/ops/both_ways.h \
	workerd/nn/ops/embedding.c workerd/nn/ops/embedding.h \
	workerd/nn/ops/mask.c workerd/nn/ops/mask.h \
	workerd/nn/ops/rnn.c workerd/nn/ops/rnn.h \
	workerd/nn/ops/lookup.c workerd/nn/ops/lookup.h \
	workerd/nn/ops/losses.c workerd/nn/ops/losses.h \
	workerd/nn/ops/maxpool.c \
	workerd/nn/ops/moments.c workerd/nn/ops/moments.h \
	workerd/nn/ops/mse.c \
	workerd/nn/ops/normalize.c workerd/nn/ops/normalize.h \
	workerd/nn/ops/pad2d.c workerd/nn/ops/pad2d.h \
	workerd/nn/ops/noise.c workerd/nn/ops/noise.h \
	workerd/nn/ops/penalty.c workerd/nn/ops/penalty.h \
	workerd/nn/ops/relu.c \
	workerd/nn/ops/softmax.c \
	workerd/nn/ops/sparse_xent.c \
	workerd/nn/ops/resize2d.c workerd/nn/ops/resize2d.h \
	workerd/nn/ops/transpose.c workerd/nn/ops/transpose.h \
	workerd/nn/tape.c workerd/nn/tape.h \
	workerd/nn/tensor.h
libnnops_la_LIBADD = libcommon.la -lm

nn_program_sources = \
	workerd/nn/memory.c \
	workerd/nn/program.c workerd/nn/program.h workerd/nn/program_inside.h \
	workerd/nn/program_device.c \
	workerd/nn/ref.c
libnn_la_SOURCES = $(nn_program_sources) \
	workerd/nn/device.c workerd/nn/device.h \
	workerd/nn/cpu/conv2d.c \
	workerd/nn/cpu/cpu.h \
	workerd/nn/cpu/dense.c \
	workerd/nn/cpu/device.c \
	workerd/nn/cpu/dnnl.c \
	workerd/nn/cpu/sequence.c \
	workerd/nn/cpu/share.c \
	workerd/nn/cuda/module.c workerd/nn/cuda/module.h
libnn_la_LIBADD = libnn_vector.la libnn_unrolled.la libnnops.la libcommon.la $(DNNL_LIBS) -lgomp -lm $(DL_LIBS)

# Loops of our own that are to become vector code.
libnn_vector_la_SOURCES = \
	workerd/nn/cpu/activation.c \
	workerd/nn/cpu/broadcast.c \
	workerd/nn/cpu/lanes.h \
	workerd/nn/cpu/vector.h \
	workerd/nn/cpu/dropout.c \
	workerd/nn/cpu/embedding.c \
	workerd/nn/cpu/images.c \
	workerd/nn/cpu/losses.c \
	workerd/nn/cpu/maxpool.c workerd/nn/cpu/maxpool_rows.h \
	workerd/nn/cpu/normalize.c \
	workerd/nn/cpu/pointwise.c \
	workerd/nn/cpu/rnn.c \
	workerd/nn/cpu/softmax.c
libnn_vector_la_CFLAGS = $(AM_CFLAGS) $(PS_VECTOR_CFLAGS)

# Loops that are vectors already, and whose sums are to stay in registers.
libnn_unrolled_la_SOURCES = \
	workerd/nn/cpu/conv2d_pool.c workerd/nn/cpu/conv2d_pool.h \
	workerd/nn/cpu/conv2d_pool_16.c \
	workerd/nn/cpu/conv2d_pool_4.c \
	workerd/nn/cpu/conv2d_pool_8.c \
	workerd/nn/cpu/conv2d_pool_isa.h \
	workerd/nn/cpu/peak.c
libnn_unrolled_la_CFLAGS = $(AM_CFLAGS) -O3

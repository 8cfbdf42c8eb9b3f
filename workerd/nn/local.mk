# libnn: the operators, the reference and the CPU's; and what is built on them.
noinst_LTLIBRARIES += libnn.la libnn_vector.la

libnn_la_SOURCES = \
	workerd/nn/loss.c workerd/nn/loss.h \
	workerd/nn/op.c workerd/nn/op.h \
	workerd/nn/ref.c \
	workerd/nn/cpu/conv2d.c \
	workerd/nn/cpu/cpu.h \
	workerd/nn/cpu/dense.c \
	workerd/nn/cpu/ops.c
libnn_la_LIBADD = libnn_vector.la libcommon.la $(DNNL_LIBS) -lgomp -lm

# Loops of our own that are to become vector code.
libnn_vector_la_SOURCES = \
	workerd/nn/cpu/dropout.c \
	workerd/nn/cpu/maxpool.c \
	workerd/nn/cpu/pointwise.c \
	workerd/nn/cpu/softmax_xent.c
libnn_vector_la_CFLAGS = $(AM_CFLAGS) $(PS_VECTOR_CFLAGS)

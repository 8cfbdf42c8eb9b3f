# Data sets and batches. No contraction: what digits.c draws must not depend on the processor having fused
# multiply-add.
noinst_LTLIBRARIES += libwkdata.la
libwkdata_la_CFLAGS = $(AM_CFLAGS) $(PNG_CFLAGS) $(JPEG_CFLAGS) -ffp-contract=off
libwkdata_la_SOURCES = \
	workerd/data/augment.c \
	workerd/data/bind.c \
	workerd/data/block.c \
	workerd/data/cache.c \
	workerd/data/cifar.c \
	workerd/data/convert.c \
	workerd/data/csv.c \
	workerd/data/data.c workerd/data/data.h workerd/data/data_internal.h \
	workerd/data/digits.c \
	workerd/data/example.c \
	workerd/data/feed.c \
	workerd/data/file.c \
	workerd/data/idx.c \
	workerd/data/image.c workerd/data/image.h \
	workerd/data/images.c \
	workerd/data/jpeg.c \
	workerd/data/npy.c \
	workerd/data/pixels.c \
	workerd/data/png.c \
	workerd/data/records.c \
	workerd/data/shuffle.c \
	workerd/data/source.c workerd/data/source.h \
	workerd/data/text.c \
	workerd/data/tfrecord.c workerd/data/tfrecord.h \
	workerd/data/vocabulary.c
libwkdata_la_LIBADD = libpszip.la libcommon.la $(PNG_LIBS) $(JPEG_LIBS) $(ZLIB_LIBS) -lm

# libcommon: no gRPC. common/rpc/local.mk wraps the gRPC core once.
noinst_LTLIBRARIES += libcommon.la
libcommon_la_SOURCES = \
	common/alloc.c common/alloc.h \
	common/clock.c common/clock.h \
	common/dtype.c common/dtype.h \
	common/error.c common/error.h \
	common/log.c common/log.h \
	common/philox.c common/philox.h \
	common/placement.h \
	common/rule.h \
	common/safetensors.c common/safetensors.h \
	common/slice.c common/slice.h \
	common/wire.h
libcommon_la_LIBADD = libproto.la $(PROTOBUF_C_LIBS) $(JANSSON_LIBS)

# libcommon: no gRPC. common/rpc/local.mk wraps the gRPC core once.
noinst_LTLIBRARIES += libcommon.la
libcommon_la_SOURCES = \
	common/alloc.c common/alloc.h \
	common/clock.c common/clock.h \
	common/dtype.c common/dtype.h \
	common/error.c common/error.h \
	common/hash.h \
	common/log.c common/log.h \
	common/memory.c common/memory.h \
	common/notify.c common/notify.h \
	common/npy.c common/npy.h \
	common/philox.h \
	common/placement.c common/placement.h \
	common/safetensors.c common/safetensors.h \
	common/slice.c common/slice.h \
	common/utf8.c common/utf8.h \
	common/wire.c common/wire.h
libcommon_la_LIBADD = librule.la libproto.la $(PROTOBUF_C_LIBS) $(JANSSON_LIBS) -lm

# The update rules and schedules: vectorised (which -O2 does for the simplest loops only) and never contracted into fused
# multiply-adds, so that every machine computes the same bits.
noinst_LTLIBRARIES += librule.la
librule_la_SOURCES = \
	common/cpu.h \
	common/elementary.c common/elementary.h \
	common/rule.c common/rule.h \
	common/schedule.c common/schedule.h
librule_la_CFLAGS = $(AM_CFLAGS) $(PS_VECTOR_CFLAGS) -ffp-contract=off

# YAML with its lines: for libclient and for what a job file says, which are apart so that libpsclient has no more in it
# than it needs.
noinst_LTLIBRARIES += libpsyaml.la libjob.la
libpsyaml_la_SOURCES = common/yaml.c common/yaml.h
libpsyaml_la_LIBADD = $(YAML_LIBS)
libjob_la_SOURCES = common/job.c common/job.h
libjob_la_LIBADD = libpsyaml.la $(JANSSON_LIBS)

include common/rpc/local.mk

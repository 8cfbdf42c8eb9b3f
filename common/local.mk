# libcommon: no gRPC. common/rpc/local.mk wraps the gRPC core once.
noinst_LTLIBRARIES += libcommon.la
libcommon_la_SOURCES = \
	common/base/alloc.c common/base/alloc.h \
	common/base/clock.c common/base/clock.h \
	common/base/crc32c.c common/base/crc32c.h \
	common/base/error.c common/base/error.h \
	common/base/hash.h \
	common/base/host_device.h \
	common/base/limits.h \
	common/base/log.c common/base/log.h \
	common/base/machine.c common/base/machine.h \
	common/base/name_table.c common/base/name_table.h \
	common/base/notify.c common/base/notify.h \
	common/base/option.c common/base/option.h \
	common/base/order.c common/base/order.h \
	common/base/parse.c common/base/parse.h \
	common/base/self.c common/base/self.h \
	common/base/signals.h \
	common/base/sometimes.c common/base/sometimes.h \
	common/base/starts.h \
	common/base/text.h \
	common/base/thread.c common/base/thread.h \
	common/base/utf8.c common/base/utf8.h \
	common/base/workers.c common/base/workers.h \
	common/file/lock.c common/file/lock.h \
	common/file/npy.c common/file/npy.h \
	common/file/output.c common/file/output.h \
	common/file/read_at.c common/file/read_at.h \
	common/file/safetensors.c common/file/safetensors.h \
	common/file/shards.c common/file/shards.h \
	common/file/tfrecord.c common/file/tfrecord.h \
	common/file/timeline.c common/file/timeline.h \
	common/math/philox.h \
	common/plan/configuration.c common/plan/configuration.h \
	common/plan/cost.c common/plan/cost.h \
	common/plan/placement.c common/plan/placement.h \
	common/wire/codec.c common/wire/codec.h \
	common/wire/decode.c common/wire/decode.h \
	common/wire/dtype.c common/wire/dtype.h \
	common/wire/members.c common/wire/members.h \
	common/wire/progress.c common/wire/progress.h \
	common/wire/slice.c common/wire/slice.h \
	common/wire/wire.c common/wire/wire.h
libcommon_la_LIBADD = librule.la libproto.la $(PROTOBUF_C_LIBS) $(JANSSON_LIBS) -lm

# The update rules, the mean gradient and schedules: vectorised (which -O2 does for the simplest loops only) and never
# contracted into fused multiply-adds, so that every machine computes the same bits.
noinst_LTLIBRARIES += librule.la
librule_la_SOURCES = \
	common/math/aggregate.c common/math/aggregate.h \
	common/math/cpu.h \
	common/math/elementary.c common/math/elementary.h \
	common/math/encoding.c common/math/encoding.h \
	common/math/finite.c common/math/finite.h \
	common/math/half.h \
	common/math/rule.c common/math/rule.h \
	common/math/schedule.c common/math/schedule.h
librule_la_CFLAGS = $(AM_CFLAGS) $(PS_VECTOR_CFLAGS) -ffp-contract=off

# TLS, and who calls: by a certificate or by MUNGE.
noinst_LTLIBRARIES += libpstls.la
libpstls_la_SOURCES = \
	common/tls/identity.c common/tls/identity.h \
	common/tls/munge.c common/tls/munge.h \
	common/tls/munged.h \
	common/tls/tls.c common/tls/tls.h
EXTRA_libpstls_la_SOURCES = common/tls/munged.c common/tls/munged_none.c
if HAVE_MUNGE
libpstls_la_SOURCES += common/tls/munged.c
else
libpstls_la_SOURCES += common/tls/munged_none.c
endif
libpstls_la_CPPFLAGS = $(AM_CPPFLAGS) $(MUNGE_CFLAGS)
libpstls_la_LIBADD = $(OPENSSL_LIBS) $(MUNGE_LIBS)

# Zip files, for what is read of .npz and .keras.
noinst_LTLIBRARIES += libpszip.la
libpszip_la_SOURCES = common/file/zip.c common/file/zip.h
libpszip_la_LIBADD = libcommon.la $(ZLIB_LIBS)

# YAML with its lines: for libclient and for what a job file says, which are apart so that libpsclient has no more in it
# than it needs.
noinst_LTLIBRARIES += libpsyaml.la libjob.la
libpsyaml_la_SOURCES = common/file/yaml.c common/file/yaml.h
libpsyaml_la_LIBADD = $(YAML_LIBS)
libjob_la_SOURCES = \
	common/job/callbacks.c common/job/callbacks.h \
	common/job/columns.c common/job/columns.h \
	common/job/devices.c common/job/devices.h \
	common/job/field.c common/job/field.h \
	common/job/hypers.c common/job/hypers.h \
	common/job/job.c common/job/job.h \
	common/job/json.c \
	common/job/optimizer.c common/job/optimizer.h \
	common/job/outputs.c common/job/outputs.h \
	common/job/path.c common/job/path.h \
	common/job/scale.c \
	common/job/together.c common/job/together.h
libjob_la_LIBADD = libloss.la libpsyaml.la $(JANSSON_LIBS)

# The losses and metrics that there are: for job files and for what computes them.
noinst_LTLIBRARIES += libloss.la
libloss_la_SOURCES = \
	common/job/loss.c common/job/loss.h \
	common/job/metric.c common/job/metric.h \
	common/job/named.c common/job/named.h
libloss_la_LIBADD = $(JANSSON_LIBS)

# The description of a cluster: for libclient and psd.
noinst_LTLIBRARIES += libpscluster.la
libpscluster_la_SOURCES = common/cluster/cluster.c common/cluster/cluster.h common/cluster/tf_config.c \
	common/cluster/tls_files.h
libpscluster_la_LIBADD = libpsyaml.la $(JANSSON_LIBS)

# A cluster in words, of what its ps tasks answer: for psd's status page and psctl.
noinst_LTLIBRARIES += libpssummary.la
libpssummary_la_SOURCES = \
	common/summary/figures.c common/summary/figures.h \
	common/summary/summary.c common/summary/summary.h
libpssummary_la_LIBADD = libproto.la

# Pages over HTTP, for the daemons, which link with libpsrpc after it: an address is looked at there.
noinst_LTLIBRARIES += libpshttp.la
libpshttp_la_SOURCES = \
	common/http/json.c common/http/json.h \
	common/http/metrics.c common/http/metrics.h \
	common/http/server.c common/http/server.h
libpshttp_la_CPPFLAGS = $(AM_CPPFLAGS) $(MICROHTTPD_CFLAGS)
libpshttp_la_LIBADD = $(MICROHTTPD_LIBS)

include common/rpc/local.mk

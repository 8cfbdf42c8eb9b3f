# workerd: replicas of a job.
include workerd/nn/local.mk
include workerd/nn/model.mk
include workerd/nn/cuda/local.mk
include workerd/data/local.mk

# Weights in files. HDF5 is for workerd alone, and where configure finds it.
noinst_LTLIBRARIES += libwkweights.la
libwkweights_la_SOURCES = \
	workerd/weights/file.c \
	workerd/weights/hdf5_file.h \
	workerd/weights/weights.h
EXTRA_libwkweights_la_SOURCES = workerd/weights/hdf5.c workerd/weights/hdf5_none.c
if HAVE_HDF5
libwkweights_la_SOURCES += workerd/weights/hdf5.c
else
libwkweights_la_SOURCES += workerd/weights/hdf5_none.c
endif
libwkweights_la_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CFLAGS)
libwkweights_la_LIBADD = libnnmodel.la libpszip.la libcommon.la $(HDF5_LIBS)

# Replicas and workers that add up what they have. libwkring knows no network.
noinst_LTLIBRARIES += libwkadd.la libwkring.la libwkcollective.la
libwkadd_la_SOURCES = workerd/collective/add.c workerd/collective/add.h
libwkadd_la_CFLAGS = $(AM_CFLAGS) $(PS_VECTOR_CFLAGS) -ffp-contract=off
libwkring_la_SOURCES = \
	workerd/collective/formation.c workerd/collective/formation.h \
	workerd/collective/hosts.c workerd/collective/hosts.h \
	workerd/collective/ring.c workerd/collective/ring.h \
	workerd/collective/shm.c workerd/collective/shm.h \
	workerd/collective/socket.c workerd/collective/socket.h
libwkring_la_LIBADD = libwkadd.la libcommon.la $(OPENSSL_LIBS)
libwkcollective_la_SOURCES = \
	workerd/collective/collective.c workerd/collective/collective.h \
	workerd/collective/rpc/mesh.c workerd/collective/rpc/mesh.h \
	workerd/collective/rpc/options.h \
	workerd/collective/rpc/peers.c workerd/collective/rpc/peers.h \
	workerd/collective/rpc/rendezvous.c workerd/collective/rpc/rendezvous.h \
	workerd/collective/rpc/version.c workerd/collective/rpc/version.h
libwkcollective_la_LIBADD = libwkring.la libworkerproto.la libpsrpc.la libcommon.la

# What a job declares, for psctl plan too.
noinst_LTLIBRARIES += libwkvariables.la
libwkvariables_la_SOURCES = \
	workerd/job/objectives.c workerd/job/objectives.h \
	workerd/strategy/variables.c workerd/strategy/variables.h
libwkvariables_la_LIBADD = libnnmodel.la libjob.la

# The loop and what is around it; its unit tests have it, too.
workerd_job = \
	workerd/job/callback.c workerd/job/callback.h \
	workerd/job/callbacks/checkpoint.c \
	workerd/job/callbacks/early_stopping.c \
	workerd/job/callbacks/event.c workerd/job/callbacks/event.h \
	workerd/job/callbacks/log.c \
	workerd/job/callbacks/log_file.c workerd/job/callbacks/log_file.h \
	workerd/job/callbacks/monitor.c workerd/job/callbacks/monitor.h \
	workerd/job/callbacks/picture.c workerd/job/callbacks/picture.h \
	workerd/job/callbacks/reduce_lr.c \
	workerd/job/callbacks/tensorboard.c \
	workerd/job/callbacks/terminate_on_nan.c \
	workerd/job/epoch.c workerd/job/epoch.h \
	workerd/job/evaluate.c workerd/job/evaluate.h \
	workerd/job/figures.c workerd/job/figures.h \
	workerd/job/folders.c workerd/job/folders.h \
	workerd/job/look.c workerd/job/look.h \
	workerd/job/checkpoint_writer.c workerd/job/checkpoint_writer.h \
	workerd/job/checkpoints.c workerd/job/checkpoints.h \
	workerd/job/loop.c workerd/job/loop.h \
	workerd/job/metrics.c workerd/job/metrics.h \
	workerd/job/profile.c workerd/job/profile.h \
	workerd/job/step.c workerd/job/step.h \
	workerd/job/progress.c workerd/job/progress.h \
	workerd/job/recovery.c workerd/job/recovery.h \
	workerd/job/resume.c workerd/job/resume.h \
	workerd/job/search.c workerd/job/search.h \
	workerd/job/summary.c workerd/job/summary.h \
	workerd/job/supported.c workerd/job/supported.h \
	workerd/job/timeline.c workerd/job/timeline.h \
	workerd/strategy/checkpoint.c workerd/strategy/checkpoint.h \
	workerd/strategy/configuration.c workerd/strategy/configuration.h \
	workerd/strategy/losses.c workerd/strategy/losses.h \
	workerd/strategy/waits.h

# One replica with its variables; its unit tests have it, too.
workerd_one_device = \
	workerd/strategy/local_rule.c workerd/strategy/local_rule.h \
	workerd/strategy/one_device.c \
	workerd/strategy/weights.c

bin_PROGRAMS += workerd/workerd
workerd_workerd_SOURCES = \
	workerd/main.c \
	workerd/attempt.c workerd/attempt.h \
	workerd/options.c workerd/options.h \
	workerd/agent/agent.c workerd/agent/agent.h \
	workerd/agent/child.c workerd/agent/child.h \
	workerd/agent/rpc/ask.c workerd/agent/rpc/ask.h \
	$(workerd_job) \
	$(workerd_one_device) \
	workerd/http/http.c workerd/http/http.h \
	workerd/strategy/history.c workerd/strategy/history.h \
	workerd/job/build.c workerd/job/build.h \
	workerd/job/cores.c workerd/job/cores.h \
	workerd/job/place.c workerd/job/place.h \
	workerd/job/replicas.c workerd/job/replicas.h \
	workerd/strategy/device_sums.c workerd/strategy/device_sums.h \
	workerd/strategy/hybrid.c \
	workerd/strategy/bucket_order.c workerd/strategy/bucket_order.h workerd/strategy/buckets.c workerd/strategy/buckets.h \
	workerd/strategy/mirrored.c \
	workerd/strategy/rounds.c workerd/strategy/rounds.h \
	workerd/strategy/examples.c \
	workerd/strategy/local_steps.c workerd/strategy/parameter_server.c workerd/strategy/parameter_server.h \
	workerd/strategy/psd_checkpoint.c \
	workerd/strategy/psd_home.c workerd/strategy/psd_job.c workerd/strategy/psd_signal.c \
	workerd/strategy/strategy.h
workerd_workerd_LDADD = libwkweights.la libwkdata.la libwkvariables.la libnnreplica.la libwkcollective.la libpshttp.la libpsrpc.la libpsclient.la \
	libpscluster.la libjob.la libcommon.la $(JANSSON_LIBS) $(YAML_LIBS) $(HWLOC_LIBS) -lm
workerd_workerd_LDFLAGS = $(nn_cuda_ldflags)
EXTRA_workerd_workerd_DEPENDENCIES = $(nn_cuda_needs)
dist_man_MANS += workerd/workerd.8

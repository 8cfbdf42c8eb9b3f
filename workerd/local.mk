# workerd: one replica of a job.
include workerd/nn/local.mk
include workerd/nn/model.mk
include workerd/data/local.mk

# What a job declares, for psctl plan too.
noinst_LTLIBRARIES += libwkvariables.la
libwkvariables_la_SOURCES = workerd/strategy/variables.c workerd/strategy/variables.h
libwkvariables_la_LIBADD = libnnmodel.la

sbin_PROGRAMS += workerd/workerd
workerd_workerd_SOURCES = \
	workerd/main.c \
	workerd/job/figures.c workerd/job/figures.h \
	workerd/job/loop.c workerd/job/loop.h \
	workerd/job/progress.c workerd/job/progress.h \
	workerd/job/summary.c workerd/job/summary.h \
	workerd/strategy/configuration.c workerd/strategy/configuration.h \
	workerd/strategy/history.c workerd/strategy/history.h \
	workerd/strategy/one_device.c \
	workerd/strategy/examples.c \
	workerd/strategy/parameter_server.c workerd/strategy/parameter_server.h \
	workerd/strategy/strategy.h \
	workerd/strategy/weights.c
workerd_workerd_LDADD = libwkdata.la libwkvariables.la libnnreplica.la libpsclient.la libjob.la libcommon.la $(JANSSON_LIBS) $(YAML_LIBS) -lm
dist_man_MANS += workerd/workerd.8

# libpsdcore: the parameter server without its network; nothing in it knows gRPC.
noinst_LTLIBRARIES += libpsdcore.la
libpsdcore_la_SOURCES = \
	psd/call/call.c psd/call/call.h \
	psd/job/clients.c \
	psd/control/ssp.c \
	psd/control/control.c psd/control/control.h \
	psd/service/dispatch.c psd/service/core.h \
	psd/service/reply.c psd/service/reply.h \
	psd/control/hyper.c psd/control/hyper.h \
	psd/control/lease.c psd/control/collective.c psd/control/member.c \
	psd/sync/norm.c psd/sync/norm.h \
	psd/control/view.c \
	psd/sync/round.c psd/sync/round.h \
	psd/service/service.h psd/service/admin.c psd/service/update.c psd/service/declare.c psd/service/read.c \
	psd/job/runs.c psd/job/runs.h psd/job/shard.c psd/job/shard.h \
	psd/job/staging.c psd/job/staging.h \
	psd/store/storage.c psd/store/storage.h \
	psd/job/step.c psd/job/step.h \
	psd/job/apply.c psd/job/apply.h \
	psd/service/waits.c psd/service/waits.h
libpsdcore_la_LIBADD = libcommon.la libpsdnumbers.la

# Vectorised, as the update rules are.
noinst_LTLIBRARIES += libpsdnumbers.la
libpsdnumbers_la_SOURCES = psd/store/numbers.c psd/store/numbers.h
libpsdnumbers_la_CFLAGS = $(AM_CFLAGS) $(PS_VECTOR_CFLAGS)

include psd/rpc/local.mk

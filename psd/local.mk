# libpsdcore: the parameter server without its network; nothing in it knows gRPC.
noinst_LTLIBRARIES += libpsdcore.la
libpsdcore_la_SOURCES = \
	psd/call.c psd/call.h \
	psd/clients.c \
	psd/clock.c \
	psd/control.c psd/control.h \
	psd/core.c psd/core.h \
	psd/draft.c psd/draft.h \
	psd/hyper.c psd/hyper.h \
	psd/lease.c psd/meeting.c psd/member.c \
	psd/norms.c psd/norms.h \
	psd/roster.c \
	psd/round.c psd/round.h \
	psd/service.h psd/service_admin.c psd/service_data.c psd/service_declare.c psd/service_read.c \
	psd/shard.c psd/shard.h \
	psd/staging.c psd/staging.h \
	psd/storage.c psd/storage.h \
	psd/step.c psd/step.h \
	psd/update.c psd/update.h \
	psd/waits.c psd/waits.h
libpsdcore_la_LIBADD = libcommon.la libpsdnumbers.la

# Vectorised, as the update rules are.
noinst_LTLIBRARIES += libpsdnumbers.la
libpsdnumbers_la_SOURCES = psd/numbers.c psd/numbers.h
libpsdnumbers_la_CFLAGS = $(AM_CFLAGS) $(PS_VECTOR_CFLAGS)

include psd/rpc/local.mk

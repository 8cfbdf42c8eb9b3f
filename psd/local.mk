# The parameter server without its network: nothing in these rooms knows gRPC. Each room is a library that links with those
# above it in this list alone; tests/lint/link.sh tries that.
noinst_LTLIBRARIES += libpsdcall.la libpsdstore.la libpsdjob.la libpsdsync.la libpsdcontrol.la libpsdqueue.la libpsdservice.la
libpsdcall_la_SOURCES = psd/limits.h \
	psd/call/call.c psd/call/call.h
libpsdstore_la_SOURCES = \
	psd/store/block.c psd/store/block.h \
	psd/store/dedup.c psd/store/dedup.h \
	psd/store/pool.c psd/store/pool.h
libpsdjob_la_SOURCES = \
	psd/job/apply.c psd/job/apply.h \
	psd/job/clients.c psd/job/clients.h \
	psd/job/component.c psd/job/component.h psd/job/host.h \
	psd/job/declaration.c psd/job/declaration.h \
	psd/job/encoded.c psd/job/encoded.h \
	psd/job/hyper.c psd/job/hyper.h \
	psd/job/job.c psd/job/job.h \
	psd/job/locate.c psd/job/locate.h \
	psd/job/payload.c psd/job/payload.h \
	psd/job/runs.c psd/job/runs.h \
	psd/job/snapshot.c psd/job/snapshot.h \
	psd/job/staging.c psd/job/staging.h \
	psd/job/step.c psd/job/step.h \
	psd/job/table.c psd/job/table.h \
	psd/job/trace.c psd/job/trace.h \
	psd/job/users.c psd/job/users.h
libpsdsync_la_SOURCES = \
	psd/sync/component.c \
	psd/sync/switch.c \
	psd/sync/norm.c psd/sync/norm.h \
	psd/sync/round.c psd/sync/round.h \
	psd/sync/sync.c psd/sync/sync.h
libpsdcontrol_la_SOURCES = \
	psd/control/collective.c psd/control/lease.c psd/control/member.c psd/control/mode.c psd/control/rounds.c psd/control/ssp.c \
	psd/control/view.c \
	psd/control/control.c psd/control/state.c psd/control/state.h psd/control/waiting.c \
	psd/control/agreement.c psd/control/agree.c psd/control/agree.h psd/control/propose.c psd/control/hyper.c \
	psd/control/watch.c
libpsdqueue_la_SOURCES = \
	psd/queue/files.c psd/queue/files.h \
	psd/queue/queue.c psd/queue/queue.h
libpsdservice_la_SOURCES = \
	psd/service/core.c psd/service/core.h \
	psd/service/dispatch.c psd/service/service.h \
	psd/service/admin.c psd/service/declare.c psd/service/hyper.c psd/service/join.c psd/service/membership.c psd/service/mode.c \
	psd/service/peer.c psd/service/queue.c psd/service/read.c psd/service/shard.c psd/service/sums.c psd/service/update.c \
	psd/service/reply.c psd/service/reply.h \
	psd/service/request.c psd/service/request.h \
	psd/service/session.c psd/service/session.h \
	psd/service/trace.c \
	psd/service/file_thread.c psd/service/file_thread.h \
	psd/service/waits.c psd/service/waits.h

# Vectorised, as the update rules are.
noinst_LTLIBRARIES += libpsdnumbers.la
libpsdnumbers_la_SOURCES = psd/store/numbers.c psd/store/numbers.h
libpsdnumbers_la_CFLAGS = $(AM_CFLAGS) $(PS_VECTOR_CFLAGS)

# All rooms, for who takes them whole.
noinst_LTLIBRARIES += libpsdcore.la
libpsdcore_la_SOURCES =
libpsdcore_la_LIBADD = libpsdservice.la libpsdqueue.la libpsdcontrol.la libpsdsync.la libpsdjob.la libpsdstore.la libpsdcall.la \
	libpsdnumbers.la libcommon.la

include psd/rpc/local.mk

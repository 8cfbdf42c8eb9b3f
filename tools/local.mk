# What psctl and psbench share: command lines, tables, where the daemons and the sockets are.
noinst_LTLIBRARIES += libtools.la
libtools_la_SOURCES = \
	tools/common/cli.c tools/common/cli.h \
	tools/common/program.c tools/common/program.h \
	tools/common/rundir.c tools/common/rundir.h \
	tools/common/table.c tools/common/table.h
libtools_la_LIBADD = libcommon.la $(JANSSON_LIBS) $(UV_LIBS) -lm

# psctl, the one tool for people. Its parts without main are a library, so that unit tests link them.
bin_PROGRAMS += tools/psctl/psctl
dist_man_MANS += tools/psctl.1
noinst_LTLIBRARIES += libpsctl.la
libpsctl_la_SOURCES = \
	tools/psctl/authority.c tools/psctl/authority.h \
	tools/psctl/caller.c tools/psctl/caller.h \
	tools/psctl/child.c tools/psctl/child.h \
	tools/psctl/findings.c tools/psctl/findings.h \
	tools/psctl/group.c tools/psctl/group.h \
	tools/psctl/guard.c tools/psctl/guard.h \
	tools/psctl/npy.c tools/psctl/npy.h \
	tools/psctl/operand.c tools/psctl/operand.h \
	tools/psctl/probe.c tools/psctl/probe.h \
	tools/psctl/screen.c tools/psctl/screen.h \
	tools/psctl/trace_sum.c tools/psctl/trace.h
libpsctl_la_LIBADD = libpstls.la libtools.la libcommon.la $(JANSSON_LIBS) $(UV_LIBS) $(OPENSSL_LIBS) -lm
tools_psctl_psctl_SOURCES = \
	tools/psctl/build.c \
	tools/psctl/call.c tools/psctl/call.h \
	tools/psctl/cheat.c \
	tools/psctl/cluster.c tools/psctl/cluster.h \
	tools/psctl/doctor.c \
	tools/psctl/checkpoint.c \
	tools/psctl/drain.c \
	tools/psctl/get.c \
	tools/psctl/job.c \
	tools/psctl/jobs.c tools/psctl/jobs.h \
	tools/psctl/main.c \
	tools/psctl/plan.c \
	tools/psctl/psctl.h \
	tools/psctl/queue.c tools/psctl/queue.h \
	tools/psctl/report.c tools/psctl/report.h \
	tools/psctl/restore.c \
	tools/psctl/run.c \
	tools/psctl/save.c \
	tools/psctl/set.c \
	tools/psctl/mode.c \
	tools/psctl/shards.c \
	tools/psctl/status.c \
	tools/psctl/slurm.c \
	tools/psctl/stop.c \
	tools/psctl/submit.c tools/psctl/submit.h \
	tools/psctl/tls.c \
	tools/psctl/top.c \
	tools/psctl/trace.c \
	tools/psctl/value.c tools/psctl/value.h \
	tools/psctl/vars.c \
	tools/psctl/verify.c \
	tools/psctl/waits.c \
	tools/psctl/words.c tools/psctl/words.h \
	tools/psctl/workers.c tools/psctl/workers.h
tools_psctl_psctl_LDADD = libpsctl.la libpssummary.la libpscrpc.la libwkvariables.la libjob.la libcommon.la libproto.la $(JANSSON_LIBS) $(UV_LIBS) -lm

bashcompletiondir = $(datadir)/bash-completion/completions
dist_bashcompletion_DATA = tools/psctl/psctl.bash

# psbench, the benchmark. It calls psd through the public library alone, as any program does;
# an all-reduce is workerd's.
bin_PROGRAMS += tools/psbench/psbench
dist_man_MANS += tools/psbench.1
noinst_LTLIBRARIES += libpsbench.la
libpsbench_la_SOURCES = \
	tools/psbench/buffers.c tools/psbench/buffers.h \
	tools/psbench/case.c tools/psbench/case.h \
	tools/psbench/endpoint.c tools/psbench/endpoint.h \
	tools/psbench/flow.c tools/psbench/flow.h \
	tools/psbench/load.c tools/psbench/load.h \
	tools/psbench/memory.c tools/psbench/memory.h \
	tools/psbench/options.c tools/psbench/options.h \
	tools/psbench/plot.c tools/psbench/plot.h \
	tools/psbench/process.c tools/psbench/process.h \
	tools/psbench/report.c tools/psbench/report.h \
	tools/psbench/servers.c tools/psbench/servers.h \
	tools/psbench/socket.c tools/psbench/socket.h \
	tools/psbench/stats.c tools/psbench/stats.h \
	tools/psbench/stop.c tools/psbench/stop.h
libpsbench_la_LIBADD = libtools.la libcommon.la $(JANSSON_LIBS) -lm
tools_psbench_psbench_SOURCES = \
	tools/psbench/allreduce.c tools/psbench/allreduce.h \
	tools/psbench/client.c tools/psbench/client.h \
	tools/psbench/main.c \
	tools/psbench/run.c tools/psbench/run.h \
	tools/psbench/socket_ring.c tools/psbench/socket_ring.h
tools_psbench_psbench_LDADD = libpsbench.la libwkcollective.la libpsclient.la libtools.la libcommon.la $(JANSSON_LIBS) -lm

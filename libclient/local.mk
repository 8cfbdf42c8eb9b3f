# libpscore: the client without its network; nothing in it knows gRPC.
noinst_LTLIBRARIES += libpscore.la
libpscore_la_SOURCES = \
	libclient/admin.c libclient/admin.h \
	libclient/base.c libclient/base.h \
	libclient/call.c libclient/call.h \
	libclient/client.c libclient/client.h \
	libclient/cluster.c libclient/cluster.h \
	libclient/collective.c libclient/control.c libclient/convert.h \
	libclient/declare.c \
	libclient/layout.c libclient/layout.h \
	libclient/member.c libclient/member.h \
	libclient/op.c libclient/op.h libclient/op_cut.c libclient/op_encode.c \
	libclient/op_string.c libclient/op_wire.c \
	libclient/queue.c libclient/queue.h \
	libclient/transport.h \
	libclient/wait.c libclient/wait.h \
	libclient/window.c libclient/window.h
libpscore_la_LIBADD = libpscluster.la libcommon.la

include libclient/rpc/local.mk
dist_man_MANS += libclient/psclient.3

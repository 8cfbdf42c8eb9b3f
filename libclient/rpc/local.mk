# libpscrpc: the whole client, for our own programs that need more of it than is public (psctl).
noinst_LTLIBRARIES += libpscrpc.la
libpscrpc_la_SOURCES = \
	libclient/rpc/connect.c \
	libclient/rpc/world.c libclient/rpc/world.h
libpscrpc_la_LIBADD = libpscore.la libpsrpc.la $(GRPC_LIBS)

# libpsclient: what is installed; it offers psclient.h's functions and nothing else. Internal names have two underscores.
lib_LTLIBRARIES += libpsclient.la
include_HEADERS += libclient/psclient.h
pkgconfigdir = $(libdir)/pkgconfig
nodist_pkgconfig_DATA = libclient/psclient.pc
libpsclient_la_SOURCES =
libpsclient_la_LIBADD = libpscrpc.la
libpsclient_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -export-symbols-regex '^psc_[a-z]'

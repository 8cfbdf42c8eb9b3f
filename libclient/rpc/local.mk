# libpsclient: what is installed. It offers psclient.h's functions, and the one call that psctl needs beside them.
# (libpscore has libcommon in it.)
lib_LTLIBRARIES += libpsclient.la
include_HEADERS += libclient/psclient.h
pkgconfigdir = $(libdir)/pkgconfig
nodist_pkgconfig_DATA = libclient/psclient.pc
libpsclient_la_SOURCES = \
	libclient/rpc/connect.c \
	libclient/rpc/world.c libclient/rpc/world.h
libpsclient_la_LIBADD = libpscore.la libpsrpc.la $(GRPC_LIBS) $(PROTOBUF_C_LIBS) $(YAML_LIBS)
libpsclient_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -export-symbols-regex '^psc_([^_]|_admin_call$$)'

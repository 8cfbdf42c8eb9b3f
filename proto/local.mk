# Generated code lives in the build tree only.
EXTRA_DIST += proto/paramserver.proto
noinst_LTLIBRARIES += libproto.la
nodist_libproto_la_SOURCES = proto/paramserver.pb-c.c proto/paramserver.pb-c.h
libproto_la_CFLAGS = $(PS_SANITIZE)
libproto_la_LIBADD = $(PROTOBUF_C_LIBS)
BUILT_SOURCES += proto/paramserver.pb-c.h
CLEANFILES += proto/paramserver.pb-c.c proto/paramserver.pb-c.h

proto/paramserver.pb-c.c: $(top_srcdir)/proto/paramserver.proto
	$(AM_V_GEN)$(MKDIR_P) proto && $(PROTOC_C) --proto_path=$(top_srcdir)/proto --c_out=proto $<
proto/paramserver.pb-c.h: proto/paramserver.pb-c.c

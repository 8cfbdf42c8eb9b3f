# Generated code lives in the build tree only.
# For clients in other languages: reflection has the types, the file has their meaning, too.
protodir = $(pkgdatadir)/proto
proto_DATA = proto/paramserver.proto proto/worker.proto

EXTRA_DIST += proto/descriptor.proto proto/health.proto proto/paramserver.proto proto/reflection.proto \
	proto/worker.proto
CLEANFILES += proto/*.pb-c.[ch] proto/descriptors.inc proto/descriptors.set proto/reflection_v1alpha.proto
BUILT_SOURCES += proto/paramserver.pb-c.h

noinst_LTLIBRARIES += libproto.la
nodist_libproto_la_SOURCES = proto/paramserver.pb-c.c proto/paramserver.pb-c.h
libproto_la_CFLAGS = $(PS_SANITIZE)
libproto_la_LIBADD = $(PROTOBUF_C_LIBS)

# For workerd, and nobody else.
BUILT_SOURCES += proto/worker.pb-c.h
noinst_LTLIBRARIES += libworkerproto.la
nodist_libworkerproto_la_SOURCES = proto/worker.pb-c.c proto/worker.pb-c.h
libworkerproto_la_CFLAGS = $(PS_SANITIZE)
libworkerproto_la_LIBADD = $(PROTOBUF_C_LIBS)

# For the standard services of psd, and nobody else.
BUILT_SOURCES += proto/descriptor.pb-c.h proto/health.pb-c.h proto/reflection.pb-c.h proto/descriptors.inc
noinst_LTLIBRARIES += libstandardproto.la
nodist_libstandardproto_la_SOURCES = \
	proto/descriptor.pb-c.c proto/descriptor.pb-c.h \
	proto/health.pb-c.c proto/health.pb-c.h \
	proto/reflection.pb-c.c proto/reflection.pb-c.h
libstandardproto_la_CFLAGS = $(PS_SANITIZE)
libstandardproto_la_LIBADD = $(PROTOBUF_C_LIBS)

proto/%.pb-c.c: $(top_srcdir)/proto/%.proto
	$(AM_V_GEN)$(MKDIR_P) proto && $(PROTOC_C) --proto_path=$(top_srcdir)/proto --c_out=proto $<
proto/%.pb-c.h: proto/%.pb-c.c
	@:

# What reflection tells: a FileDescriptorSet of all services, as the initialiser of an array of bytes.
DESCRIBED = $(top_srcdir)/proto/paramserver.proto $(top_srcdir)/proto/health.proto $(top_srcdir)/proto/reflection.proto \
	proto/reflection_v1alpha.proto

proto/reflection_v1alpha.proto: $(top_srcdir)/proto/reflection.proto
	$(AM_V_GEN)$(MKDIR_P) proto && sed '/^package /s/v1/v1alpha/' $< >$@.tmp && mv $@.tmp $@
proto/descriptors.set: $(DESCRIBED)
	$(AM_V_GEN)$(PROTOC_C) --proto_path=$(top_srcdir)/proto --proto_path=proto --descriptor_set_out=$@ $(DESCRIBED)
proto/descriptors.inc: proto/descriptors.set
	$(AM_V_GEN)od -An -v -tx1 $< | sed 's/ *\([0-9a-f][0-9a-f]\)/0x\1,/g' >$@.tmp && mv $@.tmp $@

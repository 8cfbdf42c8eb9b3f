# psd: the core with gRPC around it.
# Users start it as well, in jobs of their own, and an ordinary PATH lacks sbin: it is installed in bin, as workerd is.
bin_PROGRAMS += psd/psd
dist_man_MANS += psd/psd.8
psd_psd_SOURCES = \
	psd/main.c \
	psd/options.c psd/options.h \
	psd/http/ask.c psd/http/ask.h \
	psd/http/files.c psd/http/files.h \
	psd/http/history.c psd/http/history.h \
	psd/http/http.c psd/http/http.h \
	psd/http/overview.c psd/http/overview.h \
	psd/http/sampler.c psd/http/sampler.h \
	psd/http/status.c psd/http/status.h \
	psd/http/view.c psd/http/view.h \
	psd/rpc/descriptors.c psd/rpc/descriptors.h \
	psd/rpc/health.c psd/rpc/health.h \
	psd/rpc/reflection.c psd/rpc/reflection.h \
	psd/rpc/rpc.c psd/rpc/rpc.h
psd_psd_LDADD = libpsdcore.la libpscluster.la libpssummary.la libpshttp.la libpsrpc.la libcommon.la libstandardproto.la $(UV_LIBS) $(GRPC_LIBS) -lm

# The files of the status page, each as the initialiser of an array of bytes.
PAGE_FILES = psd/http/page/page.html psd/http/page/page.css psd/http/page/page.js psd/http/page/icon.svg
PAGE_BYTES = $(PAGE_FILES:=.inc)
EXTRA_DIST += $(PAGE_FILES)
CLEANFILES += $(PAGE_BYTES)
BUILT_SOURCES += $(PAGE_BYTES)
psd/http/files.$(OBJEXT): $(PAGE_BYTES)
psd/http/page/%.inc: $(top_srcdir)/psd/http/page/%
	$(AM_V_GEN)$(MKDIR_P) psd/http/page && od -An -v -tx1 $< | sed 's/ *\([0-9a-f][0-9a-f]\)/0x\1,/g' >$@.tmp && mv $@.tmp $@

# psd: the core with gRPC around it.
# Users start it as well, in jobs of their own, and an ordinary PATH lacks sbin: it is installed in bin, as workerd is.
bin_PROGRAMS += psd/psd
dist_man_MANS += psd/psd.8
psd_psd_SOURCES = \
	psd/main.c \
	psd/options.c psd/options.h \
	psd/http/ask.c psd/http/ask.h \
	psd/http/http.c psd/http/http.h \
	psd/http/view.c psd/http/view.h \
	psd/rpc/descriptors.c psd/rpc/descriptors.h \
	psd/rpc/health.c psd/rpc/health.h \
	psd/rpc/reflection.c psd/rpc/reflection.h \
	psd/rpc/rpc.c psd/rpc/rpc.h
psd_psd_LDADD = libpsdcore.la libpscluster.la libpshttp.la libpsrpc.la libcommon.la libstandardproto.la $(UV_LIBS) $(GRPC_LIBS) -lm

FUZZ_TARGETS += tests/fuzz/fuzz_rpc
tests_fuzz_fuzz_rpc_SOURCES = tests/fuzz/fuzz_rpc.c tests/fuzz/rpc_requests.c tests/fuzz/rpc_requests.h \
	common/rpc/method.c common/rpc/method.h
tests_fuzz_fuzz_rpc_CFLAGS = $(AM_CFLAGS)
tests_fuzz_fuzz_rpc_LDADD = libpsdcore.la $(LDADD)

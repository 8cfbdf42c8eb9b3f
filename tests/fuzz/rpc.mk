FUZZ_TARGETS += tests/fuzz/fuzz_rpc
tests_fuzz_fuzz_rpc_SOURCES = tests/fuzz/fuzz_rpc.c tests/fuzz/rpc_requests.c tests/fuzz/rpc_requests.h
tests_fuzz_fuzz_rpc_LDADD = libpsdcore.la $(LDADD)

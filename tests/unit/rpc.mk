check_PROGRAMS += tests/unit/test_rpc
TESTS += tests/unit/test_rpc
tests_unit_test_rpc_SOURCES = tests/unit/test_rpc.c
tests_unit_test_rpc_LDADD = libworkerproto.la libpsrpc.la libcommon.la $(CMOCKA_LIBS)

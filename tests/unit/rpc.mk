check_PROGRAMS += tests/unit/test_rpc
TESTS += tests/unit/test_rpc
tests_unit_test_rpc_SOURCES = tests/unit/hearing.h tests/unit/test_rpc.c
tests_unit_test_rpc_LDADD = libworkerproto.la libpsrpc.la libcommon.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_tls
TESTS += tests/unit/test_tls
tests_unit_test_tls_SOURCES = tests/unit/test_tls.c
tests_unit_test_tls_LDADD = libpsctl.la libpscluster.la libpsrpc.la libcommon.la libproto.la $(CMOCKA_LIBS) $(OPENSSL_LIBS)

check_PROGRAMS += tests/unit/test_munge
TESTS += tests/unit/test_munge
tests_unit_test_munge_SOURCES = tests/unit/test_munge.c
tests_unit_test_munge_LDADD = libpscluster.la libpsrpc.la libcommon.la libproto.la $(CMOCKA_LIBS)
tests_unit_test_munge_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=getpwuid_r

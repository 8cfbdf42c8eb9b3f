check_PROGRAMS += tests/unit/test_client tests/unit/test_client_ops tests/unit/test_cluster
TESTS += tests/unit/test_client tests/unit/test_client_ops tests/unit/test_cluster
fake_ps_sources = tests/unit/client_bench.h tests/unit/fake_ps.c tests/unit/fake_ps.h tests/unit/fake_data.c \
	tests/unit/fake_inside.h
tests_unit_test_client_SOURCES = tests/unit/test_client.c $(fake_ps_sources)
tests_unit_test_client_LDADD = libpscore.la $(CMOCKA_LIBS)
tests_unit_test_client_ops_SOURCES = tests/unit/test_client_ops.c $(fake_ps_sources)
tests_unit_test_client_ops_LDADD = libpscore.la $(CMOCKA_LIBS) -lm
tests_unit_test_cluster_SOURCES = tests/unit/test_cluster.c
tests_unit_test_cluster_LDADD = libpscore.la $(CMOCKA_LIBS)

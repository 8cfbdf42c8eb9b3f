check_PROGRAMS += tests/unit/test_client tests/unit/test_cluster
TESTS += tests/unit/test_client tests/unit/test_cluster
tests_unit_test_client_SOURCES = tests/unit/test_client.c tests/unit/fake_ps.c tests/unit/fake_ps.h
tests_unit_test_client_LDADD = libpscore.la $(CMOCKA_LIBS)
tests_unit_test_cluster_SOURCES = tests/unit/test_cluster.c
tests_unit_test_cluster_LDADD = libpscore.la $(CMOCKA_LIBS)
tests_unit_test_cluster_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=calloc,--wrap=realloc,--wrap=malloc,--wrap=strdup,--wrap=strndup

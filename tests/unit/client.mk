client_tests = tests/unit/test_client tests/unit/test_client_memory tests/unit/test_client_ops \
	tests/unit/test_client_threads tests/unit/test_cluster
check_PROGRAMS += $(client_tests)
TESTS += $(client_tests)
fake_ps_sources = tests/unit/client_bench.h tests/unit/fake_ps.c tests/unit/fake_ps.h tests/unit/fake_data.c \
	tests/unit/fake_inside.h
tests_unit_test_client_SOURCES = tests/unit/test_client.c $(fake_ps_sources)
tests_unit_test_client_LDADD = libpscore.la $(CMOCKA_LIBS)
tests_unit_test_client_memory_SOURCES = tests/unit/test_client_memory.c $(fake_ps_sources)
tests_unit_test_client_memory_LDADD = libpscore.la $(CMOCKA_LIBS)
tests_unit_test_client_memory_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=ps_try_alloc -Wl,--wrap=ps_try_alloc_array \
	-Wl,--wrap=ps_try_realloc -Wl,--wrap=ps_try_strdup
tests_unit_test_client_ops_SOURCES = tests/unit/test_client_ops.c $(fake_ps_sources)
tests_unit_test_client_ops_LDADD = libpscore.la $(CMOCKA_LIBS) -lm
tests_unit_test_client_threads_SOURCES = tests/unit/test_client_threads.c $(fake_ps_sources)
tests_unit_test_client_threads_LDADD = libpscore.la $(CMOCKA_LIBS)
tests_unit_test_cluster_SOURCES = tests/unit/test_cluster.c
tests_unit_test_cluster_LDADD = libpscore.la $(CMOCKA_LIBS)
tests_unit_test_cluster_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=calloc,--wrap=realloc,--wrap=malloc,--wrap=strdup,--wrap=strndup

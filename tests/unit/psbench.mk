check_PROGRAMS += tests/unit/test_psbench
TESTS += tests/unit/test_psbench
tests_unit_test_psbench_SOURCES = tests/unit/test_psbench.c
tests_unit_test_psbench_LDADD = libpsbench.la $(CMOCKA_LIBS)

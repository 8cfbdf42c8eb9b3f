check_PROGRAMS += tests/unit/test_trace_sum
TESTS += tests/unit/test_trace_sum
tests_unit_test_trace_sum_SOURCES = tests/unit/test_trace_sum.c
tests_unit_test_trace_sum_LDADD = libpsctl.la $(CMOCKA_LIBS)

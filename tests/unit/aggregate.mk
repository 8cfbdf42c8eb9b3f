check_PROGRAMS += tests/unit/test_aggregate
TESTS += tests/unit/test_aggregate
tests_unit_test_aggregate_SOURCES = tests/unit/test_aggregate.c
tests_unit_test_aggregate_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_aggregate_LDADD = libcommon.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_log
TESTS += tests/unit/test_log
tests_unit_test_log_SOURCES = tests/unit/test_log.c
tests_unit_test_log_LDADD = libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS)

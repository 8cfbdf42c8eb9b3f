check_PROGRAMS += tests/unit/test_output
TESTS += tests/unit/test_output
tests_unit_test_output_SOURCES = tests/unit/test_output.c
tests_unit_test_output_LDADD = libcommon.la $(CMOCKA_LIBS)

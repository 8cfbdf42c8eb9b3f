check_PROGRAMS += tests/unit/test_encoding
TESTS += tests/unit/test_encoding
tests_unit_test_encoding_SOURCES = tests/unit/test_encoding.c
tests_unit_test_encoding_LDADD = libcommon.la $(CMOCKA_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_data
TESTS += tests/unit/test_data
tests_unit_test_data_SOURCES = tests/unit/test_data.c
tests_unit_test_data_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_data_LDADD = libwkdata.la $(CMOCKA_LIBS) $(ZLIB_LIBS)
endif

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_data tests/unit/test_data_files tests/unit/test_data_kinds
TESTS += tests/unit/test_data tests/unit/test_data_files tests/unit/test_data_kinds
tests_unit_test_data_SOURCES = tests/unit/data_files.h tests/unit/test_data.c
tests_unit_test_data_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_data_LDADD = libwkdata.la $(CMOCKA_LIBS) $(ZLIB_LIBS)
tests_unit_test_data_files_SOURCES = tests/unit/data_files.h tests/unit/test_data_files.c
tests_unit_test_data_files_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_data_files_LDADD = libwkdata.la $(CMOCKA_LIBS) $(ZLIB_LIBS)
tests_unit_test_data_kinds_SOURCES = tests/unit/data_files.h tests/unit/test_data_kinds.c
tests_unit_test_data_kinds_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_data_kinds_LDADD = libwkdata.la $(CMOCKA_LIBS) $(ZLIB_LIBS)
EXTRA_DIST += tests/golden/data
endif

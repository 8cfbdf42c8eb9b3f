check_PROGRAMS += tests/unit/test_table
TESTS += tests/unit/test_table
tests_unit_test_table_SOURCES = tests/unit/test_table.c
tests_unit_test_table_LDADD = libpsctl.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_group
TESTS += tests/unit/test_group
tests_unit_test_group_SOURCES = tests/unit/test_group.c
tests_unit_test_group_LDADD = libpsctl.la $(CMOCKA_LIBS)

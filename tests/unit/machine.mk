check_PROGRAMS += tests/unit/test_machine
TESTS += tests/unit/test_machine
tests_unit_test_machine_SOURCES = tests/unit/test_machine.c
tests_unit_test_machine_LDADD = libcommon.la $(CMOCKA_LIBS)

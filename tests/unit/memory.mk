check_PROGRAMS += tests/unit/test_memory
TESTS += tests/unit/test_memory
tests_unit_test_memory_SOURCES = tests/unit/test_memory.c
tests_unit_test_memory_LDADD = libcommon.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_lock
TESTS += tests/unit/test_lock
tests_unit_test_lock_SOURCES = tests/unit/test_lock.c
tests_unit_test_lock_LDADD = libcommon.la $(CMOCKA_LIBS)

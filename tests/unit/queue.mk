check_PROGRAMS += tests/unit/test_queue
TESTS += tests/unit/test_queue
tests_unit_test_queue_SOURCES = tests/unit/test_queue.c
tests_unit_test_queue_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_queue_LDADD = libpsdqueue.la libcommon.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_psd_queue
TESTS += tests/unit/test_psd_queue
tests_unit_test_psd_queue_SOURCES = tests/unit/test_psd_queue.c $(psd_job_sources)
tests_unit_test_psd_queue_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_psd_queue_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

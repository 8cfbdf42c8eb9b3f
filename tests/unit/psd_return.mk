check_PROGRAMS += tests/unit/test_psd_return
TESTS += tests/unit/test_psd_return
tests_unit_test_psd_return_SOURCES = tests/unit/test_psd_return.c $(psd_job_sources)
tests_unit_test_psd_return_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_psd_return_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

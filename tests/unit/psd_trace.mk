check_PROGRAMS += tests/unit/test_psd_trace
TESTS += tests/unit/test_psd_trace
tests_unit_test_psd_trace_SOURCES = tests/unit/test_psd_trace.c $(psd_job_sources)
tests_unit_test_psd_trace_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_psd_trace_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

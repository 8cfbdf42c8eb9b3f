check_PROGRAMS += tests/unit/test_psd_session
TESTS += tests/unit/test_psd_session
tests_unit_test_psd_session_SOURCES = tests/unit/test_psd_session.c $(psd_job_sources)
tests_unit_test_psd_session_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_psd_session_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

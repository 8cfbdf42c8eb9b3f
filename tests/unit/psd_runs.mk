check_PROGRAMS += tests/unit/test_psd_runs
TESTS += tests/unit/test_psd_runs
tests_unit_test_psd_runs_SOURCES = tests/unit/test_psd_runs.c tests/messages.h tests/unit/psd_cluster.h tests/unit/psd_core.h
tests_unit_test_psd_runs_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_psd_runs_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

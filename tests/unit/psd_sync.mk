check_PROGRAMS += tests/unit/test_psd_sync
TESTS += tests/unit/test_psd_sync
tests_unit_test_psd_sync_SOURCES = tests/unit/test_psd_sync.c tests/messages.h tests/unit/psd_cluster.h tests/unit/psd_core.h
tests_unit_test_psd_sync_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_psd_sync_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS) -lm

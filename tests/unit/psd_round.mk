check_PROGRAMS += tests/unit/test_psd_round
TESTS += tests/unit/test_psd_round
tests_unit_test_psd_round_SOURCES = tests/unit/test_psd_round.c tests/messages.h tests/unit/psd_cluster.h tests/unit/psd_core.h
tests_unit_test_psd_round_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_psd_round_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS) -lm

check_PROGRAMS += tests/unit/test_psd
TESTS += tests/unit/test_psd
tests_unit_test_psd_SOURCES = tests/unit/test_psd.c tests/messages.h tests/unit/psd_core.h
tests_unit_test_psd_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_psd_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

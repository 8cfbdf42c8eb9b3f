check_PROGRAMS += tests/unit/test_timeline
TESTS += tests/unit/test_timeline
tests_unit_test_timeline_SOURCES = tests/unit/test_timeline.c
tests_unit_test_timeline_LDADD = libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS) -lpthread

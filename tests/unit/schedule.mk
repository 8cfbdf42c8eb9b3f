check_PROGRAMS += tests/unit/test_schedule
TESTS += tests/unit/test_schedule
tests_unit_test_schedule_SOURCES = tests/unit/test_schedule.c tests/golden/schedules.h
tests_unit_test_schedule_LDADD = libcommon.la $(CMOCKA_LIBS) -lm

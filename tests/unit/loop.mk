check_PROGRAMS += tests/unit/test_loop
TESTS += tests/unit/test_loop
tests_unit_test_loop_SOURCES = tests/unit/hearing.h tests/unit/test_loop.c $(workerd_job) workerd/strategy/weights.c
tests_unit_test_loop_LDADD = libwkweights.la libwkdata.la libwkvariables.la libnnreplica.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS) -lm
tests_unit_test_loop_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=ps_now

check_PROGRAMS += tests/unit/test_callbacks
TESTS += tests/unit/test_callbacks
tests_unit_test_callbacks_SOURCES = tests/unit/test_callbacks.c $(workerd_job) workerd/strategy/weights.c
tests_unit_test_callbacks_LDADD = $(tests_unit_test_loop_LDADD)

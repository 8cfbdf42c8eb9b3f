check_PROGRAMS += tests/unit/test_epoch
TESTS += tests/unit/test_epoch
tests_unit_test_epoch_SOURCES = tests/unit/test_epoch.c $(workerd_job) workerd/strategy/weights.c
tests_unit_test_epoch_LDADD = libwkweights.la libwkdata.la libwkvariables.la libnnreplica.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS) -lm -lpthread

check_PROGRAMS += tests/unit/test_metrics
TESTS += tests/unit/test_metrics
tests_unit_test_metrics_SOURCES = tests/unit/nn_files.h tests/unit/test_metrics.c
tests_unit_test_metrics_LDADD = libwkvariables.la libnnreplica.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS) -lm
EXTRA_DIST += tests/golden/make_metrics.py tests/golden/metrics.json

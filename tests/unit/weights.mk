check_PROGRAMS += tests/unit/test_weights
TESTS += tests/unit/test_weights
tests_unit_test_weights_SOURCES = tests/unit/test_weights.c workerd/strategy/checkpoint.c workerd/strategy/weights.c
tests_unit_test_weights_LDADD = libwkweights.la libnnreplica.la libjob.la libcommon.la $(CMOCKA_LIBS)

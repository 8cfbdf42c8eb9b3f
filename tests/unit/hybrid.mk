check_PROGRAMS += tests/unit/test_hybrid
TESTS += tests/unit/test_hybrid
tests_unit_test_hybrid_SOURCES = tests/unit/hearing.h tests/unit/test_hybrid.c workerd/strategy/hybrid.c
tests_unit_test_hybrid_LDADD = libwkvariables.la libnnreplica.la libjob.la libcommon.la $(CMOCKA_LIBS)

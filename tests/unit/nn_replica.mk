check_PROGRAMS += tests/unit/test_nn_replica
TESTS += tests/unit/test_nn_replica
tests_unit_test_nn_replica_SOURCES = tests/unit/nn_files.h tests/unit/test_nn_replica.c
tests_unit_test_nn_replica_LDADD = libnnreplica.la libcommon.la $(CMOCKA_LIBS)

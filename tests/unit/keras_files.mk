check_PROGRAMS += tests/unit/test_keras_files
TESTS += tests/unit/test_keras_files
tests_unit_test_keras_files_SOURCES = tests/unit/test_keras_files.c tests/unit/nn_files.h workerd/strategy/checkpoint.c workerd/strategy/weights.c
tests_unit_test_keras_files_LDADD = libwkweights.la libnnreplica.la libjob.la libpszip.la libcommon.la $(CMOCKA_LIBS)
EXTRA_DIST += tests/golden/make_keras_files.py tests/golden/keras_files

check_PROGRAMS += tests/unit/test_nn_model
TESTS += tests/unit/test_nn_model
tests_unit_test_nn_model_SOURCES = tests/unit/nn_files.h tests/unit/test_nn_model.c
tests_unit_test_nn_model_LDADD = libnnmodel.la libcommon.la $(CMOCKA_LIBS)
EXTRA_DIST += tests/golden/cnn_keras2.json tests/golden/cnn_keras3.json

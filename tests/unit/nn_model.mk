check_PROGRAMS += test_nn_model test_nn_replica
TESTS += test_nn_model test_nn_replica
test_nn_model_SOURCES = tests/unit/test_nn_model.c
test_nn_model_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
test_nn_model_LDADD = libnnmodel.la libcommon.la $(CMOCKA_LIBS) $(JANSSON_LIBS) -lm
test_nn_replica_SOURCES = tests/unit/test_nn_replica.c
test_nn_replica_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
test_nn_replica_LDADD = libnnmodel.la libnnops.la libcommon.la $(CMOCKA_LIBS) -lm
EXTRA_DIST += \
	tests/golden/cnn_keras2.json tests/golden/cnn_keras3.json tests/golden/make_keras.py \
	tests/golden/tiny_conv.json tests/golden/tiny_conv.safetensors

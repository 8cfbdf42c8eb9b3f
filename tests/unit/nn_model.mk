check_PROGRAMS += tests/unit/test_nn_model
TESTS += tests/unit/test_nn_model
tests_unit_test_nn_model_SOURCES = tests/unit/nn_files.h tests/unit/test_nn_model.c
tests_unit_test_nn_model_LDADD = libnnmodel.la libcommon.la $(CMOCKA_LIBS)
EXTRA_DIST += \
	tests/golden/cnn_keras2.json tests/golden/cnn_keras3.json tests/golden/make_keras.py \
	tests/golden/tiny_conv.json tests/golden/tiny_conv.safetensors \
	tests/golden/trained_softmax.json tests/golden/trained_softmax.safetensors \
	tests/golden/trained_softmax_flatten.json tests/golden/trained_softmax_flatten.safetensors \
	tests/golden/trained_softmax_layer.json tests/golden/trained_softmax_layer.safetensors \
	tests/golden/trained_softmax_mse.json tests/golden/trained_softmax_mse.safetensors \
	tests/golden/trained_strided.json tests/golden/trained_strided.safetensors

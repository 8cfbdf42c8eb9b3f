check_PROGRAMS += tests/unit/test_nn_ops tests/unit/test_nn_gradients
TESTS += tests/unit/test_nn_ops tests/unit/test_nn_gradients

tests_unit_test_nn_ops_SOURCES = tests/unit/test_nn_ops.c
tests_unit_test_nn_ops_LDADD = libnn.la libcommon.la $(CMOCKA_LIBS)

# The reference once more, in double precision and under a name of its own: nothing else of libnn fits it.
tests_unit_test_nn_gradients_SOURCES = tests/unit/test_nn_gradients.c \
	workerd/nn/loss.c workerd/nn/op.c workerd/nn/ref.c
tests_unit_test_nn_gradients_CPPFLAGS = $(AM_CPPFLAGS) -DNN_REAL=double -Dnn_ref_ops=nn_ref_ops_double
tests_unit_test_nn_gradients_LDADD = libcommon.la $(CMOCKA_LIBS) -lm

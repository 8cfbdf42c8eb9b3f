nn_ops_cases = tests/unit/nn_cases.h \
	tests/unit/nn_ops/basics.h \
	tests/unit/nn_ops/compare.h \
	tests/unit/nn_ops/families.h \
	tests/unit/nn_ops/fused.h \
	tests/unit/nn_ops/larger.h \
	tests/unit/nn_ops/norm.h \
	tests/unit/nn_ops/pointwise.h \
	tests/unit/nn_ops/rounded.h \
	tests/unit/nn_ops/sequence.h \
	tests/unit/nn_ops/shape.h \
	tests/unit/nn_ops/spatial.h
check_PROGRAMS += tests/unit/test_nn_ops tests/unit/test_nn_gradients
TESTS += tests/unit/test_nn_ops tests/unit/test_nn_gradients

tests_unit_test_nn_ops_SOURCES = $(nn_ops_cases) tests/unit/test_nn_ops.c
tests_unit_test_nn_ops_LDADD = libnn.la libcommon.la $(CMOCKA_LIBS)

# The operators and their references once more, in double precision: nothing else of libnn fits them.
tests_unit_test_nn_gradients_SOURCES = $(nn_ops_cases) tests/unit/test_nn_gradients.c $(libnnops_la_SOURCES) $(nn_program_sources)
tests_unit_test_nn_gradients_CPPFLAGS = $(AM_CPPFLAGS) -DNN_REAL=double
tests_unit_test_nn_gradients_LDADD = libloss.la libcommon.la $(CMOCKA_LIBS) -lm

FUZZ_TARGETS += tests/fuzz/fuzz_keras tests/fuzz/fuzz_model tests/fuzz/fuzz_weights
tests_fuzz_fuzz_keras_LDADD = libwkweights.la libnnmodel.la libpszip.la $(LDADD)
tests_fuzz_fuzz_model_LDADD = libnnmodel.la $(LDADD)
tests_fuzz_fuzz_weights_SOURCES = tests/fuzz/fuzz_weights.c workerd/strategy/checkpoint.c workerd/strategy/weights.c
tests_fuzz_fuzz_weights_LDADD = libwkweights.la libnnreplica.la libjob.la $(LDADD)

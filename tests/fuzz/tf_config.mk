FUZZ_TARGETS += tests/fuzz/fuzz_tf_config
tests_fuzz_fuzz_tf_config_LDADD = libpscore.la $(LDADD)

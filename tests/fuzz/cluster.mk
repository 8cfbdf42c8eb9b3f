FUZZ_TARGETS += tests/fuzz/fuzz_cluster
tests_fuzz_fuzz_cluster_LDADD = libpscore.la $(LDADD)

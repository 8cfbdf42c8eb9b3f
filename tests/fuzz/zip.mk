FUZZ_TARGETS += tests/fuzz/fuzz_zip
tests_fuzz_fuzz_zip_LDADD = libpszip.la $(LDADD)

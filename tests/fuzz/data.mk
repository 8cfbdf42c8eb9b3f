FUZZ_TARGETS += tests/fuzz/fuzz_csv tests/fuzz/fuzz_idx tests/fuzz/fuzz_npy
tests_fuzz_fuzz_csv_LDADD = libwkdata.la $(LDADD)
tests_fuzz_fuzz_idx_LDADD = libwkdata.la $(LDADD)
tests_fuzz_fuzz_npy_LDADD = libwkdata.la $(LDADD)

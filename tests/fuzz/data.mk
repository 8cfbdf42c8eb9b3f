FUZZ_TARGETS += tests/fuzz/fuzz_csv tests/fuzz/fuzz_idx tests/fuzz/fuzz_npy tests/fuzz/fuzz_image tests/fuzz/fuzz_text tests/fuzz/fuzz_tfrecord
tests_fuzz_fuzz_csv_LDADD = libwkdata.la $(LDADD)
tests_fuzz_fuzz_idx_LDADD = libwkdata.la $(LDADD)
tests_fuzz_fuzz_npy_LDADD = libwkdata.la $(LDADD)
tests_fuzz_fuzz_image_LDADD = libwkdata.la $(LDADD)
tests_fuzz_fuzz_text_LDADD = libwkdata.la $(LDADD)
tests_fuzz_fuzz_tfrecord_LDADD = libwkdata.la $(LDADD)

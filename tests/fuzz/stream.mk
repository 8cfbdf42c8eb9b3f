FUZZ_TARGETS += tests/fuzz/fuzz_stream

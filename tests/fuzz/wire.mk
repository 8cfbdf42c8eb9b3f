FUZZ_TARGETS += tests/fuzz/fuzz_wire

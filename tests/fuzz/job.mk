FUZZ_TARGETS += tests/fuzz/fuzz_job
tests_fuzz_fuzz_job_LDADD = libjob.la $(LDADD)

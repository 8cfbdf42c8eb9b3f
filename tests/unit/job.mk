check_PROGRAMS += tests/unit/test_job
TESTS += tests/unit/test_job
tests_unit_test_job_SOURCES = tests/unit/test_job.c
tests_unit_test_job_LDADD = libjob.la libcommon.la $(CMOCKA_LIBS)

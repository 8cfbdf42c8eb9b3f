check_PROGRAMS += tests/unit/test_resume
TESTS += tests/unit/test_resume
tests_unit_test_resume_SOURCES = tests/unit/test_resume.c $(workerd_job) workerd/strategy/one_device.c workerd/strategy/weights.c
tests_unit_test_resume_LDADD = libwkweights.la libwkdata.la libwkvariables.la libnnreplica.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS) -lm

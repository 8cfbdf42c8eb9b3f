check_PROGRAMS += tests/unit/test_resume
TESTS += tests/unit/test_resume
tests_unit_test_resume_SOURCES = tests/unit/test_resume.c $(workerd_job) $(workerd_one_device)
tests_unit_test_resume_LDADD = libwkweights.la libwkdata.la libwkvariables.la libnnreplica.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS) -lm

check_PROGRAMS += tests/unit/test_event
TESTS += tests/unit/test_event
tests_unit_test_event_SOURCES = tests/unit/test_event.c workerd/job/callbacks/event.c workerd/job/callbacks/event.h \
	workerd/job/callbacks/picture.c
tests_unit_test_event_LDADD = libnnmodel.la libcommon.la $(CMOCKA_LIBS) $(ZLIB_LIBS) -lm

check_PROGRAMS += tests/unit/test_progress
TESTS += tests/unit/test_progress
tests_unit_test_progress_SOURCES = tests/unit/test_progress.c workerd/job/figures.c workerd/job/figures.h workerd/job/progress.c workerd/job/progress.h
tests_unit_test_progress_LDADD = libwkdata.la libwkvariables.la libnnreplica.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS) -lm
tests_unit_test_progress_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=ps_now

check_PROGRAMS += tests/unit/test_recovery
TESTS += tests/unit/test_recovery
tests_unit_test_recovery_SOURCES = tests/unit/test_recovery.c workerd/job/recovery.c workerd/job/recovery.h
tests_unit_test_recovery_LDADD = libcommon.la $(CMOCKA_LIBS)

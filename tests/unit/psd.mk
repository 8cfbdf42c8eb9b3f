check_PROGRAMS += tests/unit/test_psd tests/unit/test_psd_control tests/unit/test_psd_data tests/unit/test_psd_members
TESTS += tests/unit/test_psd tests/unit/test_psd_control tests/unit/test_psd_data tests/unit/test_psd_members

psd_job_sources = tests/messages.h tests/unit/psd_core.h tests/unit/psd_job.h

tests_unit_test_psd_SOURCES = tests/unit/test_psd.c $(psd_job_sources)
tests_unit_test_psd_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_psd_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

tests_unit_test_psd_control_SOURCES = tests/unit/test_psd_control.c $(psd_job_sources)
tests_unit_test_psd_control_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_psd_control_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

tests_unit_test_psd_members_SOURCES = tests/unit/test_psd_members.c $(psd_job_sources)
tests_unit_test_psd_members_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_psd_members_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS) -lm

tests_unit_test_psd_data_SOURCES = tests/unit/test_psd_data.c tests/unit/psd_store.h $(psd_job_sources)
tests_unit_test_psd_data_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
# So that it may have an allocation fail, and something happen just before an update begins.
tests_unit_test_psd_data_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=pthread_rwlock_rdlock,--wrap=pthread_rwlock_wrlock
tests_unit_test_psd_data_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_psd_shards
TESTS += tests/unit/test_psd_shards
tests_unit_test_psd_shards_SOURCES = tests/unit/test_psd_shards.c tests/unit/psd_store.h $(psd_job_sources)
tests_unit_test_psd_shards_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_psd_shards_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

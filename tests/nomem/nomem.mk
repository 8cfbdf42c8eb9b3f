# Every allocation fails once: see tests/nomem/nomem.h. NOMEM_FULL=1: more of it.
check_PROGRAMS += tests/nomem/test_nomem_psd tests/nomem/test_nomem_job tests/nomem/test_nomem_queue tests/nomem/test_nomem_rpc
TESTS += tests/nomem/test_nomem_psd tests/nomem/test_nomem_job tests/nomem/test_nomem_queue tests/nomem/test_nomem_rpc
nomem_ldflags = $(AM_LDFLAGS) \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=posix_memalign \
	-Wl,--wrap=strdup,--wrap=strndup,--wrap=free,--wrap=mmap,--wrap=munmap \
	-Wl,--wrap=ps_alloc,--wrap=ps_realloc,--wrap=ps_strdup
nomem_sources = tests/nomem/nomem.c tests/nomem/nomem.h

tests_nomem_test_nomem_psd_SOURCES = tests/nomem/test_nomem_psd.c $(nomem_sources) tests/unit/psd_cluster.h \
	tests/unit/psd_core.h tests/messages.h
tests_nomem_test_nomem_psd_LDFLAGS = $(nomem_ldflags)
tests_nomem_test_nomem_psd_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

tests_nomem_test_nomem_job_SOURCES = tests/nomem/test_nomem_job.c $(nomem_sources) tests/sim/sim.c tests/sim/sim.h
tests_nomem_test_nomem_job_LDFLAGS = $(nomem_ldflags)
tests_nomem_test_nomem_job_LDADD = libpsdcore.la libpscore.la libcommon.la $(YAML_LIBS) $(CMOCKA_LIBS)

tests_nomem_test_nomem_rpc_SOURCES = tests/nomem/test_nomem_rpc.c $(nomem_sources) tests/it/call.h tests/messages.h
tests_nomem_test_nomem_rpc_LDFLAGS = $(nomem_ldflags)
tests_nomem_test_nomem_rpc_LDADD = libpsrpc.la libcommon.la $(CMOCKA_LIBS)

tests_nomem_test_nomem_queue_SOURCES = tests/nomem/test_nomem_queue.c $(nomem_sources)
tests_nomem_test_nomem_queue_LDFLAGS = $(nomem_ldflags)
tests_nomem_test_nomem_queue_LDADD = libpsdqueue.la libcommon.la $(CMOCKA_LIBS)

# A cluster in one process. Nothing here knows gRPC.
check_PROGRAMS += tests/sim/test_sim
TESTS += tests/sim/test_sim
tests_sim_test_sim_SOURCES = tests/sim/sim.c tests/sim/sim.h tests/sim/test_sim.c tests/sim/worker.c tests/sim/worker.h
tests_sim_test_sim_LDADD = libpsdcore.la libpscore.la libcommon.la $(YAML_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/sim/test_chaos
TESTS += tests/sim/test_chaos
tests_sim_test_chaos_SOURCES = tests/sim/sim.c tests/sim/sim.h tests/sim/test_chaos.c tests/sim/trainer.c tests/sim/trainer.h \
	tests/sim/coverage.c tests/sim/coverage.h tests/sim/features.c tests/sim/features.h \
	tests/sim/long_read.c tests/sim/long_read.h
tests_sim_test_chaos_LDADD = libpsdcore.la libpscore.la libcommon.la $(YAML_LIBS) $(CMOCKA_LIBS)

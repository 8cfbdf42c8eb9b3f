check_PROGRAMS += tests/unit/test_parameter_server
TESTS += tests/unit/test_parameter_server
tests_unit_test_parameter_server_SOURCES = tests/unit/hearing.h tests/unit/test_parameter_server.c workerd/strategy/checkpoint.c \
	workerd/strategy/examples.c workerd/strategy/history.c workerd/strategy/local_rule.c workerd/strategy/local_steps.c workerd/strategy/losses.c \
	workerd/strategy/parameter_server.c workerd/strategy/psd_checkpoint.c workerd/strategy/psd_home.c \
	workerd/strategy/psd_job.c workerd/strategy/psd_signal.c workerd/strategy/weights.c
tests_unit_test_parameter_server_LDADD = libwkweights.la libwkvariables.la libnnreplica.la libjob.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_parameter_server_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=ps_try_alloc_array

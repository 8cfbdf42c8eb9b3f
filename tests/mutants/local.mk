# psd, libclient and the trainer, broken on purpose: a handful in `make check`, all by `make mutants`.
check_DATA = tests/mutants/flags
tests/mutants/flags: Makefile
	@$(MKDIR_P) tests/mutants
	@{ echo "CPPFLAGS='$(DEFS) -I$(abs_top_builddir) -I$(abs_top_srcdir) -D_GNU_SOURCE $(PROTOBUF_C_CFLAGS) $(JANSSON_CFLAGS) $(YAML_CFLAGS) $(CPPFLAGS)'"; \
	echo "CFLAGS='$(AM_CFLAGS) $(CFLAGS)'"; \
	echo "LIBS='$(LDFLAGS) $(CMOCKA_LIBS) $(YAML_LIBS) $(PROTOBUF_C_LIBS) $(JANSSON_LIBS) $(DNNL_LIBS) $(HDF5_LIBS) $(ZLIB_LIBS) $(GRPC_LIBS) $(OPENSSL_LIBS) $(MUNGE_LIBS) $(UV_LIBS) -lgomp -lm -lpthread'"; } >$@

PLAIN_TESTS += tests/mutants/run.sh
CLEANFILES += tests/mutants/flags
mutants_tests = tests/sim/test_chaos tests/sim/test_sim tests/unit/test_client tests/unit/test_client_ops tests/unit/test_psd \
	tests/unit/test_nn_ops tests/unit/test_nn_replica tests/unit/test_synchronized tests/unit/test_ring tests/unit/test_rounds tests/unit/test_bucket_order tests/unit/test_buckets tests/unit/test_hosts tests/unit/test_recovery tests/unit/test_tls tests/unit/test_collective tests/unit/test_mirrored tests/unit/test_parameter_server tests/unit/test_psd_control tests/unit/test_psd_data tests/unit/test_psd_members tests/unit/test_psd_return \
	tests/unit/test_psd_round tests/unit/test_psd_runs tests/unit/test_psd_session tests/unit/test_psd_sync tests/unit/test_psd_trace tests/unit/test_queue \
	tests/unit/test_keras tests/unit/test_metrics tests/unit/test_rule tests/unit/test_encoding tests/unit/test_schedule tests/unit/test_job
tests/mutants/run.log: $(mutants_tests)

mutants: $(mutants_tests) tests/mutants/flags
	@$(AM_TESTS_ENVIRONMENT) $(srcdir)/tests/mutants/run.sh all

# Each program is made of the one source that its name implies, unless it says otherwise.
unit_tests = tests/unit/test_cli tests/unit/test_client tests/unit/test_client_memory tests/unit/test_client_ops \
	tests/unit/test_client_threads tests/unit/test_cluster tests/unit/test_data tests/unit/test_data_files \
	tests/unit/test_data_kinds tests/unit/test_group tests/unit/test_http tests/unit/test_hybrid tests/unit/test_job \
	tests/unit/test_goldens tests/unit/test_keras_files tests/unit/test_epoch tests/unit/test_loop \
	tests/unit/test_callbacks tests/unit/test_log tests/unit/test_machine tests/unit/test_memory \
	tests/unit/test_metrics tests/unit/test_nn_model tests/unit/test_nn_ops tests/unit/test_nn_gradients \
	tests/unit/test_nn_replica tests/unit/test_synchronized tests/unit/test_keras tests/unit/test_one_device \
	tests/unit/test_resume tests/unit/test_event tests/unit/test_progress tests/unit/test_recovery \
	tests/unit/test_hosts tests/unit/test_ring tests/unit/test_collective tests/unit/test_mirrored \
	tests/unit/test_rounds tests/unit/test_bucket_order tests/unit/test_buckets tests/unit/test_weights \
	tests/unit/test_lock tests/unit/test_output tests/unit/test_parameter_server tests/unit/test_placement \
	tests/unit/test_probe tests/unit/test_psbench tests/unit/test_psd tests/unit/test_psd_control \
	tests/unit/test_psd_data tests/unit/test_psd_members tests/unit/test_psd_shards tests/unit/test_psd_round \
	tests/unit/test_psd_sync tests/unit/test_psd_return tests/unit/test_psd_session tests/unit/test_psd_trace \
	tests/unit/test_psd_runs tests/unit/test_psd_queue tests/unit/test_queue tests/unit/test_rpc tests/unit/test_tls \
	tests/unit/test_munge tests/unit/test_rule tests/unit/test_aggregate tests/unit/test_encoding \
	tests/unit/test_safetensors tests/unit/test_shards tests/unit/test_schedule tests/unit/test_table \
	tests/unit/test_wire tests/unit/test_timeline tests/unit/test_trace_sum tests/unit/test_zip
check_PROGRAMS += $(unit_tests)
TESTS += $(unit_tests)

tests_unit_test_cli_LDADD = libpsctl.la $(CMOCKA_LIBS)

fake_ps_sources = tests/unit/client_bench.h tests/unit/fake_ps.c tests/unit/fake_ps.h tests/unit/fake_data.c \
	tests/unit/fake_inside.h
tests_unit_test_client_SOURCES = tests/unit/test_client.c $(fake_ps_sources)
tests_unit_test_client_LDADD = libpscore.la $(CMOCKA_LIBS)
tests_unit_test_client_memory_SOURCES = tests/unit/test_client_memory.c $(fake_ps_sources)
tests_unit_test_client_memory_LDADD = libpscore.la $(CMOCKA_LIBS)
tests_unit_test_client_memory_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=ps_try_alloc -Wl,--wrap=ps_try_alloc_array \
	-Wl,--wrap=ps_try_realloc -Wl,--wrap=ps_try_strdup
tests_unit_test_client_ops_SOURCES = tests/unit/test_client_ops.c $(fake_ps_sources)
tests_unit_test_client_ops_LDADD = libpscore.la $(CMOCKA_LIBS) -lm
tests_unit_test_client_threads_SOURCES = tests/unit/test_client_threads.c $(fake_ps_sources)
tests_unit_test_client_threads_LDADD = libpscore.la $(CMOCKA_LIBS)
tests_unit_test_cluster_LDADD = libpscore.la $(CMOCKA_LIBS)
tests_unit_test_cluster_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=calloc,--wrap=realloc,--wrap=malloc,--wrap=strdup,--wrap=strndup

tests_unit_test_data_SOURCES = tests/unit/data_files.h tests/unit/test_data.c
tests_unit_test_data_LDADD = libwkdata.la $(CMOCKA_LIBS) $(ZLIB_LIBS)
tests_unit_test_data_files_SOURCES = tests/unit/data_files.h tests/unit/test_data_files.c
tests_unit_test_data_files_LDADD = libwkdata.la $(CMOCKA_LIBS) $(ZLIB_LIBS)
tests_unit_test_data_kinds_SOURCES = tests/unit/data_files.h tests/unit/test_data_kinds.c
tests_unit_test_data_kinds_LDADD = libwkdata.la $(CMOCKA_LIBS) $(ZLIB_LIBS)

tests_unit_test_group_LDADD = libpsctl.la $(CMOCKA_LIBS)

tests_unit_test_http_SOURCES = tests/unit/test_http.c \
	psd/http/history.c psd/http/history.h \
	psd/http/status.c psd/http/status.h psd/http/view.c psd/http/view.h
tests_unit_test_http_LDADD = libpssummary.la libpshttp.la libpsrpc.la libcommon.la libproto.la $(CMOCKA_LIBS) -lm

tests_unit_test_hybrid_SOURCES = tests/unit/hearing.h tests/unit/test_hybrid.c workerd/strategy/hybrid.c
tests_unit_test_hybrid_LDADD = libwkvariables.la libnnreplica.la libjob.la libcommon.la $(CMOCKA_LIBS)

tests_unit_test_job_LDADD = libjob.la libcommon.la $(CMOCKA_LIBS)

tests_unit_test_goldens_SOURCES = tests/unit/nn_files.h tests/unit/test_goldens.c
tests_unit_test_goldens_LDADD = libnnmodel.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS)

tests_unit_test_keras_files_SOURCES = tests/unit/test_keras_files.c tests/unit/nn_files.h workerd/strategy/checkpoint.c workerd/strategy/weights.c
tests_unit_test_keras_files_LDADD = libwkweights.la libnnreplica.la libjob.la libpszip.la libcommon.la $(CMOCKA_LIBS)

tests_unit_test_epoch_SOURCES = tests/unit/test_epoch.c $(workerd_job) workerd/strategy/weights.c
tests_unit_test_epoch_LDADD = libwkweights.la libwkdata.la libwkvariables.la libnnreplica.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS) -lm -lpthread

tests_unit_test_loop_SOURCES = tests/unit/hearing.h tests/unit/test_loop.c $(workerd_job) workerd/strategy/weights.c
tests_unit_test_loop_LDADD = libwkweights.la libwkdata.la libwkvariables.la libnnreplica.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS) -lm
tests_unit_test_loop_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=ps_now
tests_unit_test_callbacks_SOURCES = tests/unit/test_callbacks.c $(workerd_job) workerd/strategy/weights.c
tests_unit_test_callbacks_LDADD = $(tests_unit_test_loop_LDADD)

tests_unit_test_log_LDADD = libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS)

tests_unit_test_machine_LDADD = libcommon.la $(CMOCKA_LIBS)

tests_unit_test_memory_LDADD = libcommon.la $(CMOCKA_LIBS)

tests_unit_test_metrics_SOURCES = tests/unit/nn_files.h tests/unit/test_metrics.c
tests_unit_test_metrics_LDADD = libwkvariables.la libnnreplica.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS) -lm

tests_unit_test_nn_model_SOURCES = tests/unit/nn_files.h tests/unit/test_nn_model.c
tests_unit_test_nn_model_LDADD = libnnmodel.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS)

nn_ops_cases = tests/unit/nn_cases.h \
	tests/unit/nn_ops/basics.h \
	tests/unit/nn_ops/compare.h \
	tests/unit/nn_ops/families.h \
	tests/unit/nn_ops/fused.h \
	tests/unit/nn_ops/larger.h \
	tests/unit/nn_ops/norm.h \
	tests/unit/nn_ops/pointwise.h \
	tests/unit/nn_ops/rounded.h \
	tests/unit/nn_ops/sequence.h \
	tests/unit/nn_ops/shape.h \
	tests/unit/nn_ops/spatial.h
tests_unit_test_nn_ops_SOURCES = $(nn_ops_cases) tests/unit/test_nn_ops.c
tests_unit_test_nn_ops_LDADD = libnn.la libcommon.la $(CMOCKA_LIBS)
# The operators and their references once more, in double precision: nothing else of libnn fits them.
tests_unit_test_nn_gradients_SOURCES = $(nn_ops_cases) tests/unit/test_nn_gradients.c $(libnnops_la_SOURCES) $(nn_program_sources)
tests_unit_test_nn_gradients_CPPFLAGS = $(AM_CPPFLAGS) -DNN_REAL=double
tests_unit_test_nn_gradients_LDADD = libloss.la libcommon.la $(CMOCKA_LIBS) -lm

tests_unit_test_nn_replica_SOURCES = tests/unit/nn_files.h tests/unit/test_nn_replica.c
tests_unit_test_nn_replica_LDADD = libnnreplica.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS)
tests_unit_test_synchronized_LDADD = libnnreplica.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS)
tests_unit_test_keras_SOURCES = tests/unit/nn_files.h tests/unit/test_keras.c
tests_unit_test_keras_LDADD = libnnreplica.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS)

tests_unit_test_one_device_SOURCES = tests/unit/test_one_device.c workerd/strategy/checkpoint.c $(workerd_one_device)
tests_unit_test_one_device_LDADD = libwkweights.la libnnreplica.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS)
tests_unit_test_one_device_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=ps_try_alloc_array

tests_unit_test_resume_SOURCES = tests/unit/test_resume.c $(workerd_job) $(workerd_one_device)
tests_unit_test_resume_LDADD = libwkweights.la libwkdata.la libwkvariables.la libnnreplica.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS) -lm
tests_unit_test_event_SOURCES = tests/unit/test_event.c workerd/job/callbacks/event.c workerd/job/callbacks/event.h \
	workerd/job/callbacks/picture.c
tests_unit_test_event_LDADD = libnnmodel.la libcommon.la $(CMOCKA_LIBS) $(ZLIB_LIBS) -lm
tests_unit_test_progress_SOURCES = tests/unit/test_progress.c workerd/job/figures.c workerd/job/figures.h workerd/job/progress.c workerd/job/progress.h
tests_unit_test_progress_LDADD = libwkdata.la libwkvariables.la libnnreplica.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS) -lm
tests_unit_test_progress_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=ps_now
tests_unit_test_recovery_SOURCES = tests/unit/test_recovery.c workerd/job/recovery.c workerd/job/recovery.h
tests_unit_test_recovery_LDADD = libcommon.la $(CMOCKA_LIBS)

tests_unit_test_hosts_LDADD = libwkring.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_ring_LDADD = libwkring.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_collective_LDADD = libwkcollective.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_mirrored_SOURCES = tests/unit/test_mirrored.c workerd/strategy/checkpoint.c \
	workerd/strategy/bucket_order.c workerd/strategy/buckets.c workerd/strategy/device_sums.c workerd/strategy/local_rule.c workerd/strategy/mirrored.c workerd/strategy/rounds.c workerd/strategy/weights.c
tests_unit_test_mirrored_LDADD = libwkweights.la libwkcollective.la libnnreplica.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS)
tests_unit_test_rounds_SOURCES = tests/unit/test_rounds.c workerd/strategy/rounds.c
tests_unit_test_rounds_LDADD = libcommon.la $(CMOCKA_LIBS)
tests_unit_test_bucket_order_SOURCES = tests/unit/test_bucket_order.c workerd/strategy/bucket_order.c
tests_unit_test_bucket_order_LDADD = libcommon.la $(CMOCKA_LIBS) -lm
tests_unit_test_buckets_SOURCES = tests/unit/test_buckets.c workerd/strategy/bucket_order.c workerd/strategy/buckets.c workerd/strategy/rounds.c
tests_unit_test_buckets_LDADD = libcommon.la $(CMOCKA_LIBS)

tests_unit_test_weights_SOURCES = tests/unit/test_weights.c workerd/strategy/checkpoint.c workerd/strategy/weights.c
tests_unit_test_weights_LDADD = libwkweights.la libnnreplica.la libjob.la libcommon.la $(CMOCKA_LIBS)

tests_unit_test_lock_LDADD = libcommon.la $(CMOCKA_LIBS)

tests_unit_test_output_LDADD = libcommon.la $(CMOCKA_LIBS)

tests_unit_test_parameter_server_SOURCES = tests/unit/hearing.h tests/unit/test_parameter_server.c workerd/strategy/checkpoint.c \
	workerd/strategy/examples.c workerd/strategy/history.c workerd/strategy/local_rule.c workerd/strategy/local_steps.c workerd/strategy/losses.c \
	workerd/strategy/parameter_server.c workerd/strategy/psd_checkpoint.c workerd/strategy/psd_home.c \
	workerd/strategy/psd_job.c workerd/strategy/psd_signal.c workerd/strategy/weights.c
tests_unit_test_parameter_server_LDADD = libwkweights.la libwkvariables.la libnnreplica.la libjob.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_parameter_server_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=ps_try_alloc_array

tests_unit_test_placement_LDADD = libcommon.la $(CMOCKA_LIBS)

tests_unit_test_probe_LDADD = libpsctl.la $(CMOCKA_LIBS)

tests_unit_test_psbench_LDADD = libpsbench.la $(CMOCKA_LIBS)

psd_job_sources = tests/messages.h tests/unit/psd_core.h tests/unit/psd_job.h
tests_unit_test_psd_SOURCES = tests/unit/test_psd.c $(psd_job_sources)
tests_unit_test_psd_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_psd_control_SOURCES = tests/unit/test_psd_control.c $(psd_job_sources)
tests_unit_test_psd_control_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_psd_members_SOURCES = tests/unit/test_psd_members.c $(psd_job_sources)
tests_unit_test_psd_members_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS) -lm
tests_unit_test_psd_data_SOURCES = tests/unit/test_psd_data.c tests/unit/psd_store.h $(psd_job_sources)
# So that it may have an allocation fail, and something happen just before an update begins.
tests_unit_test_psd_data_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=pthread_rwlock_rdlock,--wrap=pthread_rwlock_wrlock
tests_unit_test_psd_data_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_psd_shards_SOURCES = tests/unit/test_psd_shards.c tests/unit/psd_store.h $(psd_job_sources)
tests_unit_test_psd_shards_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

tests_unit_test_psd_round_SOURCES = tests/unit/test_psd_round.c tests/messages.h tests/unit/psd_cluster.h tests/unit/psd_core.h
tests_unit_test_psd_round_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS) -lm

tests_unit_test_psd_sync_SOURCES = tests/unit/test_psd_sync.c tests/messages.h tests/unit/psd_cluster.h tests/unit/psd_core.h
tests_unit_test_psd_sync_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS) -lm

tests_unit_test_psd_return_SOURCES = tests/unit/test_psd_return.c $(psd_job_sources)
tests_unit_test_psd_return_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

tests_unit_test_psd_session_SOURCES = tests/unit/test_psd_session.c $(psd_job_sources)
tests_unit_test_psd_session_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

tests_unit_test_psd_trace_SOURCES = tests/unit/test_psd_trace.c $(psd_job_sources)
tests_unit_test_psd_trace_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

tests_unit_test_psd_runs_SOURCES = tests/unit/test_psd_runs.c tests/messages.h tests/unit/psd_cluster.h tests/unit/psd_core.h
tests_unit_test_psd_runs_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

tests_unit_test_psd_queue_SOURCES = tests/unit/test_psd_queue.c $(psd_job_sources)
tests_unit_test_psd_queue_LDADD = libpsdcore.la libcommon.la $(CMOCKA_LIBS)

tests_unit_test_queue_LDADD = libpsdqueue.la libcommon.la $(CMOCKA_LIBS)

tests_unit_test_rpc_SOURCES = tests/unit/hearing.h tests/unit/test_rpc.c
tests_unit_test_rpc_LDADD = libworkerproto.la libpsrpc.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_tls_SOURCES = tests/unit/hearing.h tests/unit/rpc_reply.h tests/unit/test_tls.c
tests_unit_test_tls_LDADD = libpsctl.la libpscluster.la libpsrpc.la libcommon.la libproto.la $(CMOCKA_LIBS) $(OPENSSL_LIBS)
tests_unit_test_munge_SOURCES = tests/unit/rpc_reply.h tests/unit/test_munge.c
tests_unit_test_munge_LDADD = libpscluster.la libpsrpc.la libcommon.la libproto.la $(CMOCKA_LIBS)
tests_unit_test_munge_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=getpwuid_r

tests_unit_test_rule_SOURCES = tests/unit/test_rule.c tests/golden/rules.h
tests_unit_test_rule_LDADD = libcommon.la $(CMOCKA_LIBS)

tests_unit_test_aggregate_LDADD = libcommon.la $(CMOCKA_LIBS)

tests_unit_test_encoding_LDADD = libcommon.la $(CMOCKA_LIBS)

tests_unit_test_safetensors_LDADD = libcommon.la $(CMOCKA_LIBS)

tests_unit_test_shards_LDADD = libcommon.la $(CMOCKA_LIBS)

tests_unit_test_schedule_SOURCES = tests/unit/test_schedule.c tests/golden/schedules.h
tests_unit_test_schedule_LDADD = libcommon.la $(CMOCKA_LIBS) -lm

tests_unit_test_table_LDADD = libpsctl.la $(CMOCKA_LIBS)

tests_unit_test_wire_LDADD = libcommon.la $(CMOCKA_LIBS)

tests_unit_test_timeline_LDADD = libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS) -lpthread

tests_unit_test_trace_sum_LDADD = libpsctl.la $(CMOCKA_LIBS)

tests_unit_test_zip_LDADD = libpszip.la $(CMOCKA_LIBS)

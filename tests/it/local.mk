# Real daemons. Scripts find the programs under $top_builddir.
# The longest first: none of them runs alone at the end.
TESTS += tests/it/members.sh tests/it/recovery.sh tests/it/psctl.sh tests/it/queue.sh tests/it/set_mode.sh tests/it/run.sh \
	tests/it/mirrored.sh tests/it/synchronized.sh tests/it/switching.sh tests/it/load.sh

check_PROGRAMS += tests/it/max_diff
tests_it_max_diff_SOURCES = tests/it/max_diff.c
tests_it_max_diff_LDADD = libcommon.la $(JANSSON_LIBS) -lm

check_PROGRAMS += tests/it/load
tests_it_load_SOURCES = tests/it/load.c tests/it/call.h tests/messages.h
tests_it_load_LDADD = libpsclient.la libpsrpc.la libcommon.la
tests/it/bind.log tests/it/load.log: tests/it/load

check_PROGRAMS += tests/it/doubles
tests_it_doubles_SOURCES = tests/it/doubles.c
tests_it_doubles_LDADD = libpsclient.la
tests/it/psctl.log: tests/it/doubles

check_PROGRAMS += tests/it/join
tests_it_join_SOURCES = tests/it/join.c tests/it/call.h tests/messages.h
tests_it_join_LDADD = libpsrpc.la libcommon.la
tests/it/page.log: tests/it/join
EXTRA_DIST += tests/it/browser.py tests/it/http.sh tests/it/page.sh tests/it/page_facts.js tests/it/page_looks.py

TESTS += tests/it/doctor.sh
EXTRA_DIST += tests/it/doctor.sh tests/it/readme.sh tests/it/replay.py
TESTS += tests/it/keras.sh
EXTRA_DIST += tests/it/keras.sh tests/it/keras_models.py tests/it/keras_round_trip.py
TESTS += tests/it/tensorboard.sh
EXTRA_DIST += tests/it/tensorboard.sh tests/it/tensorboard_reads.py
TESTS += tests/it/trace.sh
EXTRA_DIST += tests/it/trace.sh
TESTS += tests/it/timeline.sh
EXTRA_DIST += tests/it/timeline.sh tests/it/timeline_reads.py
EXTRA_DIST += tests/it/kubernetes.sh tests/it/kubernetes_manifests.py
TESTS += tests/it/bind.sh
EXTRA_DIST += tests/it/load.sh tests/it/bind.sh
# A sanitizer takes address space, which large_data.sh limits.
PLAIN_TESTS += tests/it/large_data.sh tests/it/packages.sh tests/it/slurm.sh tests/it/systemd.sh
# Of these unit tests and other scripts run the code under sanitizers.
PLAIN_TESTS += tests/it/examples.sh tests/it/kubernetes.sh tests/it/metrics.sh tests/it/page.sh tests/it/readme.sh
EXTRA_DIST += tests/it/packages.sh

TESTS += tests/it/frozen.sh tests/it/install.sh tests/it/local_steps.sh tests/it/memory.sh tests/it/psbench.sh tests/it/psctl_alone.sh tests/it/supported.sh tests/it/tf_config.sh tests/it/together.sh tests/it/training.sh
EXTRA_DIST += tests/it/fake_psd.py tests/it/frozen.sh tests/it/install.sh tests/it/large_data.sh tests/it/lib.sh tests/it/local_steps.sh tests/it/local_steps_reference.py tests/it/members.sh tests/it/memory.sh tests/it/psbench.sh tests/it/psctl.sh tests/it/psctl_alone.sh tests/it/psctl_says.sh tests/it/queue.sh tests/it/queue_client.py tests/it/run.sh tests/it/supported.sh tests/it/systemd.sh tests/it/tf_config.sh tests/it/together.sh tests/it/training.sh

TESTS += tests/it/central_storage.sh tests/it/hosts.sh tests/it/hybrid.sh tests/it/munge.sh tests/it/tls.sh
EXTRA_DIST += tests/it/metrics_asks.py tests/it/metrics_rules.yml tests/it/tls_client.py tests/it/central_storage.sh tests/it/examples.sh tests/it/hosts.sh tests/it/hybrid.sh tests/it/mirrored.sh tests/it/metrics.sh tests/it/munge.sh tests/it/recovery.sh tests/it/set_mode.sh tests/it/slurm.sh tests/it/switching.sh tests/it/synchronized.sh tests/it/tls.sh

check_PROGRAMS += tests/it/chaos
tests_it_chaos_SOURCES = tests/it/chaos.c tests/it/proxy.c tests/it/proxy.h
tests_it_chaos_LDADD = libpsclient.la libpsrpc.la libcommon.la
TESTS += tests/it/chaos.sh
EXTRA_DIST += tests/it/chaos.sh

# The same at full length: some minutes.
chaos: tests/it/chaos psd/psd tools/psctl/psctl
	@$(AM_TESTS_ENVIRONMENT) PS_CHAOS_LONG=1 $(abs_top_srcdir)/tests/it/chaos.sh
.PHONY: chaos

if HAVE_CMOCKA
check_PROGRAMS += tests/it/exactly_once
tests_it_exactly_once_SOURCES = tests/it/exactly_once.c tests/it/call.h tests/it/proxy.c tests/it/proxy.h tests/messages.h
tests_it_exactly_once_LDADD = libpsrpc.la libcommon.la $(CMOCKA_LIBS)
TESTS += tests/it/exactly_once.sh
endif
EXTRA_DIST += tests/it/exactly_once.sh

if HAVE_PYTHON3
TESTS += tests/it/python_client.py tests/it/python_workers.py tests/it/standard_services.py
endif
EXTRA_DIST += tests/it/ps_client.py tests/it/python_client.py tests/it/python_workers.py tests/it/standard_services.py

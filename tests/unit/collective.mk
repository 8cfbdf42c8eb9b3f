check_PROGRAMS += tests/unit/test_hosts tests/unit/test_ring tests/unit/test_collective
TESTS += tests/unit/test_hosts tests/unit/test_ring tests/unit/test_collective
tests_unit_test_hosts_SOURCES = tests/unit/test_hosts.c
tests_unit_test_hosts_LDADD = libwkring.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_ring_SOURCES = tests/unit/test_ring.c
tests_unit_test_ring_LDADD = libwkring.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_collective_SOURCES = tests/unit/test_collective.c
tests_unit_test_collective_LDADD = libwkcollective.la libcommon.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_mirrored
TESTS += tests/unit/test_mirrored
tests_unit_test_mirrored_SOURCES = tests/unit/test_mirrored.c workerd/strategy/checkpoint.c \
	workerd/strategy/buckets.c workerd/strategy/device_sums.c workerd/strategy/local_rule.c workerd/strategy/mirrored.c workerd/strategy/rounds.c workerd/strategy/weights.c
tests_unit_test_mirrored_LDADD = libwkweights.la libwkcollective.la libnnreplica.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_rounds
TESTS += tests/unit/test_rounds
tests_unit_test_rounds_SOURCES = tests/unit/test_rounds.c workerd/strategy/rounds.c
tests_unit_test_rounds_LDADD = libcommon.la $(CMOCKA_LIBS)

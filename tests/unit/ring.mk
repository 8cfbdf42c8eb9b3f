check_PROGRAMS += tests/unit/test_ring tests/unit/test_collective
TESTS += tests/unit/test_ring tests/unit/test_collective
tests_unit_test_ring_SOURCES = tests/unit/test_ring.c
tests_unit_test_ring_LDADD = libwkring.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_collective_SOURCES = tests/unit/test_collective.c
tests_unit_test_collective_LDADD = libwkcollective.la libcommon.la $(CMOCKA_LIBS)

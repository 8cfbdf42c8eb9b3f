check_PROGRAMS += tests/unit/test_shards
TESTS += tests/unit/test_shards
tests_unit_test_shards_SOURCES = tests/unit/test_shards.c
tests_unit_test_shards_LDADD = libcommon.la $(CMOCKA_LIBS)

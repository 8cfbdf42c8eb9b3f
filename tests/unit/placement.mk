check_PROGRAMS += tests/unit/test_placement
TESTS += tests/unit/test_placement
tests_unit_test_placement_SOURCES = tests/unit/test_placement.c
tests_unit_test_placement_LDADD = libcommon.la $(CMOCKA_LIBS)

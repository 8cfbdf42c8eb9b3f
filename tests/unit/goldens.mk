check_PROGRAMS += tests/unit/test_goldens
TESTS += tests/unit/test_goldens
tests_unit_test_goldens_SOURCES = tests/unit/nn_files.h tests/unit/test_goldens.c
tests_unit_test_goldens_LDADD = libnnmodel.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS)

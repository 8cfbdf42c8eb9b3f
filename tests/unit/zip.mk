check_PROGRAMS += tests/unit/test_zip
TESTS += tests/unit/test_zip
tests_unit_test_zip_SOURCES = tests/unit/test_zip.c
tests_unit_test_zip_LDADD = libpszip.la $(CMOCKA_LIBS)
EXTRA_DIST += tests/golden/python.zip tests/golden/wide.zip tests/golden/make_zip.py

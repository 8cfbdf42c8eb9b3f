check_PROGRAMS += tests/unit/test_rule
TESTS += tests/unit/test_rule
tests_unit_test_rule_SOURCES = tests/unit/test_rule.c tests/golden/rules.h
tests_unit_test_rule_LDADD = libcommon.la $(CMOCKA_LIBS)
EXTRA_DIST += tests/golden/make_rules.py

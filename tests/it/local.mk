# Real daemons. Scripts find the programs under $top_builddir.
check_PROGRAMS += tests/it/max_diff
tests_it_max_diff_SOURCES = tests/it/max_diff.c
tests_it_max_diff_LDADD = libcommon.la $(JANSSON_LIBS) -lm

TESTS += tests/it/run.sh
EXTRA_DIST += tests/it/lib.sh tests/it/run.sh

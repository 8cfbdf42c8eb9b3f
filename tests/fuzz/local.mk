# A fuzz target is fuzz_NAME.c with LLVMFuzzerTestOneInput, a folder corpus/NAME, and NAME.mk, which adds it to
# FUZZ_TARGETS and, where it needs more than libcommon, sets its LDADD to that and $(LDADD). `make check` replays each
# corpus with a few thousand fixed mutations; `make fuzz` searches with libFuzzer for FUZZ_SECONDS each.
FUZZ_TARGETS =

include tests/fuzz/cluster.mk
include tests/fuzz/data.mk
include tests/fuzz/job.mk
include tests/fuzz/model.mk
include tests/fuzz/rpc.mk
include tests/fuzz/stream.mk
include tests/fuzz/tf_config.mk
include tests/fuzz/wire.mk
include tests/fuzz/zip.mk

FUZZ_SECONDS = 60

check_PROGRAMS += $(FUZZ_TARGETS)
EXTRA_DIST += tests/fuzz/corpus
CLEANFILES += fuzz_*.input

if FUZZING
# LDADD is for programs that do not name their own: of these, each made of the one source that its name implies.
LDADD = libcommon.la $(LIBFUZZER)

# New inputs are kept in the build tree, what crashes a target beside them as fuzz_NAME-crash-*.
fuzz: $(FUZZ_TARGETS)
	@for target in $(FUZZ_TARGETS); do \
	    name=$${target##*/fuzz_}; $(MKDIR_P) tests/fuzz/found/$$name; \
	    echo "== $$name, $(FUZZ_SECONDS) s"; \
	    $(AM_TESTS_ENVIRONMENT) $$target -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=2048 \
	        -print_final_stats=1 -artifact_prefix=fuzz_$$name- tests/fuzz/found/$$name \
	        $(abs_top_srcdir)/tests/fuzz/corpus/$$name || exit 1; \
	done
else
check_LTLIBRARIES += tests/fuzz/libreplay.la
tests_fuzz_libreplay_la_SOURCES = tests/fuzz/replay.c
LDADD = tests/fuzz/libreplay.la libcommon.la
TESTS += $(FUZZ_TARGETS)

# A build of its own, with clang; this one has to lie outside of the source tree.
fuzz:
	@$(MKDIR_P) build-fuzz
	@cd build-fuzz && { test -f config.status || $(abs_top_srcdir)/configure -q CC=clang CFLAGS='-O1 -g' \
	    --enable-fuzzing --enable-sanitizers=address,undefined; }
	$(MAKE) -C build-fuzz fuzz FUZZ_SECONDS=$(FUZZ_SECONDS)
endif
.PHONY: fuzz

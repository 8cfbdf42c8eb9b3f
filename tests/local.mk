# Every test speaks TAP, whatever it is written in: cmocka programs have no extension, scripts have theirs. A script
# starts with what it needs from its environment:
#   top_srcdir, top_builddir   absolute
#   PYTHON3, CC, NM, AR, CLANG_FORMAT  as configure found them
#   LINK_FLAGS                 what programs are linked with
#   SANITIZERS                 no, or what the build was configured with
#   PS_MNIST                   folder of the four MNIST files, if whoever runs make set it
TEST_EXTENSIONS = .sh .py
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
SH_LOG_DRIVER = $(LOG_DRIVER)
PY_LOG_DRIVER = $(LOG_DRIVER)
# A test that hangs is a failure, and ends: the others still run. make check TEST_SECONDS=... for what takes its time.
TEST_SECONDS = 1200
LOG_COMPILER = timeout -k 10 $(TEST_SECONDS)
SH_LOG_COMPILER = $(LOG_COMPILER)
PY_LOG_COMPILER = $(LOG_COMPILER) $(PYTHON3)

# The gRPC core is not instrumented: what it does between its own threads is not for TSan to judge.
AM_TESTS_ENVIRONMENT = \
	top_srcdir='$(abs_top_srcdir)'; export top_srcdir; \
	top_builddir='$(abs_top_builddir)'; export top_builddir; \
	PYTHON3='$(PYTHON3)'; export PYTHON3; \
	CC='$(CC)'; export CC; \
	LINK_FLAGS='$(AM_LDFLAGS) $(LDFLAGS)'; export LINK_FLAGS; \
	NM='$(NM)'; export NM; AR='$(AR)'; export AR; \
	CLANG_FORMAT='$(CLANG_FORMAT)'; export CLANG_FORMAT; \
	SANITIZERS='$(SANITIZERS)'; export SANITIZERS; \
	ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1; export ASAN_OPTIONS; \
	UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1; export UBSAN_OPTIONS; \
	TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1:second_deadlock_stack=1; export TSAN_OPTIONS;

# A build with sanitizers leaves these out: they judge sources, texts, packages or objects that are not instrumented, or
# have daemons run by other programs, whose time limits sanitized daemons are too slow for.
PLAIN_TESTS =
if !SANITIZED
TESTS += $(PLAIN_TESTS)
endif

# What is distributed does not depend on what this machine can build.
EXTRA_DIST += tests/golden tests/mutants/list tests/mutants/run.sh tests/cuda/home.c tests/cuda/keras_alone.sh tests/cuda/workerd.sh \
	tests/cuda/workers.sh

# Tests start in the order in which they are listed: those that take minutes come first.
include tests/cuda/local.mk
include tests/it/local.mk
include tests/lint/local.mk

if HAVE_CMOCKA
include tests/mutants/local.mk
include tests/unit/local.mk
include tests/nomem/nomem.mk
include tests/sim/local.mk
endif

include tests/fuzz/local.mk
include tests/bench/local.mk

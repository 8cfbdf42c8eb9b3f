# The emulated GPUs: what tests link with, and how .cu files, and .c files that call the CUDA runtime, are compiled for it.
EXTRA_DIST += tests/cuda/skipped.sh tests/cuda/gpus.sh tests/cuda/examples.cu tests/cuda/faults.cu \
	tests/cuda/planted.cu tests/cuda/examples.h tests/cuda/host_code.c tests/cuda/host_code.h \
	tests/cuda/libraries.cu \
	$(emulator_headers)
emulator_headers = tests/cuda/include/cuda_runtime.h tests/cuda/include/cuda_bf16.h tests/cuda/include/cublas_v2.h \
	tests/cuda/include/cudnn.h tests/cuda/include/nccl.h \
	tests/cuda/include/emulated/kernel.h tests/cuda/include/emulated/math.h

cuda_tests =
emulator_tests =
nn_cuda_tests =
mirrored_tests =

if HAVE_CUDA_EMULATOR
check_LTLIBRARIES += libemulator.la
libemulator_la_SOURCES = tests/cuda/emulator.h \
	tests/cuda/copy.cc tests/cuda/cublas.cc tests/cuda/cudnn.cc \
	tests/cuda/fiber.cc tests/cuda/fiber.h tests/cuda/forever.h \
	tests/cuda/graph.cc tests/cuda/graph.h tests/cuda/host.cc tests/cuda/host.h \
	tests/cuda/kernel.cc tests/cuda/kernel.h tests/cuda/launch.cc \
	tests/cuda/memory.cc tests/cuda/memory.h \
	tests/cuda/nccl.cc tests/cuda/nccl.h \
	tests/cuda/ranks.cc tests/cuda/ranks.h \
	tests/cuda/report.cc tests/cuda/report.h \
	tests/cuda/runtime.cc tests/cuda/runtime.h \
	tests/cuda/shadow.cc tests/cuda/shadow.h \
	tests/cuda/stream.cc tests/cuda/stream.h \
	tests/cuda/task.cc tests/cuda/task.h \
	tests/cuda/touch.cc tests/cuda/touch.h tests/cuda/watch.cc

# A test on emulated GPUs: its sources (one of them .cc, or nodist_EXTRA_TEST_SOURCES names one, so that it is linked as
# C++), and as LDADD the NAME.watched.o of the code that it tests, then libemulator.la.
#
# NAME.watched.o of NAME.cu or NAME.c: -fsanitize=thread makes the compiler call a function at each load and store, and
# the assembly is changed so that these, and memcpy and its like, are tests/cuda/watch.cc's. Without optimisations that
# put two accesses into one. NAME.watched.d: the headers that it was made of; without it, it is made again.
watched =
WATCH_FLAGS = -MMD -MP -MF $*.watched.d -MT $@ -g -O1 -fPIC -Wno-unknown-pragmas -Wno-missing-field-initializers -fno-lto -fno-sanitize=all -fsanitize=thread --param tsan-instrument-func-entry-exit=0
WATCH_CPPFLAGS = $(DEFS) -DNN_CUDA_PATCHES=32768 -I. -I$(top_srcdir)/tests/cuda/include $(AM_CPPFLAGS) $(CPPFLAGS)
WATCH_RENAME = $(SED) -E -e '/^[[:space:]]*\.(string|ascii)/b' -e 's/\<__tsan_/emu_tsan_/g' \
	-e 's/\<(memcpy|memmove|memset)\>/emu_watched_\1/g'

%.watched.o: %.cu %.watched.d
	$(AM_V_CXX)$(MKDIR_P) $(@D) && \
	$(CXX) $(PS_CXXFLAGS) $(WATCH_CPPFLAGS) $(CXXFLAGS) $(WATCH_FLAGS) -S -x c++ -o $@.s $< && \
	$(WATCH_RENAME) $@.s >$@.renamed.s && $(CXX) -c -o $@ $@.renamed.s && rm -f $@.s $@.renamed.s
%.watched.o: %.c %.watched.d
	$(AM_V_CC)$(MKDIR_P) $(@D) && \
	$(CC) $(PS_CFLAGS) $(WATCH_CPPFLAGS) $(CFLAGS) $(WATCH_FLAGS) -S -o $@.s $< && \
	$(WATCH_RENAME) $@.s >$@.renamed.s && $(CC) -c -o $@ $@.renamed.s && rm -f $@.s $@.renamed.s

emulator_tests += tests/cuda/test_emulator
cuda_tests += $(emulator_tests)
check_PROGRAMS += $(emulator_tests)
TESTS += $(emulator_tests)
tests_cuda_test_emulator_SOURCES = tests/cuda/test_emulator.cc
emulator_examples = tests/cuda/examples.watched.o tests/cuda/faults.watched.o tests/cuda/host_code.watched.o \
	tests/cuda/libraries.watched.o tests/cuda/planted.watched.o
tests_cuda_test_emulator_LDADD = $(emulator_examples) libemulator.la
watched += $(emulator_examples)

# The CUDA device. Watched with it: what copies to and from it.
nn_cuda_watched = $(nn_cuda_c:.c=.watched.o) $(nn_cuda_cu:.cu=.watched.o) workerd/nn/program_device.watched.o
watched += $(nn_cuda_watched)
if HAVE_CMOCKA
nn_cuda_tests += tests/cuda/test_nn_cuda tests/cuda/test_nn_cuda_keras
check_PROGRAMS += $(nn_cuda_tests)
cuda_tests += $(nn_cuda_tests)
TESTS += tests/cuda/test_nn_cuda_keras
# Nothing but the emulator is instrumented in it, and that takes twenty times as long.
PLAIN_TESTS += tests/cuda/test_nn_cuda
nn_cuda_libs = $(nn_cuda_watched) libnnreplica.la libcommon.la libemulator.la $(JANSSON_LIBS) $(CMOCKA_LIBS)
tests_cuda_test_nn_cuda_SOURCES = $(nn_ops_cases) tests/cuda/home.h tests/cuda/test_nn_cuda.c
tests_cuda_test_nn_cuda_CPPFLAGS = -I$(top_srcdir)/tests/cuda/include $(AM_CPPFLAGS)
nodist_EXTRA_tests_cuda_test_nn_cuda_SOURCES = tests/cuda/linked_as.cc
tests_cuda_test_nn_cuda_LDADD = tests/cuda/home.watched.o $(nn_cuda_libs)
watched += tests/cuda/home.watched.o

# Whole models in training, against Keras.
tests_cuda_test_nn_cuda_keras_SOURCES = tests/cuda/loaded.c tests/unit/nn_files.h tests/unit/test_keras.c
tests_cuda_test_nn_cuda_keras_CPPFLAGS = $(AM_CPPFLAGS) -DDEVICES='"gpu"'
nodist_EXTRA_tests_cuda_test_nn_cuda_keras_SOURCES = tests/cuda/linked_as.cc
tests_cuda_test_nn_cuda_keras_LDADD = $(nn_cuda_libs)

# The same where there is no cuDNN.
PLAIN_TESTS += tests/cuda/keras_alone.sh

# mirrored on several of them, with small buckets.
mirrored_tests += tests/cuda/test_mirrored_gpus
check_PROGRAMS += $(mirrored_tests)
cuda_tests += $(mirrored_tests)
TESTS += $(mirrored_tests)
tests_cuda_test_mirrored_gpus_SOURCES = tests/cuda/test_mirrored_gpus.c workerd/strategy/checkpoint.c \
	workerd/strategy/bucket_order.c workerd/strategy/buckets.c workerd/strategy/device_sums.c workerd/strategy/local_rule.c workerd/strategy/mirrored.c \
	workerd/strategy/one_device.c workerd/strategy/rounds.c workerd/strategy/weights.c
tests_cuda_test_mirrored_gpus_CPPFLAGS = $(AM_CPPFLAGS) -DBUCKET_SIZE_MIN=64
nodist_EXTRA_tests_cuda_test_mirrored_gpus_SOURCES = tests/cuda/linked_as.cc
tests_cuda_test_mirrored_gpus_LDADD = $(nn_cuda_watched) libwkweights.la libwkcollective.la libnnreplica.la libjob.la \
	libcommon.la libemulator.la $(JANSSON_LIBS) $(CMOCKA_LIBS)
endif

# A workerd whose GPUs are emulated ones.
check_PROGRAMS += tests/cuda/workerd
tests_cuda_workerd_SOURCES = $(workerd_workerd_SOURCES) tests/cuda/loaded.c
nodist_EXTRA_tests_cuda_workerd_SOURCES = tests/cuda/linked_as.cc
tests_cuda_workerd_LDADD = $(nn_cuda_watched) $(workerd_workerd_LDADD) libemulator.la
TESTS += tests/cuda/workerd.sh tests/cuda/workers.sh

watched_d = $(watched:.o=.d)
$(watched_d):
-include $(wildcard $(watched_d))
CLEANFILES += $(watched) $(watched_d)
else
TESTS += tests/cuda/skipped.sh
endif

# The emulator and mirrored in 10,000 orders, the device in 100.
chaos-cuda: $(cuda_tests)
	@$(AM_TESTS_ENVIRONMENT) rc=0; \
	CUDA_SEEDS=10000; export CUDA_SEEDS; for t in $(emulator_tests) $(mirrored_tests); do ./$$t || rc=1; done; \
	CUDA_SEEDS=100; for t in $(nn_cuda_tests); do ./$$t || rc=1; done; exit $$rc
.PHONY: chaos-cuda

# What workerd says where there is no GPU.
TESTS += tests/cuda/module.sh
EXTRA_DIST += tests/cuda/module.sh

# The same on a real GPU; where there is none, a sentence that says so.
if HAVE_CMOCKA
gpu_tests = tests/cuda/gpu_nn_ops tests/cuda/gpu_keras
EXTRA_PROGRAMS += $(gpu_tests)
CLEANFILES += $(gpu_tests)
tests_cuda_gpu_nn_ops_SOURCES = $(nn_ops_cases) tests/cuda/gpu_nn_ops.c
# With all operators, as the module names each: a replica needs them.
tests_cuda_gpu_nn_ops_LDFLAGS = $(nn_cuda_ldflags) -Wl,-u,nn_replica_create
tests_cuda_gpu_nn_ops_LDADD = libnnreplica.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS)
tests_cuda_gpu_keras_SOURCES = tests/unit/nn_files.h tests/unit/test_keras.c
tests_cuda_gpu_keras_CPPFLAGS = $(AM_CPPFLAGS) -DDEVICES='"gpu"'
tests_cuda_gpu_keras_LDFLAGS = $(nn_cuda_ldflags)
tests_cuda_gpu_keras_LDADD = libnnreplica.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS)
endif

check-gpu: all $(gpu_tests) tests/it/max_diff
	@$(AM_TESTS_ENVIRONMENT) PARAMSERVER_CUDA_MODULE='$(abs_builddir)/.libs/cuda.so'; export PARAMSERVER_CUDA_MODULE; \
	found=`./workerd/workerd --list-devices | $(SED) -n 's/^gpu  *//p'`; \
	case $$found in "CUDA "[0-9]*) ;; *) echo "1..0 # SKIP $$found"; exit 0;; esac; \
	rc=0; for t in $(gpu_tests) $(srcdir)/tests/cuda/gpus.sh; do case $$t in /*|.*) ;; *) t=./$$t;; esac; $$t || rc=1; done; exit $$rc
.PHONY: check-gpu

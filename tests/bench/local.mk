# Figures, which no test judges. tests/bench/delay is made when delay.sh asks for it.
EXTRA_PROGRAMS += tests/bench/delay tests/bench/control
tests_bench_delay_SOURCES = tests/bench/delay.c
tests_bench_delay_LDADD = libcommon.la
CLEANFILES += tests/bench/delay tests/bench/control
tests_bench_control_SOURCES = tests/bench/control.c
tests_bench_control_LDADD = libpsdcore.la libcommon.la
EXTRA_DIST += tests/bench/allreduce_mpi.c tests/bench/checkpoint.py tests/bench/clients.sh tests/bench/delay.sh tests/bench/gpu.py tests/bench/large_model.py tests/bench/network.py tests/bench/peers.py tests/bench/restart.py tests/bench/strategies.py tests/bench/train.sh \
	tests/bench/speedrun tests/bench/speedrun_keras.py tests/bench/speedrun_torch.py \
	tests/bench/peak_torch.py

# A large sync round beside another job on one psd: make tests/bench/rounds
EXTRA_PROGRAMS += tests/bench/rounds
tests_bench_rounds_SOURCES = tests/bench/rounds.c
tests_bench_rounds_LDADD = libpsclient.la
CLEANFILES += tests/bench/rounds

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `make install` leaves is enough for a program of one's own: the example of a custom training loop is built
# against it with pkg-config and trains on a live psd.
. "$top_srcdir/tests/it/lib.sh" || exit 1
root=$scratch/root

installs() { env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -C "$top_builddir" install DESTDIR="$root"; }
ok "make install" installs
pc=$(find "$root" -name psclient.pc | head -n 1)
ok "psclient.pc is installed" test -n "$pc"
for what in bin/psd bin/workerd bin/psctl bin/psbench include/psclient.h man8/psd.8 man8/workerd.8 man1/psctl.1 man1/psbench.1 \
    man3/psclient.3 examples/mnist-cnn/async.yaml slurm/paramserver.sbatch slurm/paramserver.modulefile \
    kubernetes/kustomization.yaml kubernetes/base/worker.yaml kubernetes/overlays/gpu/kustomization.yaml prometheus/prometheus.yml prometheus/rules.yml \
    prometheus/dashboard.json proto/paramserver.proto; do
    ok "$what is installed" test -n "$(find "$root" -path "*/$what" | head -n 1)"
done
[ ! -e "$top_builddir/cuda.la" ] || ok "the CUDA module is installed" test -n "$(find "$root" -path '*/paramserver/cuda.so')"

sanitize=()
[ "$SANITIZERS" = no ] || sanitize=("-fsanitize=$SANITIZERS")
builds() { # PROGRAM SOURCE
    local flags
    flags=$(PKG_CONFIG_PATH=$(dirname "$pc") PKG_CONFIG_SYSROOT_DIR=$root pkg-config --cflags --libs psclient) || return 1
    # shellcheck disable=SC2086
    ${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror "${sanitize[@]}" -o "$1" "$2" $flags -lm
}
ok "the custom loop builds against the installed library" builds "$scratch/custom-loop" "$examples/custom-loop/main.c"

start_psd psd || exit 1
libdir=$(dirname "$(find "$root" -name libpsclient.so | head -n 1)")
echo "ps: [\"unix:$scratch/psd\"]" >"$scratch/cluster.yaml"
trains() { LD_LIBRARY_PATH=$libdir timeout 600 "$scratch/custom-loop" "$scratch/cluster.yaml" line 0 1; }
ok "and trains on a live psd" trains

# Worker 1 dies and comes back to the job, and worker 0 dies before worker 1 asks whether it is the chief.
sed 's/STEPS = 400/STEPS = 1 << 30/
    s/psc_report(client, step/fputs(step == 1 ? "trains\\n" : "", stderr); &/' "$examples/custom-loop/main.c" >"$scratch/endless.c"
sed 's/psc_is_chief(client)/waits_for(client, psc_is_chief)/
    /^static psc_client/a #include <time.h>\
    static bool waits_for(psc_client *c, bool (*until)(psc_client *)) { \
    fprintf(stderr, "is late\\n"); while (!until(c)) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); return true; }' \
    "$examples/custom-loop/main.c" >"$scratch/alone.c"
ok "an endless one" builds "$scratch/endless" "$scratch/endless.c"
ok "and one that waits until it is alone" builds "$scratch/alone" "$scratch/alone.c"
endless() { # RANK
    LD_LIBRARY_PATH=$libdir "$scratch/endless" "$scratch/cluster.yaml" late "$1" 2 2>"$scratch/log$1" &
    pid[$1]=$!
}
pid=()
endless 0
endless 1
eventually grep -q trains "$scratch/log0"
eventually grep -q trains "$scratch/log1"
kill -KILL "${pid[1]}"
LD_LIBRARY_PATH=$libdir timeout 600 "$scratch/alone" "$scratch/cluster.yaml" late 1 2 >"$scratch/alone.log" 2>&1 &
alone=$!
eventually grep -q "is late" "$scratch/alone.log"
kill -KILL "${pid[0]}"
ended_well() { wait "$alone" || { cat "$scratch/alone.log" && return 1; }; }
ok "a chief that comes late takes what is there" ended_well

bin=$(dirname "$(find "$root" -path '*/bin/psctl' | head -n 1)")
installed_trains() {
    LD_LIBRARY_PATH=$libdir timeout 600 env -u PSD "$bin/psctl" run --ps 1 --workers 1 "$(find "$root" -path '*/examples/softmax/async.yaml')" \
        "${quick[@]}" --set output="$scratch/installed.safetensors"
}
ok "the installed psctl finds psd and workerd, and trains" installed_trains
installed_queues() {
    LD_LIBRARY_PATH=$libdir "$bin/psctl" slurm --dry-run "$examples/softmax/async.yaml" | tee "$scratch/queues"
    grep -qF " $(find "$root" -path '*/slurm/paramserver.sbatch') " "$scratch/queues"
}
ok "the installed psctl finds the script for Slurm" installed_queues
installed_measures() { LD_LIBRARY_PATH=$libdir timeout 600 env -u PSD "$bin/psbench" push --size 4K --seconds 0.05 --repeat 1; }
ok "the installed psbench finds psd, and measures" installed_measures

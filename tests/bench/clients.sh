#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One psd and 1 to 64 client processes that push: what comes through in all, of its peak and of what plain sockets do with
# as many, and how even the shares are.
# Then how much memory psd has used at most beside a client that asks for everything and reads nothing.
#
#   tests/bench/clients.sh BUILD [SECONDS per figure] [REPETITIONS]
set -eu
build=$(cd "$1" && pwd)
seconds=${2:-1}
repeat=${3:-5}
for load in "4 32" "1M 2"; do
    "$build/tools/psbench/psbench" push --size "${load% *}" --window "${load#* }" --workers 1,2,4,8,16,32,64 \
        --seconds "$seconds" --repeat "$repeat" --json | python3 -c '
import json, sys
cases = json.load(sys.stdin)
peak = max(c["calls_per_s"] for c in cases)
print("%7s  %7s  %9s  %7s  %9s  %s" % ("bytes", "clients", "pushes/s", "of peak", "of socket", "of a fair share"))
for c in cases:
    share = c["worker_share"]
    print("%7d  %7d  %9.0f  %7.2f  %9.2f  %.2f to %.2f" % (c["size"], c["workers"], c["calls_per_s"],
          c["calls_per_s"] / peak, c["limit_fraction"], share["min"], share["max"]))'
done

memory=1024
make -s -C "$build" tests/it/load
dir=$(mktemp -d)
psd_pid='' deaf_pid=''
end() {
    for pid in $deaf_pid $psd_pid; do
        kill -KILL "$pid" && wait "$pid" || true
    done 2>/dev/null
    rm -rf "$dir"
}
trap end EXIT

"$build/psd/psd" --listen "unix:$dir/psd" --memory ${memory}M --dead-after-ms 3600000 --ready-fd 3 3>"$dir/ready" 2>"$dir/log" &
psd_pid=$!
until [ -s "$dir/ready" ]; do sleep 0.1; done
"$build/tests/it/load" "unix:$dir/psd" declare
"$build/tests/it/load" "unix:$dir/psd" deaf 40 0 >"$dir/deaf" &
deaf_pid=$!
for kib in 0 1024; do
    "$build/tests/it/load" "unix:$dir/psd" push 64 $kib "$seconds" $((kib ? 2 : 32)) | sed "s/^/beside a client that reads nothing: /"
done
echo "psd: $(($(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' /proc/$psd_pid/status) >> 10)) MiB at most, of $memory MiB"

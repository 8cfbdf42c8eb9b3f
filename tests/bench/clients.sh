#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One psd and 1 to 64 clients that push: what comes through in all, how even the shares are, and how much memory psd has
# used at most, without and with a client beside them that asks for everything and reads nothing.
#
#   tests/bench/clients.sh BUILD [SECONDS per figure]
set -eu
build=$(cd "$1" && pwd)
seconds=${2:-3}
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
for beside in "" "beside a client that reads nothing"; do
    if [ "$beside" ]; then
        "$build/tests/it/load" "unix:$dir/psd" deaf 40 0 >"$dir/deaf" &
        deaf_pid=$!
    fi
    for kib in 0 1024; do
        for clients in 1 2 4 8 16 32 64; do
            printf '%2d clients, %s: ' $clients "$([ $kib = 0 ] && echo "4 B, 32 under way each" || echo "1 MiB, 2 under way each")"
            "$build/tests/it/load" "unix:$dir/psd" push $clients $kib "$seconds" $((kib ? 2 : 32)) | sed "s/$/${beside:+ $beside}/"
        done
    done
done
echo "psd: $(($(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' /proc/$psd_pid/status) >> 10)) MiB at most, of $memory MiB"

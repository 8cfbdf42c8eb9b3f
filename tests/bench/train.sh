#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What training through a parameter server costs: images/s of 1 psd + 1 worker (async) against one_device, in turn,
# one thread each; the time from psctl run to the end of the first step; how fast an idle psd answers psctl status.
#
#     tests/bench/train.sh BUILD [PAIRS [psctl run's --set KEY=VALUE ...]]
#
# On the default job's digits; with MNIST: --set data.kind=idx --set data.path=DIR.
set -eu -o pipefail
build=$(cd "${1:?usage: train.sh BUILD [PAIRS [--set KEY=VALUE ...]]}" && pwd)
pairs=${2:-3}
shift $(($# < 2 ? $# : 2))
here=$(cd "$(dirname "$0")/../.." && pwd)
psctl=$build/tools/psctl/psctl
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"; [ -z "${psd:-}" ] || kill "$psd"' EXIT
cd "$scratch"

value() { sed -nE "s/.*\"$2\": *([-0-9.e]+).*/\1/p" "$1" | head -n 1; }
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

run() { # NAME JOB ARGUMENT ...
    local name=$1 job=$2
    shift 2
    "$psctl" run --summary "$name.json" "$here/deploy/examples/mnist-cnn/$job.yaml" --set epochs=1 \
        --set output="$name.safetensors" "$@" >/dev/null
    value "$name.json" examples_per_second >>"$name.rate"
    value "$name.json" seconds_to_first_step >>"$name.first"
}

for ((i = 0; i < pairs; i++)); do
    run one one_device "$@"
    run async async --ps 1 --workers 1 "$@"
    paste one.rate async.rate | tail -n 1 |
        awk '{ printf "one_device %.0f  async %.0f images/s  ratio %.3f\n", $1, $2, $2 / $1 }'
done
paste one.rate async.rate | awk '{ print $2 / $1 }' | median | sed 's/^/median ratio             /'
median <async.first | sed 's/^/psctl run to first step, s (median)  /'

mkfifo ready
"$build/psd/psd" --listen "unix:$scratch/psd" --ready-fd 3 3>ready &
psd=$!
read -r _ <ready
for ((i = 0; i < 20; i++)); do
    began=$(date +%s%N)
    "$psctl" --ps "unix:$scratch/psd" status >/dev/null
    echo $((($(date +%s%N) - began) / 1000))
done | median | sed 's/^/psctl status, us (median of 20)      /'

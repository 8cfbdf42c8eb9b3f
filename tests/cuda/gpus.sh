#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# mirrored on the first two GPUs of a machine, and on four where it has them (make check-gpu): it trains what one of them
# does with the whole batch, the same bytes in each run, and the replicas are equal at every step. So do two workers of a
# GPU each. GPUS_EXAMPLES: what they train with, 2000 if it is not set.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
workerd=${WORKERD:-$workerd}
gpus=$("$workerd" --list-devices | sed -n 's/^gpu   CUDA [0-9.]*, \([0-9]*\) of .*/\1/p')
if [ "${gpus:-0}" -lt 2 ]; then
    n="0 # SKIP there are ${gpus:-0} GPUs: expected two or more"
    exit 0
fi
both=2
[ "$gpus" -ge 4 ] && both="2 4"
job=$examples/softmax/one_device.yaml
trains() {
    local output=$1
    shift
    timeout 600 "$workerd" --job "$job" --set data.train_examples="${GPUS_EXAMPLES:-2000}" --set data.test_examples=100 --set epochs=2 \
        --set output="$output.safetensors" "$@"
}
# mirrored N OUTPUT ARGUMENT ...: on so many GPUs, a batch of 64 in each step.
mirrored() {
    local n=$1 output=$2 devices
    shift 2
    devices=$(seq -s, -f 'gpu:%g' 0 $((n - 1)))
    trains "$output" --set strategy.name=mirrored --set strategy.devices="[$devices]" --set batch_size=$((64 / n)) \
        --set strategy.compare_every=1 "$@"
}
same() { "$top_builddir/tests/it/max_diff" -a "$1.safetensors" "$2.safetensors" 1e-5; }

ok "one_device" trains one --set device=gpu --set batch_size=64
for n_gpus in $both; do
    ok "mirrored on $n_gpus GPUs, by NCCL" mirrored "$n_gpus" nccl --set strategy.cross_device_ops=nccl
    ok "alike" same one nccl
    ok "again" mirrored "$n_gpus" again --set strategy.cross_device_ops=nccl
    ok "to the bit" cmp nccl.safetensors again.safetensors
    ok "on the first of them" mirrored "$n_gpus" first --set strategy.cross_device_ops=reduction_to_one_device
    ok "alike" same one first
    ok "in the host's memory" mirrored "$n_gpus" host --set strategy.cross_device_ops=hierarchical_copy
    ok "alike" same one host
    rm -f nccl.safetensors again.safetensors first.safetensors host.safetensors
done
printf 'worker: ["%s", "%s"]\n' "unix:$scratch/0" "unix:$scratch/1" >two.yaml
workers() { # OUTPUT: two, each of which sees a GPU of its own
    local output=$1 got=0 rank pid=()
    for rank in 0 1; do
        CUDA_VISIBLE_DEVICES=$rank trains "$output" --cluster two.yaml --rank $rank --set device=gpu --set batch_size=32 \
            --set strategy.name=multi_worker_mirrored --set strategy.compare_every=1 --set strategy.communication=nccl \
            2>"workers$rank.log" &
        pid[$rank]=$!
    done
    for rank in 0 1; do wait "${pid[$rank]}" || got=1; done
    tail -n 3 workers?.log
    return $got
}
ok "two workers, by NCCL" workers nccl
ok "alike" same one nccl
ok "again" workers again
ok "to the bit" cmp nccl.safetensors again.safetensors

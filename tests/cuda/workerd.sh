#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Jobs on GPUs, from the outside: workerd with the device linked to it, on emulated ones. What it trains is what the CPU
# trains, whatever the strategy.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
export WORKERD=$top_builddir/tests/cuda/workerd
job=$examples/softmax/one_device.yaml
small=(--set data.train_examples=250 --set data.test_examples=100 --set epochs=1 --set batch_size=24)
# trains OUTPUT ARGUMENT ...
trains() {
    local output=$1
    shift
    timeout 600 "$psctl" run "$job" "${small[@]}" --set output="$output.safetensors" "$@"
}
same() { "$top_builddir/tests/it/max_diff" -a "$1.safetensors" "$2.safetensors" 1e-4; }
mirrored() {
    local output=$1 devices=$2
    shift 2
    trains "$output" --set strategy.name=mirrored --set strategy.devices="$devices" "$@"
}

ok "--list-devices" eval '"$WORKERD" --list-devices | grep -q "^gpu   CUDA .*, 2 of Emulated GPU"'
ok "check-build finds NCCL" eval '"$psctl" check-build | grep -q "^\[x\] NCCL "'
ok "check-build finds cuDNN" eval '"$psctl" check-build | grep -q "^\[x\] cuDNN  *convolutions"'
ok "or says why not" eval 'CUDA_WITHOUT=1 "$psctl" check-build | tr -s " \n" " " | grep -qF "[ ] cuDNN gpu:0 (Emulated GPU): cuDNN cannot be used: CUDNN_STATUS_NOT_INITIALIZED"'
ok "one_device, on the CPU" trains cpu
ok "on a GPU" trains gpu --set device=gpu
ok "alike" same cpu gpu
ok "again, in another order" env CUDA_SEED=5 "$psctl" run "$job" "${small[@]}" --set output=again.safetensors --set device=cuda
ok "to the bit" cmp gpu.safetensors again.safetensors
ok "products of bfloat16" trains rounded --set device=gpu --set matmul_precision=bfloat16
ok "nearly alike" "$top_builddir/tests/it/max_diff" -a gpu.safetensors rounded.safetensors 1e-2
ok "not to the bit" eval '! cmp -s gpu.safetensors rounded.safetensors'
# A network with a convolution, by own kernels, which serve few channels, and as if it had many: by cuDNN and without it.
conv=("$examples/conv/one_device.yaml" --set data.train_examples=24 --set data.test_examples=4 --set epochs=1 --set batch_size=4)
images() {
    local output=$1
    shift
    timeout 600 "$psctl" run "${conv[@]}" --set output="$output.safetensors" "$@"
}
profiled() { timeout 600 "$WORKERD" --job "${conv[@]}" --set epochs=4 --set steps=1 --set device=gpu "$@" --profile; }
ok "convolutions, on the CPU" images conv_cpu
ok "on a GPU" images few --set device=gpu
ok "alike" same conv_cpu few
ok "to the bit, in another order" eval 'CUDA_SEED=5 images again --set device=gpu && cmp few.safetensors again.safetensors'
ok "--profile says how" eval 'profiled | grep -q "conv2d .* implicit "'
export CUDA_IMPLICIT=0
ok "by cuDNN" images conv --set device=gpu
ok "alike" same conv_cpu conv
ok "again, in another order" env CUDA_SEED=5 "$psctl" run "${conv[@]}" --set output=again.safetensors --set device=gpu
ok "to the bit" cmp conv.safetensors again.safetensors
ok "--profile names its algorithms" eval 'profiled | grep -q "conv2d .* cudnn:implicit_precomp_gemm "'
ok "where there is no cuDNN" env CUDA_WITHOUT=1 "$psctl" run "${conv[@]}" --set output=alone.safetensors --set device=gpu
ok "alike" same conv_cpu alone
ok "cudnn: none" images none --set device=gpu --set cudnn=none
ok "is as if it were not there" cmp alone.safetensors none.safetensors
ok "cudnn: fastest" images fastest --set device=gpu --set cudnn=fastest
ok "alike" same conv_cpu fastest
ok "takes what has no order" eval 'profiled --set cudnn=fastest | grep -q "conv2d_backward_weights  *cudnn:algo_3 "'
export CUDA_WITHOUT=1
ok "cudnn: fastest, where there is none" fails_with 78 \
    "cudnn is fastest: gpu:0 (Emulated GPU): cuDNN cannot be used: CUDNN_STATUS_NOT_INITIALIZED" \
    images none --set device=gpu --set cudnn=fastest
unset CUDA_WITHOUT CUDA_IMPLICIT
ok "on a CPU" fails_with 78 "cudnn is none, and replica 0 is on a cpu: expected a GPU" images none --set cudnn=none
# Values, gradients and slots stay on the GPU there; checkpoints and weights have them all the same.
adam=(--set optimizer='{name: adam, weight_decay: 0.01}' --set device=gpu --set epochs=2)
kept=("${adam[@]}" --set callbacks='[{name: checkpoint, path: kept, every_steps: 7}]')
ok "adam, on the CPU" trains adam_cpu "${adam[@]}" --set device=cpu
ok "on a GPU" trains adam "${adam[@]}"
ok "alike" same adam_cpu adam
ok "up to step 9" trains went "${kept[@]}" --set steps=9
ok "goes on from step 7" timeout 600 "$WORKERD" --job "$job" --resume "${small[@]}" "${kept[@]}" --set output=resumed.safetensors
ok "to the bit" cmp adam.safetensors resumed.safetensors
by_nccl() { mirrored "$@" --set strategy.compare_every=1 2>&1 | grep "replicas add up gradients by NCCL"; }
ok "mirrored, on two GPUs" by_nccl two '[gpu:0,gpu:1]' --set batch_size=12
ok "alike" same cpu two
export CUDA_SEED=5
ok "in another order" by_nccl order '[gpu:0,gpu:1]' --set batch_size=12
unset CUDA_SEED
ok "to the bit" cmp two.safetensors order.safetensors
export CUDA_DEVICES=4
ok "on four GPUs" by_nccl four '[gpu:0,gpu:1,gpu:2,gpu:3]' --set batch_size=6
export CUDA_DEVICES=2
ok "alike" same cpu four
ok "in the host's memory" mirrored host '[gpu:0,gpu:1]' --set batch_size=12 --set strategy.cross_device_ops=hierarchical_copy
ok "alike" same cpu host
ok "on a GPU and the CPU" mirrored both '[gpu:1,cpu:0]' --set batch_size=12
ok "alike" same cpu both
ok "a GPU that is not there" fails_with 78 "there is no gpu:2: CUDA sees 2, expected gpu:0 to gpu:1" mirrored none '[gpu:0,gpu:2]'
ok "as make check-gpu does" env GPUS_EXAMPLES=300 "$top_srcdir/tests/cuda/gpus.sh"
by_force=(--set strategy.cross_device_ops=nccl --set timeout=1)
ok "a GPU and the CPU do not by NCCL" fails_with 78 "strategy.cross_device_ops is nccl, and replica 1 is on cpu:0: expected GPUs alone" \
    mirrored none '[gpu:0,cpu:0]' "${by_force[@]}"
ok "nor does a rule of the host" fails_with 78 "and the host applies the optimizer sgd of this job: expected one that GPUs apply" \
    mirrored none '[gpu:0,gpu:1]' "${by_force[@]}" --set optimizer.clipnorm=1
export CUDA_ABSENT_RANK=2
ok "a rank that never comes" fails_with 70 "replica 0 (gpu:0) waits for 1 s in an all-reduce that has ended on replica 1 (gpu:1)" \
    mirrored none '[gpu:0,gpu:1]' "${by_force[@]}"
unset CUDA_ABSENT_RANK
export CUDA_BREAK=5
ok "an all-reduce that breaks" fails_with 70 "(Emulated GPU): an all-reduce has failed: NCCL: remote process exited" \
    mirrored none '[gpu:0,gpu:1]' "${by_force[@]}"
unset CUDA_BREAK
job=$examples/softmax/sync.yaml
local=(--set strategy='{name: local_steps, local_steps: 3}' --set optimizer='{name: adam, learning_rate: 0.001}' --set epochs=2)
parts=(--set strategy.fragments=2 --set strategy.fragment_sync_delay=1)
ok "local_steps, two workers" trains local --workers 2 "${local[@]}"
ok "on GPUs" trains local_gpu --workers 2 "${local[@]}" --set device=gpu
ok "alike" same local local_gpu
ok "in fragments" trains parts --workers 2 "${local[@]}" "${parts[@]}"
ok "on GPUs" trains parts_gpu --workers 2 "${local[@]}" "${parts[@]}" --set device=gpu
ok "alike" same parts parts_gpu
ok "parameter_server, sync, two workers" trains sync --workers 2
ok "on GPUs" trains sync_gpu --workers 2 --set device=gpu
ok "alike" same sync sync_gpu

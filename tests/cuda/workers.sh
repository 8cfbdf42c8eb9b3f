#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# multi_worker_mirrored with communication nccl: all GPUs of all workers add up among themselves. On emulated GPUs, whose
# NCCL works between processes. What they train is what the ring trains and what one device trains; who is lost is left
# out and comes back; who cannot take part is named.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
export WORKERD=$top_builddir/tests/cuda/workerd
job=$examples/softmax/one_device.yaml
small=(--set data.train_examples=250 --set data.test_examples=100 --set epochs=2 --set batch_size=6)
by_all=(--set strategy.name=multi_worker_mirrored --set strategy.compare_every=1)
two='[gpu:0,gpu:1]'
# workers OUTPUT COMMUNICATION ARGUMENT ...: two workers of two GPUs
workers() {
    local output=$1 communication=$2
    shift 2
    timeout 600 "$psctl" run --workers 2 "$job" "${small[@]}" "${by_all[@]}" --set strategy.devices="$two" \
        --set strategy.communication="$communication" --set output="$output.safetensors" "$@"
}
by_nccl() { workers "$@" >said 2>&1 && [ "$(grep -c '4 replicas add up gradients by NCCL' said)" = 2 ]; }
same() { "$top_builddir/tests/it/max_diff" -a "$1.safetensors" "$2.safetensors" 1e-5; }

ok "one device, batches of 24" timeout 600 "$psctl" run "$job" "${small[@]}" --set batch_size=24 --set output=one.safetensors
ok "two workers of two GPUs, on the ring" workers ring ring
ok "by NCCL" by_nccl nccl nccl
ok "as one device" same one nccl
ok "as the ring" same ring nccl
export CUDA_SEED=6
ok "in another order" by_nccl again nccl
unset CUDA_SEED
ok "to the bit" cmp nccl.safetensors again.safetensors
ok "by themselves" by_nccl auto auto
ok "to the bit" cmp nccl.safetensors auto.safetensors
adam=(--set optimizer='{name: adam, weight_decay: 0.01}')
ok "adam, one device" timeout 600 "$psctl" run "$job" "${small[@]}" "${adam[@]}" --set batch_size=24 --set output=one.safetensors
ok "by NCCL" by_nccl nccl nccl "${adam[@]}"
ok "as one device" same one nccl
kept=("${adam[@]}" --set callbacks='[{name: checkpoint, path: kept, every_steps: 7}]')
ok "up to step 9" by_nccl went nccl "${kept[@]}" --set steps=9
ok "go on from step 7" by_nccl went nccl "${kept[@]}" --resume
ok "to the bit" cmp nccl.safetensors went.safetensors
ok "one worker of two GPUs" eval 'workers one nccl --workers 1 --set batch_size=12 "${adam[@]}" 2>&1 | grep -q "2 replicas add up gradients by NCCL"'
ok "as two workers" same one nccl
ok "halves travel on the ring" workers half auto --set strategy.gradient_compression=bfloat16
ok "and not by NCCL" fails_with 65 "strategy.gradient_compression bfloat16 does not go with strategy.communication nccl" \
    workers x nccl --set strategy.gradient_compression=bfloat16
ok "hybrid has no such thing" fails_with 65 "strategy.communication nccl does not go with strategy.name hybrid" \
    "$workerd" --job "$job" --set strategy.name=hybrid --set strategy.communication=nccl

# Three workers of their own, each with a GPU unless another device is said.
addresses=(unix:$scratch/0 unix:$scratch/1 unix:$scratch/2)
printf 'worker: ["%s", "%s", "%s"]\n' "${addresses[@]}" >three.yaml
endless=(--set epochs=100000 --set callbacks=[])
start() { # RANK COMMUNICATION ARGUMENT ...
    local rank=$1 communication=$2
    shift 2
    rm -f "log$rank"
    CUDA_SEED=$((rank + ${seed:-1})) "$WORKERD" --job "$job" "${small[@]}" "${by_all[@]}" "${endless[@]}" --cluster three.yaml --rank "$rank" \
        --set device=gpu --set strategy.communication="$communication" --set output="$scratch/of$rank.safetensors" "$@" \
        >"log$rank" 2>&1 &
    pid[$rank]=$!
}
says() { grep -q -- "$1" "$2" || { tail -n 3 "$2"; false; }; }
soon() { # TEXT LOG
    for _ in $(seq 1200); do
        grep -q -- "$1" "$2" 2>/dev/null && return
        sleep 0.1
    done
    tail -n 5 "$2"
    return 1
}
start_three() { # COMMUNICATION ARGUMENT ...
    for rank in 0 1 2; do start $rank "$@"; done
    soon 'Epoch 2/' log0
}
trains() { # RANK
    local epoch
    epoch=$(grep -c Epoch "log$1")
    for _ in $(seq 1200); do
        [ "$(grep -c Epoch "log$1")" -gt $((epoch + 2)) ] && return
        sleep 0.1
    done
    tail -n 5 "log$1"
    return 1
}
ended_with() { # RANK CODE
    local got=0
    wait "${pid[$1]}" || got=$?
    tail -n 2 "log$1"
    echo "exit $got"
    [ $got = "$2" ]
}
end_all() { # RANK ...
    local rank
    for rank in "$@"; do kill -TERM "${pid[$rank]}"; done
    for rank in "$@"; do wait "${pid[$rank]}"; done
}
one_is_lost() { # RANK SIGNAL LOWEST OTHER ARGUMENT ...
    ok "three workers train" start_three nccl "${@:5}"
    ok "by NCCL" says "3 replicas add up gradients by NCCL" log0
    kill -"$2" "${pid[$1]}"
    ok "worker $1 gets $2: worker $3 goes on" soon "goes on with 2 of 3 workers" "log$3"
    ok "and worker $4" soon "goes on with 2 of 3 workers" "log$4"
    ok "both name it" eval "says 'worker $1 (.*) is gone' log$3 && says 'worker $1 (.*) is gone' log$4"
    ok "they add up by NCCL" soon "2 replicas add up gradients by NCCL" "log$3"
    ok "and train" trains "$3"
    kill -KILL "${pid[$1]}"
    kill -CONT "${pid[$1]}"
    wait "${pid[$1]}"
}
for seed in 1 2; do
    one_is_lost 1 KILL 0 2
    start 1 nccl
    ok "it comes back" soon "goes on with 3 of 3 workers" log0
    ok "three add up by NCCL" soon "3 replicas add up gradients by NCCL" log1
    ok "and train" trains 0
    end_all 0 1 2
done
one_is_lost 0 KILL 1 2
end_all 1 2
one_is_lost 2 STOP 0 1
end_all 0 1
# In the midst of a step, too, where that waits for the statistics of the batch.
norm='{"class_name": "BatchNormalization", "config": {"name": "norm%d", "synchronized": true}}'
dense='{"class_name": "Dense", "config": {"name": "dense%d", "units": 10}}'
printf '{"class_name": "Sequential", "config": {"name": "net", "layers": [%s, %s, '"$dense, $norm, $dense, $norm, $dense"']}}' \
    '{"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 28, 28, 1]}}' \
    '{"class_name": "Flatten", "config": {"name": "flatten"}}' 1 1 2 2 3 >norm.json
one_is_lost 1 KILL 0 2 --set model=norm.json --set loss='{name: sparse_categorical_crossentropy, from_logits: true}'
kill -TERM "${pid[2]}" "${pid[0]}" # who keeps the weights ends at once
ok "a signal: worker 0 keeps the weights" ended_with 0 143
ok "they can be read" "$top_builddir/tests/it/max_diff" -a of0.safetensors of0.safetensors 0
ok "worker 2 ends, too" ended_with 2 143

# One that stands still, for less time than it takes to be lost, is awaited, and named.
three_that_look() { start_three nccl --set strategy.stall_seconds=1; }
ok "three workers train" three_that_look
stalls() {
    for _ in $(seq 20); do
        pause "${pid[1]}" 1.3
        if [ "$paused_ms" -gt 1600 ]; then # it may be lost with good reason: other three are looked at
            end_all 0 1 2
            three_that_look || return 1
            continue
        fi
        sleep 0.5
        grep -q "waiting for .*worker 1 (.*), for 1\.[0-9] s: all-reduce of gradients in step [0-9]*$" log0 log2 && return
    done
    tail -n 3 log0 log2
    return 1
}
ok "one stands still: it is named" stalls
ok "they train" trains 0
ok "nobody is lost" eval "! grep -q 'is gone' log0 log2"
end_all 0 1 2

# One whose replica is on the CPU: by themselves they use the ring then, until it has gone, and again when it is back.
why="worker 1 cannot: the replica is on cpu: expected a GPU"
ring="gradients are added up in the hosts' memory and not by NCCL: $why"
start 0 auto
start 1 auto --set device=cpu
start 2 auto
ok "a worker without a GPU: they train" soon 'Epoch 2/' log0
ok "on the ring: all say why" eval 'says "$ring" log0 && says "$ring" log1 && says "$ring" log2'
kill -KILL "${pid[1]}"
wait "${pid[1]}"
ok "without it by NCCL" soon "2 replicas add up gradients by NCCL" log2
ok "they train" trains 0
start 1 auto --set device=cpu
ok "it comes back" soon "goes on with 3 of 3 workers" log0
ok "they add up on the ring" soon "$ring" log1
ok "and train" trains 0
ok "and are equal" eval "! grep -q 'has other variables' log0 log1 log2"
end_all 0 1 2
said="strategy.communication is nccl, and $why"
start 0 nccl
start 1 nccl --set device=cpu
start 2 nccl
ok "nccl and a worker without a GPU: worker 0 says which" eval 'ended_with 0 78 && says "$said" log0'
ok "worker 1 does" eval 'ended_with 1 78 && says "$said" log1'
ok "worker 2 does" eval 'ended_with 2 78 && says "$said" log2'
# Two on one GPU.
export CUDA_UUID=1
why="worker 1 cannot: replica 0 is on a GPU that worker 0 is on: expected one of its own"
ring="gradients are added up in the hosts' memory and not by NCCL: $why"
start 0 auto
start 1 auto
CUDA_UUID=2 start 2 auto
ok "two workers on one GPU: they train" soon 'Epoch 2/' log0
ok "on the ring: all say why" eval 'says "$ring" log0 && says "$ring" log1 && says "$ring" log2'
kill -KILL "${pid[1]}"
wait "${pid[1]}"
ok "without it by NCCL" soon "2 replicas add up gradients by NCCL" log2
end_all 0 2
said="strategy.communication is nccl, and $why"
start 0 nccl
start 1 nccl
CUDA_UUID=2 start 2 nccl
ok "nccl and two workers on one GPU: worker 0 says which" eval 'ended_with 0 78 && says "$said" log0'
ok "worker 1 and 2 do" eval 'ended_with 1 78 && says "$said" log1 && ended_with 2 78 && says "$said" log2'
unset CUDA_UUID
start 0 nccl --set optimizer.clipnorm=1
start 1 nccl --set optimizer.clipnorm=1
start 2 nccl --set optimizer.clipnorm=1
said="strategy.communication is nccl, and worker 0 cannot: the host applies the optimizer sgd of this job"
ok "nccl and a rule of the host" eval 'ended_with 0 78 && says "$said" log0 && ended_with 1 78 && ended_with 2 78'

# What goes wrong in NCCL while all workers live.
export CUDA_ABSENT_RANK=2
for rank in 0 1 2; do start $rank nccl --set timeout=10 --set strategy.compare_every=0; done
ends() { ended_with "$1" 70 || ended_with "$1" 75; }
ok "a rank that never comes: worker 0 says so" eval 'ends 0 && says "replica 0 (gpu) waits for 10 s in an all-reduce to which all have come" log0'
ok "and worker 2" eval 'ends 2 && says "replica 0 (gpu) waits for 10 s in an all-reduce to which all have come" log2'
end_all 1
unset CUDA_ABSENT_RANK
export CUDA_BREAK=5
for rank in 0 1 2; do start $rank nccl; done
ok "an all-reduce that breaks: worker 0 says so" eval 'ends 0 && says "an all-reduce has failed: NCCL: remote process exited" log0'
ok "and worker 1" eval 'ends 1 && says "an all-reduce has failed: NCCL: remote process exited" log1'
end_all 2
unset CUDA_BREAK

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Replicas without a ps task: of one process (mirrored) and of workers that form a ring (multi_worker_mirrored). What they
# train is what one device trains (tests/it/examples.sh has more of that); what becomes of it when one of them ends.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
job=$examples/softmax/one_device.yaml
small=(--set data.train_examples=1000 --set data.test_examples=100 --set epochs=2 --set batch_size=24)
replicas() { # N: a list of devices
    seq -s , -f 'cpu:%g' 0 $(($1 - 1))
}
# mirrored OUTPUT REPLICAS ARGUMENT ...; ring OUTPUT WORKERS ARGUMENT ...
mirrored() {
    local output=$1 n=$2
    shift 2
    timeout 100 "$psctl" run "$job" --set strategy.name=mirrored --set strategy.devices="[$(replicas "$n")]" \
        "${small[@]}" --set output="$output.safetensors" "$@"
}
ring() {
    local output=$1 n=$2
    shift 2
    timeout 100 "$psctl" run --workers "$n" "$job" --set strategy.name=multi_worker_mirrored "${small[@]}" \
        --set output="$output.safetensors" "$@"
}
same() { "$top_builddir/tests/it/max_diff" "$@"; }

# 1000 examples are 13.9 batches of 3 times 24: the last step has fewer rows for one replica, and none for another.
ok "three replicas" mirrored three 3
ok "again" mirrored again 3
ok "to the bit" cmp three.safetensors again.safetensors
ok "three workers" ring workers 3
ok "again" ring again 3
ok "to the bit" cmp workers.safetensors again.safetensors
ok "one device, batches of 72" timeout 100 "$psctl" run "$job" "${small[@]}" --set batch_size=72 --set output=one.safetensors
ok "replicas as one device" same -a one.safetensors three.safetensors 1e-4
ok "workers as one device" same -a one.safetensors workers.safetensors 1e-4
ok "three workers that share no memory" ring apart 3 --set strategy.communication=ring
ok "as one device" same -a one.safetensors apart.safetensors 1e-4
ok "again" ring again 3 --set strategy.communication=ring
ok "to the bit" cmp apart.safetensors again.safetensors
ok "two workers of two replicas" ring four 2 --set strategy.devices="[cpu:0,cpu:1]" --set batch_size=18
ok "as one device" same -a one.safetensors four.safetensors 1e-4
ok "one replica is one device" mirrored alone 1 --set batch_size=72
ok "to the bit" cmp one.safetensors alone.safetensors

# What one measures is of all.
says() { grep -q -- "$1" "$2"; }
mirrored a 2 --summary a.json >a.log 2>&1
ring b 2 --summary b.json >b.log 2>&1
figures() { sed -n 's/.*\(accuracy: .*\)/\1/p' "$1"; }
figures_are_alike() { [ -n "$(figures a.log)" ] && [ "$(figures a.log)" = "$(figures b.log)" ]; }
ok "replicas and workers show the same figures" figures_are_alike

# A training that goes on from a checkpoint ends with the bytes of one that never stopped.
adam=(--set optimizer='{name: adam}')
kept=("${adam[@]}" --set callbacks='[{name: checkpoint, path: kept, every_steps: 7}]')
ok "three replicas in one go" mirrored whole 3 "${adam[@]}"
ok "and up to step 9" mirrored went 3 "${kept[@]}" --set steps=9
ok "go on from step 7" timeout 100 "$workerd" --job "$job" --resume --set strategy.name=mirrored \
    --set strategy.devices="[$(replicas 3)]" "${small[@]}" --set output=went.safetensors "${kept[@]}"
ok "to the bit" cmp whole.safetensors went.safetensors

# Where an epoch ends with the last step of a run, it has ended: the log goes on with the next.
logged=("${kept[@]}" --set callbacks='[{name: checkpoint, path: kept, every_steps: 14}, {name: csv_log, path: log.csv}]')
rm -rf kept
ok "three replicas, logged" mirrored whole 3 "${logged[@]}"
cut -d , -f 1-5 log.csv >whole.csv
rm -rf kept log.csv
ok "and their first epoch" mirrored went 3 "${logged[@]}" --set steps=14
ok "go on with the second" timeout 100 "$workerd" --job "$job" --resume --set strategy.name=mirrored \
    --set strategy.devices="[$(replicas 3)]" "${small[@]}" --set output=went.safetensors "${logged[@]}"
ok "to the bit" cmp whole.safetensors went.safetensors
epochs() { cut -d , -f 1 "$1" | tr '\n' ' '; }
ok "each epoch is logged once" test "$(epochs log.csv)" = "$(epochs whole.csv)"

# Mistakes.
ok "a device is there once" fails_with 65 "cpu:1 is there twice" mirrored x 1 --set strategy.devices="[cpu:1,cpu:1]"
ok "a device is of a kind" fails_with 65 "must be a device, as in cpu:0, of kind cpu or gpu" mirrored x 1 --set strategy.devices="[tpu:1]"
ok "ps tasks have no devices" fails_with 65 "does not go with strategy.name parameter_server" \
    "$psctl" run "$examples/softmax/async.yaml" --set strategy.devices="[cpu:0]"
ok "mirrored has one worker" fails_with 65 "has one worker, of rank 0" \
    "$workerd" --job "$job" --set strategy.name=mirrored --rank 1 --workers 2
ok "workers need addresses" fails_with 78 "needs the workers' addresses" env -u TF_CONFIG \
    "$workerd" --job "$job" --set strategy.name=multi_worker_mirrored --workers 2
printf 'worker: ["127.0.0.1:1", "nowhere"]\n' >bad.yaml
ok "each its own" fails_with 78 "worker 1 has no address" \
    "$workerd" --job "$job" --set strategy.name=multi_worker_mirrored --cluster bad.yaml
printf 'worker: ["0.0.0.0:7", "127.0.0.1:1"]\n' >open.yaml
printf 'worker: ["127.0.0.1:1", "127.0.0.1:1"]\n' >bad.yaml
ok "and no other's" fails_with 65 "is there twice, each worker needs its own" \
    "$workerd" --job "$job" --set strategy.name=multi_worker_mirrored --cluster bad.yaml
ok "a profile is of one replica" fails_with 65 "expected one worker and one device" "$workerd" --job "$job" --profile \
    --set strategy.name=mirrored --set strategy.devices="[cpu:0,cpu:1]"
ok "loopback alone, unless told otherwise" fails_with 78 "insecure" \
    "$workerd" --job "$job" --set strategy.name=multi_worker_mirrored --cluster open.yaml
one_infinite() { # a gradient that is none, at both
    fails_with 65 "is not finite" ring x 2 --set strategy.refuse_nonfinite=true --set data.scale=1e30
}
ok "a gradient that is not finite ends all" one_infinite

# One of three workers is killed, stopped, or leaves: the others end, and name it.
endless=(--set epochs=100000 --set callbacks=[])
workers=(unix:$scratch/0 unix:$scratch/1 unix:$scratch/2)
printf 'worker: ["%s", "%s", "%s"]\n' "${workers[@]}" >three.yaml
start() { # RANK COMMUNICATION
    "$workerd" --job "$job" --set strategy.name=multi_worker_mirrored "${small[@]}" "${endless[@]}" --cluster three.yaml \
        --set strategy.communication="$2" --rank "$1" --set output="$scratch/of$1.safetensors" >"log$1" 2>&1 &
    pid[$1]=$!
}
start_three() { # COMMUNICATION
    for rank in 0 1 2; do start $rank "$1"; done
    for _ in $(seq 300); do
        grep -q 'Epoch 3/' log0 && return
        sleep 0.1
    done
    return 1
}
ended_with() { # RANK CODE
    wait "${pid[$1]}"
    [ $? = "$2" ]
}
one_ends() { # COMMUNICATION
    ok "$1: three workers train" start_three "$1"
    kill -KILL "${pid[1]}"
    ok "$1: one is killed: worker 0 ends" ended_with 0 75
    ok "$1: and worker 2" ended_with 2 75
    ok "$1: worker 0 names it" says 'worker 1 (.*) is gone' log0
    ok "$1: worker 2 names it" says 'worker 1 (.*) is gone' log2
    ok "$1: three workers train" start_three "$1"
    kill -STOP "${pid[2]}"
    ok "$1: one stands still: worker 0 ends" ended_with 0 75
    ok "$1: and worker 1" ended_with 1 75
    ok "$1: worker 0 names it" says 'worker 2 (.*) is gone' log0
    ok "$1: worker 1 names it" says 'worker 2 (.*) is gone' log1
    kill -KILL "${pid[2]}"
    kill -CONT "${pid[2]}"
    wait "${pid[2]}"
}
one_ends auto
one_ends ring
ok "three workers train" start_three auto
kill -TERM "${pid[0]}" "${pid[1]}" "${pid[2]}"
ok "a signal to all: worker 0 keeps the weights" ended_with 0 143
ok "they can be read" same -a of0.safetensors of0.safetensors 0
ok "it says where" says 'the weights are in .*of0.safetensors' log0
ok "worker 1 ends" ended_with 1 143
ok "worker 2 ends" ended_with 2 143
ok "which write nothing" test ! -e of1.safetensors

# They are never at the same instant: who is first ends the others, and the weights are kept all the same.
ok "three workers train" start_three auto
rm -f of0.safetensors
for rank in 2 1 0; do
    kill -TERM "${pid[$rank]}"
    sleep 0.05
done
wait "${pid[0]}" "${pid[1]}" "${pid[2]}"
ok "signals one after the other: worker 0 keeps the weights" test -s of0.safetensors
ok "it says where" says 'the weights are in .*of0.safetensors' log0

# Workers of several hosts go on from files of their own, which may be those of different steps.
two=(--set strategy.name=multi_worker_mirrored "${small[@]}" "${adam[@]}")
printf 'worker: ["unix:%s/0", "unix:%s/1"]\n' "$scratch" "$scratch" >two.yaml
both() { # ARGUMENT ...
    (mkdir -p host1 && cd host1 && "$workerd" --quiet --job "$job" --cluster ../two.yaml --rank 1 "${two[@]}" "$@") >log1 2>&1 &
    (mkdir -p host0 && cd host0 && "$workerd" --quiet --job "$job" --cluster ../two.yaml --rank 0 "${two[@]}" "$@") >log0 2>&1
    local code=$?
    wait $!
    return $code
}
own=(--set callbacks='[{name: checkpoint, path: kept, every_steps: 7}]')
ok "two workers up to step 9" both "${own[@]}" --set steps=9
both --resume "${own[@]}"
ok "one goes on, one begins anew" says 'replica 1 has other variables, or is at another step' log0
ok "both say so" says 'replica 1 has other variables, or is at another step' log1
cp -r host0/kept host1/
ok "both go on" both --resume "${own[@]}"

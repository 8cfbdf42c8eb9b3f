#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Replicas without a ps task: of one process (mirrored) and of workers that form a ring (multi_worker_mirrored). What they
# train is what one device trains (tests/it/examples.sh has more of that); what becomes of it when one of them is lost.
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
    timeout 600 "$psctl" run "$job" --set strategy.name=mirrored --set strategy.devices="[$(replicas "$n")]" \
        "${small[@]}" --set output="$output.safetensors" "$@"
}
ring() {
    local output=$1 n=$2
    shift 2
    timeout 600 "$psctl" run --workers "$n" "$job" --set strategy.name=multi_worker_mirrored "${small[@]}" \
        --set output="$output.safetensors" "$@"
}
same() { "$top_builddir/tests/it/max_diff" "$@"; }
differ() { ! cmp -s "$1" "$2"; }

# 1000 examples are 13.9 batches of 3 times 24: the last step has fewer rows for one replica, and none for another.
ok "three replicas" mirrored three 3
ok "again" mirrored again 3
ok "to the bit" cmp three.safetensors again.safetensors
ok "three workers" ring workers 3
ok "again" ring again 3
ok "to the bit" cmp workers.safetensors again.safetensors
ok "one device, batches of 72" timeout 600 "$psctl" run "$job" "${small[@]}" --set batch_size=72 --set output=one.safetensors
ok "replicas as one device" same -a one.safetensors three.safetensors 1e-4
ok "workers as one device" same -a one.safetensors workers.safetensors 1e-4
ok "three workers that share no memory" ring apart 3 --set strategy.communication=ring
ok "as one device" same -a one.safetensors apart.safetensors 1e-4
ok "again" ring again 3 --set strategy.communication=ring
ok "to the bit" cmp apart.safetensors again.safetensors
# Between hosts gradients may travel in 16 bits, which is less exact, and equal at all ranks.
for half in bfloat16 float16; do
    ok "gradients travel as $half" ring $half 3 --set strategy.communication=ring \
        --set strategy.gradient_compression=$half --set strategy.compare_every=1
    ok "nearly as one device" same -a one.safetensors $half.safetensors 1e-2
    ok "not to the bit" differ apart.safetensors $half.safetensors
done
ok "two workers of two replicas" ring four 2 --set strategy.devices="[cpu:0,cpu:1]" --set batch_size=18
ok "as one device" same -a one.safetensors four.safetensors 1e-4
ok "one replica is one device" mirrored alone 1 --set batch_size=72
ok "to the bit" cmp one.safetensors alone.safetensors

# Where replica 0 alone has the slots and applies the rule, the bytes are those of replicas that all do.
central() { mirrored "$@" --set strategy.name=central_storage --set strategy.compare_every=1; }
for rule in '{name: sgd, momentum: 0.9}' '{name: adam, use_ema: true, ema_momentum: 0.9}' '{name: adam, global_clipnorm: 0.5}'; do
    ok "central storage, $rule" central central 3 --set optimizer="$rule"
    ok "mirrored" mirrored mirrored 3 --set optimizer="$rule"
    ok "to the bit" cmp mirrored.safetensors central.safetensors
done

# Three replicas at three times the rate, to which 14 steps lead; so do they where ps tasks apply them.
scaled=(--set optimizer='{name: sgd, learning_rate: 0.01, scale_learning_rate: linear, warmup_epochs: 1}')
by_hand=(--set optimizer='{name: sgd, learning_rate: {schedule: constant, initial: 0.03, warmup_steps: 14, warmup_initial: 0.01}}')
ok "three times the learning rate" eval 'mirrored scaled 3 "${scaled[@]}" 2>scaled.log'
ok "which is said" grep -q "learning rate 0.03: 0.01 times 3, for 3 replicas; from 0.01 in the first 14 steps" scaled.log
ok "by hand" mirrored by_hand 3 "${by_hand[@]}"
ok "to the bit" cmp scaled.safetensors by_hand.safetensors
ok "of workers" ring scaled_ring 3 "${scaled[@]}"
ok "by hand" ring by_hand_ring 3 "${by_hand[@]}"
ok "to the bit" cmp scaled_ring.safetensors by_hand_ring.safetensors
served() { # OUTPUT ARGUMENT ...
    local output=$1
    shift
    timeout 600 "$psctl" run --ps 2 --workers 3 "$job" --set strategy='{name: parameter_server, update: sync}' "${small[@]}" \
        --set output="$output.safetensors" "$@"
}
ok "of workers with ps tasks" served scaled_ps "${scaled[@]}"
ok "by hand" served by_hand_ps "${by_hand[@]}"
ok "to the bit" cmp scaled_ps.safetensors by_hand_ps.safetensors

# Each replica on cores of its own, with the threads that it starts.
cores=$(awk '/^Cpus_allowed_list/ {print $2}' /proc/self/status)
bound() { # BIND CORES-OF-REPLICA-0 CORES-OF-REPLICA-1
    local pid found=1
    "$workerd" --job "$job" --set strategy.name=mirrored --set strategy.devices="[cpu:0,cpu:1]" "${small[@]}" --set epochs=100000 \
        --set callbacks=[] --set threads=2 --set bind="$1" --set output=bound.safetensors >bound.log 2>&1 &
    pid=$!
    for _ in $(seq 300); do
        cat /proc/$pid/task/*/status 2>/dev/null | awk '/^Cpus_allowed_list/ {print $2}' | sort | uniq -c >allowed
        grep -q "Epoch 2/" bound.log && [ "$(awk -v a="$2" '$2 == a {print $1}' allowed)" -ge 2 ] &&
            [ "$(awk -v a="$3" '$2 == a {print $1}' allowed)" -ge 2 ] && found=0 && break
        sleep 0.1
    done 2>/dev/null
    kill -TERM $pid
    wait $pid
    cat allowed
    tail -n 3 bound.log
    [ $found = 0 ] && grep -qF "cores: replica 0 on $2, replica 1 on $3" bound.log
}
first=${cores%%[-,]*} last=${cores##*[-,]}
mask() { # CORE
    local zeros=$(($1 / 4))
    printf '0x%x' $((1 << $1 % 4))
    [ $zeros = 0 ] || printf '%0*d' $zeros 0
}
part() { sed -n "s/.*replica $1 on \([0-9,-]*[0-9]\).*/\1/p" auto.log; }
[ "$first" = "$last" ] || ok "a mask for each replica" bound "'$(mask "$last"),$(mask "$first")'" "$last" "$first"
if grep -q '^#define HAVE_HWLOC' "$top_builddir/config.h"; then
    ok "auto" eval 'mirrored auto 2 --set bind=auto 2>auto.log'
    ok "a part for each replica" eval '[ "$(part 0)" ] && { [ "$first" = "$last" ] || [ "$(part 0)" != "$(part 1)" ]; }'
    [ "$first" = "$last" ] || ok "where its threads are" bound auto "$(part 0)" "$(part 1)"
else
    ok "auto needs hwloc" fails_with 78 "bind: auto needs hwloc" "$workerd" --job "$job" --set bind=auto
fi
for bind in "'0x1'" "'0x1,0x1,0x1'" "'0x1,'" "'1,2'" "'0x0,0x1'" "'0xg,0x1'" all; do
    ok "bind: $bind" fails_with 65 "expected none, auto, or a mask of cores for each of 2 replicas, as 0x3,0xc" mirrored x 2 --set bind="$bind"
done
ok "bind: cores that there are not" fails_with 65 "has cores that this process may not use" \
    mirrored x 2 --set bind="'0x1,0x$(printf '8%0200d' 0)'"
ok "one core for both" mirrored one_core 2 --set bind="'$(mask "$first"),$(mask "$first")'"

# What one measures is of all.
says() { grep -q -- "$1" "$2" || ! tail -n 3 "$2"; }
mirrored a 2 --summary a.json >a.log 2>&1
ring b 2 --summary b.json >b.log 2>&1
figures() { sed -n 's/.*\(accuracy: .*\)/\1/p' "$1"; }
figures_are_alike() { [ -n "$(figures a.log)" ] && [ "$(figures a.log)" = "$(figures b.log)" ]; }
ok "replicas and workers show the same figures" figures_are_alike

# A training that goes on from a checkpoint ends with the bytes of one that never stopped, under whichever of the two.
adam=(--set optimizer='{name: adam}')
kept=("${adam[@]}" --set callbacks='[{name: checkpoint, path: kept, every_steps: 7}]')
ok "three replicas in one go" mirrored whole 3 "${adam[@]}"
for then in mirrored central_storage; do
    rm -rf kept
    ok "and up to step 9" mirrored went 3 "${kept[@]}" --set steps=9
    ok "go on from step 7 as $then" timeout 600 "$workerd" --job "$job" --resume --set strategy.name=$then \
        --set strategy.devices="[$(replicas 3)]" "${small[@]}" --set output=went.safetensors "${kept[@]}"
    ok "to the bit" cmp whole.safetensors went.safetensors
done

# Under another strategy, with steps of as many examples, it ends with nearly the same weights.
from_step_7() { # FOLDER STRATEGY ARGUMENT ...: of checkpoints
    local from=$1 strategy=$2
    shift 2
    rm -rf kept
    cp -r "$from" kept
    timeout 600 "$workerd" --job "$job" --resume --set strategy.name="$strategy" "${small[@]}" "${kept[@]}" \
        --set output=went.safetensors "$@"
}
rm -rf kept
ok "three replicas up to step 9" mirrored went 3 "${kept[@]}" --set steps=9
mv kept replicas
ok "one device up to step 9" timeout 600 "$workerd" --job "$job" "${small[@]}" "${kept[@]}" --set batch_size=72 --set steps=9 \
    --set output=went.safetensors
mv kept one
ok "one device goes on as replicas" from_step_7 one mirrored --set strategy.devices="[$(replicas 3)]"
ok "as replicas in one go" same -a whole.safetensors went.safetensors 1e-4
ok "replicas go on as one device" from_step_7 replicas one_device --set batch_size=72
ok "as replicas in one go" same -a whole.safetensors went.safetensors 1e-4
ok "another rule does not go on" fails_with 78 "is of a job with optimizer" from_step_7 one one_device --set optimizer=sgd
rm -rf kept

# Where an epoch ends with the last step of a run, it has ended: the log goes on with the next.
logged=("${kept[@]}" --set callbacks='[{name: checkpoint, path: kept, every_steps: 14}, {name: csv_log, path: log.csv}]')
rm -rf kept
ok "three replicas, logged" mirrored whole 3 "${logged[@]}"
cut -d , -f 1-5 log.csv >whole.csv
rm -rf kept log.csv
ok "and their first epoch" mirrored went 3 "${logged[@]}" --set steps=14
ok "go on with the second" timeout 600 "$workerd" --job "$job" --resume --set strategy.name=mirrored \
    --set strategy.devices="[$(replicas 3)]" "${small[@]}" --set output=went.safetensors "${logged[@]}"
ok "to the bit" cmp whole.safetensors went.safetensors
epochs() { cut -d , -f 1 "$1" | tr '\n' ' '; }
ok "each epoch is logged once" test "$(epochs log.csv)" = "$(epochs whole.csv)"

run=(--set callbacks='[{name: checkpoint, path: run}]')
ok "an epoch of two workers" ring half 2 "${run[@]}" --set epochs=1
ok "psctl run goes on" ring resumed 2 "${run[@]}" --resume
ok "two epochs" ring whole 2
ok "to the bit" cmp whole.safetensors resumed.safetensors

# Mistakes.
ok "a device is there once" fails_with 65 "cpu:1 is there twice" mirrored x 1 --set strategy.devices="[cpu:1,cpu:1]"
ok "by any name" fails_with 65 "cuda:0 is there twice" mirrored x 1 --set strategy.devices="[gpu:0,cuda:0]"
ok "a device is of a kind" fails_with 65 "must be a device, as in cpu:0, of kind cpu or gpu" mirrored x 1 --set strategy.devices="[tpu:1]"
ok "there is one" fails_with 65 "the list is empty: expected a device for each replica" mirrored x 1 --set strategy.devices="[]"
ok "one that is not there is named" fails_with 78 "device gpu:1: there is no CUDA module /nowhere" \
    env PARAMSERVER_CUDA_MODULE=/nowhere "$workerd" --job "$job" --set strategy.name=mirrored --set strategy.devices="[gpu:1]"
ok "ps tasks have no devices" fails_with 65 "does not go with strategy.name parameter_server" \
    "$psctl" run "$examples/softmax/async.yaml" --set strategy.devices="[cpu:0]"
ok "mirrored has one worker" fails_with 65 "has one worker, of rank 0" \
    "$workerd" --job "$job" --set strategy.name=mirrored --rank 1 --workers 2
ok "workers need addresses" fails_with 78 "needs the workers' addresses" env -u TF_CONFIG \
    "$workerd" --job "$job" --set strategy.name=multi_worker_mirrored --workers 2
printf 'worker: ["127.0.0.1:1", "nowhere"]\n' >bad.yaml
ok "each its own" fails_with 78 "worker 1 has no address" \
    "$workerd" --job "$job" --set strategy.name=multi_worker_mirrored --cluster bad.yaml
printf 'ps: ["127.0.0.1:1"]\n' >bad.yaml
ok "not those of ps tasks" fails_with 78 "with the list worker" \
    "$workerd" --job "$job" --set strategy.name=multi_worker_mirrored --cluster bad.yaml
printf 'worker: ["0.0.0.0:7", "127.0.0.1:1"]\n' >open.yaml
printf 'worker: ["127.0.0.1:1", "127.0.0.1:1"]\n' >bad.yaml
ok "and no other's" fails_with 65 "is there twice, each worker needs its own" \
    "$workerd" --job "$job" --set strategy.name=multi_worker_mirrored --cluster bad.yaml
ok "fewer workers than are needed" fails_with 65 "the job needs 2 workers, and has 1" \
    "$workerd" --job "$job" --set strategy.name=mirrored --min-workers 2
ok "a profile is of one replica" fails_with 65 "expected one worker and one device" "$workerd" --job "$job" --profile \
    --set strategy.name=mirrored --set strategy.devices="[cpu:0,cpu:1]"
ok "loopback alone, unless told otherwise" fails_with 78 "insecure" \
    "$workerd" --job "$job" --set strategy.name=multi_worker_mirrored --cluster open.yaml
one_infinite() { # a gradient that is none, at both
    fails_with 65 "is not finite" ring x 2 --set strategy.refuse_nonfinite=true --set data.scale=1e30
}
ok "a gradient that is not finite ends all" one_infinite
ok "nobody is said to go on" eval '! grep "goes on" said'
infinite() { # in one of two epochs
    mirrored x 2 --set data.scale=1e30 --set callbacks='[{name: terminate_on_nan}]' 2>&1 | tee said
    [ "$(grep -c "the training ends with the epoch" said)" = 1 ] && ! grep "Epoch 2" said
}
ok "a loss that is not finite ends it, which is said once" infinite
ok "what has no effect is said" fails_with 0 "strategy mirrored has one worker: --workers 2 is not used" mirrored x 1 --workers 2
printf '#!/bin/sh\necho "$@"\n' >arguments && chmod +x arguments
ok "workers hear how many are needed" fails_with 0 " --min-workers 2" env WORKERD="$scratch/arguments" \
    "$psctl" run --workers 3 --min-workers 2 "$job" --set strategy.name=multi_worker_mirrored

# One of three workers is killed, stands still, or leaves. Who trains compares the replicas before each step.
endless=(--set epochs=100000 --set callbacks=[])
workers=(unix:$scratch/0 unix:$scratch/1 unix:$scratch/2)
printf 'worker: ["%s", "%s", "%s"]\n' "${workers[@]}" >three.yaml
start() { # RANK COMMUNICATION ARGUMENT ...
    local rank=$1 communication=$2
    shift 2
    rm -f "log$rank" # of the one before
    "$workerd" --job "$job" --set strategy.name=multi_worker_mirrored "${small[@]}" "${endless[@]}" --cluster "${cluster:-three.yaml}" \
        --set strategy.communication="$communication" --set strategy.compare_every=1 --rank "$rank" \
        --set output="$scratch/of$rank.safetensors" "$@" >"log$rank" 2>&1 &
    pid[$rank]=$!
}
start_three() { # COMMUNICATION ARGUMENT ...
    for rank in 0 1 2; do start $rank "$@"; done
    eventually grep -q 'Epoch 3/' log0
}
ended_with() { # RANK CODE
    wait "${pid[$1]}"
    [ $? = "$2" ]
}
lose() { # RANK SIGNAL
    kill -"$2" "${pid[$1]}"
}
gone() { # RANK
    kill -KILL "${pid[$1]}"
    kill -CONT "${pid[$1]}"
    wait "${pid[$1]}"
}
# Those that are left train on, under whoever of them is the lowest, until a signal ends them all.
has_gone_on() { grep -q "goes on with $2 of 3 workers" "log$1"; } # RANK OF-THOSE-LEFT
goes_on() { eventually has_gone_on "$@"; }
is_beyond() { [ "$(grep -c Epoch "log$1")" -gt "$2" ]; } # RANK EPOCH
trains() { eventually is_beyond "$1" $(($(grep -c Epoch "log$1") + 2)); } # RANK
one_is_lost() { # COMMUNICATION RANK SIGNAL LOWEST OTHER ARGUMENT ...
    ok "$1: three workers train" start_three "$1" "${@:6}"
    lose "$2" "$3"
    ok "$1: worker $2 gets $3: worker $4 goes on" goes_on "$4" 2
    ok "$1: and worker $5" goes_on "$5" 2
    ok "$1: both name it" eval "says 'worker $2 (.*) is gone' log$4 && says 'worker $2 (.*) is gone' log$5"
    ok "$1: worker $4 trains" trains "$4"
    gone "$2"
    kill -TERM "${pid[$4]}" "${pid[$5]}"
    ok "$1: worker $4 keeps the weights" ended_with "$4" 143
    ok "$1: they can be read" same -a "of$4.safetensors" "of$4.safetensors" 0
    wait "${pid[$5]}"
    rm -f of?.safetensors
}
one_is_lost auto 1 KILL 0 2
one_is_lost auto 0 STOP 1 2
one_is_lost ring 2 STOP 0 1
one_is_lost ring 0 KILL 1 2
# In the midst of a step, too, where that waits for the statistics of the batch.
norm='{"class_name": "BatchNormalization", "config": {"name": "norm%d", "synchronized": true}}'
dense='{"class_name": "Dense", "config": {"name": "dense%d", "units": 10}}'
printf '{"class_name": "Sequential", "config": {"name": "net", "layers": [%s, %s, '"$dense, $norm, $dense, $norm, $dense, $norm, $dense"']}}' \
    '{"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 28, 28, 1]}}' \
    '{"class_name": "Flatten", "config": {"name": "flatten"}}' 1 1 2 2 3 3 4 >norm.json
normalized=(--set model=norm.json --set loss='{name: sparse_categorical_crossentropy, from_logits: true}')
one_is_lost auto 1 KILL 0 2 "${normalized[@]}"
one_is_lost ring 0 STOP 1 2 "${normalized[@]}"

# Most of what travels is ready before the first layers' gradients are, which need no time: these leave first, and the
# rest travels while the next step computes. Who is lost is lost in such a step.
dense() { printf '{"class_name": "Dense", "config": {"name": "dense%d", "units": %d}}' "$@"; }
printf '{"class_name": "Sequential", "config": {"name": "net", "layers": [%s, %s, %s, %s, %s, %s, %s]}}' \
    '{"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 28, 28, 1]}}' \
    '{"class_name": "Flatten", "config": {"name": "flatten"}}' \
    "$(dense 1 16)" "$(dense 2 512)" "$(dense 3 512)" "$(dense 4 512)" "$(dense 5 10)" >deep.json
deep=(--set model=deep.json --set loss='{name: sparse_categorical_crossentropy, from_logits: true}'
    --set optimizer='{name: sgd, learning_rate: 0.01, momentum: 0.9}')
now_and_then=(--set strategy.compare_every=5) # the replicas are compared
in_all() { # RANK ...: all of them train, to the end
    for rank; do start "$rank" ring "${deep[@]}" "${now_and_then[@]}" --set epochs=2 --timeline "timeline$rank.json" "${more[@]}"; done
    for rank; do ended_with "$rank" 0 || { tail -n 3 "log$rank" && return 1; }; done
}
overlap() { # TIMELINE: so many steps, in which sums of the one before still travel
    "$PYTHON3" - "$1" <<'END'
import json, sys
spans = [e for e in json.load(open(sys.argv[1])) if e["ph"] == "X"]
ends = [e["ts"] + e["dur"] for e in spans if e["name"] == "step"]
sums = [(e["ts"], e["ts"] + e["dur"]) for e in spans if e["cat"] == "all_reduce"]
print(sum(any(begin < end < until for begin, until in sums) for end in ends))
END
}
ok "one device" timeout 600 "$psctl" run "$job" "${small[@]}" "${deep[@]}" --set batch_size=72 --set output=one.safetensors
ok "three workers, step over step" in_all 0 1 2
ok "as one device" same -a one.safetensors of0.safetensors 1e-4
ok "steps overlap ($(overlap timeline0.json) of 28)" test "$(overlap timeline0.json)" -gt 3
mv of0.safetensors over.safetensors
ok "again" in_all 0 1 2
ok "to the bit" cmp over.safetensors of0.safetensors
ok "two workers of two replicas" ring four 2 "${deep[@]}" "${now_and_then[@]}" --set strategy.communication=ring \
    --set strategy.devices="[cpu:0,cpu:1]" --set batch_size=18
ok "as one device" same -a one.safetensors four.safetensors 1e-4
more=(--set callbacks='[{name: checkpoint, path: deep, every_steps: 10}]' --set steps=20)
ok "up to step 20" in_all 0 1 2
more=(--resume --set callbacks='[{name: checkpoint, path: deep, every_steps: 10}]')
ok "and on from its checkpoint" in_all 0 1 2
ok "to the bit" cmp over.safetensors of0.safetensors
# A signal to all of them: the step that has begun ends whole, and is in the checkpoint.
more=(--set epochs=20)
ok "twenty epochs" in_all 0 1 2
mv of0.safetensors over.safetensors
more=(--set epochs=20 --set callbacks='[{name: checkpoint, path: signalled, every_steps: 1000}]')
signalled() { # again where it came when all were trained
    local code
    for _ in 1 2 3; do
        rm -rf signalled
        for rank in 0 1 2; do start $rank ring "${deep[@]}" "${now_and_then[@]}" "${more[@]}"; done
        eventually grep -q 'Epoch 4/' log0 || return 1
        kill -TERM "${pid[0]}" "${pid[1]}" "${pid[2]}"
        wait "${pid[1]}" "${pid[2]}"
        code=0
        wait "${pid[0]}" || code=$?
        [ $code = 0 ] || break
    done
    [ $code = 143 ] || ! tail -n 3 log0
}
ok "a signal to all" signalled
more+=(--resume)
ok "and on from where it came" in_all 0 1 2
ok "to the bit" cmp over.safetensors of0.safetensors
more=()
one_is_lost ring 1 KILL 0 2 "${deep[@]}" "${now_and_then[@]}"
one_is_lost ring 0 STOP 1 2 "${deep[@]}" "${now_and_then[@]}"
one_is_lost auto 2 KILL 0 1 "${deep[@]}" "${now_and_then[@]}"

# One that stands still, for less time than it takes to be lost, is awaited: who waits says for whom.
stalls() { # COMMUNICATION RANK LOG ...: in one of some tries, since a busy machine may need longer to look than the worker stands still
    local communication=$1 rank=$2
    shift 2
    for _ in $(seq 20); do
        pause "${pid[$rank]}" 1.3
        if [ "$paused_ms" -gt 1600 ]; then # it may be lost with good reason: other three are looked at
            kill -TERM "${pid[@]}"
            wait "${pid[@]}"
            three_that_look "$communication" || return 1
            continue
        fi
        sleep 0.5
        grep -q "waiting for .*worker $rank (unix:.*/$rank).*, for 1\.[0-9] s: all-reduce of .* in step [0-9]*$" "$@" && return
    done
    tail -n 3 "$@"
    return 1
}
three_that_look() { start_three "$1" --set strategy.stall_seconds=1; } # COMMUNICATION
for communication in auto ring; do
    ok "$communication: three workers train" three_that_look $communication
    ok "$communication: one stands still: it is named" stalls $communication 1 log0 log2
    ok "$communication: the others go on, and say so" \
        eventually eval 'says "goes on after [0-9.]* s: all-reduce of .* in step [0-9]*$" log0 || says "goes on after" log2'
    ok "$communication: it is not lost" eval "! grep -q 'is gone' log0 log2"
    ok "$communication: they train" trains 0
    kill -TERM "${pid[0]}" "${pid[1]}" "${pid[2]}"
    wait "${pid[0]}" "${pid[1]}" "${pid[2]}"
done

# One that comes back gets what the others have, and they train on together: at one rate, which is that of three workers
# all the time, on its way up.
rising=(--set optimizer='{name: sgd, learning_rate: 0.001, scale_learning_rate: linear, warmup_epochs: 9000}')
ok "three workers train" start_three ring "${rising[@]}"
lose 0 KILL
ok "worker 1 goes on" goes_on 1 2
mv log0 log0.before
start 0 ring "${rising[@]}"
ok "worker 0 comes back" goes_on 1 3
ok "worker 1 leads on: it shows the progress" trains 1
ok "and no other does" eval "! grep -q 'Epoch' log0 log2"
rate=$(grep -o "learning rate .*" log0.before)
ok "at the rate that there was" eval '[ "$rate" ] && grep -qF "$rate" log0'
lose 2 KILL
ok "worker 2 is lost" goes_on 0 2
start 2 ring "${rising[@]}"
ok "and comes back" goes_on 0 3
ok "they train" trains 1
lose 1 KILL
ok "worker 1 is lost" goes_on 2 2
ok "worker 0 leads, which came back first" trains 0
ok "from where the others were" eval "! grep -q 'Epoch 1/' log0"
kill -TERM "${pid[0]}" "${pid[2]}"
ok "who came back keeps the weights" ended_with 0 143
ok "in a file" same -a of0.safetensors of0.safetensors 0
wait "${pid[1]}" "${pid[2]}"

# The callbacks of who leads remember all epochs: the first was the best by far, the rate falls every third one.
remember=(--set callbacks='[{name: early_stopping, min_delta: 1000, patience: 100000, restore_best_weights: true},
    {name: reduce_lr_on_plateau, min_delta: 1000, factor: 0.97, patience: 3, monitor: loss}, {name: csv_log, path: led.csv}]'
    --set strategy.compare_every=14)
has_gone_on_or_ended() { has_gone_on "$@" || ! jobs -pr | grep -qx "${pid[$1]}"; }
comes_back() { # worker 0 is killed: of more epochs where the others have trained all before it is back
    for epochs in 600 6000; do
        rm -f led.csv
        start_three ring "${remember[@]}" --set epochs=$epochs || return 1
        lose 0 KILL
        eventually has_gone_on_or_ended 1 2 || return 1
        start 0 ring "${remember[@]}" --set epochs=$epochs
        eventually has_gone_on_or_ended 1 3 && has_gone_on 1 3 && return
        kill -KILL "${pid[0]}"
        wait "${pid[@]}"
    done
    return 1
}
ok "three workers with callbacks train: one is killed, and comes back" comes_back
for rank in 0 1 2; do ok "worker $rank trains to the end" ended_with $rank 0; done
ok "the best weights are those of the first epoch" says "the weights are those of the end of epoch 1, the best" log1
ok "no epoch is missing, and none there twice" eval '[ "$(tail -n +2 led.csv | cut -d, -f1)" = "$(seq 0 $((epochs - 1)))" ]'
every_third_falls() { # the learning rate: the column of this name
    tr -d '\r' <led.csv | awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "learning_rate") rate = i; next }
        NR > 2 && ($rate > last || ($1 % 3 == 1 && $1 > 3) != ($rate < last)) { print $1 ": " $rate " after " last; bad = 1 }
        { last = $rate } END { exit bad || !rate }'
}
ok "the rate falls in every third" every_third_falls

ok "three workers that normalize together" start_three ring "${normalized[@]}"
lose 1 KILL
ok "worker 1 is lost" goes_on 0 2
start 1 ring "${normalized[@]}"
ok "and comes back" goes_on 0 3
ok "it counts: they train" trains 0 # until then worker 0 and 2 alone are of whom a majority has to be left
lose 0 KILL
ok "worker 0 is lost" goes_on 1 2
start 0 ring "${normalized[@]}"
ok "and comes back" goes_on 1 3
ok "they train" trains 2
kill -TERM "${pid[0]}" "${pid[1]}" "${pid[2]}"
wait "${pid[0]}" "${pid[1]}" "${pid[2]}"

# With fewer than they are to be they end, and so does who is less than half.
ok "three workers train" start_three ring --set strategy.min_workers=3
lose 1 KILL
ok "three are needed: worker 0 ends" ended_with 0 75
ok "and worker 2" ended_with 2 75
ok "worker 0 names it" says 'worker 1 (.*) is gone.*2 workers are left, of at least 3' log0
ok "worker 2 names it" says 'worker 1 (.*) is gone.*2 workers are left, of at least 3' log2
ok "worker 0 keeps the weights" says 'the weights are in .*of0.safetensors' log0
ok "three workers train" start_three auto --set strategy.min_workers=3
rm -f of?.safetensors
lose 0 KILL
ok "without worker 0 worker 1 ends" ended_with 1 75
ok "and worker 2" ended_with 2 75
ok "the lowest of them keeps the weights" same -a of1.safetensors of1.safetensors 0
ok "and no other" test ! -e of2.safetensors
ok "three workers train" start_three auto
lose 0 KILL
ok "worker 1 goes on" goes_on 1 2
lose 1 KILL
ok "one of two, which is not the lowest, ends" ended_with 2 75
ok "and says why" says '1 of 2 workers are left, and the others may go on' log2
wait "${pid[0]}" "${pid[1]}"
ok "three workers train" start_three auto
lose 2 KILL
ok "worker 0 goes on" goes_on 0 2
lose 1 KILL
ok "the lowest goes on alone" goes_on 0 1
ok "and trains" trains 0
kill -TERM "${pid[0]}"
ok "until a signal comes" ended_with 0 143

# What the others have trained meanwhile stays.
ok "three workers train" start_three ring
rm -f of?.safetensors
lose 0 STOP
ok "worker 0 stands still: worker 1 goes on" goes_on 1 2
ok "to its end" eval 'kill -TERM "${pid[1]}" "${pid[2]}" && ended_with 1 143'
wait "${pid[2]}"
lose 0 CONT
ok "worker 0 ends, too" ended_with 0 75
ok "and writes nothing" test ! -e of0.safetensors

# Worker 0 takes a connection that nobody serves for worker 1, which it cannot tell so.
dumb() { exec "$PYTHON3" -c 'import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(9); time.sleep(900)' dumb; }
(dumb) &
dumb=$!
sed 's/"[^"]*1",/"unix:dumb",/' three.yaml >strange.yaml
ok "nobody serves" eventually test -S dumb
[ "${SANITIZERS:-no}" = no ] && seconds=5 || seconds=20 # in which all have started
cluster=strange.yaml start 0 ring --set strategy.min_workers=3 --set timeout=$seconds
start 1 ring --set strategy.min_workers=3 --set timeout=$seconds
start 2 ring --set strategy.min_workers=3 --set timeout=$seconds
ok "worker 0 does not reach worker 1" ended_with 0 75
ok "worker 2 hears of it" ended_with 2 75
ok "worker 1 finds that the others have left" ended_with 1 75
kill $dumb
wait $dumb

# Who keeps the weights hears of the signal last: it ends at once, and who has not heard of it by then ends with 75.
ok "three workers train" start_three auto
rm -f of?.safetensors
kill -TERM "${pid[2]}" "${pid[1]}" "${pid[0]}"
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

# Who keeps the weights is killed, and the signal comes to the others before they know it.
saved=(--set callbacks='[{name: checkpoint, path: last, every_steps: 1000000}]')
rm -f of?.safetensors
ok "three workers with checkpoints train" start_three auto "${saved[@]}"
kill -KILL "${pid[0]}"
kill -TERM "${pid[2]}" "${pid[1]}"
ok "worker 0 is killed, a signal to the others: worker 1 keeps the weights" ended_with 1 143
ok "it says where" says 'the weights are in .*of1.safetensors.*--resume goes on' log1
ok "worker 2 ends" ended_with 2 143
ok "and writes nothing" test ! -e of2.safetensors
ok "there is a checkpoint" test "$(find last -name '*.safetensors' | wc -l)" = 1
wait "${pid[0]}"

# After one has come back, who has been there for longest keeps them, whose callbacks remember most.
rm -rf last of?.safetensors
ok "three workers train" start_three auto
lose 0 KILL
ok "worker 1 goes on" goes_on 1 2
start 0 auto
ok "worker 0 comes back" goes_on 1 3
ok "they train" trains 1
kill -TERM "${pid[0]}" "${pid[1]}" "${pid[2]}"
ok "a signal to all: worker 1 keeps the weights" ended_with 1 143
ok "it says where" says 'the weights are in .*of1.safetensors' log1
wait "${pid[0]}" "${pid[2]}"
ok "and no other does" test ! -e of0.safetensors -a ! -e of2.safetensors

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
ok "a file that another worker has not" eval 'both --resume "${own[@]}"; [ $? = 78 ]'
ok "one goes on, one begins anew" says 'replica 1 has other variables, or is at another step' log0
ok "both say so" says 'replica 1 has other variables, or is at another step' log1
cp -r host0/kept host1/
ok "both go on" both --resume "${own[@]}"

# Callbacks that find other rates: that of the first worker holds for all.
worker() { # RANK ARGUMENT ...
    local rank=$1
    shift
    exec timeout 600 "$workerd" --quiet --job "$job" --cluster two.yaml --rank "$rank" "${two[@]}" --set epochs=5 --set batch_size=24 \
        --set strategy.compare_every=1 --set output="$scratch/of$rank.safetensors" "$@" >"log$rank" 2>&1
}
(worker 0) &
differs=$!
ok "test splits of different size" eval '(worker 1 --set data.test_examples=50); [ $? = 78 ]'
ok "are not evaluated together" says "worker 1's data.test_examples is 50, worker 0 opened job '.*' with 100" log1
kill -TERM $differs
wait $differs
plateau='callbacks=[{name: reduce_lr_on_plateau, monitor: loss, patience: 1, min_delta: 100}]'
(worker 1 --set callbacks=[]) &
ok "callbacks of worker 0 alone" eval '(worker 0 --set "$plateau")'
ok "worker 1 follows" wait $!
ok "at a lower rate" says 'the learning rate is reduced' log0
(worker 1 --set "$plateau") &
ok "callbacks of worker 1 alone" eval '(worker 0 --set callbacks=[])'
ok "worker 1 stays with worker 0" wait $!

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A checkpoint that one strategy has written is gone on from under any other: the weights are those of one device that was
# not interrupted, where all take the same batches.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
same() { "$top_builddir/tests/it/max_diff" "$@"; }

peers=unix:$scratch/p0,unix:$scratch/p1
for i in 0 1; do start_psd "p$i" --task "$i" --peers "$peers" || exit 1; done

# All strategies take 64 examples in a step, of which there are 10 in an epoch.
common=(--quiet --job "$examples/softmax/one_device.yaml" --set data.train_examples=640 --set data.test_examples=64)
printf 'worker: ["unix:%s/w0", "unix:%s/w1"]\n' "$scratch" "$scratch" >two.yaml
team=2 # workers
# workers ARGUMENT ...: each says no more than its last line, where it fails.
workers() {
    local rank status=0 pids=()
    for ((rank = 0; rank < team; rank++)); do
        timeout 200 "$workerd" "${common[@]}" --rank $rank --set batch_size=$((64 / team)) "$@" >"worker$rank.log" 2>&1 &
        pids+=($!)
    done
    for ((rank = 0; rank < team; rank++)); do wait "${pids[$rank]}" || { status=$?; tail -n 1 "worker$rank.log"; }; done
    return $status
}
servers() { workers --ps "$peers" --workers $team --set on_existing=replace "$@"; }
# train STRATEGY ARGUMENT ...
train() {
    local strategy=$1
    shift
    case $strategy in
    one_device) timeout 200 "$workerd" "${common[@]}" --set batch_size=64 "$@" ;;
    mirrored)
        timeout 200 "$workerd" "${common[@]}" --set strategy.name=mirrored --set strategy.devices="[cpu:0,cpu:1]" \
            --set batch_size=32 "$@"
        ;;
    multi_worker_mirrored) workers --cluster two.yaml --set strategy.name=multi_worker_mirrored "$@" ;;
    sync | async) servers --set strategy.name=parameter_server --set strategy.partitioner=fixed:2 --set strategy.update="$strategy" "$@" ;;
    ssp) servers --set strategy.name=parameter_server --set strategy.update=ssp --set strategy.staleness=1 "$@" ;;
    local_steps)
        servers --set strategy.name=local_steps --set strategy.update=sync --set strategy.local_steps=1 \
            --set strategy.outer_optimizer="{name: sgd, learning_rate: 1, momentum: 0}" "$@"
        ;;
    esac
}
# begin STRATEGY; go_on STRATEGY OF ARGUMENT ...: from the checkpoint of strategy OF.
kept() { echo "callbacks=[{name: checkpoint, path: $1, $every}]"; }
begin() { train "$1" "${rule[@]}" --set "$(kept "of-$1")" --set epochs="$epochs" --set steps="$steps" --set output=part.safetensors; }
go_on() {
    rm -rf now && cp -r "of-$2" now &&
        train "$1" "${rule[@]}" --resume --set "$(kept now)" --set epochs=3 --set output="$1.safetensors" "${@:3}"
}
all="one_device mirrored multi_worker_mirrored sync"
momentum='optimizer={name: sgd, learning_rate: 0.05, momentum: 0.9}'
adam='optimizer={name: adam, learning_rate: {schedule: cosine, initial: 0.01, decay_steps: 25}}'

# pairs WHAT: each strategy goes on from the checkpoint of each.
pairs() {
    local from to
    ok "$1: one device" train one_device "${rule[@]}" --set epochs=3 --set output=whole.safetensors
    for from in $all; do
        ok "$1: $from begins" begin "$from"
        for to in $all; do
            ok "$1: $to goes on from $from" go_on "$to" "$from"
            ok "as if it had been one device" same -a whole.safetensors "$to.safetensors" 1e-5
        done
    done
    rm -rf of-*
}
every='keep: 1' epochs=1 steps=0 rule=(--set "$momentum")
pairs "momentum, after an epoch"
rule=(--set "$adam")
every='every_steps: 4' epochs=2 steps=16
pairs "adam, in the middle of an epoch"

# The same 64 examples a step by another number of workers; a step of others is told of, by the first worker alone.
every='keep: 1' epochs=1 steps=0
ok "two workers of 32 begin" begin sync
team=1
ok "one of 64 goes on" go_on sync sync
ok "as if it had been one device all along" same -a whole.safetensors sync.safetensors 1e-5
ok "and says nothing of its steps" eval '! grep "examples a step" worker0.log'
team=2
smaller() { # the size of a batch is what it was, of the workers one is left
    team=1 go_on sync sync --set batch_size=32 && grep "took 64 examples a step, this one takes 32; the learning rate goes on as it was" worker0.log
}
ok "one of 32 goes on, and says that a step is smaller" smaller
ok "two of 64 take other steps with another batch_size: refused" fails_with 78 "is of a job with batch_size=32, but this one has batch_size=64" \
    go_on sync sync --set batch_size=64
rm -rf of-*
ok "two devices with 32 each begin" begin mirrored
ok "one device with 64 goes on" go_on mirrored mirrored --set strategy.devices=[cpu:0] --set batch_size=64
ok "as if there had been one all along" same -a whole.safetensors mirrored.safetensors 1e-5
rm -rf of-*

# Without rounds, and with weights that are exchanged, a single worker does what one device does.
team=1
all="one_device async ssp local_steps"
pairs "adam, a worker, in the middle of an epoch"
team=2

# Two without rounds: all examples are trained, and the rule is applied as often as both have pushed.
every='keep: 1' epochs=1 steps=0
iterations() { # FOLDER STEP
    local ahead
    ahead=$(head -c 20000 "$1"/softmax-*.safetensors | grep -ao 'iterations_ahead[^0-9-]*[0-9-]*' | grep -o '[0-9-]*$')
    echo $((ahead + $(basename "$1"/softmax-*.safetensors .safetensors | sed 's/.*-0*//')))
}
for update in async ssp; do
    ok "two workers, $update" begin $update
    ok "have pushed 20 gradients" test "$(iterations of-$update)" = 20
    ok "one device goes on from them" go_on one_device $update
    ok "and has applied 20 more" test "$(iterations now)" = 40
    ok "they go on from themselves" go_on $update $update
    ok "and have pushed 40 more" test "$(iterations now)" = 60
done

# A checkpoint that is due in the middle of a period is of its end, from which it goes on.
alone() { timeout 600 "$workerd" "${common[@]}" --ps "$peers" --workers 1 --set on_existing=replace --set strategy.name=local_steps \
    --set strategy.local_steps=10 --set batch_size=64 --set epochs=2 --summary alone.json --set "$(kept alone)" "$@"; }
every='every_steps: 4, keep: 10'
ok "local_steps" alone
periods() { [ "$(cd alone && echo *)" = "softmax-0000000010.safetensors softmax-0000000020.safetensors" ]; }
ok "has checkpoints of its periods' ends" periods
rm alone/softmax-0000000020.safetensors
ok "goes on from step 10 of 20" alone --resume
ok "and trains ten steps" grep -q '"steps": 20' alone.json
every='keep: 1' epochs=1 steps=0

# A signal: what the servers have by then, slots and iterations too, is what the training goes on with.
one_server() { # in the foreground timeout passes a signal on once: a second one would end workerd at once
    exec timeout --foreground 200 "$workerd" "${common[@]}" --ps "$peers" --workers 1 --rank 0 --set strategy.name=parameter_server \
        --set on_existing=replace --set epochs=4 "${rule[@]}" --set "$(kept "stopped-$1")" --set strategy.update="$@"
}
every='every_seconds: 1000'
train one_device "${rule[@]}" --set epochs=4 --set output=whole.safetensors
for update in sync async; do
    mkfifo "ready-$update"
    one_server $update --set delay_ms=400 --set output=part.safetensors --ready-fd 3 3>"ready-$update" >stopped.log 2>&1 &
    read -r _ <"ready-$update"
    sleep 1
    kill -TERM $!
    wait $!
    ok "$update: is stopped by a signal" grep -q "stopped by SIGTERM" stopped.log
    ok "goes on" eval "(one_server $update --resume --set output=stopped.safetensors)"
    ok "as if it had not been" same -a whole.safetensors stopped.safetensors 1e-5
done
every='keep: 1'

# ---- what is refused ----------------------------------------------------------------------------------------------

# Each worker finds the checkpoints of a folder of its own: worker 0 one, worker 1 none, or that of another step.
apart() { # OF-WORKER-1 ARGUMENT ...: the exit code of worker 1, and the last lines of both
    local of=$1 rank status=0 pids=()
    shift
    rm -rf r0 r1 && mkdir r0 r1 && cp -r of-multi_worker_mirrored r0/now && cp -r "$of" r1/now
    for rank in 0 1; do
        (cd r$rank && exec timeout 600 "$workerd" "${common[@]}" --rank $rank --set batch_size=32 "${rule[@]}" --resume \
            --set "$(kept now)" --set timeout=120 --set strategy.min_workers=2 --set epochs=3 --set output=x.safetensors "$@") >"r$rank/log" 2>&1 &
        pids+=($!)
    done
    wait "${pids[1]}" || status=$?
    kill -TERM "${pids[0]}" # which has opened the job, and would wait for worker 1
    wait "${pids[0]}"
    tail -n 1 r?/log
    return $status
}
every='keep: 1' epochs=1 steps=7 rule=(--set "$momentum")
ok "a training to go on from" begin multi_worker_mirrored
mkdir of-none
steps=9
ok "another one" begin sync
with_servers=(--ps "$peers" --workers 2 --set on_existing=replace)
for of in of-none of-sync; do
    differs="worker 1's checkpoint is $([ $of = of-none ] && echo none || echo step 9)"
    ok "$of: sync" fails_with 78 "$differs" apart $of "${with_servers[@]}" --set strategy.name=parameter_server --set strategy.update=sync
    ok "async" fails_with 78 "$differs" apart $of "${with_servers[@]}" --set strategy.name=parameter_server
    ok "local_steps" fails_with 78 "$differs" apart $of "${with_servers[@]}" --set strategy.name=local_steps
done
rm -rf of-none of-sync of-multi_worker_mirrored
every='every_steps: 4' rule=(--set "$adam")

ok "another optimizer" fails_with 78 "is of a job with optimizer" train one_device --resume --set "$momentum" --set "$(kept of-async)"
ok "the same, on ps tasks" fails_with 78 "is of a job with optimizer" train sync --resume --set "$momentum" --set "$(kept of-async)"
# Renames a slot in a checkpoint's header, and sets its checksum, the first of those behind the data.
rename_slot() { # FROM TO
    "$PYTHON3" - "$1" "$2" <<'PY'
import json, struct, sys
def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8): crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff
data = bytearray(open(sys.argv[1], "rb").read())
end = 8 + struct.unpack("<Q", data[:8])[0]
sums = json.loads(bytes(data[8:end]))["paramserver/checksums"]["data_offsets"][0]
data[:end] = data[:end].replace(b"momentum/sequential", b"momentux/sequential")
data[end + sums:end + sums + 4] = struct.pack("<I", crc32c(data[:end]))
open(sys.argv[2], "wb").write(data)
PY
}
mkdir -p lacks-a-slot && rename_slot of-async/* "lacks-a-slot/$(basename of-async/*)"
ok "a slot is missing" fails_with 78 "has no array 'momentum/" train one_device --resume "${rule[@]}" --set "$(kept lacks-a-slot)"
ok "the same, on ps tasks" fails_with 78 "has no array 'momentum/" train sync --resume "${rule[@]}" --set "$(kept lacks-a-slot)"

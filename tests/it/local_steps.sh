#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The strategy local_steps with real daemons: it computes what a plain simulation of it does, and with one worker and an
# outer rule that takes its weights as they are what one_device does; it moves fewer bytes.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
same() { "$top_builddir/tests/it/max_diff" "$@"; } # A B LIMIT [PREFIX]
differs() { ! same "$@"; }

# ---- what it computes ---------------------------------------------------------------------------------------------

if [ -n "${PYTHON3:-}" ]; then
    "$PYTHON3" "$top_srcdir/tests/it/local_steps_reference.py" . || exit 1
    cat >small.yaml <<'YAML'
model: model.json
weights: begin.safetensors
data: {kind: csv, path: data.csv, header: false, label: [4, 5], shuffle: false}
loss: mse
optimizer: {name: adam, learning_rate: 0.01}
strategy: {name: local_steps, local_steps: 5}
batch_size: 8
epochs: 2
YAML
    small() { timeout 600 "$psctl" run --workers 2 small.yaml "$@"; }
    ok "two workers, five steps at a time" small --ps 3 --set strategy.partitioner=fixed:2 --set output=two.safetensors
    ok "do what the simulation does" same two.safetensors expected.safetensors 1e-5
    ok "which is not what it began with" differs two.safetensors begin.safetensors 0.05
    halves=(--ps 2 --set strategy.fragments=2)
    ok "the model's halves, one after the other" small "${halves[@]}" --set output=halves.safetensors
    ok "do what the simulation does" same halves.safetensors parts.safetensors 1e-5
    ok "which is not the same as all at once" differs halves.safetensors expected.safetensors 1e-3
    ok "and each applied two steps later" small "${halves[@]}" --set strategy.fragment_sync_delay=2 --set output=later.safetensors
    ok "do what the simulation does" same later.safetensors delayed.safetensors 1e-5
    ok "which is not the same as at once" differs later.safetensors halves.safetensors 1e-3
    for compression in bfloat16 int8; do
        ok "differences travel as $compression" small --ps 3 --set strategy.partitioner=fixed:2 \
            --set strategy.gradient_compression=$compression --set output=as-$compression.safetensors
        ok "do what the simulation does" same as-$compression.safetensors $compression.safetensors 2e-5
        ok "which is not the same as whole ones" differs as-$compression.safetensors expected.safetensors 1e-4
    done
    ok "what bytes lose is made up for" differs as-int8.safetensors lossy.safetensors 1e-3
    ok "they need not be cut alike" small --ps 1 --set strategy.gradient_compression=int8 --set output=whole.safetensors
    ok "to the bit" cmp as-int8.safetensors whole.safetensors
    ok "at random late" small --ps 1 --set delay_ms=40 --set output=late.safetensors
    ok "they do the same, to the bit" cmp two.safetensors late.safetensors
    quorum() { # NAME QUORUM GRACE
        small --ps 2 --set delay_ms=60 --set strategy.replicas_to_aggregate="$2" --set strategy.grace_seconds="$3" \
            --set output="$1.safetensors"
    }
    ok "a quorum of both" quorum both 2 0
    ok "a quorum of one, which waits for the other" quorum waits 1 60
    ok "does the same, to the bit" cmp both.safetensors waits.safetensors
    ok "a quorum of one, which waits for nobody" quorum hurries 1 0
    ok "does not: a difference that comes late is dropped" differs both.safetensors hurries.safetensors 1e-3
fi

# ---- checkpoints --------------------------------------------------------------------------------------------------

if [ -n "${PYTHON3:-}" ]; then
    # Without slots of their own workers go on as if they had not ended: with the outer optimizer's, and its steps.
    kept() { # NAME EPOCHS OUTER-OPTIMIZER ARGUMENT ...
        local name=$1 epochs=$2 outer=$3
        shift 3
        small --ps 2 --set strategy.partitioner=fixed:2 --set optimizer="{name: sgd, learning_rate: 0.05}" \
            --set strategy.outer_optimizer="$outer" --set epochs="$epochs" --set output="$name.safetensors" "$@"
    }
    for outer in '{name: sgd}' '{name: adam, learning_rate: 0.01}' '{name: delayed_nesterov, delay: 4}' \
        '{name: sgd, gradient_accumulation_steps: 3}'; do
        rm -rf kept
        writes='callbacks=[{name: checkpoint, path: kept, keep: 1}]'
        ok "outer optimizer $outer: six epochs" kept whole 6 "$outer"
        ok "three" kept part 3 "$outer" --set "$writes"
        ok "and three more" kept more 6 "$outer" --set "$writes" --resume
        ok "are the six, to the bit" cmp whole.safetensors more.safetensors
    done
    rm -rf kept
    async=(--workers 1 --set strategy.update=async)
    ok "a worker in async: six epochs" kept whole 6 '{delay: 4}' "${async[@]}"
    ok "three" kept part 3 '{delay: 4}' "${async[@]}" --set "$writes"
    ok "and three more" kept more 6 '{delay: 4}' "${async[@]}" --set "$writes" --resume
    ok "are the six, to the bit" cmp whole.safetensors more.safetensors
    ok "another outer optimizer begins anew" kept other 7 adagrad --set "$writes" --resume
fi

alone=("$examples/conv/sync.yaml" --set data.train_examples=1000 --set data.test_examples=64 --set epochs=2
    --set optimizer="{name: adam, learning_rate: 0.001}")
takes_all=(--set strategy.name=local_steps --set strategy.local_steps=1
    --set strategy.outer_optimizer="{name: sgd, learning_rate: 1, momentum: 0}")
ok "one_device" timeout 600 "$psctl" run "${alone[@]}" --set strategy.name=one_device --set output=one.safetensors
for update in sync async; do
    ok "one worker, $update, that exchanges its weights at each step" timeout 600 "$psctl" run --workers 1 "${alone[@]}" \
        "${takes_all[@]}" --set strategy.update=$update --set output=$update.safetensors
    ok "does as one_device" same one.safetensors $update.safetensors 1e-6
done
ok "one worker that exchanges them every four" timeout 600 "$psctl" run --workers 1 "${alone[@]}" "${takes_all[@]}" \
    --set strategy.local_steps=4 --set output=four.safetensors
ok "does as one_device" same one.safetensors four.safetensors 1e-6

# The same where a period ends early: seven batches are four and three. The worker's optimizer counts its own steps.
odd=("${alone[@]}" --set data.train_examples=224 --set batch_size=32 --set epochs=4)
for optimizer in '{name: sgd, learning_rate: 0.1, gradient_accumulation_steps: 2}' \
    '{name: adam, learning_rate: {schedule: exponential, initial: 0.01, decay_steps: 7, decay_rate: 0.5}}'; do
    ok "$optimizer: one_device" timeout 600 "$psctl" run "${odd[@]}" --set optimizer="$optimizer" --set strategy.name=one_device \
        --set output=one.safetensors
    ok "one worker whose last period of an epoch is short" timeout 600 "$psctl" run --workers 1 "${odd[@]}" \
        --set optimizer="$optimizer" "${takes_all[@]}" --set strategy.local_steps=4 --set output=odd.safetensors
    ok "does as one_device" same one.safetensors odd.safetensors 1e-5
done

# Who goes on from an epoch's end goes on with the same numbers of steps. A multiple of every_steps may be one that the
# short period leaves out.
on() { # NAME EPOCHS ARGUMENT ...
    local name=$1 epochs=$2
    shift 2
    timeout 600 "$psctl" run --workers 1 "${odd[@]}" --set optimizer='{name: adam, learning_rate: 0.01}' \
        --set strategy='{name: local_steps, local_steps: 4}' --set epochs="$epochs" --set output="$name.safetensors" "$@"
}
writes='callbacks=[{name: checkpoint, path: on, keep: 0}]'
ok "four epochs" on whole 4
ok "two" on part 2 --set "$writes"
ok "and two more" on more 4 --set "$writes" --resume
ok "are the four, to the bit" cmp whole.safetensors more.safetensors
rm -rf on
often='callbacks=[{name: checkpoint, path: on, keep: 0, every_steps: 8}]'
ok "a checkpoint every eight steps" on part 4 --set "$often"
ok "is written" test -s on/*-0000000008.safetensors -a -s on/*-0000000032.safetensors

# A period has no position within it: its checkpoint is of its end, and a limit of steps is met there.
rm -rf on
often='callbacks=[{name: checkpoint, path: on, keep: 0, every_steps: 3}]'
ok "a checkpoint that is due within a period" on part 1 --set "$often"
ok "is of its end" rm on/*-0000000008.safetensors
ok "and what goes on from it" on more 4 --set "$writes" --resume
ok "does the same as without, to the bit" cmp whole.safetensors more.safetensors
rm -rf on
ok "a limit of steps within a period" on part 4 --set "$writes" --set steps=10
ok "and what goes on from there" on more 4 --set "$writes" --resume
ok "does the same as without, to the bit" cmp whole.safetensors more.safetensors

# async's outer optimizer. Of one worker each difference is a whole step, as in sync; of delay 4 it is a quarter of one.
outer() { # NAME UPDATE [OUTER-OPTIMIZER]
    timeout 600 "$psctl" run --workers 1 "${alone[@]}" --set strategy.name=local_steps --set strategy.local_steps=3 \
        --set strategy.update="$2" --set output="$1.safetensors" ${3+--set strategy.outer_optimizer="$3"}
}
ok "one worker, sync" outer sync sync
ok "one worker, async" outer async async
ok "does the same" same sync.safetensors async.safetensors 1e-5
ok "its momentum delayed" outer delayed async '{delay: 4}'
ok "is not the same" differs sync.safetensors delayed.safetensors 1e-3
ok "nor is it without" outer without async '{delay: 4, momentum: 0}'
ok "where each is a quarter of a step" outer quarter async '{name: sgd, learning_rate: 0.175}'
ok "it is that" same quarter.safetensors without.safetensors 1e-5
ok "a rate of next to nothing" outer unmoved async '{name: sgd, learning_rate: 1e-7}'
ok "with momentum it is more" differs quarter.safetensors delayed.safetensors 1e-4

for clips in clipnorm global_clipnorm clipvalue; do
    for update in sync async; do
        ok "$update: the difference is bounded by $clips" outer clipped $update "{name: sgd, learning_rate: 1, $clips: 1e-7}"
        ok "so that no kernel moves" same clipped.safetensors unmoved.safetensors 1e-3 sequential/dense/kernel
    done
done

# ---- with standing servers ----------------------------------------------------------------------------------------

peers=unix:$scratch/p0,unix:$scratch/p1
for i in 0 1; do start_psd "p$i" --task "$i" --peers "$peers" || exit 1; done
ctl() { timeout 600 "$psctl" --timeout 60 --ps "$peers" "$@"; }

# work NAME RANK WORKERS ARGUMENT ...: one worker of a job, in the background; its pid in $worker_pid.
work() {
    local name=$1 rank=$2 workers=$3
    shift 3
    "$workerd" --job "$examples/softmax/local_steps.yaml" --set name="$name" --set batch_size=32 \
        --set data.test_examples=64 --set output="$name.safetensors" --summary "$name.json" --ps "$peers" --rank "$rank" \
        --workers "$workers" --quiet "$@" 2>>"$name.$rank.log" &
    worker_pid=$!
}
ended() { # PID CODE
    local code=0
    wait "$1" || code=$?
    echo "exit $code"
    [ "$code" = "$2" ]
}

if [ -n "${PYTHON3:-}" ]; then
    # Bytes that two workers move in 20 steps, as psctl shows them.
    moved() { # NAME ARGUMENT ...
        local name=$1
        shift
        work "$name" 1 2 "$@" && work "$name" 0 2 "$@" && ended "$worker_pid" 0 && wait &&
            ctl --json status "$name" | "$PYTHON3" -c 'import json, sys
print([j["bytes_moved"] for j in json.load(sys.stdin)["jobs"] if j["name"] == sys.argv[1]][0])' "$name"
    }
    fewer() {
        local each ten
        each=$(moved each --set data.train_examples=1280 --set epochs=1 --set strategy="{name: parameter_server, update: sync}" | tail -n 1)
        ten=$(moved ten --set data.train_examples=1280 --set epochs=1 --set strategy.local_steps=10 | tail -n 1)
        echo "each step: $each, each ten: $ten"
        # Besides, there is what the chief puts at first and both pull then.
        [ "$each" -ge $((7 * ten)) ] && [ "$each" -le $((10 * ten)) ]
    }
    ok "ten local steps move a tenth of the bytes" fewer
    # Of what is pushed and what comes back the first half is a half, or 65/256 of it: 1 byte, and 4 for 256 elements.
    compressed() {
        local whole half bytes
        whole=$(moved whole --set data.train_examples=12800 --set epochs=1 --set strategy.local_steps=10 | tail -n 1)
        half=$(moved half --set data.train_examples=12800 --set epochs=1 --set strategy.local_steps=10 \
            --set strategy.gradient_compression=bfloat16 | tail -n 1)
        bytes=$(moved bytes --set data.train_examples=12800 --set epochs=1 --set strategy.local_steps=10 \
            --set strategy.gradient_compression=int8 | tail -n 1)
        echo "float32: $whole, bfloat16: $half, int8: $bytes"
        # The first values, and what is pulled of them, are float32: a 40th.
        [ $((half * 100)) -le $((whole * 78)) ] && [ $((half * 100)) -ge $((whole * 74)) ] &&
            [ $((bytes * 100)) -le $((whole * 66)) ] && [ $((bytes * 100)) -ge $((whole * 62)) ]
    }
    ok "compression moves fewer bytes" compressed

    # A worker dies in the middle of a period, and comes back in the middle of the epoch: of 6667 steps of three workers.
    long=(--set data.train_examples=640000 --set strategy.local_steps=5 --set delay_ms=100 --set epochs=1)
    pids=()
    for rank in 0 1 2; do
        work dies "$rank" 3 "${long[@]}" --set epochs=100000
        pids+=("$worker_pid")
    done
    ok "three workers train" becomes dies 'all(w[r]["step"] > 10 for r in range(3))'
    kill -KILL "${pids[2]}"
    ok "the death of one is named" becomes dies 'w[2]["state"] == "dead" and "no message" in w[2]["reason"]'
    look dies
    step=$("$PYTHON3" -c 'import json; print(max(m["step"] or 0 for m in json.load(open("w.json"))))')
    ok "and the others go on" becomes dies "all(w[r]['step'] > $step + 20 for r in (0, 1))"
    work dies 2 3 "${long[@]}" --set epochs=100000
    pids[2]=$worker_pid
    ok "it comes back, and trains from the next period on" becomes dies \
        'w[2]["state"] == "live" and w[2]["step"] > 0 and not w[2]["excluded"]'
    ok "not at the end of the epoch" was 'w[0]["step"] < 6000 and get("epoch") == 0'
    ok "one is asked to leave" ctl drain dies worker:1
    ok "and leaves" ended "${pids[1]}" 0
    # A signal to the chief, in the middle of a period: what was exchanged last is kept.
    rm -f dies.safetensors
    kill -INT "${pids[0]}" "${pids[2]}"
    ok "a signal ends it" ended "${pids[0]}" 130
    ok "with its weights" "$workerd" --job "$examples/softmax/one_device.yaml" --set weights=dies.safetensors --evaluate \
        --set data.test_examples=64

    # With fewer than min_workers the job ends.
    pids=()
    for rank in 0 1; do
        work few "$rank" 2 "${long[@]}" --min-workers 2
        pids+=("$worker_pid")
    done
    ok "two workers train" becomes few 'all(w[r]["step"] > 5 for r in (0, 1))'
    kill -KILL "${pids[1]}"
    ok "without one of them the job ends" ended "${pids[0]}" 75
    ok "and says why" grep -q "worker 1 .*1 of at least 2 remain" few.0.log
fi

# ---- limits -------------------------------------------------------------------------------------------------------

# A limit of steps in the middle of a period, and epochs that are shorter than one.
short() { # ARGUMENT ...
    timeout 600 "$psctl" run --workers 3 "$examples/softmax/local_steps.yaml" --set data.train_examples=640 \
        --set data.test_examples=64 --set batch_size=16 --set output=short.safetensors --summary short.json "$@"
}
for update in sync async; do
    ok "$update: a limit of steps in the middle of a period" short --set strategy.update=$update --set strategy.local_steps=4 \
        --set steps=10
    [ $update = async ] || ok "ends the training with the period" grep -q '"steps": 12' short.json
    ok "$update: epochs shorter than a period" short --set strategy.update=$update --set strategy.local_steps=500 --set epochs=3
done
ok "backup workers" short --set strategy.replicas_to_aggregate=2 --set strategy.local_steps=4 --set epochs=3 --set delay_ms=20
ok "and a time of grace for the others" short --set strategy.replicas_to_aggregate=2 --set strategy.grace_seconds=0.02 \
    --set strategy.local_steps=4 --set epochs=3 --set delay_ms=20
ok "a checkpoint in the middle of a period" short --set strategy.update=async --set strategy.local_steps=5 --set steps=12 \
    --set 'callbacks=[{name: checkpoint, path: c-%d.safetensors, every_steps: 3}]'
cat >constrained.json <<'JSON'
{"class_name": "Sequential", "config": {"name": "net", "layers": [
 {"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 28, 28, 1]}},
 {"class_name": "Flatten", "config": {"name": "flatten"}},
 {"class_name": "Dense", "config": {"name": "top", "units": 10, "kernel_constraint": "non_neg"}}]}}
JSON
ok "constraints are refused" fails_with 78 "which local_steps does not apply: expected strategy one_device, mirrored, central_storage or" timeout 600 "$psctl" run --workers 1 \
    "$examples/softmax/local_steps.yaml" --set model=constrained.json

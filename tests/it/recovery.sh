#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Daemons are killed at random moments, and started again as a service manager would: the training goes on by itself,
# from its newest backup, and where its members are fixed ends with the bytes of one that nobody disturbed.
# RECOVERY_KILLS=100 kills so many in one training of each kind, RECOVERY_SEED draws other moments.
. "$top_srcdir/tests/it/lib.sh"
kills=${RECOVERY_KILLS:-3}
RANDOM=${RECOVERY_SEED:-1}
cd "$scratch" || exit 1
# The third has none of the two variables.
echo "ps: [\"unix:$scratch/ps0\", \"unix:$scratch/ps1\", \"unix:$scratch/ps2\"]" >ps.yaml
echo "worker: [\"unix:$scratch/w0\", \"unix:$scratch/w1\"]" >peers.yaml

ctl() { "$psctl" --timeout 60 --cluster ps.yaml "$@"; }

# keep NAME COMMAND ...: runs it, and again after a moment where it ends in any other way than well. NAME.pid has its
# pid, NAME.code how it has ended last.
keep() {
    local name=$1
    shift
    while [ ! -e over ]; do
        "$@" >>"$name.log" 2>&1 &
        echo $! >"$name.pid"
        wait $!
        echo $? >"$name.code"
        [ "$(cat "$name.code")" = 0 ] && break
        sleep 0.2
    done
    rm -f "$name.pid"
}

# train NAME CLUSTER JOB SET ...: two workers, with a backup every 20 steps, kept in the background.
train() {
    local name=$1 cluster=$2 job=$3 rank
    shift 3
    training=()
    for rank in 0 1; do
        keep "$name-$rank" "$workerd" --job "$examples/softmax/$job" --cluster "$cluster" --rank $rank --workers 2 --quiet \
            --set name="$name" --set data.train_examples=12800 --set data.test_examples=64 --set epochs=$((20 + 10 * kills)) \
            --set strategy.min_workers=2 --set "callbacks=[{name: backup, path: $name.backups, every_steps: 20}]" \
            --set output="$name.safetensors" "$@" &
        training+=($!)
    done
    eventually test -e "$name-0.pid" && eventually test -e "$name-1.pid"
}
ends() { wait "${training[@]}" && cat "$1"-?.code && [ "$(cat "$1"-?.code | sort -u)" = 0 ]; } # NAME

# The step of the newest backup; 0: there is none.
newest() { find "$1.backups" -name '*.safetensors' 2>/dev/null | sed -E 's/.*-0*([0-9]+)\.safetensors/\1/' | sort -n | tail -n 1 | grep . || echo 0; }
has_got_further() { [ ! -e "$1-0.pid" ] && [ ! -e "$1-1.pid" ] || [ "$(newest "$1")" -gt "$2" ]; } # NAME STEP

# One that keep is about to start again is dead for a moment.
lives_or_is_over() { pid=$(cat "$2.pid" 2>/dev/null) && kill -0 "$pid" 2>/dev/null || { [ ! -e "$1-0.pid" ] && [ ! -e "$1-1.pid" ]; }; } # NAME VICTIM
# strike NAME VICTIM ...: kills them at random moments, each once the training has got further since the last.
strike() {
    local name=$1 i step=0 victim pid='' struck=0
    shift
    for ((i = 0; i < kills; i++)); do
        eventually has_got_further "$name" "$step" || return 1
        step=$(newest "$name")
        sleep "0.$((RANDOM % 4))"
        victim=${*:$((RANDOM % $# + 1)):1}
        eventually lives_or_is_over "$name" "$victim" || return 1
        [ "$pid" ] && kill -KILL "$pid" && struck=$((struck + 1)) && echo "step $step: $victim was killed"
    done
    [ "$struck" -gt $((kills / 2)) ]
}

serve() { # the ps tasks, kept
    for task in 0 1 2; do
        keep "ps$task" "$psd" --quiet --cluster ps.yaml --task $task --dead-after-ms 2500 --checkpoints "ps$task.shards/all" &
    done
}
serve

# ---- rounds of fixed members: the bytes -----------------------------------------------------------------------------

train calm ps.yaml sync.yaml
ok "nobody disturbs a training in rounds" ends calm
train sync ps.yaml sync.yaml
ok "its ps tasks and workers are killed, $kills times" strike sync ps0 ps1 sync-0 sync-1
ok "it goes on by itself to the end" ends sync
ok "with the bytes of the other" cmp calm.safetensors sync.safetensors
ok "and leaves no backup" test "$(newest sync)" = 0

# The ps task is gone, and with it the weights; not so the checkpoint.
says_what_is_left() {
    "$psd" --quiet --listen "unix:$scratch/alone" &
    local server=$!
    "$workerd" --job "$examples/softmax/async.yaml" --ps "unix:$scratch/alone" --quiet --set epochs=1000 --set delay_ms=20 \
        --set 'callbacks=[{name: checkpoint, path: left, every_steps: 5, keep: 0}]' --set output=left.safetensors 2>left.log &
    local worker=$!
    eventually eval 'ls left/*10.safetensors' && kill -KILL $server && ! wait $worker && cat left.log &&
        grep -E "cannot be reached.*; --resume goes on from step [0-9]+$" left.log
}
ok "where the weights are lost it is said from which step the training goes on" says_what_is_left

# What was set by hand holds where the training goes on from a backup that was written since.
by_hand() {
    is_set() { ctl jobs hand | tee said | grep -E "^learning_rate +0.003 " && grep -E "^momentum +0.5 " said; }
    train hand ps.yaml sync.yaml --set 'optimizer={name: sgd, learning_rate: 0.1, momentum: 0.9}' --set delay_ms=10
    eventually has_got_further hand 20 && ctl set-lr hand 0.003 && ctl set hand momentum=0.5 && eventually is_set || return 1
    eventually has_got_further hand $(($(newest hand) + 40)) && kill -KILL "$(cat ps0.pid)" &&
        eventually grep -q "goes on from hand.backups" hand-0.log && eventually grep -q "momentum is 0.5, as psctl had set it" hand-0.log &&
        eventually is_set
}
ok "a training goes on with what psctl had set" by_hand
ok "to the end" ends hand

# Each ps task has a folder of its own for its part of a backup, which it writes and loads by itself.
shards() { find ps?.shards -name "$1-*.safetensors*" | grep .; } # NAME
train shards ps.yaml sync.yaml --set "callbacks=[{name: backup, path: shards.backups, every_steps: 20, sharded: true}]"
lie_with_them() { [ -n "$(shards shards-backup)" ] && [ ! -e shards.backups/shards ]; }
ok "ps tasks write their part of a backup" eventually lie_with_them
ok "they are killed, and workers" strike shards ps0 ps1 shards-0 shards-1
ok "the training goes on to the end" ends shards
ok "with the same bytes" cmp calm.safetensors shards.safetensors
ok "and leaves no shard" test -z "$(shards shards-backup)" -a "$(newest shards)" = 0

# Of one backup a ps task has lost its shard, and of another it is damaged: the one before them is taken, by a worker,
# too, that dies as it hears of it, and has not when it is there again.
# FILE
damage() { printf '\377' | dd of="$1" bs=1 seek=$(($(stat -c %s "$1") / 2)) conv=notrunc status=none; }
# NAME
has_three() { [ "$(find "$1.backups" -name '*.safetensors' | wc -l)" -ge 3 ]; }
# NAME: its workers are killed, and not started again.
kill_both() {
    touch over
    kill -KILL "$(cat "$1-0.pid")" "$(cat "$1-1.pid")" && wait "${training[@]}"
    rm over
}
# NAME
sharded() { train "$1" ps.yaml sync.yaml --set "callbacks=[{name: backup, path: $1.backups, every_steps: 20, sharded: true, keep: 3}]"; }
# NAME STEP TASK
shard() { shards "$1-backup-$(printf %010d "$2")" | grep "ps-$3-of"; }
# NAME
begins_anew() { grep -q "begins anew from the newest backup" "$1.log"; }
# NAME RANK
are_worn() {
    local step
    sharded "$1" && eventually has_three "$1" || return 1
    kill_both "$1"
    step=$(newest "$1")
    rm "$(shard "$1" "$step" 1)" && damage "$(shard "$1" $((step - 20)) 0)" || return 1
    sharded "$1" && eventually begins_anew "$1-$2" && kill -KILL "$(cat "$1-$2.pid")" && ends "$1"
    cat "$1"-?.log
    ! grep -q "has not gone on" "$1"-?.log && cat "$1"-?.log | grep -q "it is passed over" && [ "$(cat "$1"-?.log | grep -c "is set aside as .*\.lost")" = 2 ] &&
        [ -z "$(ls "$1.backups")$(shards "$1-backup")" ] && grep -q "goes on from .*$((step - 40)).safetensors" "$1-$2.log" && cmp calm.safetensors "$1.safetensors"
}
ok "a shard that is lost or damaged is passed over for the one before" are_worn worn 1
ok "also by worker 0" are_worn torn 0

# Nothing is left of any: all keep their names, and are gone on from when what they lack is there again.
are_away() {
    local step
    sharded away && eventually has_three away || return 1
    kill_both away
    step=$(newest away)
    mv ps1.shards ps1.away
    sharded away && eventually grep -q 65 away-0.code && eventually grep -q 65 away-1.code && touch over && wait "${training[@]}"
    rm over
    cat away-?.log
    [ "$(newest away)" = "$step" ] && has_three away && ! ls away.backups/*.lost || return 1
    rm -rf ps1.shards && mv ps1.away ps1.shards && sharded away && ends away
    tail -n 20 away-?.log
    grep -q "goes on from .*$step.safetensors" away-0.log && cmp calm.safetensors away.safetensors
}
ok "where all are lost, all stay as they were" are_away

# From then on backups have no shards: those that there are go with their backups.
turned=(ps.yaml sync.yaml --set "callbacks=[{name: backup, path: turned.backups, every_steps: 20, sharded: SHARDED}]")
has_shards() { [ -n "$(shards turned-backup)" ] && [ "$(newest turned)" -ge 20 ]; }
is_turned() {
    train turned "${turned[@]/SHARDED/true}" && eventually has_shards || return 1
    kill_both turned
    train turned "${turned[@]/SHARDED/false}" && ends turned && cmp calm.safetensors turned.safetensors || return 1
    cat turned-0.log
    [ -z "$(ls turned.backups)$(shards turned-backup)" ]
}
ok "shards go with their backups where the next ones have none" is_turned

train ring-calm peers.yaml multi_worker_mirrored.yaml
ok "nobody disturbs workers without ps tasks" ends ring-calm
train ring peers.yaml multi_worker_mirrored.yaml
ok "they are killed" strike ring ring-0 ring-1
ok "they go on to the end" ends ring
ok "with the bytes of the others" cmp ring-calm.safetensors ring.safetensors

# ---- what a disk does ------------------------------------------------------------------------------------------------

alone() { # OPTION ...
    "$workerd" --job "$examples/softmax/one_device.yaml" --quiet --set name=alone --set data.train_examples=1280 --set data.test_examples=64 \
        --set epochs=1 --set "callbacks=[{name: checkpoint, path: kept, every_steps: 10, keep: 0}]" --set output=alone.safetensors "$@"
}
ok "a training keeps checkpoints" alone
ok "which are as they were written" "$psctl" verify kept
verified() { "$psctl" verify kept --json | "$PYTHON3" -c 'import json, sys; sys.exit([f["step"] for f in json.load(sys.stdin)] != [10, 20])'; }
ok "for programs, too" verified
newest_kept=kept/alone-0000000020.safetensors
printf '\125' | dd of=$newest_kept bs=1 seek=20000 conv=notrunc status=none
ok "one byte that has changed is found" fails_with 65 "is damaged: bytes" "$psctl" verify $newest_kept
ok "among the others" fails_with 65 "is damaged: bytes" "$psctl" verify kept
goes_on_from_the_one_before() {
    alone --resume 2>&1 | tee alone.log
    grep -q "$newest_kept: is damaged: bytes.* it is passed over" alone.log && grep -q "goes on from kept/alone-0000000010.safetensors" alone.log
}
ok "a training goes on from the one before it" goes_on_from_the_one_before
for file in $newest_kept kept/alone-0000000010.safetensors; do printf '\125' | dd of=$file bs=1 seek=20000 conv=notrunc status=none; done
ok "from none where all are damaged" fails_with 65 "$newest_kept: is damaged: bytes" alone --resume
ok "weights alone are no checkpoint" fails_with 65 "has no checksums: expected a checkpoint" "$psctl" verify alone.safetensors
ok "where there is none" fails_with 66 "has no checkpoints" "$psctl" verify "$examples"

# A training that writes all the time is killed in the middle of that, or finds the disk full: what is there is whole, and
# the next one goes on from it.
printf '{"class_name": "Sequential", "config": {"name": "net", "layers": [%s, %s, %s, %s]}}' \
    '{"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 28, 28]}}' \
    '{"class_name": "Flatten", "config": {"name": "flatten"}}' \
    '{"class_name": "Dense", "config": {"name": "a", "units": 1000, "activation": "relu"}}' \
    '{"class_name": "Dense", "config": {"name": "b", "units": 10, "activation": "linear"}}' >wide.json
writes() { # FOLDER OPTION ...: checkpoints of 10 MB, one after the other; to be run in the background
    local folder=$1
    shift
    exec "$workerd" --job "$examples/softmax/one_device.yaml" --quiet --set name=writes --set model="$PWD/wide.json" --set "optimizer={name: adam}" \
        --set data.train_examples=640 --set data.test_examples=64 --set batch_size=8 --set epochs=100000 \
        --set "callbacks=[{name: backup, path: $folder, every_steps: 1}]" --set output=writes.safetensors "$@"
}
writing() { [ -n "$(find written -name '*.tmp')" ]; }
last_written() { find written -name '*.safetensors' | sort | tail -n 1; }
has_written() { [ "$(last_written)" != "$1" ]; }
is_killed_writing() {
    local i before pid
    mkdir written
    for ((i = 0; i < 2 * kills; i++)); do
        before=$(last_written)
        writes written >>writes.log 2>&1 &
        pid=$!
        eventually has_written "$before" && sleep "0.0$((RANDOM % 10))" && eventually writing
        kill -KILL $pid
        wait $pid 2>/dev/null
        echo "killed; there are" written/*
        "$psctl" verify written || { cat writes.log; return 1; }
    done
    [ "$(grep -c "goes on from written/" writes.log)" = $((2 * kills - 1)) ]
}
ok "it is killed while it writes: what is there is whole, and the next one goes on from it" is_killed_writing
rm -rf written
if mkdir written && mount -t tmpfs -o size=40m tmpfs written 2>/dev/null; then
    refused() { [ "$(grep -c "No space left on device; the training goes on" full.log)" -gt "$1" ]; }
    finds_the_disk_full() {
        local i pid before
        : >full.log
        writes written >>full.log 2>&1 &
        pid=$!
        for ((i = 0; i < 2 * kills; i++)); do
            before=$(grep -c "No space left" full.log)
            sleep "0.0$((RANDOM % 10))"
            head -c $((RANDOM % 16 + 14))m /dev/zero >written/other 2>/dev/null
            eventually refused "$before" || break
            rm written/other
            before=$(last_written)
            eventually has_written "$before" && [ -d /proc/$pid ] || break
        done
        kill -KILL $pid
        wait $pid 2>/dev/null
        tail -n 3 full.log
        ls -l written
        [ $i = $((2 * kills)) ] && "$psctl" verify written
    }
    ok "the disk is full, again and again: the training goes on, and what is there is whole" finds_the_disk_full
    umount written
else
    echo "# no full disk: there is no tmpfs to mount"
fi

# ---- on other servers -----------------------------------------------------------------------------------------------

# A checkpoint has whole variables: it is gone on from with any number of ps tasks, with the same bits.
on() { # PS STEPS OUTPUT OPTION ...
    local ps=$1 steps=$2 output=$3
    shift 3
    PSD=$psd timeout 300 "$psctl" run --ps "$ps" --workers 2 "$examples/softmax/sync.yaml" --set name=spread --set model="$PWD/wide.json" \
        --set "optimizer={name: adam}" --set data.train_examples=1280 --set data.test_examples=64 --set epochs=10 --set steps="$steps" \
        --set "callbacks=[{name: checkpoint, path: $output.kept, every_steps: 10, keep: 0, sharded: ${sharded:-false}}]" --set output="$output" "$@"
}
ok "three ps tasks train, and keep a checkpoint" on 3 10 three
ok "and further, undisturbed" on 3 20 whole
for ps in 1 2 5; do
    cp -r three.kept "same-$ps.kept"
    cp -r three.kept "further-$ps.kept"
    same() { on $ps 10 same-$ps --resume && cmp three same-$ps; }
    ok "$ps of them have the same bits" same
    further() { on $ps 20 further-$ps --resume && cmp whole further-$ps; }
    ok "and go on with them" further
done
if "$PYTHON3" -c "import safetensors.numpy" 2>/dev/null; then
    python_reads() {
        "$PYTHON3" - three.kept/*.safetensors three <<'PY'
import sys
from safetensors.numpy import load_file
kept, weights = load_file(sys.argv[1]), load_file(sys.argv[2])
assert all((kept[name] == value).all() for name, value in weights.items())
print({name: value.shape for name, value in kept.items()})
PY
    }
    ok "Python's safetensors reads it" python_reads
else
    echo "# Python has no safetensors to read it"
fi

# The same of parts that the ps tasks have written, to a folder that all share.
sharded=true
ok "three ps tasks write their parts" on 3 10 parts
ok "a ps task may have none" on 5 10 parts-of-five
ok "and all is whole" "$psctl" verify parts-of-five.kept
ok "which are whole together" "$psctl" verify parts.kept
one_each() { (cd parts.kept/spread && echo *) | sed -E "s,-[0-9a-f]{16}-,-ID-,g" | grep -qxF "$(echo spread-0000000010-ID-ps-{0,1,2}-of-3.safetensors)"; }
ok "a file each" one_each
ok "and have the bits of the others" "$top_builddir/tests/it/max_diff" three.kept/*.safetensors parts.kept/*.safetensors 0
for ps in 1 3 5; do
    cp -r parts.kept "parts-$ps.kept"
    further() { on $ps 20 parts-$ps --resume && cmp whole parts-$ps; }
    ok "$ps of them go on with them" further
done
under_another_strategy() {
    "$workerd" --job "$examples/softmax/one_device.yaml" --quiet --set name=spread --set model="$PWD/wide.json" --set "optimizer={name: adam}" \
        --set data.train_examples=1280 --set data.test_examples=64 --set epochs=10 --set steps=12 --set batch_size=128 \
        --set "callbacks=[{name: checkpoint, path: parts.kept, every_steps: 12, keep: 0}]" --set output=alone.safetensors --resume
}
ok "so does a worker alone" under_another_strategy
rm parts.kept/*-0000000012.safetensors
gone=$(cd parts.kept && echo spread/*-ps-1-of-3.safetensors)
mv "parts.kept/$gone" one
ok "a part that is not there is named" fails_with 66 "parts.kept/spread-0000000010.safetensors: its shard $gone is not beside it" \
    "$psctl" verify parts.kept
ok "no other number of ps tasks goes on without it" fails_with 78 "3 ps tasks have written its shards, and now there are 2" on 2 20 parts --resume
ok "nor does the same number" fails_with 65 "has no shard of spread-0000000010, and the others have" on 3 20 parts --resume
ok "nor another strategy" fails_with 66 "its shard $gone is not beside it" under_another_strategy
cp parts.kept/spread/*-ps-0-of-3.safetensors "parts.kept/$gone"
ok "a part in the place of another is found" fails_with 65 "in none of its shards, or not all of it" "$psctl" verify parts.kept
fails_with_sharded() { fails_with 65 "sharded does not go with strategy.name one_device" "$workerd" --job "$examples/softmax/one_device.yaml" --quiet \
    --set "callbacks=[{name: checkpoint, path: none.kept, sharded: true}]" --set output=none.safetensors; }
ok "only ps tasks write parts" fails_with_sharded
unset sharded

# ---- where no two runs are alike ------------------------------------------------------------------------------------

kills=$((kills / 2))
for kind in "async.yaml" "elastic sync.yaml --set strategy.min_workers=1" "local_steps.yaml --set strategy.local_steps=10"; do
    name=${kind%%[. ]*}
    # shellcheck disable=SC2086
    train "$name" ps.yaml ${kind#elastic }
    ok "$name: daemons are killed" strike "$name" ps0 ps1 "$name-0" "$name-1"
    ok "$name: the training goes on to the end" ends "$name"
    ok "$name: it has learned" at_least "$("$workerd" --job "$examples/softmax/one_device.yaml" --set data.train_examples=64 \
        --set data.test_examples=256 --set weights="$name.safetensors" --evaluate --json | sed -nE 's/.*"(val_|test_)?accuracy": *([0-9.]+).*/\2/p' | head -n 1)" 0.8
done

# ---- asked by hand --------------------------------------------------------------------------------------------------

asked=(--set delay_ms=20 --set steps=100000 --set epochs=1000 --set "callbacks=[{name: checkpoint, path: asked, every_seconds: 3600, keep: 0}]")
train asked ps.yaml sync.yaml "${asked[@]}"
is_asked() { ctl checkpoint asked >path && cat path && "$psctl" verify "$(cat path)"; }
ok "psctl checkpoint has the chief write one" eventually is_asked
steps() { find asked -name '*.safetensors' | wc -l; }
is_asked_again() { local before; before=$(steps); is_asked && [ "$(steps)" = $((before + 1)) ]; }
ok "another one" is_asked_again
for_programs() { ctl checkpoint asked --json | "$PYTHON3" -c 'import json, sys; sys.exit(not json.load(sys.stdin)[0]["path"].startswith("asked/"))'; }
ok "for programs" for_programs
has_more() { [ "$(steps)" -gt "$1" ]; }
by_signal() { local before; before=$(steps); kill -USR1 "$(cat asked-0.pid)" && eventually has_more "$before"; }
ok "SIGUSR1 to the chief does, too, and it goes on" by_signal
is_stopped() { touch over && ctl stop "$1" && wait "${training[@]}"; [ "$(cat "$1"-?.code | sort -u)" = 79 ] && rm over; } # NAME
ok "psctl stop ends the training" is_stopped asked
train none ps.yaml sync.yaml "${asked[@]}" --set "callbacks=[]"
ok "a job without the callback says so" eventually fails_with 74 "job 'none': the job has no callback checkpoint or backup" ctl checkpoint none
ok "it is stopped" is_stopped none
ok "a job that is not there" fails_with 66 "no job nobody" ctl checkpoint nobody

# ---- told to end ----------------------------------------------------------------------------------------------------

# Worker 1 hears it first, and its end is the job's, which has too few workers then: worker 0 keeps what the ps tasks have.
# Where the step that only worker 0 was in was the one after a backup, that is written again.
are_told() { # NAME SET ...
    local name=$1 pid
    train "$@" && eventually has_got_further "$name" 0 || return 1
    pid=("$(cat "$name-1.pid")" "$(cat "$name-0.pid")")
    touch over "$name.told"
    kill -TERM "${pid[@]}" && wait "${training[@]}"
    rm over
    cat "$name"-?.log
    [ "$(cat "$name"-?.code | sort -u)" = 143 ] && [ -s "$name.safetensors" ] &&
        find "$name.backups" -name "*$(newest "$name").safetensors" -newer "$name.told" | grep . &&
        if [[ $name == parts* ]]; then shards "$name-backup-$(printf %010d "$(newest "$name")")"; else "$psctl" verify "$name.backups"; fi
}
# The step that one was in, and another had not begun, is the first that they take when they go on.
told=(ps.yaml sync.yaml --set delay_ms=40 --set optimizer=adam --set steps=200)
goes_on() { train "$@" && ends "$1" && cmp untold.safetensors "$1.safetensors"; } # NAME SET ...
all_are_told() {
    local i backs_up
    train untold "${told[@]}" && ends untold || return 1
    for i in 1 2 3; do
        backs_up="callbacks=[{name: backup, path: told$i.backups, every_steps: 31}]"
        are_told "told$i" "${told[@]}" --set "$backs_up" && goes_on "told$i" "${told[@]}" --set "$backs_up" || return 1
        are_told "parts$i" ps.yaml sync.yaml --set delay_ms=10 --set optimizer=adam --set "callbacks=[{name: backup, path: parts$i.backups, every_steps: 31, sharded: true}]" || return 1
        are_told "async$i" ps.yaml async.yaml --set delay_ms=10 --set optimizer=adam --set "callbacks=[{name: backup, path: async$i.backups, every_steps: 31}]" || return 1
    done
}
ok "workers that are told to end at once leave the weights and a backup, from which they go on to the same bytes" all_are_told

# ---- what is not to go on -------------------------------------------------------------------------------------------

train stopped ps.yaml sync.yaml --set delay_ms=20 --set steps=100000 --set epochs=1000
ok "a training" eventually has_got_further stopped 0
touch over
ok "is stopped by psctl stop" ctl stop stopped
were_stopped() {
    wait "${training[@]}"
    cat stopped-?.log
    [ "$(cat stopped-?.code | sort -u)" = 79 ] && [ "$(grep -l "it was stopped" stopped-?.log | wc -l)" = 2 ]
}
ok "its workers end, and do not begin anew" were_stopped
rm over

timeout=(--set timeout=3)
train lost ps.yaml sync.yaml --set delay_ms=20 --set steps=100000 --set epochs=1000 "${timeout[@]}"
ok "another training" eventually has_got_further lost 0
touch over
ok "loses a ps task that nobody starts again" kill -KILL "$(cat ps1.pid)"
ends_named() {
    wait "${training[@]}"
    cat lost-?.log lost-?.code
    grep -q "begins anew from the newest backup" lost-0.log && tail -n 1 lost-0.log | grep -q "$scratch/ps1" && [ "$(cat lost-0.code)" = 69 ]
}
ok "waits for it as long as its timeout, then ends and names it" ends_named
ok "the ps tasks that are left are ended" kill "$(cat ps0.pid)" "$(cat ps2.pid)"

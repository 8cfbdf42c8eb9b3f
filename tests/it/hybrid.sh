#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# hybrid: the tables of Embeddings on ps tasks, all else at every worker. What it trains is what one device trains
# (tests/it/examples.sh has more of that); what becomes of it when a worker or a ps task is lost; what it refuses.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
same() { "$top_builddir/tests/it/max_diff" "$@"; }
differ() { ! cmp -s "$1" "$2"; }
job=$examples/char-gpt/one_device.yaml

# 26 windows: of three workers' second step of batches of 8 worker 0 has two rows, and the others have none.
head -c $((26 * 64 + 1)) "$top_srcdir/LICENSE" >text
small=(--set data.path="$scratch/text" --set data.stride=64 --set data.validation_split=0 --set epochs=4 --set strategy.partitioner=fixed:2)
hybrid() { # OUTPUT WORKERS ARGUMENT ...
    local output=$1 n=$2
    shift 2
    timeout 600 "$psctl" run --ps 2 --workers "$n" "$job" --set strategy.name=hybrid "${small[@]}" --set batch_size=8 \
        --set strategy.compare_every=1 --set output="$output.safetensors" "$@"
}
one() { # OUTPUT ARGUMENT ...
    local output=$1
    shift
    timeout 600 "$psctl" run "$job" "${small[@]:0:8}" --set batch_size=24 --set output="$output.safetensors" "$@"
}
sgd=(--set optimizer='{name: sgd, learning_rate: 0.01, momentum: 0.9}')
adam=(--set optimizer='{name: adam, clipnorm: 0.5, learning_rate: {schedule: cosine, initial: 0.001, decay_steps: 8}}')
for rule in sgd adam; do
    declare -n arguments=$rule
    ok "$rule: one device" one one "${arguments[@]}"
    ok "$rule: three workers" hybrid three 3 "${arguments[@]}"
    ok "$rule: as one device" same -a one.safetensors three.safetensors 1e-5
    ok "$rule: again" hybrid again 3 "${arguments[@]}"
    ok "$rule: to the bit" cmp three.safetensors again.safetensors
done

# Both halves have the rate that a callback has reduced once the warm-up is over, also where the training goes on: one
# device scales nothing, and has the rates by a schedule of them.
callbacks='{name: reduce_lr_on_plateau, monitor: loss, factor: 0.5, patience: 0, min_delta: 100}, {name: checkpoint, path: ck, keep: 0}'
warm=(--set optimizer='{name: sgd, learning_rate: 0.01, scale_learning_rate: linear, warmup_epochs: 1}' --set callbacks="[$callbacks]")
goes_on() {
    hybrid on 3 "${warm[@]}" --set epochs=3 && hybrid on 3 "${warm[@]}" --resume
}
ok "a plateau after a warm-up: one device" one scheduled --set optimizer='{name: sgd, learning_rate:
    {schedule: piecewise, boundaries: [0, 1, 3, 5], values: [0.01, 0.02, 0.03, 0.015, 0.0075]}}'
ok "a plateau after a warm-up: three workers" hybrid three 3 "${warm[@]}"
ok "a plateau after a warm-up: as one device" same -a scheduled.safetensors three.safetensors 1e-5
rm -rf ck
ok "a plateau after a warm-up: goes on" goes_on
ok "a plateau after a warm-up: to the bit" cmp three.safetensors on.safetensors
rm -rf ck

# 1.2 MB of variables, of which the table is 25 kB: as often as there are steps, to and from each of two workers.
travels_less() {
    local all tables
    all=$(moved --set strategy='{name: parameter_server, update: sync}') && tables=$(moved --set strategy.name=hybrid) &&
        echo "$all bytes, $tables" && [ "$all" ] && [ "$tables" ] && [ "$tables" -gt 0 ] && [ $((tables * 10)) -lt "$all" ]
}
moved() { # ARGUMENT ...: the bytes that psctl run says
    timeout 600 "$psctl" run "$job" "${small[@]:0:8}" "${sgd[@]}" --set output=moved.safetensors "$@" 2>&1 |
        awk '/pushed and pulled: [^,]*$/ { print int($5 * ($6 == "MiB" ? 2 ^ 20 : $6 == "KiB" ? 2 ^ 10 : 1)) }'
}
ok "the tables alone travel to the ps tasks" twice travels_less

# The replica of a model without a table that is trained has nothing for a ps task.
ok "no Embedding" fails_with 78 "the model has no Embedding that is trained" \
    timeout 600 "$psctl" run --ps 1 --workers 2 "$examples/softmax/one_device.yaml" --set strategy.name=hybrid "${quick[@]}"
refused() { # CODE TEXT ARGUMENT ...
    ok "${*:3}" fails_with "$1" "$2" hybrid x 2 "${@:3}"
}
refused 65 "strategy.update async does not go with strategy.name hybrid: expected sync" --set strategy.update=async
refused 65 "where nobody has all gradients: expected clipnorm or clipvalue" --set optimizer='{name: sgd, global_clipnorm: 1}'
refused 65 "optimizer.use_ema does not go with strategy.name hybrid" --set optimizer='{name: sgd, use_ema: true}'
refused 65 "as the ps tasks have the tables alone: expected refuse or replace" --set on_existing=resume
refused 65 "strategy.min_workers does not go with strategy.name hybrid" --set strategy.min_workers=1
refused 65 "the job ends with the first worker that is lost: expected 2" --min-workers 1
printf 'ps: ["unix:%s/p0"]\n' "$scratch" >no_workers.yaml
ok "the workers' addresses are needed" fails_with 78 "strategy hybrid: there are 2 workers, and the cluster has 0 of them" \
    "$workerd" --job "$job" --set strategy.name=hybrid --cluster no_workers.yaml --rank 0 --workers 2

# One that is lost is named, and the job ends: no worker writes weights.
peers=unix:$scratch/p0,unix:$scratch/p1
printf 'ps: ["unix:%s/p0", "unix:%s/p1"]\nworker: ["unix:%s/w0", "unix:%s/w1"]\n' "$scratch" "$scratch" "$scratch" "$scratch" >two.yaml
servers() {
    for i in 0 1; do start_psd "p$i" --task "$i" --peers "$peers" || return 1; ps[i]=$psd_pid; done
}
start_two() { # NAME
    local rank
    rm -f log0 log1 # of those before
    for rank in 0 1; do
        "$workerd" --job "$job" --set strategy.name=hybrid "${small[@]}" --set batch_size=8 --set epochs=1000000 --set name="$1" \
            --cluster two.yaml --rank $rank --set output="of$rank.safetensors" >"log$rank" 2>&1 &
        pid[rank]=$!
    done
    eventually grep -q "Epoch 3/" log0
}
both_end_with() { # TEXT RANK ...: these workers say so
    local text=$1 rank
    shift
    for rank in "$@"; do
        wait "${pid[$rank]}"
        cat "log$rank"
        grep -q "$text" "log$rank" || return 1
    done
    [ ! -e of0.safetensors ] && [ ! -e of1.safetensors ]
}
# A checkpoint has the table and its slots, too: hybrid goes on from its own and one device's, and one device from it.
kept() { echo "callbacks=[{name: checkpoint, path: $1, keep: 1}]"; }
train() { # STRATEGY ARGUMENT ...
    local rank status=0 pids=() strategy=$1
    shift
    if [ "$strategy" = one ]; then
        timeout 600 "$workerd" --quiet --job "$job" "${small[@]:0:8}" "${adam[@]}" --set batch_size=24 "$@"
        return
    fi
    for rank in 0 1; do
        timeout 600 "$workerd" --quiet --job "$job" --set strategy.name=hybrid --set on_existing=replace "${small[@]}" "${adam[@]}" \
            --set batch_size=12 --cluster two.yaml --rank $rank "$@" &
        pids[rank]=$!
    done
    for rank in 0 1; do wait "${pids[$rank]}" || status=$?; done
    return $status
}
begin() { train "$1" --set "$(kept "of-$1")" --set epochs=2 --set output=part.safetensors; }
go_on() { # STRATEGY OF
    rm -rf now && cp -r "of-$2" now && train "$1" --resume --set "$(kept now)" --set epochs=4 --set output=on.safetensors
}
checkpoints() {
    local pair
    ok "hybrid begins" begin hybrid
    ok "one device begins" begin one
    for pair in "hybrid hybrid" "hybrid one" "one hybrid"; do
        ok "${pair% *} goes on from ${pair#* }" go_on $pair
        ok "as if it had been one device" same -a one.safetensors on.safetensors 1e-5
    done
}

ps=() pid=()
if servers; then
    checkpoints
    ok "two workers train" start_two first
    kill -KILL "${pid[1]}"
    ok "worker 1 is killed: worker 0 names it and ends" both_end_with "worker 1 (.*) is gone" 0
    ok "two workers train" start_two second
    kill -KILL "${ps[1]}"
    ok "ps task 1 is killed: both name it and end" both_end_with "ps:1 (.*) cannot be reached" 0 1
fi

# ---- told to end, and lost ------------------------------------------------------------------------------------------

# Two workers and a ps task that stay; a backup each ten steps.
printf 'ps: ["unix:%s/ps"]\nworker: ["unix:%s/w0", "unix:%s/w1"]\n' "$scratch" "$scratch" "$scratch" >cluster.yaml
start_psd ps || exit 1
start() { # RANK ARGUMENT ...: adds to logRANK
    local rank=$1
    shift
    "$workerd" --job "$job" --cluster cluster.yaml --rank "$rank" --set strategy.name=hybrid "${small[@]}" "${sgd[@]}" --set name=hybrid \
        --set batch_size=8 --set epochs=10000 --set delay_ms=20 --set output=ended.safetensors \
        --set 'callbacks=[{name: backup, path: backups, every_steps: 10}]' "$@" >>"log$rank" 2>&1 &
    pid[$rank]=$!
}
has_backup() { ls backups/hybrid-backup-*.safetensors 2>/dev/null; }
forget_backups() { rm -f backups/hybrid-backup-*.safetensors; } # but none that is being written
ends_with() { # CODE RANK
    local got=0
    wait "${pid[$2]}" || got=$?
    echo "worker $2 ended with $got, expected $1"
    tail -n 3 "log$2"
    [ "$got" = "$1" ]
}
# Of two that are told to end, one hears it later than that the other has ended.
told() { # FIRST LAST ARGUMENT ...: of worker 1
    rm -rf backups ended.safetensors log0 log1
    start 0 && start 1 "${@:3}" && eventually has_backup || return 1
    forget_backups
    kill -TERM "${pid[$1]}" && sleep 0.3 && kill -TERM "${pid[$2]}" && ends_with 143 0 && ends_with 143 1 && grep "the weights are in ended.safetensors" log0 &&
        "$psctl" verify backups && [ -s ended.safetensors ]
}
ok "told to end, worker 0 last: weights and backup are there" told 1 0
ok "told to end, worker 0 first" told 0 1
ok "the other one is slower: the step is waited for that the tables have taken" told 0 1 --set delay_ms=3000
goes_on() { # a worker that is killed: the other one waits for it, and both go on from the backup
    rm -rf backups log0 log1
    start 0 && start 1 && eventually has_backup && kill -KILL "${pid[1]}" || return 1
    wait "${pid[1]}"
    start 1
    again() { grep -q "goes on from backups" log0 && grep -q "goes on from backups" log1; }
    eventually again && forget_backups && eventually has_backup && kill -TERM "${pid[@]}" && ends_with 143 0 && ends_with 143 1
}
ok "a worker is killed, and started again: both go on from the backup" goes_on

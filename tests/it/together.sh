#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The end of an epoch with several workers: everybody's figures, an evaluation by shares, callbacks that steer.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1

callbacks='{name: csv_log, path: log.csv}, {name: terminate_on_nan}, {name: checkpoint, path: ck}'
steering='{name: early_stopping, min_delta: 10, patience: 2, restore_best_weights: true},
    {name: reduce_lr_on_plateau, min_delta: 10, patience: 1, factor: 0.5}'
trains() { # CALLBACKS KEY=VALUE ...
    local key sets=(--set "callbacks=[$1]")
    shift
    for key; do sets+=(--set "$key"); done
    rm -rf ck log.csv
    timeout 600 "$psctl" run --ps 2 --workers 2 --summary s.json "$examples/softmax/async.yaml" "${quick[@]}" \
        --set strategy.name=parameter_server --set batch_size=32 --set output=o.safetensors "${sets[@]}" >said.log 2>&1 ||
        { cat said.log; return 1; }
}
column() { awk -F, -v line="$1" -v column="$2" 'NR == line + 1 { sub("\r", ""); print $column }' log.csv; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { print a, b; exit !(a - b < 1e-6 && b - a < 1e-6) }'; }

# Of 1280 examples each of two workers trains 20 batches of 32.
ok "sync with 2 workers" trains "$callbacks" strategy.update=sync epochs=3
mean_loss() { # of 20 steps from FIRST on
    sed -n '/"train_loss"/,/]/p' s.json | grep -E '^ *[0-9.]' | tr -d ' ,' |
        awk -v first="$1" 'NR > first && NR <= first + 20 { sum += $1; n++ } END { printf "%.9f", n == 20 ? sum / n : -1 }'
}
for epoch in 1 2 3; do
    ok "the log has everybody's loss of epoch $epoch" near "$(column $epoch 3)" "$(mean_loss $(((epoch - 1) * 20)))"
done
evaluates() { "$workerd" --evaluate --json --job "$examples/softmax/async.yaml" "${quick[@]}" --set strategy.name=one_device \
    --set "weights=$1" >e.json && near "$(value e.json loss)" "$2"; }
ok "what they evaluate by shares one finds alone" evaluates o.safetensors "$(column 3 5)"
ok "a checkpoint has the weights" evaluates "$(find ck -name '*.safetensors')" "$(column 3 5)"

for update in sync async 'ssp strategy.staleness=2'; do
    # shellcheck disable=SC2086  # two words
    ok "$update: callbacks steer" trains "$steering, $callbacks" strategy.update=$update epochs=8 'metrics=[acc]'
    ok "all stop in one epoch" test "$(wc -l <log.csv)" = 4
    ok "the rate is reduced" at_least "$(value s.json learning_rate)" 0.0499999
    ok "and is another one" at_least 0.0500001 "$(value s.json learning_rate)"
    ok "the weights are the best ones" evaluates o.safetensors "$(column 1 5)"
    ok "their accuracy is known" near "$(value s.json test_accuracy)" "$(column 1 4)"
done

# A worker that has done its steps waits for those who have not.
ok "async: each worker's steps" trains "$callbacks" strategy.update=async epochs=50 steps=70

# A chief that is killed, and comes back when another has led, follows that: the log has every epoch once, a learning rate
# that was reduced stays so, and checkpoints are numbered on.
returns() { # RANK
    exec "$workerd" --ps "unix:$scratch/returns" --rank "$1" --workers 2 --job "$examples/softmax/async.yaml" "${quick[@]}" --quiet \
        --set strategy.name=parameter_server --set name=returns --set batch_size=32 --set epochs=100 --set delay_ms=20 \
        --set "callbacks=[{name: reduce_lr_on_plateau, monitor: loss, min_delta: 10, factor: 0.5, patience: 3},
            {name: csv_log, path: log.csv}, {name: checkpoint, path: kept, every_steps: 20, keep: 1000}]" \
        --set output=returns.safetensors
}
logged() { [ "$(wc -l <log.csv)" -gt "$1" ]; }
rm -f log.csv
ok "a psd" start_psd returns
returns 0 >chief.log 2>&1 &
chief=$!
returns 1 >other.log 2>&1 &
other=$!
ok "eight epochs" eventually logged 8
kill -KILL $chief
wait $chief
returns 0 >chief.log 2>&1 &
chief=$!
ok "the other one goes on to the end" wait $other
ok "the one that came back, too" wait $chief
ok "no epoch is missing, and none there twice" eval '[ "$(tail -n +2 log.csv | cut -d, -f1)" = "$(seq 0 99)" ]'
falls() { # the learning rate: the column of this name
    tr -d '\r' <log.csv | awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "learning_rate") rate = i; next }
        NR > 2 && $rate > last { print $1 ": " $rate " after " last; bad = 1 } { last = $rate }
        END { exit bad || !rate || last > 1e-4 }'
}
ok "the learning rate falls, and does not rise" falls
ok "checkpoints are numbered as they were written" eval '[ "$(ls -tr kept)" = "$(ls kept)" ]'
kill "$psd_pid"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Real workers of real jobs on three standing psd: one dies in a sync epoch, comes back, is asked to leave; one is slow in
# an ssp job; the learning rate is changed while a job runs.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1

peers=unix:$scratch/p0,unix:$scratch/p1,unix:$scratch/p2
for i in 0 1 2; do start_psd "p$i" --task "$i" --peers "$peers" || exit 1; done
# Programs under a sanitizer take their time: jobs are longer then, so that they are still there when they are looked at.
[ "$SANITIZERS" = no ] && length=2 || length=5
ctl() { timeout 600 "$psctl" --timeout 60 --ps "$peers" "$@"; }

# work NAME RANK WORKERS ARGUMENT ...: one worker of a job, in the background; its pid in $worker_pid.
work() {
    local name=$1 rank=$2 workers=$3
    shift 3
    "$workerd" --job "$examples/softmax/async.yaml" --set name="$name" --set strategy.name=parameter_server \
        --set batch_size=32 --set data.test_examples=64 --set output="$name.safetensors" --summary "$name.json" \
        --ps "$peers" --rank "$rank" --workers "$workers" --quiet "$@" 2>>"$name.$rank.log" &
    worker_pid=$!
}

holds_at() { peers=$1 holds "$2" "$3"; } # ADDRESSES JOB EXPRESSION

# ---- sync: a death, a return, a departure -------------------------------------------------------------------------

# It ends when all has been seen: everyone is asked to leave.
sync=(--set strategy.update=sync --set data.train_examples=6400 --set delay_ms=30 --set epochs=100000)
pids=()
for rank in 0 1 2 3; do
    work sync "$rank" 4 "${sync[@]}"
    pids+=("$worker_pid")
done
ok "four workers train" becomes sync 'all(w[r]["step"] > 10 for r in range(4))'
kill -KILL "${pids[2]}"
ok "the death of one is named" becomes sync 'w[2]["state"] == "dead" and "no message" in w[2]["reason"]'
ok "and the others go on" becomes sync 'all(w[r]["step"] > 60 for r in (0, 1, 3))'
ok "the epoch ends with every example trained" becomes sync 'get("epoch") > 0'
work sync 2 4 "${sync[@]}"
pids[2]=$worker_pid
ok "it comes back as a later process" becomes sync 'w[2]["state"] == "live"'
ok "and trains with the others" becomes sync 'w[2]["step"] > 0 and not w[2]["excluded"]'
left() { ctl drain sync "worker:$1" && wait "${pids[$1]}" && grep -q "asked to" "sync.$1.log"; } # RANK
for rank in 1 0 2 3; do ok "worker $rank is asked to leave, and leaves with exit 0" left "$rank"; done
ends() { # JOB PID ...
    local job=$1 pid
    shift
    for pid; do wait "$pid" || { cat "$job".*.log; return 1; }; done
}

# Whenever one dies: the others finish.
pids=()
for rank in 0 1 2; do
    work once "$rank" 3 --set strategy.update=sync --set data.train_examples=6400 --set delay_ms=30 --set epochs=3
    pids+=("$worker_pid")
done
ok "a short job begins" becomes once 'w[2]["step"] > 0'
kill -KILL "${pids[2]}"
ok "one worker dies, the others finish" ends once "${pids[0]}" "${pids[1]}"
ok "every example of the last epoch counted once" holds once "get('epoch') == 2 and get('examples_done') == 6400"

# ---- rank 0 dies and comes back; a signal while others are waited for ----------------------------------------------

pids=()
for rank in 0 1; do
    work first "$rank" 2 "${sync[@]}" --set delay_ms=40
    pids+=("$worker_pid")
done
ok "two workers train" becomes first 'all(w[r]["step"] > 5 for r in (0, 1))'
kill -KILL "${pids[0]}"
ok "rank 0 dies" becomes first 'w[0]["state"] == "dead"'
work first 0 2 "${sync[@]}" --set delay_ms=40
ok "and comes back" becomes first 'w[0]["state"] == "live" and w[0]["step"] > 0'
ok "another is told to stop" kill -TERM "${pids[1]}" "$worker_pid"
says_waits() { ctl waits "$1" | grep -q "start"; }
stopped() { # PID: soon, with 128 + 15, though others are waited for
    local code=0
    timeout 600 tail --pid "$1" -f /dev/null || return 1
    wait "$1" || code=$?
    echo "exit $code"
    [ "$code" = 143 ]
}
ok "it stops" stopped "${pids[1]}"
ok "and so does rank 0" stopped "$worker_pid"
work alone 0 2 "${sync[@]}"
ok "one waits for another to begin" eventually says_waits alone
kill -TERM "$worker_pid"
ok "SIGTERM ends the wait" stopped "$worker_pid"
work gone 0 1 "${sync[@]}"
ok "a job that is stopped" becomes gone 'w[0]["step"] > 5'
ok "under its workers" ctl stop gone
they_are() {
    local code=0
    wait "$worker_pid" || code=$?
    cat gone.0.log
    [ "$code" = 79 ] && grep -q "it was stopped" gone.0.log
}
ok "which are told so" they_are

# ---- workers with different job files ------------------------------------------------------------------------------

work differs 0 2 "${sync[@]}"
of_differs() { # SET ...: worker 1, with another job file
    "$workerd" --job "$examples/softmax/async.yaml" --set name=differs --set strategy.name=parameter_server --set batch_size=32 \
        --set data.test_examples=64 --set output=differs.safetensors --ps "$peers" --rank 1 --workers 2 --quiet "${sync[@]}" "$@"
}
opened_with() { echo "worker 1's $1 is $2, worker 0 opened job 'differs' with $3: give both the same job file"; }
ok "another seed is refused" fails_with 78 "$(opened_with seed 99 7)" of_differs --set seed=99
ok "another number of epochs" fails_with 78 "$(opened_with epochs 1 100000)" of_differs --set epochs=1
ok "another number of examples" fails_with 78 "$(opened_with data.examples 64 6400)" of_differs --set data.train_examples=64
ok "another number of test examples" fails_with 78 "$(opened_with data.test_examples 32 64)" of_differs --set data.test_examples=32
model=$(ls "$examples"/softmax/*.json)
sed 's/"linear"/"relu"/' "$model" >relu.json
sed 's/^ *//' "$model" >copy.json
ok "another model" fails_with 78 "worker 1's model is" of_differs --set model=relu.json
of_differs --set model=copy.json --set threads=2 2>differs.1.log &
pids=("$worker_pid" $!)
ok "what is the same elsewhere is taken" becomes differs 'w[1]["step"] > 3'
kill -KILL "${pids[@]}"

# ---- workers whose data give words other numbers --------------------------------------------------------------------

numbers="$(seq -s, 784)"
printf '%s\n' "$numbers,cat" "$numbers,dog" >cat.csv
printf '%s\n' "$numbers,dog" "$numbers,cat" >dog.csv
takes=("$workerd" --job "$examples/softmax/async.yaml" --set name=takes --set strategy.name=parameter_server --quiet
    --set strategy.update=sync --set batch_size=1 --set epochs=100000 --set output=takes.safetensors --ps "$peers" --workers 2)
data() { echo "data={kind: csv, path: $1, header: false, columns: {785: category}}"; } # FILE
"${takes[@]}" --rank 0 --set "$(data cat.csv)" 2>takes.0.log &
pids=($!)
ok "a job whose labels are words" eventually says_waits takes
ok "words in another order are refused" fails_with 78 "data with the same words or classes, in the same order" \
    "${takes[@]}" --rank 1 --set "$(data dog.csv)"
"${takes[@]}" --rank 1 --set "$(data cat.csv)" 2>takes.1.log &
pids+=($!)
ok "the same words are taken" becomes takes 'w[1]["step"] > 3'
kill -KILL "${pids[@]}"

# ---- who has to write the results dies --------------------------------------------------------------------------

work end 0 2 --set strategy.update=async --set data.train_examples=640 --set epochs=1 --set delay_ms=60000
dies=$worker_pid
work end 1 2 --set strategy.update=async --set data.train_examples=640 --set epochs=1
ok "one worker has trained what there was but for the other's" becomes end 'w[1]["step"] >= 15'
kill -KILL "$dies"
ends_alone() { wait "$worker_pid" || { cat end.1.log; return 1; }; }
ok "the other dies; it trains the rest" ends_alone
ok "and writes the results" test -s end.safetensors -a -s end.json

# ---- who leaves has told what it trained ---------------------------------------------------------------------------

drained() { # MODE SET ...: every batch is pushed once
    local job try
    for try in 1 2 3; do # again where all were trained before one was asked
        pids=() job=drain-$1-$try
        for rank in 0 1; do
            work "$job" "$rank" 2 --set strategy.update="$1" "${@:2}" --set data.train_examples=16000 --set epochs=1 --set delay_ms=60
            pids+=("$worker_pid")
        done
        becomes "$job" 'all(w[r]["step"] > 3 for r in (0, 1))' || return 1
        ctl drain "$job" worker:1
        wait "${pids[1]}" && wait "${pids[0]}" || return 1
        grep -q "asked to" "$job.1.log" && break
    done
    grep "asked to" "$job.1.log" || return 1
    ctl --json vars "$job" | "$PYTHON3" -c '
import json, sys
versions = {v["version"] for v in json.load(sys.stdin)}
print(versions)
sys.exit(versions != {501})'
}
ok "async: every batch counts once, though a worker leaves" drained async
ok "ssp: likewise" drained ssp --set strategy.staleness=3

# ---- a ps task dies ------------------------------------------------------------------------------------------------

# Each worker names it, long before the job's own patience of an hour ends.
lost=unix:$scratch/lost0,unix:$scratch/lost1
for i in 0 1; do start_psd "lost$i" --task "$i" --peers "$lost" || exit 1; done
lost_pid=$psd_pid
pids=()
for mode in async sync; do
    for rank in 0 1; do
        work "lost-$mode" "$rank" 2 --set strategy.update=$mode --set data.train_examples=6400 --set epochs=1000 --set timeout=3600 \
            --set delay_ms=20 --ps "$lost"
        pids+=("$worker_pid")
    done
    lost_trains() { holds_at "$lost" "lost-$mode" 'all(w[r]["step"] > 3 for r in (0, 1))'; }
    ok "$mode: a job on two psd" eventually lost_trains
done
kill -KILL "$lost_pid"
names_the_dead() { # MODE RANK PID
    local code=0
    timeout 600 tail --pid "$3" -f /dev/null || return 1
    wait "$3" || code=$?
    cat "lost-$1.$2.log"
    echo "exit $code"
    [ "$code" = 69 ] && grep -q "ps:1 (unix:$scratch/lost1) cannot be reached" "lost-$1.$2.log"
}
for k in 0 1 2 3; do
    mode=$([ $k -lt 2 ] && echo async || echo sync)
    ok "$mode: worker $((k % 2)) names the ps task that died" names_the_dead "$mode" $((k % 2)) "${pids[$k]}"
done

knows_why() { # MODE: the control task has it from the workers, wherever they were: in a step, a lease, at the end of an epoch
    "$psctl" --timeout 60 --ps "unix:$scratch/lost0,unix:$scratch/lost1" --json jobs "lost-$1" >said 2>&1
    tr -d '\n' <said | grep -q "failed: .*ps:1 (unix:$scratch/lost1) cannot be reached"
}
for mode in async sync; do ok "$mode: the control task says why" knows_why $mode; done
ok "doctor: what was lost is not to be resumed" fails_with 69 "ps:1 does not answer: start it again: it goes on from its backup" \
    "$psctl" --timeout 60 --ps "$lost" doctor lost-sync
start_psd lost2 --task 1 --peers "$lost" --listen "unix:$scratch/lost1" || exit 1
ok "nor when the ps task is there again" fails_with 75 "ps:1 has lost what it had of it: start it again: it goes on from its backup" \
    "$psctl" --timeout 60 --ps "$lost" doctor lost-sync
ok "psctl status says so, too" fails_with 0 "All that job lost-sync has trained is lost: ps:1 has lost what it had of it." \
    "$psctl" --timeout 60 --ps "$lost" status lost-sync

# ---- a ps task dies, and a worker was drained ------------------------------------------------------------------------

# The job's patience is an hour: the training that begins anew waits for nobody who has left as he was asked to.
anew=unix:$scratch/anew0,unix:$scratch/anew1
for i in 0 1; do start_psd "anew$i" --task "$i" --peers "$anew" || exit 1; done
pids=()
for rank in 0 1; do
    work anew "$rank" 2 --set strategy.update=sync --set data.train_examples=6400 --set epochs=100000 --set delay_ms=20 \
        --set timeout=3600 --set "callbacks=[{name: backup, path: anew, every_steps: 20}]" --ps "$anew"
    pids+=("$worker_pid")
done
anew_ctl() { timeout 600 "$psctl" --timeout 60 --ps "$anew" "$@"; }
writes_anew() { [ -n "$(find anew "$@" -name '*.safetensors' 2>/dev/null)" ]; } # of find's conditions
anew_trains() { holds_at "$anew" anew 'all(w[r]["step"] > 3 for r in (0, 1))' && writes_anew; }
ok "a job with backups on two psd" eventually anew_trains
ok "a worker is drained" eval 'anew_ctl drain anew worker:1 --wait && wait "${pids[1]}"'
kill -KILL "$psd_pid" && wait "$psd_pid" 2>/dev/null
start_psd anew2 --task 1 --peers "$anew" --listen "unix:$scratch/anew1" || exit 1
ok "the training begins anew without it" eventually grep -q "worker 1 is not waited for" anew0.log
touch killed
ok "and goes on" eventually writes_anew -newer killed
without_one() { holds_at "$anew" anew 'w[0]["state"] == "live" and w[1]["state"] == "left"'; }
ok "it has left" eventually without_one
kill "${pids[0]}" && wait "${pids[0]}"

# ---- a stall is logged with the names ------------------------------------------------------------------------------

start_psd stall --stall-after-ms 500 || exit 1
"$workerd" --job "$examples/softmax/async.yaml" "${quick[@]}" --set strategy.name=parameter_server --set strategy.update=sync \
    --ps "unix:$scratch/stall" --rank 0 --workers 2 --quiet 2>/dev/null &
stalls() { grep -q "1 call waits long for barrier 'start': worker 1 (not joined yet)" stall.log; }
ok "who waits for long is logged, and for whom" eventually stalls
stalls_once() { sleep 1.5; [ "$(grep -c "waits long" stall.log)" = 1 ]; }
ok "once" stalls_once

# ---- ssp: one is four times slower --------------------------------------------------------------------------------

ssp=(--set strategy.update=ssp --set strategy.staleness=3 --set data.train_examples=$((14400 * length)) --set epochs=1)
pids=()
for rank in 0 1 2; do
    work ssp "$rank" 3 "${ssp[@]}" --set delay_ms=$((rank == 1 ? 80 : 20))
    pids+=("$worker_pid")
done
ok "three workers of an ssp job" becomes ssp 'all(m["step"] > 0 for m in w.values())'
bounded() { # seen from outside as well: a worker that waits may have finished one step more than it was let begin
    local looks=0
    while look ssp && was 'all(m["state"] == "live" for m in w.values())'; do
        was 'not clocks or max(clocks) - min(clocks) <= 4' || { cat w.json; return 1; }
        looks=$((looks + 1))
    done
    echo "looked $looks times"
    [ "$looks" -gt 0 ]
}
ok "nobody is more than 3 steps ahead" bounded
ok "all finish" ends ssp "${pids[@]}"
ok "the measured staleness is 3, never more" holds ssp 'get("staleness") == 3'

# ---- the learning rate changes while a sync job runs --------------------------------------------------------------

reduces='[{name: reduce_lr_on_plateau, monitor: loss, min_delta: 1000, patience: 10, factor: 0.5}, {name: csv_log, path: rate.csv}]'
pids=()
for rank in 0 1; do
    work rate "$rank" 2 --set strategy.update=sync --set data.train_examples=6400 --set epochs=12 --set delay_ms=20 \
        --set strategy.partitioner=fixed:3 --set strategy.placement=round_robin --set callbacks="$reduces"
    pids+=("$worker_pid")
done
ok "a job on three psd" becomes rate 'w[0]["step"] > 5'
ok "set-lr" ctl --json set-lr rate 0.003
cp "$scratch/out" rate.json
same_round() {
    "$PYTHON3" - <<'PY'
import json, re
rounds = [int(r) for r in re.findall(r'"round": (\d+)', open("rate.json").read())]
print(rounds)
raise SystemExit(not (rounds and rounds[0] > 5 and len(set(rounds)) == 1))
PY
}
ok "names one round, the same on every task" same_round
ok "it finishes" ends rate "${pids[@]}"
multiplies() { # what was set by hand, not what the job file says
    cat rate.csv
    "$PYTHON3" - <<'PY'
import csv
rates = [float(row["learning_rate"]) for row in csv.DictReader(open("rate.csv"))]
raise SystemExit(abs(rates[-2] - 0.003) > 1e-8 or abs(rates[-1] - 0.0015) > 1e-8)
PY
}
ok "a callback multiplies the rate that was set" multiplies

# ---- the limit by which workers clip changes while an async job runs ----------------------------------------------

work clip 0 1 --set strategy.update=async --set data.train_examples=3200 --set epochs=8 --set delay_ms=20 \
    --set callbacks='[{name: csv_log, path: clip.csv}]'
ok "an async job" becomes clip 'w[0]["step"] > 5'
says_when() { ctl set clip "$1" >clip.out && cat clip.out && grep -q "from each worker's next epoch on" clip.out; }
ok "set of a norm says when workers take it" says_when clipnorm=1e-12
ok "it finishes" ends clip "$worker_pid"
stands_still() {
    cat clip.csv
    "$PYTHON3" - <<'PY'
import csv
losses = [row["val_loss"] for row in csv.DictReader(open("clip.csv"))]
raise SystemExit(losses[-2] != losses[-1])
PY
}
ok "it clips by that" stands_still

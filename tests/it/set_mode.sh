#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# psctl set-mode: a running job goes from one of async, ssp and sync to another, from one epoch to the next, with nothing
# lost and nothing applied twice; also where a worker dies meanwhile. What it does in rounds is what a sync job does that
# begins there. Jobs that cannot, and ps tasks without memory for rounds, are refused.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1

peers=unix:$scratch/p0,unix:$scratch/p1
for i in 0 1; do start_psd "p$i" --task "$i" --peers "$peers" || exit 1; done
model=softmax
[ "$SANITIZERS" = no ] && delay=30 || delay=60 # an epoch is longer than a few commands of psctl
ctl() { timeout 600 "$psctl" --timeout 60 --ps "$peers" "$@"; }

# work NAME RANK ARGUMENT ...: one of two workers, in the background; its pid in $worker_pid.
work() {
    local name=$1 rank=$2
    shift 2
    "$workerd" --job "$examples/$model/async.yaml" --set name="$name" --set batch_size=32 --set data.train_examples=3200 \
        --set data.test_examples=512 --set delay_ms=$delay --set output="$name.safetensors" --summary "$name.json" \
        --ps "$peers" --rank "$rank" --workers 2 "$@" >>"$name.$rank.log" 2>&1 &
    worker_pid=$!
}
team() { # NAME ARGUMENT ...: both workers; their pids in $pids
    pids=()
    for rank in 0 1; do
        work "$1" "$rank" "${@:2}"
        pids+=("$worker_pid")
    done
}
ends() { # JOB: both workers
    local pid
    for pid in "${pids[@]}"; do wait "$pid" || { tail -n 5 "$1".*.log; return 1; }; done
}

mode() { ctl set-mode "$@" | tee said; } # JOB MODE ...
says() { # TEXT COMMAND ...
    local text=$1
    shift
    "$@" && grep -qF -- "$text" said
}

# ---- there and back -----------------------------------------------------------------------------------------------

epochs=20 # of 100 batches
team there --set epochs=$epochs
ok "a job trains" becomes there 'get("update") == "async" and get("steps") > 0'
ok "it is async: nothing changes" says "job there is async already" mode there async
# Both bounds are within 3: where an epoch begins between the two, it has the first.
replaces() { mode there ssp --staleness 2 && says "and not ssp with staleness 2" mode there ssp --staleness 3; }
ok "the last of two requests holds, and says what it replaces" eventually replaces
ok "the job becomes ssp" becomes there 'get("update") == "ssp"'
ok "once it is, that is said too" says "job there is ssp with staleness 3 already" mode there ssp --staleness 3
ok "back" says "job there is async from epoch" mode there async
ok "the job becomes async" becomes there 'get("update") == "async"'
for_programs() { # the epochs that psctl jobs has, which may have gone on by one since
    ctl --json set-mode there ssp --staleness 1 >mode.out && cat mode.out && look there || return 1
    local epoch
    epoch=$(sed -nE 's/.*"epoch": ([0-9]+).*/\1/p' mode.out)
    grep -q '"update": "ssp"' mode.out && [ "$epoch" ] && was "get('epoch') >= $epoch - 1"
}
ok "for programs, epochs count from 0" for_programs
ok "and ssp again" becomes there 'get("update") == "ssp"'
ok "it ends" ends there
for rank in 0 1; do
    ok "worker $rank has followed" test "$(grep -o 'the job is [a-z]*: psctl' there.$rank.log | tr -d '\n')" = \
        "the job is ssp: psctlthe job is async: psctlthe job is ssp: psctl"
done
ok "each batch was applied once" holds there "get('steps') == $epochs * 100 and get('examples_done') == 3200"
ok "nobody was more than 3 steps ahead" holds there 'get("staleness") <= 3'
ok "it has learned" at_least "$(value there.json test_accuracy)" 0.8
ok "a job that is done stays as it is" fails_with 78 "job 'there' is done" ctl set-mode there async

# ---- rounds -------------------------------------------------------------------------------------------------------

modes() { grep -o 'the job is [a-z]*: psctl' "$1" | sed 's/.* is //; s/:.*//' | tr '\n' ' '; } # LOG
first() { grep -oE 'from epoch [0-9]+' said | grep -oE '[0-9]+'; }
epochs=24 # of 100 gradients, or 50 rounds
team three --set epochs=$epochs
ok "a job trains" becomes three 'get("update") == "async" and get("steps") > 0'
ok "it is to be sync" says "job three is sync from epoch" mode three sync
began=$(first)
ok "it becomes sync" becomes three 'get("update") == "sync" and get("round") > 0'
ok "once it is, that is said" says "job three is sync already" mode three sync
ok "the rate changes between two rounds" eval 'ctl set-lr three 0.05 >said && grep -q "from round\|round" said'
ok "it is to be ssp" says "job three is ssp with staleness 2 from epoch" mode three ssp --staleness 2
ended=$(first)
ok "it becomes ssp, without a round" becomes three 'get("update") == "ssp" and not get("round")'
ok "it is to be async" says "job three is async from epoch" mode three async
ok "it becomes async" becomes three 'get("update") == "async"'
ok "and sync again" says "job three is sync from epoch" mode three sync
again=$(first)
ok "rounds go on where they were" becomes three "get('update') == 'sync' and get('round') >= 50 * ($ended - $began)"
ok "it ends" ends three
for rank in 0 1; do
    ok "worker $rank has followed" test "$(modes three.$rank.log)" = "sync ssp async sync "
done
in_rounds=$((ended - began + epochs + 1 - again))
ok "each batch was applied once" holds three "get('steps') == 100 * ($epochs - $in_rounds) + 50 * $in_rounds"
ok "a round has a number of its own" holds three "get('round') == 50 * $in_rounds"
ok "it has learned" at_least "$(value three.json test_accuracy)" 0.8

team out --set epochs=8 --set strategy.update=sync
ok "a job that was declared sync" becomes out 'get("update") == "sync" and get("round") > 0'
ok "a rate is planned for a round to come" ctl set-lr out 0.002 --round 99999999
ok "is to be async" mode out async
left=$(first)
ok "it becomes async" becomes out 'get("update") == "async"'
ok "what was planned is to come still" holds out 'get("next_value") == 0.002 and get("next_round") == 99999999 and get("value") == 0.1'
ok "it ends" ends out
ok "each batch was applied once" holds out "get('steps') == 50 * ($left - 1) + 100 * (9 - $left)"
ok "one that was declared sync may be so again" test "$(modes out.0.log)" = "async "

# What two workers do in rounds after a change is what a sync job does that goes on from the same checkpoint.
same() { "$top_builddir/tests/it/max_diff" "$@"; }
adam='optimizer={name: adam, learning_rate: {schedule: cosine, initial: 0.01, decay_steps: 400}}'
kept() { echo "callbacks=[{name: checkpoint, path: $1, keep: 0}]"; }
team moved --set epochs=12 --set "$adam" --set "$(kept moved.kept)"
ok "a job trains" becomes moved 'get("update") == "async" and get("steps") > 0'
ok "it is to be sync" mode moved sync
began=$(first)
ok "it ends" ends moved
ok "in rounds" test "$(modes moved.0.log)" = "sync "
mkdir from.kept
parts=(moved.kept/moved-*.safetensors)
mapfile -t parts < <(printf '%s\n' "${parts[@]}" | sort -V) # one of each epoch
cp "${parts[began - 2]}" "from.kept/from-${parts[began - 2]##*-}"
team from --set strategy.update=sync --set epochs=12 --set "$adam" --set "$(kept from.kept)" --resume
ok "a sync job goes on from its checkpoint before" ends from
ok "and comes to the same weights" same -a moved.safetensors from.safetensors 0

# ---- a worker dies meanwhile --------------------------------------------------------------------------------------

team death --set epochs=12
ok "a job trains" becomes death 'get("steps") > 0'
ok "it is to be ssp" mode death ssp --staleness 2
kill -KILL "${pids[1]}"
work death 1 --set epochs=12
pids[1]=$worker_pid
ok "a worker dies, and its successor trains as the others do" becomes death 'get("update") == "ssp"'
ok "it ends" ends death
ok "the last epoch is whole" holds death 'get("examples_done") == 3200 and get("epoch") == 11'

for way in "async sync" "sync async"; do
    name=dies-${way// /-}
    team "$name" --set epochs=12 --set strategy.update="${way% *}"
    ok "a job trains" becomes "$name" 'get("steps") > 0'
    ok "from ${way/ / to }" mode "$name" "${way#* }"
    kill -KILL "${pids[1]}"
    work "$name" 1 --set epochs=12 --set strategy.update="${way% *}"
    pids[1]=$worker_pid
    ok "a worker dies, and its successor trains as the others do" becomes "$name" "get('update') == '${way#* }'"
    ok "it ends" ends "$name"
    ok "the last epoch is whole" holds "$name" 'get("examples_done") == 3200 and get("epoch") == 11'
done

# ---- who cannot ---------------------------------------------------------------------------------------------------

to=(ssp --staleness 1)
refused() { # EXIT TEXT ARGUMENT ...: of a job with these
    local code=$1 text=$2 job=no$RANDOM
    shift 2
    team $job --set epochs=100000 "$@"
    eventually holds $job 'get("examples_done")' && fails_with "$code" "$text" ctl set-mode $job "${to[@]}" &&
        holds $job 'get("update") == "async"'
    local result=$?
    ctl stop $job >/dev/null
    wait "${pids[@]}"
    return $result
}
ok "a job with n_push keeps its mode" refused 78 "without n_push and n_fetch" --set strategy.n_push=2 --set strategy.n_fetch=2
ok "local_steps keeps its mode" refused 78 "keep the mode that they began in" --set strategy.name=local_steps \
    --set strategy.local_steps=4

# The variables take 2.7 MiB of the 3 that are for blocks: the gradients of two workers do not fit.
start_psd small --memory 6M || exit 1
peers=unix:$scratch/small model=conv
to=(sync)
ok "without memory for the gradients of rounds no job becomes sync" refused 71 "ps task 0 lacks" --set batch_size=8
peers=unix:$scratch/p0,unix:$scratch/p1 model=softmax
[ "$SANITIZERS" = no ] && delay=30 || delay=60 # an epoch is longer than a few commands of psctl

ok "no such job" fails_with 66 "no job nothing here" ctl set-mode nothing async
ok "no such mode" fails_with 64 "expected async, ssp or sync" ctl set-mode there fast
ok "ssp needs its bound" fails_with 64 "ssp needs --staleness N" ctl set-mode there ssp
ok "async has none" fails_with 64 "goes with ssp alone" ctl set-mode there async --staleness 1

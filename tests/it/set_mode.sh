#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# psctl set-mode: a running job goes from async to ssp and back, from one epoch to the next, with nothing lost and nothing
# applied twice; also where a worker dies meanwhile. Jobs that cannot are refused.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1

peers=unix:$scratch/p0,unix:$scratch/p1
for i in 0 1; do start_psd "p$i" --task "$i" --peers "$peers" || exit 1; done
ctl() { timeout 600 "$psctl" --timeout 60 --ps "$peers" "$@"; }

# work NAME RANK ARGUMENT ...: one of two workers, in the background; its pid in $worker_pid.
work() {
    local name=$1 rank=$2
    shift 2
    "$workerd" --job "$examples/softmax/async.yaml" --set name="$name" --set batch_size=32 --set data.train_examples=3200 \
        --set data.test_examples=512 --set delay_ms=10 --set output="$name.safetensors" --summary "$name.json" \
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
ok "for programs" eval 'ctl --json set-mode there ssp --staleness 1 | grep -q "\"update\": \"ssp\""'
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

# ---- who cannot ---------------------------------------------------------------------------------------------------

refused() { # EXIT TEXT ARGUMENT ...: of a job with these
    local code=$1 text=$2 job=no$RANDOM
    shift 2
    team $job --set epochs=100000 "$@"
    eventually holds $job 'get("examples_done")' && fails_with "$code" "$text" ctl set-mode $job ssp --staleness 1
    local result=$?
    ctl stop $job >/dev/null
    wait "${pids[@]}"
    return $result
}
ok "a sync job stays sync" refused 78 "is sync, and stays so" --set strategy.update=sync
ok "a job with n_push keeps its mode" refused 78 "without n_push and n_fetch" --set strategy.n_push=2 --set strategy.n_fetch=2
ok "local_steps keeps its mode" refused 78 "keep the mode that they began in" --set strategy.name=local_steps \
    --set strategy.local_steps=4
ok "no job becomes sync" fails_with 65 "a running job gets no rounds" ctl set-mode there sync
ok "no such job" fails_with 66 "no job nothing here" ctl set-mode nothing async
ok "no such mode" fails_with 64 "expected async or ssp" ctl set-mode there fast
ok "ssp needs its bound" fails_with 64 "ssp needs --staleness N" ctl set-mode there ssp
ok "async has none" fails_with 64 "goes with ssp alone" ctl set-mode there async --staleness 1
